//! Decoding of objects, and what the API server cannot decode (400). What it decodes and refuses (422)
//! only a real one knows.

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::kinds::Kind;

/// The fields of a Lease's spec; the server drops all others.
const LEASE_FIELDS: [&str; 7] = [
    "holderIdentity",
    "leaseDurationSeconds",
    "acquireTime",
    "renewTime",
    "leaseTransitions",
    "strategy",
    "preferredHolder",
];

/// Decodes a body as the server does: drops nulls, and unknown fields of a Lease. The error is what
/// it cannot decode.
pub fn read(kind: &Kind, object: &mut Value) -> Result<(), String> {
    let api_version = kind.api_version();
    let given = object["apiVersion"].as_str().unwrap_or(&api_version).to_owned();
    if given != api_version {
        return Err(format!(
            "{0} in version {given:?} cannot be handled as a {0}: no kind {0:?} is registered for \
             version {given:?} in scheme \"pkg/runtime/scheme.go:111\"",
            kind.kind
        ));
    }
    if object["kind"].as_str().is_some_and(|it| it != kind.kind) {
        return Err(format!("{} cannot be handled as a {}", object["kind"], kind.kind));
    }
    tidy(object);
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.kind.into();
    for strings in ["annotations", "labels"] {
        let pairs = object["metadata"][strings].as_object().into_iter().flatten();
        for (_, value) in pairs {
            if !value.is_string() {
                return Err(unread(
                    kind,
                    value,
                    &format!("ObjectMeta.metadata.{strings}"),
                    "string",
                ));
            }
        }
    }
    if kind.kind == "Lease" && object["spec"].is_null() {
        object["spec"] = Value::Object(serde_json::Map::new());
    }
    if kind.kind == "Lease" { read_lease(kind, &mut object["spec"]) } else { Ok(()) }
}

fn read_lease(kind: &Kind, spec: &mut Value) -> Result<(), String> {
    let Some(fields) = spec.as_object_mut() else { return Ok(()) };
    fields.retain(|name, _| LEASE_FIELDS.contains(&name.as_str()));
    for (name, value) in fields {
        let place = format!("LeaseSpec.spec.{name}");
        match name.as_str() {
            "leaseDurationSeconds" | "leaseTransitions" => {
                let number = value.as_i64().and_then(|it| i32::try_from(it).ok());
                number.ok_or_else(|| unread(kind, value, &place, "int32"))?;
            }
            "acquireTime" | "renewTime" if value.is_string() => {
                let text = value.as_str().unwrap_or_default();
                let read = micro_time(text).map_err(|fault| {
                    format!(
                        "{0} in version \"v1\" cannot be handled as a {0}: parsing time {text:?} \
                         as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {fault}",
                        kind.kind
                    )
                })?;
                *value = read.into();
            }
            _ if !value.is_string() => return Err(unread(kind, value, &place, "string")),
            _ => (),
        }
    }
    Ok(())
}

fn unread(kind: &Kind, value: &Value, place: &str, wanted: &str) -> String {
    let found = match value {
        Value::String(_) => "string".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
        // The message contains the number only if it is too large.
        number if wanted == "int32" => format!("number {number}"),
        _ => "number".to_owned(),
    };
    format!(
        "{0} in version \"v1\" cannot be handled as a {0}: json: cannot unmarshal {found} into Go \
         struct field {place} of type {wanted}",
        kind.kind
    )
}

/// Parses a time, which must have exactly six digits of microseconds, and returns it in UTC; the
/// error names the part that does not match.
fn micro_time(text: &str) -> Result<String, String> {
    let whole = |text: &str| OffsetDateTime::parse(text, &Rfc3339).ok();
    let Some(rest) = text.get(19..).filter(|_| whole(&format!("{}Z", &text[..19])).is_some())
    else {
        return Err(format!("{text:?} as \"2006\""));
    };
    let digits = rest.get(1..7).is_some_and(|it| it.bytes().all(|it| it.is_ascii_digit()));
    let ends = rest.get(7..8).is_some_and(|it| matches!(it, "Z" | "+" | "-"));
    let (true, true, true, Some(time)) = (rest.starts_with('.'), digits, ends, whole(text)) else {
        return Err(format!("{rest:?} as \".000000\""));
    };
    let time = time.to_offset(time::UtcOffset::UTC);
    let (hour, minute, second) = time.to_hms();
    Ok(format!("{}T{hour:02}:{minute:02}:{second:02}.{:06}Z", time.date(), time.microsecond()))
}

/// Removes nulls, and empty labels and annotations.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, it| !it.is_null());
            fields.values_mut().for_each(tidy);
            for empty in ["annotations", "labels"] {
                let is_empty = |it: &Value| it.as_object().is_some_and(serde_json::Map::is_empty);
                if fields.get(empty).is_some_and(is_empty) {
                    fields.remove(empty);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(tidy),
        _ => (),
    }
}

//! Validation of objects: what the API server cannot decode (400), and what is invalid (422). Only
//! fields that Tenure writes are validated.

use std::net::IpAddr;

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

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
     for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
     with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
     validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// The limit of the total size of all annotations of an object.
const ANNOTATIONS: usize = 256 * 1024;

/// The field and message of each error.
pub type Faults = Vec<(String, String)>;

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

/// Returns what is invalid in an object that is to replace `old`.
pub fn faults(kind: &Kind, object: &Value, old: Option<&Value>) -> Faults {
    let mut faults = Vec::new();
    metadata(&object["metadata"], &mut faults);
    match kind.kind {
        "Lease" => lease(&object["spec"], &mut faults),
        "EndpointSlice" => slice(object, old, &mut faults),
        "Event" => event(kind, object, &mut faults),
        "Pod" if old.is_some_and(|old| old["spec"] != object["spec"]) => {
            let words = "Forbidden: pod updates may not change fields other than \
                         `spec.containers[*].image`,…";
            faults.push(("spec".to_owned(), words.to_owned()));
        }
        _ => (),
    }
    faults
}

fn fault(faults: &mut Faults, field: &str, value: &Value, words: &str) {
    faults.push((field.to_owned(), format!("Invalid value: {value}: {words}")));
}

fn required(faults: &mut Faults, field: &str) {
    faults.push((field.to_owned(), "Required value".to_owned()));
}

fn metadata(metadata: &Value, faults: &mut Faults) {
    let name = metadata["name"].as_str().unwrap_or_default();
    if !is_subdomain(name) {
        fault(faults, "metadata.name", &metadata["name"], SUBDOMAIN);
    }
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        if !is_qualified(key) {
            fault(faults, "metadata.labels", &key.as_str().into(), NAME_PART);
        }
        if !text.is_empty() && !is_word(text) {
            let words = "a valid label must be an empty string or consist of alphanumeric \
                         characters, '-', '_' or '.', and must start and end with an alphanumeric \
                         character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
                         validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
            fault(faults, "metadata.labels", value, words);
        }
    }
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        size += key.len() + value.as_str().unwrap_or_default().len();
        if !is_qualified(&key.to_lowercase()) {
            fault(faults, "metadata.annotations", &key.as_str().into(), NAME_PART);
        }
    }
    if size > ANNOTATIONS {
        let words = format!("Too long: may not be more than {ANNOTATIONS} bytes");
        faults.push(("metadata.annotations".to_owned(), words));
    }
}

fn is_subdomain(name: &str) -> bool {
    let letter = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    let label = |it: &str| {
        let bytes = it.as_bytes();
        bytes.iter().all(|it| letter(*it) || *it == b'-')
            && bytes.first().is_some_and(|it| letter(*it))
            && bytes.last().is_some_and(|it| letter(*it))
    };
    name.len() <= 253 && name.split('.').all(label)
}

fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|it| it.is_ascii_alphanumeric() || b"-_.".contains(it))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

fn is_qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_word(name),
        None => is_word(key),
    }
}

fn lease(spec: &Value, faults: &mut Faults) {
    let (duration, transitions) = (&spec["leaseDurationSeconds"], &spec["leaseTransitions"]);
    if duration.as_i64().is_some_and(|it| it <= 0) {
        fault(faults, "spec.leaseDurationSeconds", duration, "must be greater than 0");
    }
    if transitions.as_i64().is_some_and(|it| it < 0) {
        let words = "must be greater than or equal to 0";
        fault(faults, "spec.leaseTransitions", transitions, words);
    }
}

fn slice(object: &Value, old: Option<&Value>, faults: &mut Faults) {
    let kind = &object["addressType"];
    if !matches!(kind.as_str(), Some("IPv4" | "IPv6" | "FQDN")) {
        required(faults, "addressType");
    }
    if old.is_some_and(|old| old["addressType"] != *kind) {
        fault(faults, "addressType", kind, "field is immutable");
    }
    for (index, endpoint) in object["endpoints"].as_array().into_iter().flatten().enumerate() {
        let addresses = endpoint["addresses"].as_array().cloned().unwrap_or_default();
        if addresses.is_empty() {
            required(faults, &format!("endpoints[{index}].addresses"));
        }
        for (number, address) in addresses.iter().enumerate() {
            let field = format!("endpoints[{index}].addresses");
            misfit(&field, number, address, kind.as_str().unwrap_or_default(), faults);
        }
    }
}

/// Adds an error if an address is not allowed in an endpoint.
fn misfit(field: &str, number: usize, address: &Value, kind: &str, faults: &mut Faults) {
    let place = format!("{field}[{number}]");
    let ip: Result<IpAddr, _> = address.as_str().unwrap_or_default().parse();
    let Ok(ip) = ip else {
        if kind != "FQDN" {
            let words = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            fault(faults, &place, address, words);
        }
        return;
    };
    match (kind, ip) {
        ("IPv4", IpAddr::V6(_)) => fault(faults, field, address, "must be an IPv4 address"),
        ("IPv6", IpAddr::V4(_)) => fault(faults, field, address, "must be an IPv6 address"),
        _ => (),
    }
    let local = match ip {
        IpAddr::V4(it) => it.is_link_local(),
        IpAddr::V6(it) => it.is_unicast_link_local(),
    };
    if ip.is_unspecified() {
        fault(faults, &place, address, "may not be unspecified (0.0.0.0 or ::)");
    } else if ip.is_loopback() {
        let words = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
        fault(faults, &place, address, words);
    } else if local {
        let words = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
        fault(faults, &place, address, words);
    }
}

/// Validates an Event. Core Events without an eventTime are legacy, with fewer requirements.
fn event(kind: &Kind, object: &Value, faults: &mut Faults) {
    if kind.group.is_empty() && object["eventTime"].is_null() {
        let place = &object["involvedObject"]["namespace"];
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let told = place.as_str().unwrap_or_default();
        if told != namespace && !(told.is_empty() && namespace == "default") {
            fault(faults, "involvedObject.namespace", place, "does not match event.namespace");
        }
        return;
    }
    let named = [
        ("eventTime", "eventTime"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
    ];
    for (stored, field) in named {
        let text = object[stored].as_str().unwrap_or_default();
        if text.is_empty() {
            required(faults, field);
            if field == "reportingController" {
                fault(faults, field, &"".into(), "name part must be non-empty");
                fault(faults, field, &"".into(), NAME_PART);
            }
        } else if text.len() > 128 {
            fault(faults, field, &text.into(), "can have at most 128 characters");
        }
    }
    if !matches!(object["type"].as_str(), Some("Normal" | "Warning")) {
        let given = object["type"].as_str().unwrap_or_default();
        fault(faults, "type", &given.into(), &format!("has invalid value: {given}"));
    }
    if object["message"].as_str().unwrap_or_default().len() > 1024 {
        fault(faults, "note", &Value::Null, "can have at most 1024 characters");
    }
}

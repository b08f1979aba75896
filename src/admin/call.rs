//! Parses a path and a body into a [`Call`], or into a fault that says what is valid.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::config::{duration, nearest};
use crate::election::Command;
use crate::lease::Successor;

/// The hold-off of a call that names none: five reads of a standby at the default retry-period.
pub const USUAL_HOLD_OFF: Duration = Duration::from_secs(10);

/// The longest hold-off; for longer, pause the instance.
pub const LONGEST_HOLD_OFF: Duration = Duration::from_secs(3_600);

/// The longest candidate identity.
const LONGEST_IDENTITY: usize = 128;

/// All paths, in the order in which they are listed to callers.
pub(super) const PATHS: [(&str, Verb); 5] = [
    ("/v1/step-down", Verb::StepDown),
    ("/v1/transfer", Verb::Transfer),
    ("/v1/pause", Verb::Pause),
    ("/v1/resume", Verb::Resume),
    ("/v1/drained", Verb::Drained),
];

/// The path that answers with the status document: a caller of this listener need not know the status
/// listener to see what comes of its call.
pub(super) const STATUS: &str = "/v1/status";

/// What a caller asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) command: Command,
    /// Whether a successor may be one that the peers do not know.
    pub(super) force: bool,
}

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    StepDown,
    Transfer,
    Pause,
    Resume,
    Drained,
}

/// Why a body is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldError {
    /// The field at fault; `None` if the body is not a JSON object.
    pub(super) field: Option<String>,
    /// What is wrong, and what is valid.
    pub(super) error: String,
}

impl Verb {
    /// Returns the verb of a path.
    pub(super) fn of(path: &str) -> Option<Self> {
        PATHS.iter().find(|(it, _)| *it == path).map(|(_, verb)| *verb)
    }

    /// Returns the verb in words, to follow "cannot".
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::StepDown => "step down",
            Self::Transfer => "transfer",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Drained => "end the drain",
        }
    }

    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::StepDown => &["hold_off"],
            Self::Transfer => &["to", "hold_off", "force"],
            Self::Pause | Self::Resume => &[],
            Self::Drained => &["term"],
        }
    }

    /// Parses the body of a call to the instance whose identity is `ours`.
    pub(super) fn read(self, body: &[u8], own_identity: &str) -> Result<Call, FieldError> {
        let fields = object(body)?;
        if let Some(unknown) = fields.keys().find(|it| !self.fields().contains(&it.as_str())) {
            let known = self.fields();
            let takes = match (nearest(unknown, known.iter().copied()), known) {
                (Some(near), _) => format!("did you mean {near}?"),
                (None, []) => "this path takes no fields".to_owned(),
                (None, known) => format!("this path takes {}", known.join(", ")),
            };
            return Err(fault(unknown, format!("unknown field; {takes}")));
        }
        let command = match self {
            Self::StepDown => Command::StepDown { hold_off: hold_off(&fields)? },
            Self::Transfer => {
                let identity = successor(&fields, own_identity)?;
                Command::Transfer(Successor { identity, hold_off: hold_off(&fields)? })
            }
            Self::Pause => Command::Pause,
            Self::Resume => Command::Resume,
            Self::Drained => Command::Drained(term(&fields)?),
        };
        Ok(Call { command, force: force(&fields)? })
    }
}

/// Formats a command for the log.
pub(super) fn logged(command: &Command) -> String {
    match command {
        Command::StepDown { hold_off } => {
            format!("step-down hold_off={}", duration::format(*hold_off))
        }
        Command::Transfer(Successor { identity, hold_off }) => {
            format!("transfer to={identity:?} hold_off={}", duration::format(*hold_off))
        }
        Command::Pause => "pause".to_owned(),
        Command::Resume => "resume".to_owned(),
        Command::Drained(None) => "drained".to_owned(),
        Command::Drained(Some(term)) => format!("drained term={term}"),
    }
}

fn fault(field: &str, error: impl Into<String>) -> FieldError {
    // The name of an unknown field may be as long as the whole body.
    FieldError { field: Some(field.chars().take(64).collect()), error: error.into() }
}

/// Parses the fields of a body; an empty body has none.
fn object(body: &[u8]) -> Result<Map<String, Value>, FieldError> {
    if body.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    let wrong = |error: String| FieldError { field: None, error };
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(wrong("the body is not a JSON object; write it as {…}".to_owned())),
        Err(error) => Err(wrong(format!("the body is not valid JSON: {error}"))),
    }
}

fn hold_off(fields: &Map<String, Value>) -> Result<Duration, FieldError> {
    let right = "write a duration such as \"10s\" or \"1m30s\", at most \"1h\"";
    match fields.get("hold_off") {
        None => Ok(USUAL_HOLD_OFF),
        Some(Value::String(text)) => match duration::parse(text) {
            Ok(Duration::ZERO) => {
                Err(fault("hold_off", format!("must be longer than zero; {right}")))
            }
            Ok(it) if it <= LONGEST_HOLD_OFF => Ok(it),
            Ok(_) => Err(fault("hold_off", "is longer than 1h; pause this instance instead")),
            Err(error) => Err(fault("hold_off", format!("{error}; {right}"))),
        },
        Some(other) => {
            Err(fault("hold_off", format!("is {}, not a string; {right}", kind_of(other))))
        }
    }
}

fn successor(fields: &Map<String, Value>, own_identity: &str) -> Result<String, FieldError> {
    let right = "set the identity of the next leader";
    match fields.get("to") {
        None => Err(fault("to", format!("is missing; {right}"))),
        Some(Value::String(text)) if text.is_empty() => {
            Err(fault("to", format!("is empty; {right}")))
        }
        Some(Value::String(text)) if text == own_identity => {
            Err(fault("to", "is this instance; set another candidate"))
        }
        Some(Value::String(text)) if text.len() > LONGEST_IDENTITY => {
            Err(fault("to", format!("is longer than {LONGEST_IDENTITY} characters; {right}")))
        }
        Some(Value::String(text)) if !text.bytes().all(|it| matches!(it, b' '..=b'~')) => {
            Err(fault("to", "has a character that is not printable ASCII, so no identity matches"))
        }
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(fault("to", format!("is {}, not a string; {right}", kind_of(other)))),
    }
}

fn force(fields: &Map<String, Value>) -> Result<bool, FieldError> {
    fields.get("force").map_or(Ok(false), |value| {
        value.as_bool().ok_or_else(|| {
            fault("force", format!("is {}, not a boolean; set true, or omit it", kind_of(value)))
        })
    })
}

fn term(fields: &Map<String, Value>) -> Result<Option<u64>, FieldError> {
    fields.get("term").map_or(Ok(None), |value| {
        let right = "set the number of the draining term, or omit it";
        value.as_u64().map(Some).ok_or_else(|| {
            fault("term", format!("is {}, not a whole number; {right}", kind_of(value)))
        })
    })
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(path: &str, body: &str) -> Result<Command, FieldError> {
        Verb::of(path).unwrap().read(body.as_bytes(), "web-1").map(|it| it.command)
    }

    #[test]
    fn each_path_takes_its_fields_and_its_defaults() {
        let seconds = Duration::from_secs;
        let to = |identity: &str, hold_off| {
            Command::Transfer(Successor { identity: identity.to_owned(), hold_off })
        };
        for (path, body, call) in [
            ("/v1/step-down", "", Command::StepDown { hold_off: seconds(10) }),
            ("/v1/step-down", " \n", Command::StepDown { hold_off: seconds(10) }),
            ("/v1/step-down", "{}", Command::StepDown { hold_off: seconds(10) }),
            (
                "/v1/step-down",
                r#"{"hold_off":"1m30s"}"#,
                Command::StepDown { hold_off: seconds(90) },
            ),
            (
                "/v1/step-down",
                r#"{"hold_off":"1h"}"#,
                Command::StepDown { hold_off: seconds(3_600) },
            ),
            ("/v1/transfer", r#"{"to":"web-2"}"#, to("web-2", seconds(10))),
            ("/v1/transfer", r#"{"to":"web 2","hold_off":"3s"}"#, to("web 2", seconds(3))),
            ("/v1/pause", "", Command::Pause),
            ("/v1/resume", "{}", Command::Resume),
            ("/v1/drained", "", Command::Drained(None)),
            ("/v1/drained", r#"{"term":42}"#, Command::Drained(Some(42))),
        ] {
            assert_eq!(read(path, body), Ok(call), "{path} {body}");
        }
    }

    #[test]
    fn a_transfer_may_insist_on_its_successor() {
        for (more, force) in [("", false), (r#","force":false"#, false), (r#","force":true"#, true)]
        {
            let body = format!(r#"{{"to":"web-2"{more}}}"#);
            let call = Verb::Transfer.read(body.as_bytes(), "web-1").unwrap();
            assert_eq!(call.force, force, "{body}");
        }
    }

    #[test]
    fn each_error_names_its_field_and_a_valid_value() {
        let long = format!(r#"{{"to":"{}"}}"#, "x".repeat(129));
        for (path, body, field, words) in [
            ("/v1/step-down", r#"{"hold_off":"10"}"#, "hold_off", "no unit"),
            ("/v1/step-down", r#"{"hold_off":10}"#, "hold_off", "\"10s\""),
            ("/v1/step-down", r#"{"hold_off":"0s"}"#, "hold_off", "longer than zero"),
            ("/v1/step-down", r#"{"hold_off":"61m"}"#, "hold_off", "pause"),
            ("/v1/step-down", r#"{"hold_of":"10s"}"#, "hold_of", "did you mean hold_off?"),
            ("/v1/step-down", r#"{"for":"10s"}"#, "for", "takes hold_off"),
            ("/v1/transfer", "", "to", "missing"),
            ("/v1/transfer", r#"{"to":null}"#, "to", "null"),
            ("/v1/transfer", r#"{"to":""}"#, "to", "empty"),
            ("/v1/transfer", r#"{"to":"web-1"}"#, "to", "this instance"),
            ("/v1/transfer", r#"{"to":"wéb"}"#, "to", "ASCII"),
            ("/v1/transfer", r#"{"to":"a\nb"}"#, "to", "ASCII"),
            ("/v1/transfer", &long, "to", "128"),
            ("/v1/transfer", r#"{"to":"web-2","hold_off":"x"}"#, "hold_off", "duration"),
            ("/v1/transfer", r#"{"to":"web-2","force":"yes"}"#, "force", "not a boolean"),
            ("/v1/step-down", r#"{"force":true}"#, "force", "takes hold_off"),
            ("/v1/pause", r#"{"for":"1h"}"#, "for", "no fields"),
            ("/v1/resume", r#"{"now":true}"#, "now", "no fields"),
            ("/v1/drained", r#"{"term":"42"}"#, "term", "a string"),
            ("/v1/drained", r#"{"term":-1}"#, "term", "whole number"),
            ("/v1/drained", r#"{"term":1.5}"#, "term", "whole number"),
        ] {
            let fault = read(path, body).unwrap_err();
            assert_eq!(fault.field.as_deref(), Some(field), "{path} {body}: {fault:?}");
            assert!(fault.error.contains(words), "{path} {body}: {fault:?}");
        }
        for body in ["[]", "7", "{", "hold_off=10s", "\u{feff}{}"] {
            let fault = read("/v1/step-down", body).unwrap_err();
            assert_eq!(fault.field, None, "{body}");
            assert!(fault.error.contains("JSON"), "{body}: {fault:?}");
        }
    }

    proptest! {
        #[test]
        fn no_body_panics_and_what_is_taken_is_within_its_bounds(
            body in proptest::collection::vec(any::<u8>(), 0..80),
            text in r#"\{("(hold_off|to|term|x)":("[0-9a-z]{0,5}"|[0-9]{1,3}|null),?){0,3}\}"#,
        ) {
            for (_, verb) in PATHS {
                for body in [body.as_slice(), text.as_bytes()] {
                    match verb.read(body, "web-1").map(|it| it.command) {
                        Ok(Command::StepDown { hold_off }) => prop_assert!(hold_off <= LONGEST_HOLD_OFF),
                        Ok(Command::Transfer(it)) => {
                            prop_assert!(it.hold_off <= LONGEST_HOLD_OFF);
                            prop_assert!(!it.identity.is_empty() && it.identity != "web-1");
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

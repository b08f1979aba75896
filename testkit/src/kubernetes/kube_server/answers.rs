//! Answers in the format of the API server: objects, and the `Status` of an error.

use hyper::Response;
use serde_json::{Value, json};

use super::Body;
use super::kinds::Kind;

/// An answer before it is sent.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    pub content_type: &'static str,
}

impl Answer {
    pub fn json(status: u16, body: &Value) -> Self {
        let (headers, body) = (Vec::new(), body.to_string());
        Self { status, headers, body, content_type: "application/json" }
    }

    pub fn text(status: u16, body: &str) -> Self {
        let (headers, body) = (Vec::new(), body.to_owned());
        Self { status, headers, body, content_type: "text/plain; charset=utf-8" }
    }

    /// Returns a `Status` of failure.
    pub fn failure(status: u16, reason: &str, message: &str, details: Value) -> Self {
        let mut body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details,
            "code": status,
        });
        let fields = body.as_object_mut().expect("an object");
        fields.retain(|_, value| !value.is_null() && value.as_str() != Some(""));
        Self::json(status, &body)
    }

    /// Returns the answer of an overloaded server: plain text, with the time to wait.
    pub fn throttled() -> Self {
        let mut it = Self::text(429, "Too many requests, please try again later.\n");
        it.headers.push(("retry-after", "1".to_owned()));
        it
    }

    /// Returns the error of a server whose etcd does not respond.
    pub fn etcd_timed_out() -> Self {
        Self::failure(500, "", "etcdserver: request timed out", Value::Null)
    }

    pub fn unauthorized() -> Self {
        Self::failure(401, "Unauthorized", "Unauthorized", Value::Null)
    }

    pub fn bad_request(message: &str) -> Self {
        Self::failure(400, "BadRequest", message, Value::Null)
    }

    pub fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.qualified());
        Self::failure(404, "NotFound", &message, details(kind, name))
    }

    pub fn exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.qualified());
        Self::failure(409, "AlreadyExists", &message, details(kind, name))
    }

    pub fn conflict(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::unfulfilled(kind, name, why)
    }

    /// Returns the conflict for a uid that differs from the stored object's, or for a missing
    /// object.
    pub fn another_uid(kind: &Kind, namespace: &str, name: &str, sent: &str, found: &str) -> Self {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{namespace}/{name}, \
             ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: \
             {sent}, UID in object meta: {found}",
            kind.plural
        );
        Self::unfulfilled(kind, name, &why)
    }

    fn unfulfilled(kind: &Kind, name: &str, why: &str) -> Self {
        let what = kind.qualified();
        let message = format!("Operation cannot be fulfilled on {what} {name:?}: {why}");
        Self::failure(409, "Conflict", &message, details(kind, name))
    }

    /// Returns the conflict for a deletion whose precondition names another uid.
    pub fn deletion_of_another(kind: &Kind, name: &str, sent: &str, found: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: the UID in the precondition ({sent}) \
             does not match the UID in record ({found}). The object might have been deleted and \
             then recreated",
            in_words(kind)
        );
        let mut about = details(kind, name);
        about["kind"] = kind.kind.into();
        Self::failure(409, "Conflict", &message, about)
    }

    /// Returns the error for a resourceVersion that is not a number.
    pub fn unread_version(version: &str) -> Self {
        let message = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
        Self::failure(500, "", &message, Value::Null)
    }

    /// Returns the error for an update without a resourceVersion.
    pub fn without_version(kind: &Kind, name: &str) -> Self {
        let words = "Invalid value: 0: must be specified for an update".to_owned();
        let causes = [("metadata.resourceVersion".to_owned(), words)];
        Self::senseless(&kind.qualified(), details(kind, name), &causes)
    }

    /// Returns the error for an invalid object; `causes` are pairs of field and message.
    pub fn invalid(kind: &Kind, name: &str, causes: &[(String, String)]) -> Self {
        let mut about = details(kind, name);
        about["kind"] = kind.kind.into();
        if kind.kind == "Event" {
            // Events of both groups are validated by the same code.
            about.as_object_mut().map(|fields| fields.remove("group"));
        }
        let what = if kind.kind == "Event" { "Event".to_owned() } else { in_words(kind) };
        Self::senseless(&what, about, causes)
    }

    fn senseless(what: &str, mut details: Value, causes: &[(String, String)]) -> Self {
        let name = details["name"].as_str().unwrap_or_default().to_owned();
        let mut listed: Vec<_> =
            causes.iter().map(|(field, words)| format!("{field}: {words}")).collect();
        // The message lists equal causes once.
        listed.dedup();
        let listed =
            if listed.len() == 1 { listed.concat() } else { format!("[{}]", listed.join(", ")) };
        let message = format!("{what} {name:?} is invalid: {listed}");
        let causes: Vec<_> = causes
            .iter()
            .map(|(field, words)| {
                let reason = if words.starts_with("Required") {
                    "FieldValueRequired"
                } else {
                    "FieldValueInvalid"
                };
                json!({"reason": reason, "message": words, "field": field})
            })
            .collect();
        details["causes"] = causes.into();
        Self::failure(422, "Invalid", &message, details)
    }

    /// Converts it to a response.
    pub fn into_response(self, date: String) -> Response<Body> {
        let mut answer = Response::builder()
            .status(self.status)
            .header("content-type", self.content_type)
            .header("cache-control", "no-cache, private")
            .header("date", date);
        for (name, value) in self.headers {
            answer = answer.header(name, value);
        }
        answer.body(super::whole(self.body)).expect("an answer")
    }
}

/// Returns a kind with its group, as some messages name it.
fn in_words(kind: &Kind) -> String {
    let dot = if kind.group.is_empty() { "" } else { "." };
    format!("{}{dot}{}", kind.kind, kind.group)
}

/// Returns the `details` of a `Status` about an object.
pub fn details(kind: &Kind, name: &str) -> Value {
    let mut it = json!({"name": name, "group": kind.group, "kind": kind.plural});
    let fields = it.as_object_mut().expect("an object");
    fields.retain(|_, value| value.as_str() != Some(""));
    it
}

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

    /// Returns the conflict of a write for another version, or another uid, than the stored one.
    pub fn conflict(kind: &Kind, name: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: the object has been modified; please \
             apply your changes to the latest version and try again",
            kind.qualified()
        );
        Self::failure(409, "Conflict", &message, details(kind, name))
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

/// Returns the `details` of a `Status` about an object.
pub fn details(kind: &Kind, name: &str) -> Value {
    let mut it = json!({"name": name, "group": kind.group, "kind": kind.plural});
    let fields = it.as_object_mut().expect("an object");
    fields.retain(|_, value| value.as_str() != Some(""));
    it
}

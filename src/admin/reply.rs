//! What is answered: a code, and a JSON object that says in words what was wrong or what comes next.
//!
//! What it does not do: it decides nothing.

use std::time::Duration;

use axum::http::header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use super::call::{Call, Fault, PATHS, Verb};
use super::guard::Denial;
use crate::config::duration;
use crate::election::State;

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) code: StatusCode,
    header: Option<(HeaderName, HeaderValue)>,
    body: Map<String, Value>,
}

impl Reply {
    fn refusal(code: StatusCode, error: impl Into<String>) -> Self {
        Self { code, header: None, body: Map::new() }.with("error", error.into())
    }

    fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.body.insert(field.to_owned(), value.into());
        self
    }

    fn milliseconds(self, field: &str, value: Duration) -> Self {
        self.with(field, u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    /// What was wrong, in words.
    pub(super) fn error(&self) -> String {
        self.body.get("error").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// A caller that is turned away.
    pub(super) fn denied(denial: Denial) -> Self {
        match denial {
            Denial::Unauthorized(error) => {
                let scheme = HeaderValue::from_static("Bearer realm=\"tenure\"");
                let mut reply = Self::refusal(StatusCode::UNAUTHORIZED, error);
                reply.header = Some((WWW_AUTHENTICATE, scheme));
                reply
            }
            Denial::Forbidden(error) => Self::refusal(StatusCode::FORBIDDEN, error),
            Denial::Unavailable(_) => Self::refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "the token file has no token that can be used; the log of `tenure run` says why",
            ),
        }
    }

    /// A path that does not exist.
    pub(super) fn unknown_path() -> Self {
        let paths = PATHS.map(|(path, _)| Value::from(path));
        let error = "no such path; POST to one of those listed";
        Self::refusal(StatusCode::NOT_FOUND, error).with("paths", paths.to_vec())
    }

    /// A method that is not POST.
    pub(super) fn wrong_method() -> Self {
        let mut reply = Self::refusal(StatusCode::METHOD_NOT_ALLOWED, "only POST is taken here");
        reply.header = Some((ALLOW, HeaderValue::from_static("POST")));
        reply
    }

    /// A body of more than `most` bytes.
    pub(super) fn too_large(most: usize) -> Self {
        let error = format!("the body is longer than {most} bytes, and none has to be");
        Self::refusal(StatusCode::PAYLOAD_TOO_LARGE, error)
    }

    /// A body that did not come.
    pub(super) fn too_slow(bound: Duration) -> Self {
        let error = format!("the body did not come within {}", duration::format(bound));
        Self::refusal(StatusCode::REQUEST_TIMEOUT, error)
    }

    /// A body that broke off, or says what cannot be.
    pub(super) fn bad_body(fault: Fault) -> Self {
        let Some(field) = fault.field else {
            return Self::refusal(StatusCode::BAD_REQUEST, fault.error);
        };
        Self::refusal(StatusCode::BAD_REQUEST, format!("{field}: {}", fault.error))
            .with("field", field)
    }

    /// A call that cannot be in the present state.
    pub(super) fn impossible(verb: Verb, state: State) -> Self {
        let state = state.as_str();
        let error = format!("cannot {}: this instance is {state}", verb.words());
        Self::refusal(StatusCode::CONFLICT, error).with("state", state)
    }

    /// A driver that says nothing.
    pub(super) fn silent(bound: Duration) -> Self {
        let error = format!(
            "the election has not answered within {}; the call may be done yet",
            duration::format(bound)
        );
        Self::refusal(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    /// A call that is done, or begun.
    pub(super) fn accepted(code: StatusCode, call: &Call, outlook: &Outlook) -> Self {
        let outcome = if code == StatusCode::OK { "done" } else { "begun" };
        let mut reply = Self { code, header: None, body: Map::new() }
            .with("outcome", outcome)
            .with("state", outlook.state.as_str());
        match call {
            Call::StepDown(hold_off) => reply = reply.with("hold_off", duration::format(*hold_off)),
            Call::Transfer(it) => {
                reply = reply
                    .with("to", it.identity.as_str())
                    .with("hold_off", duration::format(it.hold_off));
            }
            Call::Pause | Call::Resume | Call::Drained(_) => {}
        }
        if let Some(left) = outlook.drain_remaining {
            reply = reply.milliseconds("drain_remaining_ms", left);
        }
        if let Some(wait) = outlook.another_leads_in {
            reply = reply.milliseconds("another_leads_in_ms", wait);
        }
        reply
    }
}

/// What comes after a call.
#[derive(Debug)]
pub(super) struct Outlook {
    /// The state that the call has led to so far.
    pub(super) state: State,
    /// How long the lease is held yet for the service to end its work.
    pub(super) drain_remaining: Option<Duration>,
    /// When another leads, if one is well: about.
    pub(super) another_leads_in: Option<Duration>,
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let body = format!("{}\n", Value::Object(self.body));
        let mut response = (self.code, [(CONTENT_TYPE, "application/json")], body).into_response();
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

//! Responses of the admin listener: a status code and a JSON object.

use std::time::Duration;

use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use super::auth::Denial;
use super::call::{FieldError, PATHS, STATUS};
use super::conflict::Conflict;
use crate::config::duration;
use crate::election::{Command, State};
use crate::status::document::Document;

/// A response.
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

    /// Returns the error text, empty for a success.
    pub(super) fn error(&self) -> String {
        self.body.get("error").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Returns 401, 403 or 503 for a request that was not authorized.
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
                "the token file contains no usable token; see the log of `tenure run`",
            ),
        }
    }

    /// Returns 429 after too many calls without the right token.
    pub(super) fn too_many(wait: Duration) -> Self {
        let wait = wait.as_secs();
        let error = format!("too many calls without the right token; try again in {wait}s");
        let mut reply = Self::refusal(StatusCode::TOO_MANY_REQUESTS, error);
        reply.header = Some((RETRY_AFTER, HeaderValue::from(wait)));
        reply
    }

    /// Returns 404 with the list of paths.
    pub(super) fn unknown_path() -> Self {
        let paths = PATHS.iter().map(|(path, _)| *path).chain([STATUS]);
        let error = "no such path; POST to one of `paths`";
        let paths: Vec<Value> = paths.map(Value::from).collect();
        Self::refusal(StatusCode::NOT_FOUND, error).with("paths", paths)
    }

    /// Returns 405: every path takes POST.
    pub(super) fn wrong_method() -> Self {
        let mut reply = Self::refusal(StatusCode::METHOD_NOT_ALLOWED, "only POST is allowed");
        reply.header = Some((ALLOW, HeaderValue::from_static("POST")));
        reply
    }

    /// Returns 413 for a body of more than `most` bytes.
    pub(super) fn too_large(most: usize) -> Self {
        let error = format!("the body is longer than {most} bytes");
        Self::refusal(StatusCode::PAYLOAD_TOO_LARGE, error)
    }

    /// Returns 408 for a body that was not complete within `bound`.
    pub(super) fn too_slow(bound: Duration) -> Self {
        let error = format!("the body was not complete within {}", duration::format(bound));
        Self::refusal(StatusCode::REQUEST_TIMEOUT, error)
    }

    /// Returns 400 for an invalid body, with the field at fault if there is one.
    pub(super) fn bad_body(fault: FieldError) -> Self {
        let Some(field) = fault.field else {
            return Self::refusal(StatusCode::BAD_REQUEST, fault.error);
        };
        Self::refusal(StatusCode::BAD_REQUEST, format!("{field}: {}", fault.error))
            .with("field", field)
    }

    /// Returns 400 for a call with query parameters.
    pub(super) fn parameters() -> Self {
        let error = "no path takes query parameters; send the fields as a JSON object in the body";
        Self::refusal(StatusCode::BAD_REQUEST, error)
    }

    /// Returns 200 with the status document.
    pub(super) fn status(document: &Document<'_>) -> Self {
        let body = match serde_json::to_value(document) {
            Ok(Value::Object(fields)) => fields,
            _ => unreachable!("a document is a JSON object"),
        };
        Self { code: StatusCode::OK, header: None, body }
    }

    /// Returns 409 for a call that the present state does not allow.
    pub(super) fn impossible(conflict: Conflict, state: State) -> Self {
        Self::refusal(StatusCode::CONFLICT, conflict.error)
            .with("state", state.as_str())
            .with("remedy", conflict.remedy)
    }

    /// Returns 503 when the driver did not answer within `bound`.
    pub(super) fn silent(bound: Duration) -> Self {
        let error = format!(
            "the election did not answer within {}; the call may still take effect",
            duration::format(bound)
        );
        Self::refusal(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    /// Returns the response to a call that is done (200) or begun.
    pub(super) fn accepted(code: StatusCode, command: &Command, outlook: &Outlook) -> Self {
        let outcome = if code == StatusCode::OK { "done" } else { "begun" };
        let mut reply = Self { code, header: None, body: Map::new() }
            .with("outcome", outcome)
            .with("state", outlook.state.as_str());
        match command {
            Command::StepDown { hold_off } => {
                reply = reply.with("hold_off", duration::format(*hold_off))
            }
            Command::Transfer(it) => {
                reply = reply
                    .with("to", it.identity.as_str())
                    .with("hold_off", duration::format(it.hold_off));
            }
            Command::Pause | Command::Resume | Command::Drained(_) => {}
        }
        if let Some(left) = outlook.drain_remaining {
            reply = reply.milliseconds("drain_remaining_ms", left);
        }
        if let Some(wait) = outlook.another_leads_in {
            reply = reply.milliseconds("another_leads_in_ms", wait);
        }
        if let Some(warning) = outlook.warning {
            reply = reply.with("warning", warning);
        }
        reply
    }
}

/// The expected consequences of a call.
#[derive(Debug)]
pub(super) struct Outlook {
    /// The state after the call, as far as it has taken effect.
    pub(super) state: State,
    /// How long the lease is still held for the service to finish its work.
    pub(super) drain_remaining: Option<Duration>,
    /// The approximate time until another instance leads, if one is healthy.
    pub(super) another_leads_in: Option<Duration>,
    /// What the caller should know.
    pub(super) warning: Option<&'static str>,
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

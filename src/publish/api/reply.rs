//! Responses that several paths share: the status document, and invalid parameters.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::Shared;
use crate::clock::Moment;
use crate::status::Published;

/// Returns the status document as it is at `now`.
pub(super) fn document(shared: &Shared, published: &Published, now: Moment) -> String {
    let document = published.document(&shared.app.about, now);
    serde_json::to_string(&document).expect("a document is JSON")
}

/// Returns 400 for a parameter that is not a duration.
pub(super) fn bad_duration(parameter: &str, error: &str) -> Response {
    bad(parameter, &format!("{error}; write a duration such as 15s, 1m30s or 500ms"))
}

/// Returns 400 for an invalid parameter.
pub(super) fn bad(parameter: &str, error: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{parameter}: {error}\n")).into_response()
}

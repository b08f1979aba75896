//! What several answers have in common: the status document, and what is wrong with a question.
//!
//! What it does not do: it knows no path.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::Shared;
use crate::clock::Moment;

/// The status document as it is true at `now`.
pub(super) fn document(shared: &Shared, now: Moment) -> String {
    let published = shared.app.published.borrow();
    let document = published.document(&shared.app.about, now);
    serde_json::to_string(&document).expect("a document is JSON")
}

/// Says which parameter is no duration, and why.
pub(super) fn bad_duration(parameter: &str, error: &str) -> Response {
    bad(parameter, &format!("{error}; write a duration such as 15s, 1m30s or 500ms"))
}

/// Says which parameter is wrong, and why.
pub(super) fn bad(parameter: &str, error: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{parameter}: {error}\n")).into_response()
}

//! The query parameters of each path. A parameter that a path does not take is refused: a client that
//! misspells `min_remaining` would otherwise get a 200 that it did not ask for.

use axum::http::Uri;
use axum::response::Response;

use super::reply::bad;
use crate::config::nearest;

/// The most characters of an unknown parameter that are repeated in the response.
const MAX_SHOWN: usize = 64;

/// Returns the parameters of a path; `None` if there is no such path.
fn of_path(path: &str) -> Option<&'static [&'static str]> {
    Some(match path {
        "/leader" | "/active" | "/primary" => &["min_remaining"],
        "/watch" => &["index", "wait"],
        "/standby" | "/passive" | "/replica" => &[],
        "/" | "/livez" | "/readyz" | "/status" | "/peer" | "/metrics" => &[],
        _ => return None,
    })
}

/// Returns whether the status listener has this path.
#[must_use]
pub fn is_path(path: &str) -> bool {
    of_path(path).is_some()
}

/// Returns 400 for a request with a parameter that its path does not take.
pub(super) fn refusal(uri: &Uri) -> Option<Response> {
    let (query, known) = (uri.query()?, of_path(uri.path())?);
    let mut names = url::form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name);
    let unknown = names.find(|it| !known.contains(&it.as_ref()))?;
    let remedy = match (nearest(&unknown, known.iter().copied()), known) {
        (Some(near), _) => format!("did you mean {near}?"),
        (None, []) => "this path takes no parameters".to_owned(),
        (None, known) => format!("this path takes {}", known.join(", ")),
    };
    // Quoted, so that control characters do not reach a terminal.
    let shown = format!("{:?}", unknown.chars().take(MAX_SHOWN).collect::<String>());
    Some(bad(&shown, &format!("unknown parameter; {remedy}")))
}

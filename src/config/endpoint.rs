//! Parses endpoints of HTTP servers: URLs of scheme, host and path and nothing else.

use url::Url;

use super::faults::Problem;
use super::values;

/// Parses an endpoint and strips the trailing slash. `write` is the remedy for an invalid one, and
/// `secrets` tells where credentials belong.
pub(super) fn read(text: &str, write: &str, secrets: &str) -> Result<Url, Problem> {
    let mut url = Url::parse(text.trim_end_matches('/'))
        .map_err(|error| Problem::new(format!("is not a URL: {error}"), write))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(Problem::new("is neither https nor http", write));
    }
    // A path that ends in a dot segment is normalized to one with trailing slashes.
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    if url.host().is_none() {
        return Err(Problem::new("names no host", write));
    }
    let bare = url.username().is_empty() && url.password().is_none();
    if !bare || url.query().is_some() || url.fragment().is_some() {
        let problem = "has more than host and path";
        return Err(Problem::new(problem, format!("{write}; {secrets}")));
    }
    Ok(url)
}

/// Returns whether requests to the URL may leave this machine in plain http.
pub(super) fn is_remote_plain_http(url: &Url) -> bool {
    url.scheme() == "http" && url.host().is_none_or(|host| !values::is_loopback(&host))
}

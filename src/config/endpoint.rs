//! Endpoints: where a server speaks HTTP, a URL of scheme, host and path and nothing else.
//!
//! What it does not do: it judges neither which server it is nor whether plain http may go there.

use url::Url;

use super::faults::Problem;

/// Reads an endpoint, without the slash at its end. `write` says what to write instead of a bad one,
/// and `secrets` by which way comes what people would put into a URL.
pub(super) fn read(text: &str, write: &str, secrets: &str) -> Result<Url, Problem> {
    let mut url = Url::parse(text.trim_end_matches('/'))
        .map_err(|error| Problem::new(format!("is not a URL: {error}"), write))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(Problem::new("is neither https nor http", write));
    }
    // A dot at the end of a path leaves slashes behind.
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    if url.host().is_none() {
        return Err(Problem::new("names no host", write));
    }
    let bare = url.username().is_empty() && url.password().is_none();
    if !bare || url.query().is_some() || url.fragment().is_some() {
        let problem = "has more in it than host and path";
        return Err(Problem::new(problem, format!("{write}; {secrets}")));
    }
    Ok(url)
}

/// Whether what goes there in plain http may leave this machine.
pub(super) fn is_plain_beyond(url: &Url) -> bool {
    url.scheme() == "http" && url.host().is_none_or(|host| !super::values::is_loopback(&host))
}

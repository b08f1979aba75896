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

/// Returns whether a URL refers to this host.
pub(crate) fn is_loopback(url: &Url) -> bool {
    url.host().is_some_and(|host| values::is_loopback(&host))
}

/// Returns whether requests to the URL may leave this machine in plain http.
pub(super) fn is_remote_plain_http(url: &Url) -> bool {
    url.scheme() == "http" && !is_loopback(url)
}

/// Returns the URL of what is below another, with one path segment for each part between slashes.
pub(super) fn below(url: &Url, name: &str) -> Url {
    let mut url = url.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(name.split('/'));
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_differs_from_other_hosts() {
        for url in [
            "http://127.0.0.1:10000/a",
            "http://localhost/",
            "http://acct.blob.LOCALHOST/",
            "http://[::1]:1/",
        ] {
            assert!(is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
        for url in [
            "http://localhost.example.com/",
            "http://notlocalhost/",
            "http://10.0.0.1/",
            "https://127.0.0.1.nip.io",
            "mailto:localhost",
        ] {
            assert!(!is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
    }
}

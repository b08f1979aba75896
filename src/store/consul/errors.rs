//! Errors of requests to Consul, by what the caller does next, with the remedy in the message. No message
//! shows a token or a URL.

use crate::lease::text::is_printable;
use crate::store::client::{self, Peer};
use crate::store::register::RegisterError;

/// Classifies the answer of a server that is not a success, by its HTTP status and body.
pub(super) fn refused(status: u16, body: &[u8], server: &str) -> RegisterError {
    let words = String::from_utf8_lossy(body);
    let words: String = words.trim().chars().filter(|it| is_printable(*it)).take(300).collect();
    let said = if words.is_empty() || words.starts_with('<') {
        format!("{server} answered {status} without a reason")
    } else {
        format!("{server}: {words}")
    };
    match status {
        401 | 403 => denied(&words, &said),
        429 => RegisterError::Throttled(said),
        500.. => RegisterError::Unavailable(said),
        300..=399 => RegisterError::Invalid(format!(
            "{server} answered with a redirect ({status}), which Tenure does not follow: name the \
             servers or agents of Consul themselves in --store"
        )),
        _ => RegisterError::Invalid(format!(
            "Consul refused the request: check the address in --store ({said})"
        )),
    }
}

/// Classifies a refusal by the words of Consul.
pub(super) fn denied(words: &str, said: &str) -> RegisterError {
    if words.contains("ACL not found") {
        RegisterError::Credential(format!(
            "Consul does not know the token, or it has expired: check CONSUL_HTTP_TOKEN ({said})"
        ))
    } else {
        RegisterError::Denied(format!(
            "access denied: the token of CONSUL_HTTP_TOKEN needs the right to write the keys of the election, see \
             docs/stores/consul.md ({said})"
        ))
    }
}

/// Converts the error of a request without an answer.
pub(super) fn broken(error: &reqwest::Error, server: &str) -> RegisterError {
    let files = "--store-ca-file, --store-cert,";
    let peer = Peer { name: server, setting: "--store", files, kind: "Consul" };
    client::broken(error, &peer).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::StoreError;

    #[test]
    fn each_status_of_consul_has_its_meaning() {
        for (status, words, expected) in [
            (403, "ACL not found", "Credential"),
            (403, "Permission denied: anonymous token lacks permission 'key:read'", "Denied"),
            (401, "ACL support disabled", "Denied"),
            (429, "rate limit exceeded", "Throttled"),
            (500, "No cluster leader", "Unavailable"),
            (500, "rpc error getting client: failed to get conn", "Unavailable"),
            (503, "", "Unavailable"),
            (302, "", "Invalid"),
            (400, "Invalid flags value", "Invalid"),
            (404, "<html>nothing here</html>", "Invalid"),
        ] {
            let error = refused(status, words.as_bytes(), "h:1");
            let shown = format!("{error:?}");
            assert!(shown.starts_with(expected) && shown.contains("h:1"), "{status}: {shown}");
            assert!(!shown.contains("html"), "{shown}");
            assert!(matches!(StoreError::from(error), StoreError::Unknown(_)), "{status} {words}");
        }
    }

    #[test]
    fn words_of_any_length_are_shown_up_to_three_hundred_characters() {
        let shown = refused(500, "x".repeat(301).as_bytes(), "h:1").to_string();
        assert_eq!(shown, format!("h:1: {}", "x".repeat(300)));
    }

    #[test]
    fn a_redirect_is_not_followed_and_says_so() {
        for (status, is_redirect) in [(300, true), (399, true), (400, false)] {
            let error = refused(status, b"", "h:1").to_string();
            assert_eq!(error.contains("redirect"), is_redirect, "{error}");
        }
    }
}

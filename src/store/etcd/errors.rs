//! Errors of requests to etcd, by what the caller does next, with the remedy in the message. No message
//! shows a password, a token or a URL.

use serde_json::Value;

use crate::lease::text::is_printable;
use crate::store::client::{self, Peer};
use crate::store::register::RegisterError;

/// Classifies the answer of a member that is not a success, by its HTTP status and body.
pub(super) fn refused(status: u16, body: &[u8], member: &str) -> RegisterError {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let (code, words) = told(&json);
    match (code, words) {
        (Some(code), Some(words)) => classified(code, &words, member),
        _ if body.starts_with(b"CommonName of client") => RegisterError::Credential(format!(
            "{member} refuses client certificates with a common name, since it has users and ignores \
             that name at its gateway: set --store-cert to a certificate without one"
        )),
        _ if (300..400).contains(&status) => RegisterError::Invalid(format!(
            "{member} answered with a redirect ({status}), which Tenure does not follow: name the \
             members of the cluster themselves in --store"
        )),
        _ if status >= 500 => {
            RegisterError::Unavailable(format!("{member} answered {status} without a reason"))
        }
        _ => RegisterError::Invalid(format!(
            "{member} answered {status}, and not as etcd does: check the address in --store, and \
             that etcd runs with its gRPC gateway (--enable-grpc-gateway)"
        )),
    }
}

/// Classifies the error of a stream.
pub(super) fn streamed(error: &Value, member: &str) -> RegisterError {
    match told(error) {
        (Some(code), Some(words)) => classified(code, &words, member),
        _ => RegisterError::Unavailable(format!("{member} ended the request without a reason")),
    }
}

/// Returns the code of gRPC and the reason, under the names that the versions of the gateway use.
fn told(body: &Value) -> (Option<u64>, Option<String>) {
    let body = body.get("error").filter(|it| it.is_object()).unwrap_or(body);
    let code = body.get("code").or_else(|| body.get("grpc_code")).and_then(Value::as_u64);
    let words = body.get("message").or_else(|| body.get("error")).and_then(Value::as_str);
    let words = words.map(|it| it.chars().filter(|c| is_printable(*c)).take(300).collect());
    (code, words)
}

/// Classifies a reason of etcd, by the codes of gRPC.
fn classified(code: u64, words: &str, member: &str) -> RegisterError {
    let said = format!("{member}: {words}");
    match code {
        9 if words.contains("authentication is not enabled") => RegisterError::Missing(said),
        _ if asks_for_a_token(code, words) => RegisterError::Credential(format!(
            "etcd requires a user, or the sign-in is no longer valid; check ETCD_USERNAME and \
             ETCD_PASSWORD ({said})"
        )),
        3 if words.contains("authentication failed") => RegisterError::Credential(format!(
            "the sign-in failed: check ETCD_USERNAME and ETCD_PASSWORD ({said})"
        )),
        7 => RegisterError::Denied(format!(
            "access denied: the user of ETCD_USERNAME needs a role with readwrite permission on the \
             keys of the election, see docs/stores/etcd.md ({said})"
        )),
        8 if words.contains("space exceeded") => RegisterError::Unavailable(format!(
            "the database of etcd is full, so that nobody can lead: compact and defragment it, disarm the \
             alarm, and set --auto-compaction-retention, see docs/stores/etcd.md ({said})"
        )),
        8 => RegisterError::Throttled(said),
        // Cancelled, unknown, deadline, aborted, internal, unavailable, data loss.
        1 | 2 | 4 | 10 | 13 | 14 | 15 => RegisterError::Unavailable(said),
        _ => RegisterError::Invalid(format!("etcd refused the request ({said})")),
    }
}

/// Returns whether the request had no token, or one that the server knows no longer.
fn asks_for_a_token(code: u64, words: &str) -> bool {
    const STALE: [&str; 3] =
        ["invalid auth token", "user name is empty", "revision of auth store is old"];
    code == 16 || STALE.iter().any(|it| words.contains(it))
}

/// Converts the error of a request without an answer.
pub(super) fn broken(error: &reqwest::Error, member: &str) -> RegisterError {
    let files = "--store-ca-file, --store-cert,";
    let peer = Peer { name: member, setting: "--store", files, kind: "etcd" };
    client::broken(error, &peer).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::lease::StoreError;

    fn refused_with(status: u16, body: &Value) -> RegisterError {
        refused(status, body.to_string().as_bytes(), "h:1")
    }

    #[test]
    fn each_reason_of_etcd_has_its_meaning() {
        for (code, words, expected) in [
            (9, "etcdserver: authentication is not enabled", "Missing"),
            (16, "etcdserver: invalid auth token", "Credential"),
            (3, "etcdserver: user name is empty", "Credential"),
            (3, "etcdserver: revision of auth store is old", "Credential"),
            (3, "etcdserver: authentication failed, invalid user ID or password", "Credential"),
            (7, "etcdserver: permission denied", "Denied"),
            (8, "etcdserver: mvcc: database space exceeded", "Unavailable"),
            (8, "etcdserver: too many requests", "Throttled"),
            (14, "etcdserver: request timed out", "Unavailable"),
            (14, "etcdserver: no leader", "Unavailable"),
            (13, "etcdserver: not capable", "Unavailable"),
            (5, "Not Found", "Invalid"),
            (11, "etcdserver: mvcc: required revision has been compacted", "Invalid"),
        ] {
            for body in [
                json!({"code": code, "message": words}),
                json!({"error": words, "message": words, "code": code}),
                json!({"error": words, "code": code}),
                json!({"error": {"grpc_code": code, "message": words, "http_status": "x"}}),
            ] {
                let shown = format!("{:?}", refused_with(400, &body));
                assert!(shown.starts_with(expected), "{body}: {shown}");
                assert!(shown.contains("h:1"), "{shown}");
                let shown = format!("{:?}", streamed(&body, "h:1"));
                assert!(shown.starts_with(expected), "{body}: {shown}");
            }
        }
        let silent = format!("{:?}", streamed(&Value::Null, "h:1"));
        assert!(silent.starts_with("Unavailable") && silent.contains("h:1"), "{silent}");
    }

    #[test]
    fn what_is_not_of_etcd_is_never_definite() {
        for (status, expected) in [
            (302, "redirect"),
            (404, "not as etcd does"),
            (401, "not as etcd does"),
            (500, "without a reason"),
            (503, "without a reason"),
        ] {
            for body in ["", "<html>no leader</html>", "[]", "{\"error\":\"no leader\"}"] {
                let error = refused(status, body.as_bytes(), "h:1");
                assert!(error.to_string().contains(expected), "{error}");
                assert!(matches!(StoreError::from(error), StoreError::Unknown(_)));
            }
        }
    }

    #[test]
    fn a_client_certificate_with_a_common_name_is_explained() {
        let body = b"CommonName of client sending a request against gateway will be ignored\n";
        let error = refused(400, body, "h:1");
        assert!(
            matches!(&error, RegisterError::Credential(it) if it.contains("--store-cert")),
            "{error}"
        );
    }

    #[test]
    fn every_error_is_unknown_until_a_caller_knows_more() {
        for code in 0..=17 {
            for words in ["etcdserver: no leader", "permission denied", "x"] {
                let error = refused_with(400, &json!({"code": code, "message": words}));
                assert!(
                    matches!(StoreError::from(error), StoreError::Unknown(_)),
                    "{code} {words}"
                );
            }
        }
    }

    #[test]
    fn words_of_any_length_are_shown_up_to_three_hundred_characters() {
        let shown = refused_with(503, &json!({"code": 14, "message": "x".repeat(301)})).to_string();
        assert_eq!(shown, format!("h:1: {}", "x".repeat(300)));
    }

    #[test]
    fn a_redirect_is_a_status_from_300_to_399() {
        for (status, is_redirect) in [(300, true), (399, true), (400, false)] {
            let error = refused(status, b"", "h:1").to_string();
            assert_eq!(error.contains("redirect"), is_redirect, "{error}");
        }
    }

    #[test]
    fn every_request_without_authentication_asks_for_a_token() {
        let error = refused_with(401, &json!({"code": 16, "message": "x"}));
        assert!(matches!(error, RegisterError::Credential(_)), "{error}");
    }
}

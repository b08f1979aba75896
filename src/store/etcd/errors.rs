//! Errors of requests to etcd, by what the caller does next, with the remedy in the message. No message
//! shows a password, a token or a URL.

use serde_json::Value;

use crate::lease::text::is_printable;
use crate::lease::{Cause, Failure, StoreError};
use crate::store::client::{self, Peer};
use crate::store::network::NetworkError;

/// Why a request had no answer that can be used. The text is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EtcdError {
    /// Definite: there is no such lease, so nothing was done under it.
    #[error("{0}")]
    LeaseMissing(String),
    /// Definite: there is such a lease already, so none was granted.
    #[error("{0}")]
    LeaseExists(String),
    /// The token of the sign-in is missing or is no longer valid, so nothing was done; another one may
    /// be.
    #[error("{0}")]
    Token(String),
    /// The cluster has no authentication, so it signs nobody in.
    #[error("{0}")]
    NoAuthentication(String),
    /// The user may not, or cannot sign in.
    #[error("{0}")]
    Denied(String),
    /// The password or certificate file cannot be read.
    #[error("{0}")]
    Files(String),
    /// The server throttles requests.
    #[error("{0}")]
    Throttled(String),
    /// The member failed, or has no quorum; it may still be done.
    #[error("{0}")]
    Unavailable(String),
    /// The server rejected the request as invalid, or its answer is unusable: a setting is wrong.
    #[error("{0}")]
    Invalid(String),
    /// There is no answer.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

impl EtcdError {
    /// Returns whether the member itself answered, so that another would answer alike.
    pub(super) fn is_an_answer(&self) -> bool {
        !matches!(self, Self::Unavailable(_) | Self::Invalid(_) | Self::Network(_))
    }
}

/// Converts an error, where nothing more is known: its outcome is never definite (R4).
impl From<EtcdError> for StoreError {
    fn from(error: EtcdError) -> Self {
        let message = error.to_string();
        let cause = match error {
            EtcdError::Network(error) => return error.into(),
            EtcdError::Token(_) | EtcdError::Denied(_) | EtcdError::Files(_) => Cause::Auth,
            EtcdError::Throttled(_) => Cause::Throttled,
            EtcdError::Invalid(_) | EtcdError::NoAuthentication(_) => Cause::Settings,
            EtcdError::Unavailable(_) | EtcdError::LeaseMissing(_) | EtcdError::LeaseExists(_) => {
                Cause::Unavailable
            }
        };
        Self::Unknown(Failure::new(cause, message))
    }
}

/// Classifies the answer of a member that is not a success, by its HTTP status and body.
pub(super) fn refused(status: u16, body: &[u8], member: &str) -> EtcdError {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let (code, words) = told(&json);
    match (code, words) {
        (Some(code), Some(words)) => classified(code, &words, member),
        _ if body.starts_with(b"CommonName of client") => EtcdError::Denied(format!(
            "{member} refuses client certificates with a common name, since it has users and ignores \
             that name at its gateway: set --store-cert to a certificate without one"
        )),
        _ if (300..400).contains(&status) => EtcdError::Invalid(format!(
            "{member} answered with a redirect ({status}), which Tenure does not follow: name the \
             members of the cluster themselves in --store"
        )),
        _ if status >= 500 => {
            EtcdError::Unavailable(format!("{member} answered {status} without a reason"))
        }
        _ => EtcdError::Invalid(format!(
            "{member} answered {status}, and not as etcd does: check the address in --store, and \
             that etcd runs with its gRPC gateway (--enable-grpc-gateway)"
        )),
    }
}

/// Classifies the error of a stream.
pub(super) fn streamed(error: &Value, member: &str) -> EtcdError {
    match told(error) {
        (Some(code), Some(words)) => classified(code, &words, member),
        _ => EtcdError::Unavailable(format!("{member} ended the request without a reason")),
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
fn classified(code: u64, words: &str, member: &str) -> EtcdError {
    let said = format!("{member}: {words}");
    match code {
        5 if words.contains("lease not found") => EtcdError::LeaseMissing(said),
        9 if words.contains("lease already exists") => EtcdError::LeaseExists(said),
        9 if words.contains("authentication is not enabled") => EtcdError::NoAuthentication(said),
        _ if asks_for_a_token(code, words) => EtcdError::Token(format!(
            "etcd requires a user, or the sign-in is no longer valid; check ETCD_USERNAME and \
             ETCD_PASSWORD ({said})"
        )),
        3 if words.contains("authentication failed") => EtcdError::Denied(format!(
            "the sign-in failed: check ETCD_USERNAME and ETCD_PASSWORD ({said})"
        )),
        7 => EtcdError::Denied(format!(
            "access denied: the user of ETCD_USERNAME needs a role with readwrite permission on the \
             keys of the election, see docs/stores/etcd.md ({said})"
        )),
        8 if words.contains("space exceeded") => EtcdError::Unavailable(format!(
            "the database of etcd is full: compact and defragment it, then disarm the alarm ({said})"
        )),
        8 => EtcdError::Throttled(said),
        // Cancelled, unknown, deadline, aborted, internal, unavailable, data loss.
        1 | 2 | 4 | 10 | 13 | 14 | 15 => EtcdError::Unavailable(said),
        _ => EtcdError::Invalid(format!("etcd refused the request ({said})")),
    }
}

/// Returns whether the request had no token, or one that the server knows no longer.
fn asks_for_a_token(code: u64, words: &str) -> bool {
    const STALE: [&str; 3] =
        ["invalid auth token", "user name is empty", "revision of auth store is old"];
    code == 16 || STALE.iter().any(|it| words.contains(it))
}

/// Converts the error of a request without an answer.
pub(super) fn broken(error: &reqwest::Error, member: &str) -> EtcdError {
    let files = "--store-ca-file, --store-cert,";
    let peer = Peer { name: member, setting: "--store", files, kind: "etcd" };
    client::broken(error, &peer).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused_with(status: u16, body: &Value) -> EtcdError {
        refused(status, body.to_string().as_bytes(), "h:1")
    }

    #[test]
    fn each_reason_of_etcd_has_its_meaning() {
        for (code, words, expected) in [
            (5, "etcdserver: requested lease not found", "LeaseMissing"),
            (9, "etcdserver: lease already exists", "LeaseExists"),
            (9, "etcdserver: authentication is not enabled", "NoAuthentication"),
            (16, "etcdserver: invalid auth token", "Token"),
            (3, "etcdserver: user name is empty", "Token"),
            (3, "etcdserver: revision of auth store is old", "Token"),
            (3, "etcdserver: authentication failed, invalid user ID or password", "Denied"),
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
            for body in
                ["", "<html>lease not found</html>", "[]", "{\"error\":\"lease not found\"}"]
            {
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
        assert!(matches!(&error, EtcdError::Denied(it) if it.contains("--store-cert")), "{error}");
    }

    #[test]
    fn every_error_is_unknown_until_a_caller_knows_more() {
        for code in 0..=17 {
            for words in ["etcdserver: lease already exists", "requested lease not found", "x"] {
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
        assert!(matches!(error, EtcdError::Token(_)), "{error}");
    }

    #[test]
    fn another_member_is_asked_after_what_this_one_did_not_answer_itself() {
        let why = || "x".to_owned();
        for (error, expected) in [
            (EtcdError::LeaseMissing(why()), true),
            (EtcdError::LeaseExists(why()), true),
            (EtcdError::Token(why()), true),
            (EtcdError::NoAuthentication(why()), true),
            (EtcdError::Denied(why()), true),
            (EtcdError::Files(why()), true),
            (EtcdError::Throttled(why()), true),
            (EtcdError::Unavailable(why()), false),
            (EtcdError::Invalid(why()), false),
            (NetworkError::Disconnected(why()).into(), false),
        ] {
            assert_eq!(error.is_an_answer(), expected, "{error:?}");
        }
    }
}

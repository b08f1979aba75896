//! Classifies Azure's answers: each status and code as a [`StoreError`], with the remedy in the
//! message. Only the codes listed here are definite (R4). No message has the body of an answer, a
//! URL or a secret.

use azure_core::error::{Error, ErrorKind};

use super::transport::TransportError;
use crate::lease::{Cause, Failure, StoreError};

/// The kind of request, by what its refusal would mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Reading lease state and metadata: a failure proves nothing about a lease.
    Read,
    /// Acquiring the lease.
    Acquire,
    /// Renewing, releasing, or writing under the lease.
    Hold,
    /// Breaking a lease: a failure proves nothing about this candidate's lease.
    Break,
    /// Creating container or blob, and the probes of `doctor`.
    Make,
}

/// Codes that mean that the lease is lost, for any request under it.
const LOST: [&str; 11] = [
    "LeaseIdMismatchWithLeaseOperation",
    "LeaseNotPresentWithLeaseOperation",
    "LeaseIsBrokenAndCannotBeRenewed",
    "LeaseAlreadyBroken",
    "LeaseLost",
    "LeaseNotPresentWithBlobOperation",
    "LeaseIdMismatchWithBlobOperation",
    "BlobNotFound",
    "ContainerNotFound",
    "ContainerBeingDeleted",
    "ContainerDisabled",
];

/// Codes that mean that another candidate holds the lease, or that it is being broken.
const CONTENTION: [&str; 3] = [
    "LeaseAlreadyPresent",
    "LeaseIsBreakingAndCannotBeAcquired",
    "LeaseIsBreakingAndCannotBeChanged",
];

/// Returns the status and the store's code of an error that was an answer.
pub(super) fn code(error: &Error) -> Option<(u16, &str)> {
    match error.kind() {
        ErrorKind::HttpResponse { status, error_code, .. } => {
            Some((u16::from(*status), error_code.as_deref().unwrap_or_default()))
        }
        _ => None,
    }
}

/// Returns whether the error means that the blob or the container does not exist.
pub(super) fn is_missing(error: &Error) -> bool {
    matches!(code(error), Some((404, "BlobNotFound" | "ContainerNotFound")))
}

/// Classifies an error for the kind of request.
pub(super) fn classify(op: Op, error: &Error) -> StoreError {
    let Some((status, code)) = code(error) else {
        return unanswered(error);
    };
    let lost = matches!(status, 404 | 409 | 412) && LOST.contains(&code);
    let contention = status == 409 && CONTENTION.contains(&code);
    if (lost && matches!(op, Op::Acquire | Op::Hold)) || (contention && op == Op::Acquire) {
        return StoreError::Refused(Failure::new(Cause::Lease, refusal(status, code)));
    }
    let (cause, words) = explain(status, code);
    let name = if is_code(code) { format!("{status} {code}") } else { status.to_string() };
    StoreError::Unknown(Failure::new(cause, format!("{words} (the store answered {name})")))
}

/// Returns the error for a successful answer that is not from Azure, such as a proxy's page.
pub(super) fn not_azure() -> StoreError {
    let message = "the answer is not from Azure Blob Storage: check the endpoint, and whether a \
                   proxy intercepts requests";
    StoreError::Unknown(Failure::new(Cause::Settings, message))
}

fn unanswered(error: &Error) -> StoreError {
    if let Some(broken) = error.downcast_ref::<TransportError>() {
        let failure = Failure::new(Cause::Network, broken.message.clone());
        return if broken.again {
            StoreError::RetryNow(failure)
        } else {
            StoreError::Unknown(failure)
        };
    }
    let (cause, message) = match error.kind() {
        ErrorKind::Connection | ErrorKind::Io => (Cause::Network, "the connection broke"),
        ErrorKind::Credential => (Cause::Auth, "sign-in failed"),
        ErrorKind::DataConversion => (Cause::Unavailable, "the store's answer is malformed"),
        _ => (Cause::Unavailable, "failed to build the request"),
    };
    StoreError::Unknown(Failure::new(cause, message))
}

fn refusal(status: u16, code: &str) -> String {
    let words = match code {
        "LeaseAlreadyPresent" => "another candidate holds the lease",
        "LeaseIsBreakingAndCannotBeAcquired" | "LeaseIsBreakingAndCannotBeChanged" => {
            "the lease is being broken, and is free once it expires"
        }
        "LeaseIsBrokenAndCannotBeRenewed" | "LeaseAlreadyBroken" => "the lease was broken",
        "LeaseIdMismatchWithLeaseOperation" | "LeaseIdMismatchWithBlobOperation" => {
            "another candidate holds the lease now"
        }
        "BlobNotFound" => "the blob was deleted, and the lease with it",
        "ContainerNotFound" | "ContainerDisabled" => {
            "the container was deleted, and the lease with it"
        }
        "ContainerBeingDeleted" => "the container is being deleted, and the lease with it",
        _ => "the lease has ended",
    };
    format!("{words} (the store answered {status} {code})")
}

const ROLE: &str = "grant the identity the role \"Storage Blob Data Contributor\" on the \
                    container, or the SAS the permissions read, create and write";

fn explain(status: u16, code: &str) -> (Cause, String) {
    let (cause, words) = match (status, code) {
        (300..400, _) => (
            Cause::Settings,
            "the store answered with a redirect, which Tenure does not follow: check the endpoint"
                .into(),
        ),
        (401 | 403, _) => (Cause::Auth, rights(code)),
        (429, _) | (503, "ServerBusy") => (Cause::Throttled, "the store throttles requests".into()),
        (500.., _) => (
            Cause::Unavailable,
            "the store failed internally; it usually recovers by itself".into(),
        ),
        (404, "BlobNotFound") => (Cause::Settings, "the blob does not exist".into()),
        (404, "ContainerNotFound") => (
            Cause::Settings,
            "the container does not exist: create it, or run `tenure doctor --create`".into(),
        ),
        (404, _) => (
            Cause::Settings,
            "the account or endpoint does not exist: check --store and --azure-endpoint".into(),
        ),
        (409, "ContainerBeingDeleted") => (
            Cause::Unavailable,
            "the container is being deleted: it can be created again after 30 s or more".into(),
        ),
        (409, "BlobArchived" | "BlobBeingRehydrated") => (
            Cause::Settings,
            "the blob is archived and cannot be leased: move it to the hot tier, and exclude it \
             from lifecycle rules"
                .into(),
        ),
        (409, "PublicAccessNotPermitted") => (Cause::Auth, rights(code)),
        (400 | 405 | 411 | 413 | 415 | 416, _) => (
            Cause::Settings,
            "the store rejected the request as invalid: check container, prefix and endpoint"
                .into(),
        ),
        (200..300, _) => return (Cause::Settings, not_azure().to_string()),
        _ => (Cause::Unavailable, "the store rejected the request".to_owned()),
    };
    (cause, words)
}

fn rights(code: &str) -> String {
    match code {
        "AuthenticationFailed" => "the key, SAS or token was rejected: check that it is complete \
                                   and not expired, and that the clock of this host is right"
            .into(),
        "InvalidAuthenticationInfo" | "NoAuthenticationInformation" => {
            "the token was rejected: it expired, or is for another tenant or service".into()
        }
        "AuthorizationFailure" | "AuthorizationSourceIPMismatch" => {
            format!(
                "access denied: check the account's firewall and the IP range of the SAS, or {ROLE}"
            )
        }
        "AuthorizationProtocolMismatch" => "the SAS allows https only".into(),
        "KeyBasedAuthenticationNotPermitted" => {
            "the account does not allow keys: use workload identity or managed identity".into()
        }
        "AccountIsDisabled" => "the account is disabled".into(),
        _ => format!("permission denied: {ROLE}"),
    }
}

/// Names the key where the store refused a request that was signed with the key of this account.
/// A firewall refuses with one of the same codes.
pub(super) fn explain_key(failed: StoreError, error: &Error, account: &str) -> StoreError {
    match code(error) {
        Some((status @ 403, code @ ("AuthenticationFailed" | "AuthorizationFailure"))) => {
            let message = format!(
                "the store rejected the account key: it does not match the account {account}; copy \
                 a current key of that account. If it is the right one, check the clock of this \
                 host and the account's firewall (the store answered {status} {code})"
            );
            StoreError::Unknown(Failure::new(Cause::Auth, message))
        }
        _ => failed,
    }
}

/// Returns whether the text is a code, a single word of letters and digits; anything else in its
/// place is foreign text.
fn is_code(code: &str) -> bool {
    (1..=80).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, code: &str) -> Error {
        let kind = ErrorKind::HttpResponse {
            status: status.into(),
            error_code: Some(code.to_owned()),
            raw_response: None,
        };
        Error::with_message(kind, "<?xml version=\"1.0\"?><Error>sig=SECRET</Error>")
    }

    fn is_refused(op: Op, status: u16, code: &str) -> bool {
        let error = classify(op, &answer(status, code));
        match &error {
            StoreError::Refused(failure) => assert_eq!(failure.cause, Cause::Lease),
            StoreError::Unknown(_) => (),
            other => panic!("an answer is never {other:?}"),
        }
        let words = error.to_string();
        assert!(!words.contains("SECRET") && !words.contains('<'), "{words}");
        assert!(words.contains(&status.to_string()), "{words}");
        matches!(error, StoreError::Refused(_))
    }

    #[test]
    fn a_missing_lease_is_lost_to_its_holder_only() {
        for code in LOST {
            for status in [404, 409, 412] {
                assert!(is_refused(Op::Hold, status, code), "{code}");
                assert!(is_refused(Op::Acquire, status, code), "{code}");
                assert!(!is_refused(Op::Read, status, code), "{code}");
            }
            assert!(!is_refused(Op::Hold, 500, code), "only the store itself can say so");
        }
    }

    #[test]
    fn contention_refuses_a_bid_and_nothing_else() {
        for code in CONTENTION {
            assert!(is_refused(Op::Acquire, 409, code));
            assert!(!is_refused(Op::Hold, 409, code));
        }
    }

    #[test]
    fn whatever_is_not_listed_is_unknown() {
        let table: [(u16, &str, Cause); 13] = [
            (302, "", Cause::Settings),
            (200, "", Cause::Settings),
            (400, "InvalidHeaderValue", Cause::Settings),
            (401, "InvalidAuthenticationInfo", Cause::Auth),
            (403, "AuthorizationPermissionMismatch", Cause::Auth),
            (403, "LeaseLost", Cause::Auth),
            (404, "ResourceNotFound", Cause::Settings),
            (409, "BlobArchived", Cause::Settings),
            (409, "SomethingNew", Cause::Unavailable),
            (412, "ConditionNotMet", Cause::Unavailable),
            (429, "", Cause::Throttled),
            (500, "InternalError", Cause::Unavailable),
            (503, "ServerBusy", Cause::Throttled),
        ];
        for (status, code, cause) in table {
            for op in [Op::Read, Op::Acquire, Op::Hold, Op::Make] {
                assert!(!is_refused(op, status, code), "{status} {code}");
                assert_eq!(classify(op, &answer(status, code)).failure().cause, cause, "{code}");
            }
        }
    }

    #[test]
    fn a_rejected_key_is_named_and_no_role_of_an_identity() {
        for code in ["AuthenticationFailed", "AuthorizationFailure"] {
            let error = answer(403, code);
            let words = explain_key(classify(Op::Read, &error), &error, "acct").to_string();
            assert!(words.contains("does not match the account acct"), "{words}");
            assert!(words.contains(code) && !words.contains("Contributor"), "{words}");
        }
        let error = answer(403, "AuthorizationPermissionMismatch");
        let words = explain_key(classify(Op::Read, &error), &error, "acct").to_string();
        assert!(words.contains("Storage Blob Data Contributor"), "{words}");
    }

    #[test]
    fn each_refusal_of_rights_has_its_own_remedy() {
        let table = [
            (403, "AuthenticationFailed", "the clock of this host"),
            (401, "InvalidAuthenticationInfo", "expired"),
            (401, "NoAuthenticationInformation", "expired"),
            (403, "AuthorizationFailure", "firewall"),
            (403, "AuthorizationSourceIPMismatch", "firewall"),
            (403, "AuthorizationProtocolMismatch", "https only"),
            (403, "KeyBasedAuthenticationNotPermitted", "does not allow keys"),
            (403, "AccountIsDisabled", "the account is disabled"),
            (409, "PublicAccessNotPermitted", "permission denied"),
        ];
        for (status, code, remedy) in table {
            let error = classify(Op::Read, &answer(status, code));
            assert_eq!(error.failure().cause, Cause::Auth, "{code}");
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }

    #[test]
    fn what_the_client_could_not_ask_or_read_is_unknown() {
        let table = [
            (ErrorKind::Io, Cause::Network, "broke"),
            (ErrorKind::Credential, Cause::Auth, "sign-in"),
            (ErrorKind::DataConversion, Cause::Unavailable, "malformed"),
            (ErrorKind::Other, Cause::Unavailable, "the request"),
        ];
        for (kind, cause, words) in table {
            let error = classify(Op::Hold, &Error::with_message(kind, "sig=SECRET"));
            assert!(matches!(error, StoreError::Unknown(_)), "{error:?}");
            assert_eq!(error.failure().cause, cause, "{error}");
            let shown = error.to_string();
            assert!(shown.contains(words) && !shown.contains("SECRET"), "{shown}");
        }
    }

    #[test]
    fn a_refusal_says_what_became_of_the_lease() {
        let table = [
            (Op::Acquire, 409, "LeaseAlreadyPresent", "another candidate holds the lease"),
            (
                Op::Acquire,
                409,
                "LeaseIsBreakingAndCannotBeAcquired",
                "the lease is being broken, and is free once it expires",
            ),
            (
                Op::Acquire,
                409,
                "LeaseIsBreakingAndCannotBeChanged",
                "the lease is being broken, and is free once it expires",
            ),
            (Op::Hold, 409, "LeaseIsBrokenAndCannotBeRenewed", "the lease was broken"),
            (Op::Hold, 409, "LeaseAlreadyBroken", "the lease was broken"),
            (
                Op::Hold,
                409,
                "LeaseIdMismatchWithLeaseOperation",
                "another candidate holds the lease now",
            ),
            (
                Op::Hold,
                412,
                "LeaseIdMismatchWithBlobOperation",
                "another candidate holds the lease now",
            ),
            (Op::Hold, 404, "BlobNotFound", "the blob was deleted, and the lease with it"),
            (
                Op::Hold,
                404,
                "ContainerNotFound",
                "the container was deleted, and the lease with it",
            ),
            (
                Op::Hold,
                409,
                "ContainerDisabled",
                "the container was deleted, and the lease with it",
            ),
            (
                Op::Hold,
                409,
                "ContainerBeingDeleted",
                "the container is being deleted, and the lease with it",
            ),
            (Op::Hold, 412, "LeaseLost", "the lease has ended"),
        ];
        for (op, status, code, words) in table {
            let message = format!("{words} (the store answered {status} {code})");
            assert_eq!(classify(op, &answer(status, code)).failure().message, message);
        }
    }

    #[test]
    fn what_does_not_exist_or_failed_is_named() {
        let table = [
            (404, "BlobNotFound", true, "the blob does not exist"),
            (404, "ContainerNotFound", true, "the container does not exist"),
            (404, "ResourceNotFound", false, "the account or endpoint does not exist"),
            (500, "InternalError", false, "the store failed internally"),
            (503, "BlobNotFound", false, "the store failed internally"),
        ];
        for (status, code, missing, words) in table {
            let error = answer(status, code);
            assert_eq!(is_missing(&error), missing, "{status} {code}");
            let shown = classify(Op::Read, &error).to_string();
            assert!(shown.contains(words), "{shown}");
        }
    }

    #[test]
    fn a_code_is_quoted_only_if_it_is_one_word_of_at_most_80_letters() {
        let (longest, too_long) = ("a".repeat(80), "a".repeat(81));
        for code in ["A", "Code1", &longest] {
            let shown = classify(Op::Read, &answer(400, code)).to_string();
            assert!(shown.ends_with(&format!("(the store answered 400 {code})")), "{shown}");
        }
        for code in ["", "two words", "<b>", &too_long] {
            let shown = classify(Op::Read, &answer(400, code)).to_string();
            assert!(shown.ends_with("(the store answered 400)"), "{shown}");
        }
    }

    #[test]
    fn only_a_broken_connection_is_retried_at_once() {
        for again in [true, false] {
            let broken = TransportError { message: "broken".to_owned(), again };
            let error = classify(Op::Hold, &Error::new(ErrorKind::Io, broken));
            assert_eq!(matches!(error, StoreError::RetryNow(_)), again, "{error:?}");
            assert_eq!(error.failure(), &Failure::new(Cause::Network, "broken"));
        }
    }

    #[test]
    fn missing_rights_name_the_role() {
        let words = classify(Op::Read, &answer(403, "AuthorizationPermissionMismatch")).to_string();
        assert!(words.contains("Storage Blob Data Contributor"), "{words}");
    }
}

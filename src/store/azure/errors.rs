//! Classifies Azure's answers: each status and code as a [`StoreError`], with the remedy in the
//! message. Only the codes listed here are definite (R4). No message has the body of an answer, a
//! URL or a secret.

use std::time::Duration;

use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::Headers;
use azure_core::time::parse_rfc7231;

use super::denied::{self, Evidence};
use super::rejected::{self, NOT_AZURE};
use super::transport::{REQUEST_ID, TransportError};
use super::{date, header};
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
pub(super) fn classify(op: Op, error: &Error, known: &Evidence<'_>) -> StoreError {
    let Some((status, code)) = code(error) else {
        return unanswered(error);
    };
    let lost = matches!(status, 404 | 409 | 412) && LOST.contains(&code);
    let contention = status == 409 && CONTENTION.contains(&code);
    if (lost && matches!(op, Op::Acquire | Op::Hold)) || (contention && op == Op::Acquire) {
        return StoreError::Refused(Failure::new(Cause::Lease, refusal(status, code)));
    }
    let is_foreign = answer_headers(error).is_some_and(|it| header(it, REQUEST_ID).is_none());
    let (cause, words) = match (status, code) {
        _ if is_foreign => rejected::explain_foreign(status),
        (401 | 403, _) | (400, "InvalidAuthenticationInfo") | (409, "PublicAccessNotPermitted") => {
            denied::explain(code, known)
        }
        (200..300, _) => (Cause::Settings, NOT_AZURE.to_owned()),
        _ => rejected::explain(status, code),
    };
    let name = if is_code(code) { format!("{status} {code}") } else { status.to_string() };
    let by = if is_foreign { "the answer was" } else { "the store answered" };
    let mut failure = Failure::new(cause, format!("{words} ({by} {name})"));
    failure.retry_after = matches!(status, 429 | 503).then(|| retry_after(error)).flatten();
    StoreError::Unknown(failure)
}

/// Returns the headers of an error that was an answer.
pub(super) fn answer_headers(error: &Error) -> Option<&Headers> {
    match error.kind() {
        ErrorKind::HttpResponse { raw_response: Some(answer), .. } => Some(answer.headers()),
        _ => None,
    }
}

/// Returns how long the store asks to wait, in seconds or until a date of its own clock.
fn retry_after(error: &Error) -> Option<Duration> {
    let headers = answer_headers(error)?;
    let wait = header(headers, "retry-after")?;
    if let Ok(seconds) = wait.parse() {
        return Some(Duration::from_secs(seconds));
    }
    Duration::try_from(parse_rfc7231(wait).ok()? - date(headers)?).ok()
}

/// Returns the error for a successful answer that is not from Azure, such as a proxy's page.
pub(super) fn not_azure() -> StoreError {
    StoreError::Unknown(Failure::new(Cause::Settings, NOT_AZURE))
}

fn unanswered(error: &Error) -> StoreError {
    if let Some(broken) = error.downcast_ref::<TransportError>() {
        let failure = Failure::new(broken.cause, broken.message.clone());
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

/// Returns whether the text is a code, a single word of letters and digits; anything else in its
/// place is foreign text.
fn is_code(code: &str) -> bool {
    (1..=80).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use azure_core::http::RawResponse;
    use time::macros::datetime;
    use url::Url;

    use super::*;

    fn answer(status: u16, code: &str) -> Error {
        let kind = ErrorKind::HttpResponse {
            status: status.into(),
            error_code: Some(code.to_owned()),
            raw_response: None,
        };
        Error::with_message(kind, "<?xml version=\"1.0\"?><Error>sig=SECRET</Error>")
    }

    fn classify(op: Op, error: &Error) -> StoreError {
        let endpoint = Url::parse("https://acct.blob.core.windows.net/").unwrap();
        let (date, now) = (None, datetime!(2030-01-01 00:00 UTC));
        let known = Evidence { proof: None, account: "acct", endpoint: &endpoint, date, now };
        super::classify(op, error, &known)
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

    /// Returns an answer with these headers.
    fn raw(status: u16, headers: &[(&'static str, &str)]) -> Error {
        let mut all = Headers::new();
        for (name, value) in headers {
            all.insert(*name, (*value).to_owned());
        }
        let raw = RawResponse::from_bytes(status.into(), all, Vec::new());
        let kind = ErrorKind::HttpResponse {
            status: status.into(),
            error_code: None,
            raw_response: Some(Box::new(raw)),
        };
        Error::with_message(kind, "")
    }

    #[test]
    fn an_answer_that_is_not_of_azure_is_said_to_be_of_what_stands_in_between() {
        for (status, cause, words) in [
            (407, Cause::Settings, "a proxy demands a sign-in"),
            (401, Cause::Settings, "a proxy or firewall on the way refused"),
            (403, Cause::Settings, "a proxy or firewall on the way refused"),
            (404, Cause::Settings, "not from Azure"),
            (421, Cause::Settings, "not from Azure"),
            (302, Cause::Settings, "redirect"),
            (429, Cause::Unavailable, "a proxy or load balancer on the way"),
            (502, Cause::Unavailable, "a proxy or load balancer on the way"),
        ] {
            for headers in [&[("server", "Squid")][..], &[]] {
                let error = classify(Op::Hold, &raw(status, headers));
                assert!(matches!(error, StoreError::Unknown(_)), "{error:?}");
                assert_eq!(error.failure().cause, cause, "{error}");
                assert!(error.to_string().contains(words), "{error}");
                assert!(error.to_string().contains(&status.to_string()), "{error}");
            }
            let error = classify(Op::Hold, &raw(status, &[(REQUEST_ID, "1")])).to_string();
            assert!(!error.contains("on the way") && !error.contains("not from Azure"), "{error}");
        }
    }

    #[test]
    fn a_wait_is_asked_for_in_seconds_or_until_a_date_of_the_store() {
        let date = ("date", "Tue, 14 Nov 2023 22:13:20 GMT");
        for (status, headers, expected) in [
            (503, vec![("retry-after", "3")], Some(3)),
            (429, vec![("retry-after", "60")], Some(60)),
            (503, vec![date, ("retry-after", "Tue, 14 Nov 2023 22:13:25 GMT")], Some(5)),
            (503, vec![date, ("retry-after", "Tue, 14 Nov 2023 22:13:15 GMT")], None),
            (503, vec![("retry-after", "Tue, 14 Nov 2023 22:13:25 GMT")], None),
            (503, vec![("retry-after", "soon")], None),
            (503, vec![], None),
            (500, vec![("retry-after", "3")], None),
        ] {
            let found = classify(Op::Hold, &raw(status, &headers)).failure().retry_after;
            assert_eq!(found, expected.map(Duration::from_secs), "{status} {headers:?}");
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
            let broken =
                TransportError { message: "broken".to_owned(), cause: Cause::Network, again };
            let error = classify(Op::Hold, &Error::new(ErrorKind::Io, broken));
            assert_eq!(matches!(error, StoreError::RetryNow(_)), again, "{error:?}");
            assert_eq!(error.failure(), &Failure::new(Cause::Network, "broken"));
        }
    }
}

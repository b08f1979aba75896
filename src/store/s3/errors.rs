//! Errors of requests to S3, by what the caller does next, with the remedy in the message. No message
//! shows a secret or a URL.

use super::xml::Elements;
use crate::lease::{Cause, Failure, StoreError};

/// Why a request had no answer that can be used. The text is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum S3Error {
    /// There is no such object.
    #[error("{0}")]
    Missing(String),
    /// Definite: the condition does not hold, so that nothing was written.
    #[error("{0}")]
    Condition(String),
    /// Another request for the object was being served at the same time; it may still be done.
    #[error("{0}")]
    Concurrent(String),
    /// There is no credential, or the server refuses it.
    #[error("{0}")]
    Credential(String),
    /// The credential is good, and may not do this.
    #[error("{0}")]
    Denied(String),
    /// The server throttles requests.
    #[error("{0}")]
    Throttled(String),
    /// The server failed; it may still be done.
    #[error("{0}")]
    Unavailable(String),
    /// The server rejected the request as invalid, or its answer is unusable: a setting is wrong.
    #[error("{0}")]
    Invalid(String),
    /// No answer within request-timeout.
    #[error("{0}")]
    Timeout(String),
    /// The server cannot be reached: name resolution or certificate.
    #[error("{0}")]
    Network(String),
    /// The connection failed, or broke during the request. One immediate retry is worthwhile.
    #[error("{0}")]
    Disconnected(String),
}

/// Converts an error, where nothing more is known: its outcome is never definite (R4).
impl From<S3Error> for StoreError {
    fn from(error: S3Error) -> Self {
        let message = error.to_string();
        let cause = match error {
            S3Error::Disconnected(_) => {
                return Self::RetryNow(Failure::new(Cause::Network, message));
            }
            S3Error::Concurrent(_) => return Self::RetryNow(Failure::new(Cause::Lease, message)),
            S3Error::Credential(_) | S3Error::Denied(_) => Cause::Auth,
            S3Error::Throttled(_) => Cause::Throttled,
            S3Error::Timeout(_) => Cause::Timeout,
            S3Error::Network(_) => Cause::Network,
            S3Error::Invalid(_) | S3Error::Missing(_) | S3Error::Condition(_) => Cause::Settings,
            S3Error::Unavailable(_) => Cause::Unavailable,
        };
        Self::Unknown(Failure::new(cause, message))
    }
}

/// A request that was refused, for messages.
pub(super) struct Asked<'a> {
    /// Host and port of the server.
    pub(super) server: &'a str,
    pub(super) bucket: &'a str,
    /// What the request was for: an object, or the bucket.
    pub(super) place: &'a str,
    pub(super) region: &'a str,
    /// The region in which the server says that the bucket is.
    pub(super) actual_region: Option<&'a str>,
}

impl Asked<'_> {
    /// Classifies an answer that is not a success, by its HTTP status and body.
    pub(super) fn refused(&self, status: u16, body: &[u8]) -> S3Error {
        let elements = Elements::read(body).unwrap_or_default();
        let words = elements.text("Message").unwrap_or_default().to_owned();
        let code = elements.text("Code").unwrap_or_default();
        let Self { server, bucket, place, region, .. } = self;
        let said = match (code, words.as_str()) {
            ("", _) => format!("{server} answered {status}"),
            (code, "") => format!("{server} answered {status} {code}"),
            (code, words) => format!("{server} answered {status} {code}: {words}"),
        };
        if let Some(actual) = self.actual_region.filter(|it| it != region && !it.is_empty()) {
            return S3Error::Invalid(format!(
                "the bucket {bucket} is in the region {actual}: set --s3-region {actual}"
            ));
        }
        match (status, code) {
            (412, _) => S3Error::Condition(format!("{place} has changed ({said})")),
            (409, "ConditionalRequestConflict" | "OperationAborted") => {
                S3Error::Concurrent(format!("another request for {place} was served ({said})"))
            }
            (404, "NoSuchBucket") => S3Error::Invalid(format!(
                "there is no bucket {bucket}: create it, or correct --store ({said})"
            )),
            // Some servers name no code where an answer has no body.
            (404, "NoSuchKey" | "") => S3Error::Missing(format!("there is no {place} ({said})")),
            (300..=399, _)
            | (400, "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException") => {
                S3Error::Invalid(format!(
                    "the bucket {bucket} is not in the region {region}, or the server names it in another \
                     way: check --s3-region, --s3-endpoint and --s3-path-style ({said})"
                ))
            }
            (_, "RequestTimeTooSkewed") => S3Error::Credential(format!(
                "the clock of this host is wrong, and signatures have its time: set the clock ({said})"
            )),
            (_, "SignatureDoesNotMatch") => S3Error::Credential(format!(
                "the secret key is wrong, or a proxy changes requests: check AWS_SECRET_ACCESS_KEY and \
                 --s3-region ({said})"
            )),
            (
                _,
                "InvalidAccessKeyId"
                | "ExpiredToken"
                | "InvalidToken"
                | "TokenRefreshRequired"
                | "ExpiredTokenException"
                | "UnrecognizedClientException",
            )
            | (401, _) => S3Error::Credential(format!(
                "the server does not accept the credential: check it, or wait for a new token ({said})"
            )),
            (403, _) => S3Error::Denied(format!(
                "access to {place} is denied: it needs s3:GetObject and s3:PutObject on the objects, and \
                 s3:ListBucket on the bucket, without which a missing object cannot be told from one \
                 that is denied; see docs/stores/s3.md ({said})"
            )),
            (429, _) | (503, "SlowDown" | "TooManyRequests") | (_, "ThrottlingException") => {
                S3Error::Throttled(said)
            }
            (501, _) => S3Error::Invalid(format!(
                "the server does not support conditional writes: use another one ({said})"
            )),
            (500.., _) | (400, "RequestTimeout") => S3Error::Unavailable(said),
            _ => S3Error::Invalid(format!(
                "the server does not answer as S3 does: check --s3-endpoint and --store ({said})"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked<'_> = Asked {
        server: "h:1",
        bucket: "leases",
        place: "the object s3://leases/orders",
        region: "eu-west-1",
        actual_region: None,
    };

    fn shown(status: u16, code: &str) -> String {
        let body = format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>"
        );
        format!("{:?}", ASKED.refused(status, body.as_bytes()))
    }

    #[test]
    fn each_code_of_s3_has_its_meaning() {
        for (status, code, expected) in [
            (412, "PreconditionFailed", "Condition"),
            (409, "ConditionalRequestConflict", "Concurrent"),
            (409, "OperationAborted", "Concurrent"),
            (409, "BucketNotEmpty", "Invalid"),
            (404, "NoSuchKey", "Missing"),
            (404, "NoSuchBucket", "Invalid"),
            (403, "AccessDenied", "Denied"),
            (403, "SignatureDoesNotMatch", "Credential"),
            (403, "RequestTimeTooSkewed", "Credential"),
            (403, "InvalidAccessKeyId", "Credential"),
            (400, "ExpiredToken", "Credential"),
            (301, "PermanentRedirect", "Invalid"),
            (400, "AuthorizationHeaderMalformed", "Invalid"),
            (503, "SlowDown", "Throttled"),
            (429, "TooManyRequests", "Throttled"),
            (503, "ServiceUnavailable", "Unavailable"),
            (500, "InternalError", "Unavailable"),
            (400, "RequestTimeout", "Unavailable"),
            (501, "NotImplemented", "Invalid"),
        ] {
            let error = shown(status, code);
            assert!(
                error.starts_with(expected) && error.contains("h:1"),
                "{status} {code}: {error}"
            );
        }
    }

    #[test]
    fn an_answer_that_is_not_of_s3_is_never_definite() {
        for status in [200, 204, 302, 400, 405, 418, 500, 502, 504] {
            for body in [&b""[..], b"<html><body>Not here</body></html>", b"{}", b"\xff"] {
                let error = ASKED.refused(status, body);
                assert!(matches!(StoreError::from(error), StoreError::Unknown(_)), "{status}");
            }
        }
    }

    #[test]
    fn a_bucket_in_another_region_is_named_with_it() {
        let asked = Asked { actual_region: Some("us-west-2"), ..ASKED };
        for status in [301, 400, 403] {
            let error = asked.refused(status, b"").to_string();
            assert!(error.contains("set --s3-region us-west-2"), "{error}");
        }
    }
}

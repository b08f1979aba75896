//! What an answer of S3 means that is not a success.

use super::xml::Elements;
use crate::store::register::RegisterError;

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
    pub(super) fn refused(&self, status: u16, body: &[u8]) -> RegisterError {
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
            return RegisterError::Invalid(format!(
                "the bucket {bucket} is in the region {actual}: set --s3-region {actual}"
            ));
        }
        match (status, code) {
            (412, _) => RegisterError::Condition(format!("{place} has changed ({said})")),
            (409, "ConditionalRequestConflict" | "OperationAborted") => RegisterError::Concurrent(
                format!("another request for {place} was served ({said})"),
            ),
            (404, "NoSuchBucket") => RegisterError::Invalid(format!(
                "there is no bucket {bucket}: create it, or correct --store ({said})"
            )),
            // Some servers name no code where an answer has no body.
            (404, "NoSuchKey" | "") => {
                RegisterError::Missing(format!("there is no {place} ({said})"))
            }
            (300..=399, _)
            | (400, "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException") => {
                RegisterError::Invalid(format!(
                    "the bucket {bucket} is not in the region {region}, or the server names it in another \
                     way: check --s3-region, --s3-endpoint and --s3-path-style ({said})"
                ))
            }
            (_, "RequestTimeTooSkewed") => RegisterError::Credential(format!(
                "the clock of this host is wrong, and signatures have its time: set the clock ({said})"
            )),
            (_, "SignatureDoesNotMatch") => RegisterError::Credential(format!(
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
            | (401, _) => RegisterError::Credential(format!(
                "the server does not accept the credential: check it, or wait for a new token ({said})"
            )),
            (403, _) => RegisterError::Denied(format!(
                "access to {place} is denied: it needs s3:GetObject and s3:PutObject on the objects, and \
                 s3:ListBucket on the bucket, without which a missing object cannot be told from one \
                 that is denied; see docs/stores/s3.md ({said})"
            )),
            (429, _) | (503, "SlowDown" | "TooManyRequests") | (_, "ThrottlingException") => {
                RegisterError::Throttled(said)
            }
            (501, _) => RegisterError::Invalid(format!(
                "the server does not support conditional writes: use another one ({said})"
            )),
            (500.., _) | (400, "RequestTimeout") => RegisterError::Unavailable(said),
            _ => RegisterError::Invalid(format!(
                "the server does not answer as S3 does: check --s3-endpoint and --store ({said})"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::StoreError;

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

    #[test]
    fn a_region_is_named_only_where_the_bucket_is_in_another() {
        for actual_region in [None, Some(""), Some(ASKED.region)] {
            let error = Asked { actual_region, ..ASKED }.refused(403, b"").to_string();
            assert!(
                error.starts_with("access to the object s3://leases/orders is denied"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_the_remedy() {
        for (status, code, words) in [
            (404, "NoSuchBucket", "there is no bucket leases: create it, or correct --store"),
            (301, "PermanentRedirect", "is not in the region eu-west-1, or the server names it in"),
            (399, "", "is not in the region eu-west-1, or the server names it in"),
            (400, "AuthorizationHeaderMalformed", "is not in the region eu-west-1"),
            (400, "IllegalLocationConstraintException", "is not in the region eu-west-1"),
            (400, "InvalidArgument", "the server does not answer as S3 does"),
            (403, "RequestTimeTooSkewed", "the clock of this host is wrong"),
            (403, "SignatureDoesNotMatch", "check AWS_SECRET_ACCESS_KEY"),
            (501, "NotImplemented", "does not support conditional writes"),
        ] {
            let error = shown(status, code);
            assert!(error.contains(words), "{status} {code}: {error}");
        }
    }
}

//! What an answer of Google Cloud Storage means that is not a success.

use serde_json::Value;

use crate::store::register::RegisterError;

/// Classifies an answer by its HTTP status and body. `place` names what the request was for.
pub(super) fn refused(status: u16, body: &[u8], server: &str, place: &str) -> RegisterError {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &json["error"];
    let words = error["message"].as_str().unwrap_or_default();
    let reason = error["errors"][0]["reason"].as_str().unwrap_or_default();
    let said = match (reason, words) {
        ("", "") => format!("{server} answered {status}"),
        ("", words) => format!("{server} answered {status}: {words}"),
        (reason, words) => format!("{server} answered {status} {reason}: {words}"),
    };
    match (status, reason) {
        (412, _) => RegisterError::Condition(format!("{place} has changed ({said})")),
        (409, _) => {
            RegisterError::Concurrent(format!("another request for {place} was served ({said})"))
        }
        (404, _) if words.contains("bucket does not exist") => RegisterError::Invalid(format!(
            "there is no such bucket: create it, or correct --store ({said})"
        )),
        (404, _) => RegisterError::Missing(format!("there is no {place} ({said})")),
        (401, _) => RegisterError::Credential(format!(
            "the server does not accept the credential: check it, or wait for a new token ({said})"
        )),
        (429, _) | (403, "rateLimitExceeded" | "userRateLimitExceeded" | "quotaExceeded") => {
            RegisterError::Throttled(format!(
                "the server throttles writes of one object: raise --retry-period ({said})"
            ))
        }
        (403, _) => RegisterError::Denied(format!(
            "access to {place} is denied: it needs storage.objects.get, create and delete, as in the role \
             roles/storage.objectUser; see docs/stores/gcs.md ({said})"
        )),
        (408 | 500.., _) => RegisterError::Unavailable(said),
        _ => RegisterError::Invalid(format!(
            "the server does not answer as Google Cloud Storage does: check --store and \
             STORAGE_EMULATOR_HOST ({said})"
        )),
    }
}

/// Returns the error of a write that met no bucket.
pub(super) fn no_bucket(bucket: &str) -> RegisterError {
    RegisterError::Invalid(format!("there is no bucket {bucket}: create it, or correct --store"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::lease::StoreError;

    #[test]
    fn each_answer_of_google_has_its_meaning() {
        for (status, reason, message, expected) in [
            (412, "conditionNotMet", "At least one of the pre-conditions", "Condition"),
            (409, "conflict", "The metadata for the object was edited", "Concurrent"),
            (404, "notFound", "No such object: leases/orders", "Missing"),
            (404, "notFound", "The specified bucket does not exist.", "Invalid"),
            (401, "authError", "Invalid Credentials", "Credential"),
            (403, "forbidden", "does not have storage.objects.get access", "Denied"),
            (403, "rateLimitExceeded", "Rate limit exceeded", "Throttled"),
            (429, "rateLimitExceeded", "The object exceeded the rate limit", "Throttled"),
            (503, "backendError", "We encountered an internal error", "Unavailable"),
            (408, "", "", "Unavailable"),
            (400, "invalid", "Invalid argument", "Invalid"),
            (302, "", "", "Invalid"),
        ] {
            let body = json!({"error": {"code": status, "message": message, "errors": [{"reason": reason}]}});
            let error = refused(status, body.to_string().as_bytes(), "h:1", "the object gs://b/o");
            let shown = format!("{error:?}");
            assert!(
                shown.starts_with(expected) && shown.contains("h:1"),
                "{status} {reason}: {shown}"
            );
        }
    }

    #[test]
    fn an_answer_that_is_not_of_google_is_never_definite() {
        for status in [302, 400, 401, 403, 405, 418, 429, 500, 502, 504] {
            for body in [&b""[..], b"<html>Not here</html>", b"[]", b"{\"error\":\"x\"}", b"\xff"] {
                let error = refused(status, body, "h:1", "it");
                assert!(matches!(StoreError::from(error), StoreError::Unknown(_)), "{status}");
            }
        }
    }
}

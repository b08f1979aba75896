//! The token that is sent with each request: from a variable, or from a file that is read again when it
//! changes and after a refusal.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::HeaderValue;

use crate::config::SecretSource;
use crate::lease::{Cause, Failure};
use crate::store::renewed::{Next, Renewed, Source};
use crate::store::secret::Secret;

/// The longest read of the file. It delays no request but the first.
const PATIENCE: Duration = Duration::from_secs(30);

/// Keeps a token; reads its file in a task, if it is in one.
pub(super) fn open(source: &SecretSource, request_timeout: Duration) -> Renewed<HeaderValue> {
    match source {
        SecretSource::Value(text) => Renewed::fixed(header(text)),
        SecretSource::File(path) => {
            let what = format!("the read of {}, set by CONSUL_HTTP_TOKEN_FILE,", path.display());
            let file = TokenFile { secret: Secret::new(source), taken: None };
            Renewed::start(file, &what, "Consul", request_timeout)
        }
    }
}

fn header(text: &str) -> Result<HeaderValue, Failure> {
    let unfit = |_| {
        let message = "CONSUL_HTTP_TOKEN has characters that no token of Consul has";
        Failure::new(Cause::Auth, message)
    };
    let mut value = HeaderValue::try_from(text.trim()).map_err(unfit)?;
    value.set_sensitive(true);
    Ok(value)
}

struct TokenFile {
    secret: Secret,
    /// What was read last.
    taken: Option<String>,
}

#[async_trait]
impl Source<HeaderValue> for TokenFile {
    async fn fetch(&mut self) -> (Result<Option<HeaderValue>, Failure>, Next) {
        let read = match self.secret.read(PATIENCE).await {
            Ok(text) if self.taken.as_ref() == Some(&text) => Ok(None),
            Ok(text) => {
                let value = header(&text).map(Some);
                self.taken = Some(text);
                value
            }
            Err(why) => {
                self.taken = None;
                Err(Failure::new(
                    Cause::Auth,
                    format!("{why}; it is set by CONSUL_HTTP_TOKEN_FILE"),
                ))
            }
        };
        (read, Next::of_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_shown() {
        let value = header(" secret\n").unwrap();
        assert_eq!(value, "secret");
        assert!(value.is_sensitive() && !format!("{value:?}").contains("secret"));
        let failure = header("sec\nret").unwrap_err();
        assert!(failure.message.contains("CONSUL_HTTP_TOKEN"), "{failure}");
        assert!(!failure.message.contains("sec\n"), "{failure}");
    }

    #[tokio::test]
    async fn a_file_is_taken_again_only_if_it_has_changed_or_could_not_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let mut file =
            TokenFile { secret: Secret::new(&SecretSource::File(path.clone())), taken: None };
        let written = ["one", "one", "", "one", "two"];
        let expected = [Ok(Some("one")), Ok(None), Err(()), Ok(Some("one")), Ok(Some("two"))];
        for (text, expected) in written.into_iter().zip(expected) {
            std::fs::write(&path, text).unwrap();
            match (file.fetch().await.0, expected) {
                (Ok(found), Ok(value)) => assert_eq!(found, value.map(HeaderValue::from_static)),
                (Err(failure), Err(())) => {
                    assert!(failure.message.contains("CONSUL_HTTP_TOKEN_FILE"), "{failure}");
                }
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }
}

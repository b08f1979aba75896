//! The tokens that requests are sent with: those of a service that gives them for a while.

use async_trait::async_trait;
use reqwest::header::HeaderValue;

use super::identity::Identity;
use crate::clock;
use crate::config::{GcsSettings, GoogleCredential};
use crate::lease::{Cause, Failure};
use crate::store::renewed::{Next, Renewed, Sessions, Source};

/// The name of the store in messages.
const GCS: &str = "Google Cloud Storage";

/// Starts the task that fetches tokens and renews them, and waits for nothing; `None` where none is needed.
///
/// # Errors
/// Returns an error if no client can be made to fetch them.
pub(super) fn open(settings: &GcsSettings) -> anyhow::Result<Option<Renewed<HeaderValue>>> {
    let Some(identity) = Identity::open(&settings.credential)? else { return Ok(None) };
    let what = format!("the sign-in with {}", named(&settings.credential));
    let source = Tokens { identity, sessions: Sessions::new(GCS) };
    Ok(Some(Renewed::start(source, &what, GCS, settings.request_timeout)))
}

/// Returns the credential, in words.
pub(super) fn named(credential: &GoogleCredential) -> String {
    match credential {
        GoogleCredential::None => "no credential".to_owned(),
        GoogleCredential::File(path) => format!("the credential in {}", path.display()),
        GoogleCredential::Machine { .. } => "the service account of this machine or pod".to_owned(),
    }
}

struct Tokens {
    identity: Identity,
    sessions: Sessions,
}

#[async_trait]
impl Source<HeaderValue> for Tokens {
    async fn fetch(&mut self) -> (Result<Option<HeaderValue>, Failure>, Next) {
        let asked = clock::now();
        let (token, end) = match self.identity.fetch().await {
            Ok(it) => it,
            Err(failure) => return (Err(failure), self.sessions.next(None)),
        };
        match HeaderValue::try_from(format!("Bearer {token}")) {
            Ok(mut header) => {
                header.set_sensitive(true);
                (Ok(Some(header)), self.sessions.next(Some(end - asked.date())))
            }
            Err(_) => {
                let message = "the token has characters that no header may have";
                (Err(Failure::new(Cause::Auth, message)), self.sessions.next(None))
            }
        }
    }
}

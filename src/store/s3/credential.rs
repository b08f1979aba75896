//! The keys that requests are signed with: from variables or files, or from a service of the platform
//! that gives them for a while.

use std::fmt;
use std::path::PathBuf;

use async_trait::async_trait;

use super::identity::Identity;
use super::profile;
use crate::clock;
use crate::config::{AwsCredential, S3Settings, SecretSource};
use crate::files::{SmallFile, reason};
use crate::lease::{Cause, Failure};
use crate::store::renewed::{Next, Renewed, Sessions, Source};
use crate::store::secret::Secret;

/// The name of the store in messages.
const S3: &str = "S3";

/// The longest time that a read of a file may take.
const READ_BOUND: std::time::Duration = std::time::Duration::from_secs(5);

/// The largest file that is read.
const LARGEST: u64 = 1024 * 1024;

/// An access key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) id: String,
    pub(super) secret: String,
    /// The token of a session, if the key is one for a while.
    pub(super) token: Option<String>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Takes the keys of the settings, or starts the task that reads or fetches them and renews them. Waits
/// for nothing; keys that cannot be had are reported by the first request.
///
/// # Errors
/// Returns an error if no client can be made to fetch them.
pub(super) fn open(settings: &S3Settings) -> anyhow::Result<Renewed<Keys>> {
    let patience = settings.request_timeout;
    Ok(match &settings.credential {
        AwsCredential::Keys { id, secret, token } => {
            let value = |it: &SecretSource| match it {
                SecretSource::Value(text) => Some(text.clone()),
                SecretSource::File(_) => None,
            };
            match (value(id), value(secret), token.as_ref().map(value)) {
                (Some(id), Some(secret), None) => {
                    Renewed::fixed(Ok(Keys { id, secret, token: None }))
                }
                (Some(id), Some(secret), Some(token @ Some(_))) => {
                    Renewed::fixed(Ok(Keys { id, secret, token }))
                }
                _ => {
                    let source = Given {
                        id: Secret::new(id),
                        secret: Secret::new(secret),
                        token: token.as_ref().map(Secret::new),
                        known: None,
                    };
                    Renewed::start(source, "the read of the files of the keys", S3, patience)
                }
            }
        }
        AwsCredential::Profile { name, files } => {
            let source = Profile { name: name.clone(), files: files.clone(), known: None };
            Renewed::start(source, "the read of the profile", S3, patience)
        }
        AwsCredential::WebIdentity { .. }
        | AwsCredential::Container { .. }
        | AwsCredential::Machine { .. } => {
            let identity = Identity::open(&settings.credential)?;
            let what = format!("the sign-in with {}", identity.name());
            Renewed::start(Session { identity, sessions: Sessions::new(S3) }, &what, S3, patience)
        }
    })
}

/// Returns the keys if they are others than those known, which they replace.
fn changed(known: &mut Option<Keys>, read: Result<Keys, String>) -> Result<Option<Keys>, Failure> {
    match read {
        Ok(keys) if known.as_ref() == Some(&keys) => Ok(None),
        Ok(keys) => {
            if known.is_some() {
                tracing::info!("keys for S3 reloaded");
            }
            *known = Some(keys.clone());
            Ok(Some(keys))
        }
        Err(why) => Err(Failure::new(Cause::Auth, why)),
    }
}

/// Keys in variables, of which at least one names a file.
struct Given {
    id: Secret,
    secret: Secret,
    token: Option<Secret>,
    known: Option<Keys>,
}

#[async_trait]
impl Source<Keys> for Given {
    async fn fetch(&mut self) -> (Result<Option<Keys>, Failure>, Next) {
        let read = async {
            let token = match &self.token {
                Some(token) => Some(token.read(READ_BOUND).await?),
                None => None,
            };
            let (id, secret) =
                (self.id.read(READ_BOUND).await?, self.secret.read(READ_BOUND).await?);
            Ok(Keys { id, secret, token })
        };
        let read = read.await;
        (changed(&mut self.known, read), Next::of_file())
    }
}

/// Keys of a profile.
struct Profile {
    name: String,
    files: [PathBuf; 2],
    known: Option<Keys>,
}

impl Profile {
    async fn read(&self) -> Result<Keys, String> {
        let mut texts = [None, None];
        let mut faults = Vec::new();
        for (path, text) in self.files.iter().zip(&mut texts) {
            match SmallFile::new(path, LARGEST).read(READ_BOUND).await {
                Ok(bytes) => *text = Some(String::from_utf8_lossy(&bytes).into_owned()),
                Err(error) => {
                    faults.push(format!("failed to read {}: {}", path.display(), reason(&error)));
                }
            }
        }
        let [credentials, config] = texts;
        profile::keys(&self.name, credentials.as_deref(), config.as_deref()).map_err(|why| {
            faults.insert(0, why);
            faults.join("; ")
        })
    }
}

#[async_trait]
impl Source<Keys> for Profile {
    async fn fetch(&mut self) -> (Result<Option<Keys>, Failure>, Next) {
        let read = self.read().await;
        (changed(&mut self.known, read), Next::of_file())
    }
}

/// Keys for a while.
struct Session {
    identity: Identity,
    sessions: Sessions,
}

#[async_trait]
impl Source<Keys> for Session {
    async fn fetch(&mut self) -> (Result<Option<Keys>, Failure>, Next) {
        let asked = clock::now();
        match self.identity.fetch().await {
            Ok((keys, end)) => (Ok(Some(keys)), self.sessions.next(Some(end - asked.date()))),
            Err(failure) => (Err(failure), self.sessions.next(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(id: &str, token: Option<&str>) -> Keys {
        let token = token.map(str::to_owned);
        Keys { id: id.to_owned(), secret: "hidden".to_owned(), token }
    }

    #[test]
    fn keys_are_new_once_and_a_fault_leaves_those_that_are_known() {
        let mut known = None;
        let (one, two) = (keys("A", None), keys("A", Some("hidden")));
        assert_eq!(changed(&mut known, Ok(one.clone())), Ok(Some(one.clone())));
        assert_eq!(changed(&mut known, Ok(one)), Ok(None));
        assert_eq!(changed(&mut known, Ok(two.clone())), Ok(Some(two.clone())));
        let failed = changed(&mut known, Err("why".to_owned()));
        assert_eq!(failed, Err(Failure::new(Cause::Auth, "why")));
        assert_eq!(changed(&mut known, Ok(two.clone())), Ok(None));
        assert_eq!(format!("{two:?}"), "Keys { id: \"A\", .. }");
    }

    #[tokio::test]
    async fn a_profile_is_read_from_the_files_that_there_are() {
        let directory = tempfile::tempdir().unwrap();
        let files = ["credentials", "config"].map(|it| directory.path().join(it));
        let profile = Profile { name: "ops".to_owned(), files: files.clone(), known: None };
        let why = profile.read().await.unwrap_err();
        let parts: Vec<_> = why.split("; failed to read ").collect();
        assert!(parts[0].starts_with("the profile ops has no aws_access_key_id"), "{why}");
        for (part, path) in parts[1..].iter().zip(&files) {
            assert!(part.starts_with(&format!("{}: ", path.display())), "{why}");
        }
        assert_eq!(parts.len(), 3, "{why}");
        let text = "[profile ops]\naws_access_key_id = A\naws_secret_access_key = hidden\n";
        std::fs::write(&files[1], text).unwrap();
        assert_eq!(profile.read().await, Ok(keys("A", None)));
    }
}

//! Access to the API server: an HTTP client that trusts the authorities in one file, and a token
//! from another. Both files are read again when they change, since service account tokens are
//! rotated.
//!
//! Whether a token is still valid is for the server to decide. A file that cannot be read, or a
//! disk that hangs, never stops a request while earlier content can be used.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderValue;

use super::failure::KubeError;
use crate::clock::{self, Moment};
use crate::config::KubeAccess;
use crate::files::{SmallFile, reason};
use crate::http::reconnecting::{Idle, Reconnecting};
use crate::http::resolver::Resolver;
use crate::tls;

/// The time between two reads of the files. A longer one delays a new token, which a 401 fetches at
/// once anyway; a shorter one gains nothing.
const PERIOD: Duration = Duration::from_secs(1);

/// The longest time that a request waits for the files to be read. One that has credentials from an
/// earlier read waits for a quarter of its own time at most, so that it can still be sent.
const PATIENCE: Duration = Duration::from_millis(500);

/// API servers keep idle connections for 90 s, middleboxes for at least a minute. Each connection that
/// died unnoticed costs one request, and renew-deadline has time for one.
const IDLE: Idle = Idle { time: Duration::from_secs(30), most: 1 };

/// The largest files that are read: a token has one or two kilobytes, a bundle of certificate
/// authorities some hundred.
const LARGEST_TOKEN: u64 = 64 * 1024;
const LARGEST_AUTHORITIES: u64 = 1024 * 1024;

/// The client and token for a request.
pub(super) struct Credentials {
    /// The client and its connections.
    pub(super) client: Reconnecting,
    /// The value of `Authorization`, if there is a token.
    pub(super) token: Option<HeaderValue>,
    /// The contents of the files it was made from.
    files: Contents,
}

/// The contents of the files; `None` if no file is configured.
#[derive(Clone, PartialEq, Eq)]
struct Contents {
    token: Option<Vec<u8>>,
    authorities: Option<Vec<u8>>,
}

/// The result of the last read.
#[derive(Default)]
struct Last {
    credentials: Option<Arc<Credentials>>,
    read: Option<Moment>,
    /// Why the last read failed; `None` after one that succeeded.
    last_error: Option<String>,
}

/// Keeps client and token for one server.
pub(super) struct Access {
    token_file: Option<SmallFile>,
    authorities_file: Option<SmallFile>,
    tls: bool,
    resolver: Resolver,
    last: Mutex<Last>,
    /// The bound of a request.
    request_timeout: Duration,
}

impl Access {
    /// Takes the names of the files; reads nothing yet.
    pub(super) fn new(access: &KubeAccess, request_timeout: Duration) -> Self {
        let file = |path: &Option<PathBuf>, largest| {
            path.as_deref().map(|path| SmallFile::new(path, largest))
        };
        Self {
            token_file: file(&access.token_file, LARGEST_TOKEN),
            authorities_file: file(&access.ca_file, LARGEST_AUTHORITIES),
            tls: access.api.scheme() == "https",
            resolver: Resolver::default(),
            last: Mutex::default(),
            request_timeout,
        }
    }

    /// Returns client and token from the files as they are now, or as last read if they cannot be
    /// read.
    pub(super) async fn credentials(&self) -> Result<Arc<Credentials>, KubeError> {
        let known = {
            let last = self.last();
            last.credentials
                .clone()
                .filter(|_| last.read.is_some_and(|read| read.elapsed_max(clock::now()) < PERIOD))
        };
        match known {
            Some(known) => Ok(known),
            None => self.read_again().await,
        }
    }

    /// Reads the files regardless of when they were last read, after a refused token or
    /// certificate.
    pub(super) async fn read_again(&self) -> Result<Arc<Credentials>, KubeError> {
        let read = self.read().await;
        let mut last = self.last();
        last.read = Some(clock::now());
        let made = read.and_then(|files| self.make(files, last.credentials.as_deref()));
        last.last_error = made.as_ref().err().cloned();
        match (made, &last.credentials) {
            (Ok(Some(new)), _) => {
                let new = Arc::new(new);
                last.credentials = Some(Arc::clone(&new));
                Ok(new)
            }
            (Ok(None) | Err(_), Some(known)) => Ok(Arc::clone(known)),
            (Err(why), None) => Err(KubeError::Files(why)),
            (Ok(None), None) => Err(KubeError::Files("no HTTP client".to_owned())),
        }
    }

    /// Returns why the last read of the files failed, if it did.
    pub(super) fn last_error(&self) -> Option<String> {
        self.last().last_error.clone()
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes client and token from the files; `None` if nothing has changed. Connections are kept
    /// while the authorities stay the same.
    fn make(
        &self,
        files: Contents,
        known: Option<&Credentials>,
    ) -> Result<Option<Credentials>, String> {
        if known.is_some_and(|it| it.files == files) {
            return Ok(None);
        }
        let client = match known.filter(|it| it.files.authorities == files.authorities) {
            Some(known) => known.client.clone(),
            None => self.client(files.authorities.as_deref())?,
        };
        let token = files.token.as_deref().map(|it| self.header(it)).transpose()?;
        Ok(Some(Credentials { client, token, files }))
    }

    fn client(&self, authorities: Option<&[u8]>) -> Result<Reconnecting, String> {
        let settings = match authorities {
            Some(pem) => tls::trusting(tls::authorities(pem).ok_or_else(|| {
                format!("{} contains no PEM certificate", named(self.authorities_file.as_ref()))
            })?),
            None => tls::system_client(self.tls),
        };
        let settings = settings.map_err(|_| "failed to set up TLS".to_owned())?;
        Reconnecting::new(settings, self.resolver.clone(), IDLE, None)
            .map_err(|_| "failed to set up the HTTP client".to_owned())
    }

    fn header(&self, token: &[u8]) -> Result<HeaderValue, String> {
        let token = token.trim_ascii();
        let unfit = || format!("{} contains no token", named(self.token_file.as_ref()));
        if token.is_empty() {
            return Err(unfit());
        }
        let header = HeaderValue::from_bytes(&[b"Bearer ", token].concat());
        let mut header = header.map_err(|_| unfit())?;
        header.set_sensitive(true);
        Ok(header)
    }

    /// Reads the files, for as long as a request may wait.
    async fn read(&self) -> Result<Contents, String> {
        let bound = match self.last().credentials {
            Some(_) => PATIENCE.min(self.request_timeout / 4),
            None => PATIENCE.min(self.request_timeout * 3 / 4),
        };
        let reading = async {
            let token = contents(self.token_file.as_ref(), "--kube-token-file").await?;
            let authorities = contents(self.authorities_file.as_ref(), "--kube-ca-file").await?;
            Ok(Contents { token, authorities })
        };
        tokio::time::timeout(bound, reading).await.unwrap_or_else(|_| {
            Err("timed out reading the token and certificates: their file system hangs".to_owned())
        })
    }

    /// Reads the token, for `tenure doctor`.
    pub(super) async fn token(&self) -> Result<Option<Vec<u8>>, String> {
        self.read().await.map(|it| it.token)
    }
}

fn named(file: Option<&SmallFile>) -> String {
    file.map_or_else(String::new, |it| it.path().display().to_string())
}

async fn contents(file: Option<&SmallFile>, setting: &str) -> Result<Option<Vec<u8>>, String> {
    let Some(file) = file else {
        return Ok(None);
    };
    file.read(PATIENCE).await.map(Some).map_err(|error| {
        format!(
            "failed to read {}: {}; mount a service account token, or check {setting}",
            file.path().display(),
            reason(&error)
        )
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn access(token: &Path, authorities: Option<&Path>) -> Access {
        Access::new(
            &KubeAccess {
                api: url::Url::parse("http://127.0.0.1:1").unwrap(),
                token_file: Some(token.to_owned()),
                ca_file: authorities.map(Path::to_owned),
            },
            Duration::from_millis(200),
        )
    }

    fn token(credentials: &Credentials) -> String {
        credentials.token.as_ref().unwrap().to_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn a_rotated_token_is_read_and_an_unreadable_one_keeps_the_last() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let access = access(&path, None);
        let Err(KubeError::Files(why)) = access.credentials().await else {
            panic!("there is none")
        };
        assert!(why.contains("failed to read"), "{why}");
        std::fs::write(&path, "one\n").unwrap();
        let first = access.credentials().await.unwrap();
        assert_eq!(token(&first), "Bearer one");
        assert!(!format!("{:?}", first.token).contains("one"));
        std::fs::write(&path, "two").unwrap();
        assert_eq!(token(&access.credentials().await.unwrap()), "Bearer one", "read just now");
        assert_eq!(token(&access.read_again().await.unwrap()), "Bearer two");
        for spoilt in ["", "a\nb"] {
            std::fs::write(&path, spoilt).unwrap();
            assert_eq!(token(&access.read_again().await.unwrap()), "Bearer two", "{spoilt:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(token(&access.read_again().await.unwrap()), "Bearer two");
    }

    #[tokio::test]
    async fn fault_39_a_token_file_that_hangs_leaves_time_for_the_request() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "one").unwrap();
        let access = access(&path, None);
        access.credentials().await.unwrap();
        let (go, stop) = std::sync::mpsc::channel::<()>();
        let file = SmallFile::new(&path, 1);
        let hang = file.on_its_thread(Duration::ZERO, move |_| stop.recv()).await;
        assert!(hang.is_err());
        std::fs::write(&path, "two").unwrap();
        for _ in 0..3 {
            let asked = tokio::time::timeout(access.request_timeout, access.read_again());
            assert_eq!(token(&asked.await.expect("there is time").unwrap()), "Bearer one");
            assert!(access.last_error().unwrap().contains("hangs"));
        }
        drop(go);
        let recovers =
            async { while token(&access.read_again().await.unwrap()) != "Bearer two" {} };
        tokio::time::timeout(Duration::from_secs(20), recovers).await.expect("it is read again");
    }

    #[tokio::test]
    async fn invalid_certificate_authorities_are_reported_with_their_file() {
        let directory = tempfile::tempdir().unwrap();
        let (path, authorities) = (directory.path().join("t"), directory.path().join("ca.crt"));
        std::fs::write(&path, "one").unwrap();
        std::fs::write(&authorities, "no certificate").unwrap();
        let access = access(&path, Some(&authorities));
        let Err(KubeError::Files(why)) = access.credentials().await else { panic!("it is none") };
        assert!(why.contains("ca.crt contains no PEM certificate"), "{why}");
    }
}

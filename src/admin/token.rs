//! The bearer token: a file that is read at each call, so that a new token is in force, and an old
//! one out of it, as soon as the file has changed.
//!
//! What it does not do: it judges no file, which the settings do; it keeps no token that its file no longer has, and holds up no renewal when
//! the file's disk hangs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use subtle::ConstantTimeEq;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::config::admin;

/// How long the file may take to be read.
const READ_TIME: Duration = Duration::from_secs(2);

/// The token's file.
#[derive(Clone)]
pub(super) struct TokenFile {
    path: PathBuf,
    /// The reading that nobody waited for to its end, if there is one: a disk that hangs costs one
    /// thread, not one for each call.
    reading: Arc<Mutex<Option<Reading>>>,
}

type Reading = JoinHandle<Result<String, String>>;

impl TokenFile {
    /// Names the file.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), reading: Arc::default() }
    }

    /// Whether this is the token now.
    ///
    /// # Errors
    /// When the file has no token that can be used, in words for the operator.
    pub(super) async fn is(&self, token: &[u8]) -> Result<bool, String> {
        // The length shows in the time that this takes, which is no secret.
        self.read().await.map(|it| it.as_bytes().ct_eq(token).into())
    }

    /// Reads the token.
    ///
    /// # Errors
    /// As [`Self::is`].
    pub(super) async fn read(&self) -> Result<String, String> {
        let read = timeout(READ_TIME, self.read_anew()).await;
        let read = read.unwrap_or_else(|_| Err("cannot be read in time: its disk hangs".into()));
        read.map_err(|fault| format!("admin-token-file {} {fault}", self.path.display()))
    }

    async fn read_anew(&self) -> Result<String, String> {
        let mut reading = self.reading.lock().await;
        if let Some(old) = reading.as_mut() {
            // What it finds may have changed since it began.
            let _ = old.await;
            *reading = None;
        }
        let path = self.path.clone();
        let begun = reading.insert(spawn_blocking(move || admin::token(&path)));
        let token = begun.await.unwrap_or_else(|_| Err("cannot be read: interrupted".to_owned()));
        *reading = None;
        token
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn write(path: &Path, token: &str) {
        std::fs::write(path, token).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[tokio::test]
    async fn a_token_holds_for_as_long_as_its_file_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        write(&path, &format!("{TOKEN}\n"));
        let file = TokenFile::new(&path);
        assert_eq!(file.is(TOKEN.as_bytes()).await, Ok(true));
        for wrong in ["", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"] {
            assert_eq!(file.is(wrong.as_bytes()).await, Ok(false), "{wrong:?}");
        }
        write(&path, "fedcba9876543210");
        assert_eq!(file.is(TOKEN.as_bytes()).await, Ok(false));
        assert_eq!(file.is(b"fedcba9876543210").await, Ok(true));
        write(&path, "");
        assert!(file.is(b"").await.unwrap_err().contains("empty"));
        std::fs::remove_file(&path).unwrap();
        let fault = file.is(b"fedcba9876543210").await.unwrap_err();
        assert!(fault.contains(&path.display().to_string()), "{fault}");
    }

    #[tokio::test]
    async fn a_reading_that_hangs_holds_up_no_call_and_no_other_begins_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        write(&path, TOKEN);
        let file = TokenFile::new(&path);
        let (go, stop) = std::sync::mpsc::channel::<()>();
        let hung = spawn_blocking(move || {
            let _ = stop.recv();
            Ok("of old, whatever it was".to_owned())
        });
        *file.reading.lock().await = Some(hung);
        assert!(file.read().await.unwrap_err().contains("in time"));
        go.send(()).unwrap();
        assert_eq!(file.read().await.as_deref(), Ok(TOKEN));
    }
}

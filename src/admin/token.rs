//! The bearer token. The file is read for each request, so that a change takes effect at once.
//!
//! No token is kept in memory between requests, and a file system that hangs delays no renewal.

use std::path::Path;
use std::time::Duration;

use subtle::ConstantTimeEq;

use crate::config::admin;
use crate::files::SmallFile;

/// How long a read of the file may take.
const READ_TIME: Duration = Duration::from_secs(2);

/// The token's file.
#[derive(Clone)]
pub(super) struct TokenFile(SmallFile);

impl TokenFile {
    pub(super) fn new(path: &Path) -> Self {
        Self(SmallFile::new(path, admin::LARGEST))
    }

    /// Returns whether `token` matches the file.
    ///
    /// # Errors
    /// When the file holds no usable token, in words for the operator.
    pub(super) async fn is(&self, token: &[u8]) -> Result<bool, String> {
        // The time this takes reveals the token's length, which is not secret.
        self.read().await.map(|it| it.as_bytes().ct_eq(token).into())
    }

    /// Reads the token.
    ///
    /// # Errors
    /// As for [`Self::is`].
    pub(super) async fn read(&self) -> Result<String, String> {
        let read = self.0.on_its_thread(READ_TIME, admin::token).await;
        let read = read.unwrap_or_else(|error| Err(format!("cannot be read: {error}")));
        read.map_err(|fault| format!("admin-token-file {} {fault}", self.0.path().display()))
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
    async fn a_token_is_valid_while_its_file_contains_it() {
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
        let hung = file.0.on_its_thread(Duration::ZERO, move |_| stop.recv()).await;
        assert!(hung.is_err());
        assert!(file.read().await.unwrap_err().contains("timed out"));
        go.send(()).unwrap();
        assert_eq!(file.read().await.as_deref(), Ok(TOKEN));
    }
}

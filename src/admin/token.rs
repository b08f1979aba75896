//! The bearer token: a file that is read at each call, so that a new token is in force, and an old
//! one out of it, as soon as the file has changed.
//!
//! What it does not do: it keeps no token that its file no longer has, and holds up no renewal when
//! the file's disk hangs.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use subtle::ConstantTimeEq;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

/// The shortest token that is taken: nobody guesses 96 random bits in base64.
const SHORTEST: usize = 16;

/// Most bytes of the file that are read.
const LONGEST: u64 = 4_096;

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

type Reading = JoinHandle<io::Result<Vec<u8>>>;

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
        self.read().await.map(|it| it.as_slice().ct_eq(token).into())
    }

    /// Reads the token.
    ///
    /// # Errors
    /// As [`Self::is`].
    pub(super) async fn read(&self) -> Result<Vec<u8>, String> {
        let named = |fault: &str| format!("the token file {} {fault}", self.path.display());
        let read = timeout(READ_TIME, self.read_anew()).await;
        let read = read.map_err(|_| named("cannot be read in time"))?;
        let bytes = read.map_err(|error| named(&format!("cannot be read: {error}")))?;
        let token = bytes.trim_ascii();
        if token.len() < SHORTEST {
            return Err(named(&format!(
                "has fewer than {SHORTEST} characters; make a token with: head -c 24 /dev/urandom | base64"
            )));
        }
        if bytes.len() as u64 > LONGEST || !token.iter().all(u8::is_ascii_graphic) {
            return Err(named("has more in it than one line of printable ASCII without spaces"));
        }
        Ok(token.to_vec())
    }

    async fn read_anew(&self) -> io::Result<Vec<u8>> {
        let mut reading = self.reading.lock().await;
        if let Some(old) = reading.as_mut() {
            // What it finds may have changed since it began.
            let _ = old.await;
        }
        let path = self.path.clone();
        let reading = reading.insert(spawn_blocking(move || {
            let mut bytes = Vec::new();
            File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        }));
        reading.await.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[tokio::test]
    async fn a_token_holds_for_as_long_as_its_file_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, format!("{TOKEN}\n")).unwrap();
        let file = TokenFile::new(&path);
        assert_eq!(file.is(TOKEN.as_bytes()).await, Ok(true));
        for wrong in ["", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"] {
            assert_eq!(file.is(wrong.as_bytes()).await, Ok(false), "{wrong:?}");
        }
        std::fs::write(&path, "fedcba9876543210").unwrap();
        assert_eq!(file.is(TOKEN.as_bytes()).await, Ok(false));
        assert_eq!(file.is(b"fedcba9876543210").await, Ok(true));
        std::fs::remove_file(&path).unwrap();
        let fault = file.is(b"fedcba9876543210").await.unwrap_err();
        assert!(fault.contains(&path.display().to_string()), "{fault}");
    }

    #[tokio::test]
    async fn a_file_without_a_token_of_some_length_lets_nobody_in() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let file = TokenFile::new(&path);
        for (text, words) in [
            ("", "fewer than 16"),
            ("\n", "fewer than 16"),
            ("short", "urandom"),
            ("0123456789abcdef 0123456789abcdef", "one line"),
            (&"x".repeat(5_000), "one line"),
        ] {
            std::fs::write(&path, text).unwrap();
            let fault = file.is(text.trim().as_bytes()).await.unwrap_err();
            assert!(fault.contains(words), "{text:?}: {fault}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_costs_one_thread_and_no_call_waits_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success(), "mkfifo of coreutils makes the pipe");
        let file = TokenFile::new(&path);
        for _ in 0..3 {
            // The paused clock does not go on by itself while a thread is at work.
            let pass = tokio::time::advance(READ_TIME + Duration::from_millis(1));
            let (read, ()) = tokio::join!(biased; file.read(), pass);
            assert!(read.unwrap_err().contains("in time"));
        }
        assert!(!file.reading.lock().await.as_ref().unwrap().is_finished());
        // The thread ends when somebody opens the other side.
        drop(File::options().write(true).open(&path).unwrap());
    }
}

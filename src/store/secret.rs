//! A user name or a password, from a variable or a file that is read again each time.

use std::time::Duration;

use crate::config::SecretSource;
use crate::files::{SmallFile, reason};

/// The largest file that is read.
const LARGEST: u64 = 64 * 1024;

/// A secret that may be in a file.
pub(super) enum Secret {
    /// The secret itself.
    Value(String),
    /// The file with it.
    File(SmallFile),
}

impl Secret {
    pub(super) fn new(source: &SecretSource) -> Self {
        match source {
            SecretSource::Value(text) => Self::Value(text.clone()),
            SecretSource::File(path) => Self::File(SmallFile::new(path, LARGEST)),
        }
    }

    /// Returns the secret as it is now, without the end of its line; else why it cannot be read, with
    /// the path.
    pub(super) async fn read(&self, patience: Duration) -> Result<String, String> {
        let file = match self {
            Self::Value(text) => return Ok(text.clone()),
            Self::File(file) => file,
        };
        let path = file.path().display();
        let fault = |why: String| format!("failed to read {path}: {why}");
        let read = file.read(patience).await.map_err(|error| fault(reason(&error)))?;
        match String::from_utf8(read).map(|it| it.trim_end_matches(['\r', '\n']).to_owned()) {
            Ok(text) if !text.is_empty() => Ok(text),
            Ok(_) => Err(fault("it is empty".to_owned())),
            Err(_) => Err(fault("it is not text".to_owned())),
        }
    }
}

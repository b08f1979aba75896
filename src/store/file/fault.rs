//! Errors of a `file:` store, with a remedy.

use std::io;
use std::path::Path;

use crate::lease::{Cause, Failure, StoreError};

/// An error, whether a request or `tenure doctor` met it.
#[derive(Debug)]
pub(super) struct FileError {
    /// Whether Tenure did not write the record: definite, and it is never overwritten.
    foreign: bool,
    cause: Cause,
    /// Whether the attempt failed before it could have written anything.
    had_no_effect: bool,
    /// The problem.
    pub(super) detail: String,
    /// The remedy.
    pub(super) remedy: Option<String>,
}

impl FileError {
    /// Creates an error that an operator must fix.
    pub(super) fn settings(detail: impl Into<String>, remedy: &str) -> Self {
        let (detail, remedy) = (detail.into(), Some(remedy.to_owned()));
        Self { foreign: false, cause: Cause::Settings, had_no_effect: false, detail, remedy }
    }

    /// Creates an error that may go away without action.
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let cause = Cause::Unavailable;
        Self { foreign: false, cause, had_no_effect: false, detail, remedy: None }
    }

    /// Creates the error for a record that is damaged, or that Tenure did not write.
    pub(super) fn foreign(path: &Path, fault: &str) -> Self {
        Self {
            foreign: true,
            cause: Cause::Record,
            had_no_effect: false,
            detail: format!("{} {fault}, so it was not changed", path.display()),
            remedy: Some("make sure that no instance leads, and move it away".to_owned()),
        }
    }

    /// Marks the error of an attempt that failed before it could have written anything.
    pub(super) fn before_writing(self) -> Self {
        Self { had_no_effect: true, ..self }
    }

    /// Returns whether the error may go away without action.
    pub(super) fn is_transient(&self) -> bool {
        self.cause == Cause::Unavailable
    }

    /// Creates the error for a failed system call.
    pub(super) fn io(path: &Path, verb: &str, error: io::Error) -> Self {
        let detail = format!("{} could not be {verb}: {error}", path.display());
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "make the directory writable for this user; run all candidates of an election as \
                 the same user"
            }
            io::ErrorKind::ReadOnlyFilesystem => "mount it writable, or set another --store",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                return Self {
                    remedy: Some("free space on the filesystem".to_owned()),
                    ..Self::unavailable(detail)
                };
            }
            _ => return Self::unavailable(detail),
        };
        Self::settings(detail, remedy)
    }
}

impl From<FileError> for StoreError {
    fn from(fault: FileError) -> Self {
        let message = match fault.remedy {
            Some(remedy) => format!("{}; {remedy}", fault.detail),
            None => fault.detail,
        };
        let had_no_effect = fault.had_no_effect;
        let failure = Failure { had_no_effect, ..Failure::new(fault.cause, message) };
        if fault.foreign { Self::Foreign(failure) } else { Self::Unknown(failure) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_system_call_has_a_remedy_and_tells_whether_it_may_go_away() {
        let table = [
            (io::ErrorKind::PermissionDenied, Some("as the same user"), false),
            (io::ErrorKind::ReadOnlyFilesystem, Some("mount it writable"), false),
            (io::ErrorKind::StorageFull, Some("free space"), true),
            (io::ErrorKind::QuotaExceeded, Some("free space"), true),
            (io::ErrorKind::TimedOut, None, true),
        ];
        for (kind, remedy, is_transient) in table {
            let error = FileError::io(Path::new("/leases/orders.json"), "written", kind.into());
            assert_eq!(error.is_transient(), is_transient, "{kind}");
            assert_eq!(error.remedy.is_some(), remedy.is_some(), "{kind}");
            let words = StoreError::from(error).to_string();
            assert!(words.contains("/leases/orders.json could not be written"), "{words}");
            assert!(words.contains(remedy.unwrap_or_default()), "{words}");
        }
    }

    #[test]
    fn only_a_foreign_record_is_definite_and_only_an_early_error_had_no_effect() {
        let make: [fn() -> FileError; 3] = [
            || FileError::settings("the directory is gone", "create it"),
            || FileError::unavailable("the disk hangs"),
            || FileError::foreign(Path::new("/leases/orders.json"), "is empty"),
        ];
        for (number, make) in make.into_iter().enumerate() {
            let (late, early) =
                (StoreError::from(make()), StoreError::from(make().before_writing()));
            assert_eq!(matches!(late, StoreError::Foreign(_)), number == 2, "{late:?}");
            assert!(!late.failure().had_no_effect && early.failure().had_no_effect, "{late:?}");
        }
    }
}

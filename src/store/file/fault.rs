//! What can be wrong with a `file:` store, in words and with a remedy.
//!
//! What this module does not do: it says nothing about leases. A refusal is no fault.

use std::io;
use std::path::Path;

use super::super::{Cause, Failure, StoreError};

/// A fault, before it is known whether a request or `tenure doctor` met it.
#[derive(Debug)]
pub(super) struct Fault {
    /// The record is not ours: definite, and never overwritten.
    foreign: bool,
    cause: Cause,
    /// What is the matter.
    pub(super) detail: String,
    /// What to do about it.
    pub(super) remedy: Option<String>,
}

impl Fault {
    /// Something outside is not as it must be, and a person must mend it.
    pub(super) fn settings(detail: impl Into<String>, remedy: &str) -> Self {
        let (detail, remedy) = (detail.into(), Some(remedy.to_owned()));
        Self { foreign: false, cause: Cause::Settings, detail, remedy }
    }

    /// It does not go now, and may well go later.
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self { foreign: false, cause: Cause::Unavailable, detail: detail.into(), remedy: None }
    }

    /// The record is torn, or not of our making.
    pub(super) fn foreign(path: &Path, fault: &str) -> Self {
        Self {
            foreign: true,
            cause: Cause::Record,
            detail: format!("{} {fault}, so it is left alone", path.display()),
            remedy: Some("make sure that no candidate leads, and move it away".to_owned()),
        }
    }

    /// Whether it may well go later, with nothing mended.
    pub(super) fn is_transient(&self) -> bool {
        self.cause == Cause::Unavailable
    }

    /// The system refused.
    pub(super) fn io(path: &Path, verb: &str, error: io::Error) -> Self {
        let detail = format!("{} cannot be {verb}: {error}", path.display());
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "let our user write in the directory; run all candidates of an election as the \
                 same user"
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                "mount it writable, or have --store name another directory"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                return Self {
                    remedy: Some("make room on the filesystem".to_owned()),
                    ..Self::unavailable(detail)
                };
            }
            _ => return Self::unavailable(detail),
        };
        Self::settings(detail, remedy)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        let message = match fault.remedy {
            Some(remedy) => format!("{}; {remedy}", fault.detail),
            None => fault.detail,
        };
        let failure = Failure::new(fault.cause, message);
        if fault.foreign { Self::Foreign(failure) } else { Self::Unknown(failure) }
    }
}

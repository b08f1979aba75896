//! Errors of requests to a register, by what the caller does next.

use crate::lease::{Cause, Failure, StoreError};
use crate::store::network_error::NetworkError;

/// Why a request had no answer that can be used. The text is for people, with the remedy in it, and shows
/// neither a secret nor a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// There is no such value.
    #[error("{0}")]
    Missing(String),
    /// Definite: the condition does not hold, so that nothing was written.
    #[error("{0}")]
    Condition(String),
    /// Definite: the value was replaced by another one of the same name, and the write was done on that. Nobody
    /// holds the lease by it.
    #[error("{0}")]
    Lost(String),
    /// Another request for the value was being served at the same time; it may still be done.
    #[error("{0}")]
    Concurrent(String),
    /// Nothing was sent: a file or a setting of this host is wrong.
    #[error("{0}")]
    Local(Failure),
    /// There is no credential, or the server refuses it.
    #[error("{0}")]
    Credential(String),
    /// The credential is good, and may not do this.
    #[error("{0}")]
    Denied(String),
    /// What is there is none of Tenure's, or of another version.
    #[error("{0}")]
    Foreign(String),
    /// The server throttles requests.
    #[error("{0}")]
    Throttled(String),
    /// The server failed; it may still be done.
    #[error("{0}")]
    Unavailable(String),
    /// The server rejected the request as invalid, or its answer is unusable: a setting is wrong.
    #[error("{0}")]
    Invalid(String),
    /// There is no answer.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

impl RegisterError {
    /// Returns the error of a credential of this host that cannot be had, such as a file that cannot be read.
    pub fn no_credential(why: impl Into<String>) -> Self {
        Self::Local(Failure::new(Cause::Auth, why.into()))
    }

    /// Returns the error of a client that cannot be made of the settings and the files of TLS.
    pub fn no_client(why: impl Into<String>) -> Self {
        Self::Local(Failure::new(Cause::Settings, why.into()))
    }

    /// Returns whether a server has answered, if only to refuse.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        !matches!(self, Self::Network(_) | Self::Local(_))
    }

    /// Returns whether another server may do better.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(in crate::store) fn is_of_one_server(&self) -> bool {
        matches!(
            self,
            Self::Network(_) | Self::Unavailable(_) | Self::Throttled(_) | Self::Invalid(_)
        )
    }
}

/// Converts an error, where nothing more is known: its outcome is never definite (R4), but for a loss.
impl From<RegisterError> for StoreError {
    fn from(error: RegisterError) -> Self {
        let message = error.to_string();
        let cause = match error {
            RegisterError::Network(error) => return error.into(),
            RegisterError::Local(failure) => return Self::Unknown(failure),
            RegisterError::Lost(_) => return Self::Refused(Failure::new(Cause::Lease, message)),
            RegisterError::Concurrent(_) => {
                return Self::RetryNow(Failure::new(Cause::Lease, message));
            }
            RegisterError::Foreign(_) => {
                return Self::Foreign(Failure::new(Cause::Record, message));
            }
            RegisterError::Credential(_) | RegisterError::Denied(_) => Cause::Auth,
            RegisterError::Throttled(_) => Cause::Throttled,
            RegisterError::Invalid(_) | RegisterError::Missing(_) | RegisterError::Condition(_) => {
                Cause::Settings
            }
            RegisterError::Unavailable(_) => Cause::Unavailable,
        };
        Self::Unknown(Failure::new(cause, message))
    }
}

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
    /// Another request for the value was being served at the same time; it may still be done.
    #[error("{0}")]
    Concurrent(String),
    /// There is no credential, or the server refuses it.
    #[error("{0}")]
    Credential(String),
    /// The credential is good, and may not do this.
    #[error("{0}")]
    Denied(String),
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

/// Converts an error, where nothing more is known: its outcome is never definite (R4).
impl From<RegisterError> for StoreError {
    fn from(error: RegisterError) -> Self {
        let message = error.to_string();
        let cause = match error {
            RegisterError::Network(error) => return error.into(),
            RegisterError::Concurrent(_) => {
                return Self::RetryNow(Failure::new(Cause::Lease, message));
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

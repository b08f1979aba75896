//! Why a request to the server of a store has no answer.

use crate::lease::{Cause, Failure, StoreError};

/// Why a request has no answer, so that its outcome is unknown. The text is for people, with the remedy in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// No answer in time.
    #[error("{0}")]
    Timeout(String),
    /// The server cannot be reached: name resolution or certificate.
    #[error("{0}")]
    Unreachable(String),
    /// The connection failed, or broke during the request. One immediate retry is worthwhile.
    #[error("{0}")]
    Disconnected(String),
}

/// Converts an error; its outcome is never definite (R4).
impl From<NetworkError> for StoreError {
    fn from(error: NetworkError) -> Self {
        match error {
            NetworkError::Timeout(why) => Self::Unknown(Failure::new(Cause::Timeout, why)),
            NetworkError::Unreachable(why) => Self::Unknown(Failure::new(Cause::Network, why)),
            NetworkError::Disconnected(why) => Self::RetryNow(Failure::new(Cause::Network, why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_outcome_is_definite_and_a_broken_connection_alone_is_retried_at_once() {
        let why = || "h:1 failed".to_owned();
        let of = |cause| Failure::new(cause, why());
        for (error, expected) in [
            (NetworkError::Timeout(why()), StoreError::Unknown(of(Cause::Timeout))),
            (NetworkError::Unreachable(why()), StoreError::Unknown(of(Cause::Network))),
            (NetworkError::Disconnected(why()), StoreError::RetryNow(of(Cause::Network))),
        ] {
            assert_eq!(StoreError::from(error), expected);
        }
    }
}

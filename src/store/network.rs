//! Why a request to the server of a store has no answer, and what all clients of servers share.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::timeout;

use crate::config::StoreTls;
use crate::lease::{Cause, Failure, StoreError};
use crate::tls::ClientTls;

/// Why a request has no answer, so that its outcome is unknown. The text is for people, with the remedy in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NetworkError {
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

/// Waits for the outcome of requests to a server for at most `bound`.
pub(super) async fn in_time<T, E: From<NetworkError>>(
    bound: Duration,
    server: impl Display,
    asked: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    timeout(bound, asked).await.unwrap_or_else(|_| {
        let why = format!("{server} did not answer within {bound:?}");
        Err(NetworkError::Timeout(why).into())
    })
}

/// Reads the files of TLS, which blocks.
///
/// # Errors
/// Returns everything that is wrong with them.
pub(super) fn load_tls(files: &StoreTls) -> anyhow::Result<ClientTls> {
    ClientTls::load(files.own.as_ref(), files.ca_file.as_deref()).map_err(|faults| {
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{}", faults.join("; "))
    })
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

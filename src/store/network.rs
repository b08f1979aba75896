//! What all clients of servers share.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::timeout;

pub(super) use super::network_error::NetworkError;
use crate::config::StoreTls;
use crate::tls::ClientTls;

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

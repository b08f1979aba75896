//! The connection to a server of a store that is not spoken to by HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::network::NetworkError;
use crate::config::Address;
use crate::http::client::{self, Cause};
use crate::http::resolver::Resolver;

/// From one attempt to connect to the next, to another address of the host.
const STAGGER: Duration = Duration::from_millis(300);

/// A connection in plain text or by TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// Connects to a server, with TLS if there are settings for it.
#[cfg(any(feature = "mongodb", feature = "redis", feature = "zookeeper"))]
pub(super) async fn connect(
    server: &Address,
    tls: Option<Arc<ClientConfig>>,
    resolver: &Resolver,
) -> Result<Box<dyn Stream>, NetworkError> {
    let stream = connect_in_plain_text(server, resolver).await?;
    match tls {
        None => Ok(Box::new(stream)),
        Some(tls) => secure(stream, server, tls).await,
    }
}

/// Connects to a server without TLS.
pub(super) async fn connect_in_plain_text(
    server: &Address,
    resolver: &Resolver,
) -> Result<TcpStream, NetworkError> {
    let found = resolver.resolve(&server.host.to_string(), server.port).await;
    let found = found.map_err(|why| NetworkError::Unreachable(format!("{why}: check --store")))?;
    let stream = first(found).await.map_err(|error| {
        NetworkError::Disconnected(format!("cannot connect to {server}: {}", error.kind()))
    })?;
    // Best effort: requests are small.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Connects to the first address that accepts a connection. The next is tried once one has failed,
/// or takes long; otherwise returns the last error.
async fn first(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut rest = addresses.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        attempts.extend(rest.next().map(TcpStream::connect));
        match timeout(STAGGER, attempts.next()).await {
            Ok(Some(Ok(stream))) => return Ok(stream),
            Ok(Some(Err(error))) => last = error,
            Ok(None) => return Err(last),
            Err(_) => {}
        }
    }
}

/// Begins TLS on a connection.
pub(super) async fn secure(
    stream: TcpStream,
    server: &Address,
    tls: Arc<ClientConfig>,
) -> Result<Box<dyn Stream>, NetworkError> {
    let name = server.to_string();
    let host = server.host.to_string();
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let host = ServerName::try_from(host).map_err(|_| refused_by_tls("invalid host", &name))?;
    let connected = TlsConnector::from(tls).connect(host, stream).await;
    Ok(Box::new(connected.map_err(|error| broken(&error, &name))?))
}

/// Sends a message.
pub(super) async fn send(
    stream: &mut dyn Stream,
    message: &[u8],
    server: &str,
) -> Result<(), NetworkError> {
    let sent = async {
        stream.write_all(message).await?;
        stream.flush().await
    };
    sent.await.map_err(|error| broken(&error, server))
}

/// Converts the error of a connection that broke, or was refused by TLS.
pub(super) fn broken(error: &io::Error, server: &str) -> NetworkError {
    match client::cause(error) {
        Cause::Certificate(why) => refused_by_tls(&why, server),
        Cause::Io(kind) => {
            NetworkError::Disconnected(format!("the connection to {server} broke: {kind}"))
        }
        Cause::Unresolved(_) | Cause::Other => {
            NetworkError::Disconnected(format!("the connection to {server} broke"))
        }
    }
}

fn refused_by_tls(why: &str, server: &str) -> NetworkError {
    NetworkError::Unreachable(format!(
        "TLS with {server} failed: {why}; check --store-ca-file, --store-cert, and that the server's \
         certificate is valid for the host in --store"
    ))
}

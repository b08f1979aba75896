//! The connection to a server of a store that is not spoken to by HTTP. What is read from it for one request
//! is bounded in sum: a server, or somebody in its place, may send without end.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::network::NetworkError;
use crate::config::Address;
use crate::http::client::{self, Cause};
use crate::http::resolver::Resolver;

/// From one attempt to connect to the next, to another address of the host.
const STAGGER: Duration = Duration::from_millis(300);

/// The most bytes that are read after one was written, whatever they are. An answer has some hundred, and a list
/// of names some thousand; unasked messages of a watch reach it in weeks, and the watch is opened anew then.
const MOST_READ: usize = 4 * 1024 * 1024;

/// A connection in plain text or by TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// Connects to a server, with TLS if there are settings for it.
#[cfg(any(feature = "redis", feature = "zookeeper"))]
pub(super) async fn connect(
    server: &Address,
    tls: Option<Arc<ClientConfig>>,
    resolver: &Resolver,
) -> Result<Box<dyn Stream>, NetworkError> {
    let stream = connect_in_plain_text(server, resolver).await?;
    match tls {
        None => Ok(bounded(stream)),
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
    Ok(bounded(connected.map_err(|error| broken(&error, &name))?))
}

/// Bounds what is read from a connection for one request.
pub(super) fn bounded(stream: impl Stream + 'static) -> Box<dyn Stream> {
    Box::new(Bounded { stream, left: MOST_READ })
}

struct Bounded<S> {
    stream: S,
    /// How much may still be read before the next write.
    left: usize,
}

/// More was read than the bound.
#[derive(Debug, thiserror::Error)]
#[error("it sent more than {MOST_READ} bytes for one request, or unasked")]
struct TooMuch;

impl<S: Stream> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = buffer.filled().len() - before;
        let Some(left) = self.left.checked_sub(read) else {
            return Poll::Ready(Err(io::Error::other(TooMuch)));
        };
        self.left = left;
        Poll::Ready(Ok(()))
    }
}

impl<S: Stream> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.left = MOST_READ;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
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
    if let Some(why) = error.get_ref().and_then(|it| it.downcast_ref::<TooMuch>()) {
        let message = format!("the connection to {server} was closed: {why}");
        return NetworkError::Disconnected(message);
    }
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use url::Host;

    use super::*;

    #[tokio::test]
    async fn what_is_read_for_one_request_is_bounded_in_sum() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let floods = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            while stream.write_all(&[7; 64 * 1024]).await.is_ok() {}
        };
        let reads = async {
            let address = Address { host: Host::Ipv4([127, 0, 0, 1].into()), port: at.port() };
            #[cfg(any(feature = "mongodb", feature = "redis", feature = "zookeeper"))]
            let mut stream = connect(&address, None, &Resolver::default()).await.unwrap();
            #[cfg(not(any(feature = "mongodb", feature = "redis", feature = "zookeeper")))]
            let mut stream =
                bounded(connect_in_plain_text(&address, &Resolver::default()).await.unwrap());
            let mut buffer = vec![0; 100_000];
            for _ in 0..2 {
                let mut sum = 0;
                let error = loop {
                    match stream.read(&mut buffer).await {
                        Ok(read) => sum += read,
                        Err(error) => break error,
                    }
                };
                assert!((MOST_READ - buffer.len()..=MOST_READ).contains(&sum), "{sum}");
                let words = broken(&error, "h:1").to_string();
                assert!(
                    words.contains("h:1 was closed: it sent more than 4194304 bytes"),
                    "{words}"
                );
                send(&mut *stream, b"next", "h:1").await.expect("it begins another request");
            }
        };
        tokio::join!(floods, reads);
    }

    #[tokio::test]
    async fn a_certificate_that_is_its_own_authority_is_named_as_that() {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
        let mut authority = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let shown = authority.self_signed(&key).unwrap();
        let files = tempfile::tempdir().unwrap();
        let ca = files.path().join("ca");
        std::fs::write(&ca, shown.pem()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let own = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let shows = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![shown.der().clone()], own)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serves = async {
            let (stream, _) = listener.accept().await.unwrap();
            tokio_rustls::TlsAcceptor::from(Arc::new(shows)).accept(stream).await.err()
        };
        let connects = async {
            let address = Address { host: Host::Ipv4([127, 0, 0, 1].into()), port: at.port() };
            let tls = crate::tls::ClientTls::load(None, Some(&ca)).unwrap().config().await;
            let stream = connect_in_plain_text(&address, &Resolver::default()).await.unwrap();
            secure(stream, &address, tls).await.err().expect("no server shows that")
        };
        let (_, error) = tokio::join!(serves, connects);
        let words = error.to_string();
        assert!(words.contains("the certificate of an authority (CA:TRUE) as its own"), "{words}");
    }
}

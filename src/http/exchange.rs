//! One request over a connection of its own, up to the head of the answer.
//!
//! All that arrives before the head is complete is bounded, interim answers too, of which a server
//! may send any number. The connection ends with the request: no task of its own reads on.

use std::error::Error as StdError;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper_util::rt::TokioIo;
use reqwest::{Request, StatusCode};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

use super::client::{Cause, USER, cause};
use super::resolver::Resolver;

/// The most bytes that are received before the head of the answer is complete.
const LONGEST_HEAD: usize = 64 * 1024;

/// Sends a request; returns the status of the answer, or why there is none.
pub(super) async fn exchange(
    tls: &Arc<rustls::ClientConfig>,
    resolver: &Resolver,
    request: &Request,
) -> Result<StatusCode, String> {
    let url = request.url();
    let (host, port) = (url.host_str(), url.port_or_known_default());
    let (Some(host), Some(port)) = (host, port) else {
        return Err("the URL has no host".to_owned());
    };
    let stream = resolver.connect(host, port).await.map_err(|it| it.to_string())?;
    let stream = Bounded { stream, left: LONGEST_HEAD };
    if url.scheme() != "https" {
        return answer(stream, request).await;
    }
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(|_| "TLS failed: invalid host".to_owned())?;
    let connector = TlsConnector::from(Arc::clone(tls));
    let stream = connector.connect(name, stream).await.map_err(|error| broken(&error))?;
    answer(stream, request).await
}

/// Sends the request and receives the head of the answer.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &Request,
) -> Result<StatusCode, String> {
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| broken(&error))?;
    let answer = sender.send_request(outgoing(request)?);
    let (mut answer, connection) = (pin!(answer), pin!(connection));
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer,
        // It has handed over the answer or its error before it ended.
        _ = connection => answer.await,
    };
    answer.map(|answer| answer.status()).map_err(|error| broken(&error))
}

/// Converts a request to one that is sent to its own server, without a proxy.
fn outgoing(request: &Request) -> Result<hyper::Request<Full<Bytes>>, String> {
    let url = request.url();
    let body = request.body().and_then(|body| body.as_bytes()).unwrap_or_default();
    let mut outgoing = hyper::Request::builder()
        .method(request.method())
        .uri(&url[url::Position::BeforePath..url::Position::AfterQuery])
        .header(HOST, authority(url))
        .header(USER_AGENT, USER)
        .header(ACCEPT, "*/*");
    for (name, value) in request.headers() {
        outgoing = outgoing.header(name, value);
    }
    let body = Full::new(Bytes::copy_from_slice(body));
    outgoing.body(body).map_err(|_| "failed to build the request".to_owned())
}

fn authority(url: &Url) -> &str {
    &url[url::Position::BeforeHost..url::Position::AfterPort]
}

/// Returns why there is no answer.
fn broken(error: &(dyn StdError + 'static)) -> String {
    let mut next = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if inner.is_some_and(|inner| inner.is::<HeadTooLong>()) {
            return HeadTooLong.to_string();
        }
        next = error.source();
    }
    match cause(error) {
        Cause::Certificate(why) => format!("TLS failed: {why}"),
        Cause::Io(kind) => format!("the connection broke: {kind}"),
        Cause::Unresolved(why) => why,
        Cause::Other => "the connection broke, or the answer is not HTTP".to_owned(),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the head of the answer, with interim answers, is longer than {} KiB", LONGEST_HEAD / 1024)]
struct HeadTooLong;

/// A connection from which no more than `left` bytes are read.
struct Bounded {
    stream: TcpStream,
    left: usize,
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::Error::other(HeadTooLong)));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        // One read may exceed the limit by the size of its buffer.
        self.left = self.left.saturating_sub(buf.filled().len() - before);
        read
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

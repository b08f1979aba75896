//! Accepts and serves the connections of a listener, and bounds their requests in size and time.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONNECTION};
use axum::http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};
use tower_service::Service;

use super::limits::{Activity, Connections, Slot, Streamed};
use super::{Listener, Peer, Stream, Tls};

/// How long a client may leave a response unread before its connection is closed.
const WRITE_TIME: Duration = Duration::from_secs(10);

/// The most bytes of a request's head; hyper responds with 431 above it.
const MAX_HEAD: usize = 16 * 1024;

/// The most headers of a request; hyper responds with 431 above it.
const MAX_HEADERS: usize = 64;

/// How many requests that a client sent without waiting for answers are answered at once. After
/// these, each takes [`PAUSE`]: such clients would occupy the thread for as long as their bytes last.
const AT_ONCE: u32 = 8;

/// The time for each further answer to a client that does not wait.
const PAUSE: Duration = Duration::from_millis(100);

/// The streams of all kinds but plain TCP, which share the code that serves them: plain TCP has its
/// own for speed.
type Shared = Box<dyn SharedStream>;

trait SharedStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> SharedStream for T {}

/// Marks a response whose body is a stream without end.
#[derive(Clone, Copy)]
pub(crate) struct Streaming;

/// Marks a response whose body is a stream to a peer, which has a place of its own: its connection no
/// longer counts among those of the listener, and ends with the stream.
#[derive(Clone, Copy)]
pub(crate) struct OwnPlace;

/// A service at a listener.
pub(crate) trait ConnectionService: Send + Sync + 'static {
    /// Returns the router for one connection.
    fn router(&self, stream: &Stream) -> Router;

    /// Marks a request with its sender, for a handler that needs to know it.
    fn mark(&self, _request: &mut Request<Incoming>, _peer: Peer) {}

    /// Returns the response to the request that most clients send, without a way through the router;
    /// `None` for any other.
    fn direct(&self, _request: &Request<Incoming>) -> Option<Response<Body>> {
        None
    }

    /// Returns the response to a request that is not processed, by its URI, by its headers or by
    /// its body of at most `body` bytes.
    fn refusal(&self, uri: &Uri, headers: &HeaderMap, body: u64) -> Option<Response<Body>>;
}

/// Accepts connections forever, and owns their tasks.
pub(crate) async fn accept<T: ConnectionService>(
    listener: Listener,
    connections: Connections,
    service: Arc<T>,
) {
    let mut tasks = JoinSet::new();
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
        };
        match accepted {
            Ok(stream) => {
                failing = false;
                let Some(slot) = connections.take(stream.peer()).await else { continue };
                let activity = Arc::clone(&slot.activity);
                let (service, router) = (Arc::clone(&service), service.router(&stream));
                let task = match (stream, listener.tls()) {
                    (Stream::Tcp(it), None) => tasks.spawn(serve(it, slot, service, router)),
                    (Stream::Tcp(it), Some(tls)) => {
                        let Some(handshake) = tls.slot(activity.peer()).await else { continue };
                        let begun = Arc::clone(&handshake.activity);
                        let secured = secure(it, Arc::clone(tls), activity.peer(), handshake);
                        let task = tasks.spawn(async move {
                            if let Some(it) = secured.await {
                                serve(it, slot, service, router).await;
                            }
                        });
                        begun.is_of(task.clone());
                        task
                    }
                    (Stream::Unix(it), _) => {
                        tasks.spawn(serve(Box::new(it) as Shared, slot, service, router))
                    }
                };
                activity.is_of(task);
            }
            Err(error) => {
                // Most likely no file descriptor is left. The store needs them more than waiting
                // clients.
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!("failed to accept a connection: {error}");
                }
                connections.run_short();
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Performs the handshake of a connection.
async fn secure(stream: TcpStream, tls: Arc<Tls>, peer: Peer, slot: Slot) -> Option<Shared> {
    let stream = tls.handshake(stream, peer, slot).await?;
    Some(Box::new(stream))
}

pub(super) async fn serve<S, T>(stream: S, slot: Slot, service: Arc<T>, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: ConnectionService,
{
    let activity = Arc::clone(&slot.activity);
    let io = TokioIo::new(Watched {
        stream,
        activity: Arc::clone(&activity),
        tail: [0; 4],
        stalled: None,
    });
    let (slot, connections) = (&slot, &slot.connections);
    let (service, router, activity) = (service.as_ref(), &router, &activity);
    let peer = slot.activity.peer();
    let answer = service_fn(|mut request: Request<Incoming>| {
        service.mark(&mut request, peer);
        activity.answering();
        async move {
            if activity.count_answer() > AT_ONCE {
                sleep(PAUSE).await;
            }
            let response = respond(request, service, router).await;
            if response.extensions().get::<OwnPlace>().is_some() {
                slot.vacate();
                return Ok::<_, Infallible>(response);
            }
            if response.extensions().get::<Streaming>().is_none() {
                activity.answered(connections.tick());
                return Ok(response);
            }
            activity.streaming();
            // The body is dropped at its end, or at once for a HEAD request.
            let streamed = Streamed::new(Arc::clone(activity), connections.clone());
            Ok(response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let _held = &streamed;
                    frame
                }))
            }))
        }
    });
    let connection = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .header_read_timeout(None)
        .serve_connection(io, answer);
    // An error concerns only the client.
    let _ = connection.await;
}

/// Responds to one request, with the headers that all responses have.
async fn respond<T: ConnectionService>(
    request: Request<Incoming>,
    service: &T,
    router: &Router,
) -> Response<Body> {
    // A body without a length may be of any size.
    let body = request.body().size_hint().upper().unwrap_or(u64::MAX);
    let mut response = match service.refusal(request.uri(), request.headers(), body) {
        Some(refusal) => refusal,
        None => match service.direct(&request) {
            Some(response) => response,
            None => match router.clone().call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
        },
    };
    let has_own_place = response.extensions().get::<OwnPlace>().is_some();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if body > 0 || has_own_place {
        // The body may not have been read to its end, so the next request could not be found.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A stream that records when bytes arrive, and fails when a write has been pending for too long.
struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
    /// The last bytes received: a request without a body ends with an empty line.
    tail: [u8; 4],
    stalled: Option<Pin<Box<Sleep>>>,
}

/// Returns the last bytes received, given those `before` and the new ones.
fn tail_of(before: [u8; 4], came: &[u8]) -> [u8; 4] {
    let mut tail = before;
    for byte in &came[came.len().saturating_sub(tail.len())..] {
        tail.rotate_left(1);
        tail[3] = *byte;
    }
    tail
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let came = &buffer.filled()[before..];
        if !came.is_empty() {
            self.tail = tail_of(self.tail, came);
            let complete = self.tail == *b"\r\n\r\n" || self.tail.ends_with(b"\n\n");
            self.activity.note_received(!complete);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Unpin> Watched<S> {
    /// Fails a write that has been pending for [`WRITE_TIME`].
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(WRITE_TIME)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bounded(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, closed)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::identity;

    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Takes bytes, and keeps them for ever, as TLS does with a client that does not read.
    struct Stuck;

    impl AsyncWrite for Stuck {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn flushing_and_closing_are_bounded_as_writing_is() {
        let slot = Connections::new(1, 1, identity).take(Peer::Local).await.unwrap();
        let activity = Arc::clone(&slot.activity);
        let mut stream = Watched { stream: Stuck, activity, tail: [0; 4], stalled: None };
        stream.write_all(b"x").await.unwrap();
        let bound = WRITE_TIME * 2;
        let flushed = tokio::time::timeout(bound, stream.flush()).await.expect("it ends");
        assert_eq!(flushed.unwrap_err().kind(), io::ErrorKind::TimedOut);
        stream.stalled = None;
        let closed = tokio::time::timeout(bound, stream.shutdown()).await.expect("it ends");
        assert_eq!(closed.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}

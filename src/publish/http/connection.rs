//! The connections of the status listener: their number, and how long each may keep us waiting.
//!
//! hyper's own time limit for headers also ends idle connections that wait for their next request,
//! which a prober may well keep. So the time is taken here, from a request's first byte to its
//! complete head, and idle connections live until their place is needed.
//!
//! What it does not do: it knows no paths and no status.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONNECTION};
use axum::http::{HeaderValue, Request, Response, StatusCode};
use axum::response::IntoResponse;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, Sleep, interval, sleep};
use tower_service::Service;

use super::listener::{Listener, Stream};

/// How often the connections are looked through for requests that do not get complete. One look at
/// all of them is cheaper than a timer in each, which every request would set and clear.
const SWEEP: Duration = Duration::from_millis(500);

/// How many sweeps may find one request incomplete: it ends 4.5 to 5 s after its first byte.
const PATIENCE: u32 = 10;

/// How long a client may leave an answer unread before it is dropped.
const WRITE_TIME: Duration = Duration::from_secs(10);

/// Most bytes of a request's head; hyper answers 431 above it.
const MAX_HEAD: usize = 16 * 1024;

/// Most headers of a request; hyper answers 431 above it.
const MAX_HEADERS: usize = 64;

/// Most bytes of a request's body, which nothing here needs.
const MAX_BODY: u64 = 1024;

/// The places for connections, over all listeners.
#[derive(Clone)]
pub(super) struct Connections {
    /// One for each descriptor that may be open.
    free: Arc<Semaphore>,
    taken: Arc<Mutex<BTreeMap<u64, Arc<Activity>>>>,
    next: Arc<AtomicU64>,
}

/// What one connection is about.
#[derive(Default)]
struct Activity {
    phase: AtomicU8,
    /// When it began or was last answered, in turns of all connections; the smallest is the oldest.
    idle_since: AtomicU64,
    /// Whether the bytes that came last are those of a request that is not complete.
    partial: AtomicBool,
    /// How many sweeps have found it in its present phase.
    swept: AtomicU32,
    /// Ends the connection's task.
    task: OnceLock<AbortHandle>,
}

const IDLE: u8 = 0;
const READING: u8 = 1;
const ANSWERING: u8 = 2;
const STREAMING: u8 = 3;

/// Marks an answer whose body goes on for as long as somebody reads it.
#[derive(Clone, Copy)]
pub(super) struct Streaming;

/// Held by such a body: when it is dropped, the connection waits for its next request.
struct Streamed {
    activity: Arc<Activity>,
    connections: Connections,
}

impl Drop for Streamed {
    fn drop(&mut self) {
        self.activity.answered(self.connections.tick());
    }
}

/// A place, given back when its connection is closed.
struct Place {
    id: u64,
    activity: Arc<Activity>,
    connections: Connections,
    _permit: OwnedSemaphorePermit,
}

impl Connections {
    pub(super) fn new(max: usize) -> Self {
        let free = Arc::new(Semaphore::new(max));
        Self { free, taken: Arc::default(), next: Arc::default() }
    }

    /// Takes a place; another makes room where all are taken. Gives none when all are busy.
    async fn take(&self) -> Option<Place> {
        let permit = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => permit,
            // A connection that is ended is closed a little later. Were that not awaited, a burst
            // would open more files than there are places, at the store's expense.
            Err(_) if self.make_room() => Arc::clone(&self.free).acquire_owned().await.ok()?,
            Err(_) => return None,
        };
        let id = self.tick();
        let activity = Arc::new(Activity::default());
        activity.idle_since.store(id, Ordering::Relaxed);
        self.lock().insert(id, Arc::clone(&activity));
        Some(Place { id, activity, connections: self.clone(), _permit: permit })
    }

    /// Ends a connection that waits, so that its descriptor is free. Says whether there was one.
    fn make_room(&self) -> bool {
        end_one(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Activity>>> {
        self.taken.lock().expect("nothing panics while the lock is held")
    }

    /// Ends what was begun and does not get complete, for ever.
    pub(super) async fn sweep(self) {
        let mut sweeps = interval(SWEEP);
        // After a pause the missed ones must not be made up for: nobody could have been heard.
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            sweeps.tick().await;
            self.lock().values().filter(|it| it.is_overdue()).for_each(|it| it.end());
        }
    }

    fn tick(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

/// Ends the connection whose last answer, or else its beginning, is longest ago, whether it is idle
/// or has begun a request: were those who begin one spared, they would crowd out all who have just
/// come. Those who are answered stay. Says whether there was one.
fn end_one(taken: &mut BTreeMap<u64, Arc<Activity>>) -> bool {
    let oldest = taken
        .iter()
        .filter(|(_, it)| matches!(it.phase.load(Ordering::Relaxed), IDLE | READING))
        .min_by_key(|(_, it)| it.idle_since.load(Ordering::Relaxed))
        .map(|(id, _)| *id);
    let ended = oldest.and_then(|id| taken.remove(&id));
    if let Some(activity) = &ended {
        activity.end();
    }
    ended.is_some()
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Ok(mut taken) = self.connections.taken.lock() {
            taken.remove(&self.id);
        }
    }
}

impl Activity {
    fn enter(&self, phase: u8) {
        self.phase.store(phase, Ordering::Relaxed);
        self.swept.store(0, Ordering::Relaxed);
    }

    /// Bytes came, whose end is that of a request or is not.
    fn heard(&self, partial: bool) {
        self.partial.store(partial, Ordering::Relaxed);
        if self.phase.load(Ordering::Relaxed) == IDLE {
            self.enter(READING);
        }
    }

    /// The answer is made; unless the next request has begun, the connection is idle. One that is
    /// there as a whole is answered next, whatever is said here.
    fn answered(&self, tick: u64) {
        self.idle_since.store(tick, Ordering::Relaxed);
        let partial = self.partial.load(Ordering::Relaxed);
        self.enter(if partial { READING } else { IDLE });
    }

    fn end(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    /// Counts one more sweep; whether a request was begun too many sweeps ago.
    fn is_overdue(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == READING
            && self.swept.fetch_add(1, Ordering::Relaxed) + 1 >= PATIENCE
    }
}

/// Accepts connections for ever, and owns them.
pub(super) async fn accept(listener: Listener, connections: Connections, router: Router) {
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
                if let Some(place) = connections.take().await {
                    let (activity, router) = (Arc::clone(&place.activity), router.clone());
                    let task = match stream {
                        Stream::Tcp(it) => tasks.spawn(serve(it, place, router)),
                        Stream::Unix(it) => tasks.spawn(serve(it, place, router)),
                    };
                    // It is set once: the place was made for this task.
                    let _ = activity.task.set(task);
                }
            }
            Err(error) => {
                // Out of descriptors, most likely: the store needs them more than who waits here.
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!("a connection could not be accepted: {error}");
                }
                connections.make_room();
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve<S>(stream: S, place: Place, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::clone(&place.activity);
    let io = TokioIo::new(Watched {
        stream,
        activity: Arc::clone(&activity),
        tail: [0; 4],
        stalled: None,
    });
    let connections = &place.connections;
    let answer = service_fn(|request| {
        activity.enter(ANSWERING);
        let (router, activity) = (router.clone(), Arc::clone(&activity));
        async move {
            let response = respond(request, router).await;
            if response.extensions().get::<Streaming>().is_none() {
                activity.answered(connections.tick());
                return Ok::<_, Infallible>(response);
            }
            activity.enter(STREAMING);
            // The body is dropped at its end, or at once where the request was HEAD.
            let streamed = Streamed { activity, connections: connections.clone() };
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
    // How a client ended is its own affair.
    let _ = connection.await;
}

/// Answers one request, with what all answers have in common.
async fn respond(request: Request<Incoming>, mut router: Router) -> Response<Body> {
    // One that announces no length may be of any.
    let body = request.body().size_hint().upper().unwrap_or(u64::MAX);
    let mut response = if body > MAX_BODY {
        (StatusCode::PAYLOAD_TOO_LARGE, "no request here needs a body\n").into_response()
    } else {
        match router.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if body > 0 {
        // Nobody reads that body, so the next request could not be told from it.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A stream that tells when bytes come, and fails when its reader has stalled for too long.
struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
    /// The last bytes that came: a request without a body ends with an empty line.
    tail: [u8; 4],
    stalled: Option<Pin<Box<Sleep>>>,
}

/// The last bytes of what came, where `before` were the last until then.
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
            self.activity.heard(!complete);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Unpin> Watched<S> {
    /// Lets a pending write fail when it has been pending for too long.
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
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

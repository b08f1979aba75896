//! The status listener: read-only, without authentication, small and bounded.
//!
//! Responses come from memory and are judged at each request. No lock is held across an await, and
//! no request, however slow or frequent, reaches the election.

mod hosts;
mod parameters;
mod reply;
mod routes;
mod streams;
mod watch;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::future::OptionFuture;
use hyper::body::Incoming;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::clock::Moment;
use crate::http::listener::{self, ConnectionService, Connections, Peer, Stream};
pub use crate::http::listener::{Listener, bind};
use crate::metrics::Metrics;
use crate::peers::PeerStream;
use crate::status::{About, Heartbeat, Judgement, Published, Role};
use hosts::Hosts;
pub use parameters::is_path;
use routes::{LEADER, PEER, WATCH};
use streams::Streams;

/// The most event streams and long polls at a time. They never take more than half of the
/// connections, so that probes always find a slot, and one peer never gets more than half of them;
/// above that they get 503.
pub const MAX_STREAMS: usize = 128;

/// The most bytes of a request's body; no request needs one.
const MAX_BODY: u64 = 1024;

/// The interval in which the listener checks whether the election loop has turned.
const TICK: Duration = Duration::from_secs(1);

/// For how long a rendered text of `/metrics` is served.
const METRICS_HOLD: Duration = Duration::from_millis(250);

/// How long event streams and long polls may take to deliver the last status.
const LAST_WORD: Duration = Duration::from_millis(200);

/// After this many ticks without a turn of the election loop, `/livez` fails.
const PATIENCE: u32 = 10;

/// What the status listener needs from the rest of the sidecar.
pub struct App {
    /// The facts that do not change.
    pub about: About,
    /// The status that the driver published last.
    pub published: tokio::sync::watch::Receiver<Published>,
    /// The metrics.
    pub metrics: Metrics,
    /// Returns how many log lines have been dropped.
    pub dropped_lines: Box<dyn Fn() -> usize + Send + Sync>,
    /// The heartbeat of the election loop.
    pub heartbeat: Heartbeat,
    /// The clock: [`crate::clock::now`], or that of a test.
    pub now: fn() -> Moment,
    /// The most connections at a time, over all listeners.
    pub max_connections: usize,
    /// The most connections of one address beyond loopback.
    pub max_connections_per_peer: usize,
    /// The names of the setting `allowed-hosts`.
    pub allowed_hosts: Vec<String>,
    /// The stream for peers; `None` without peers.
    pub peers: Option<PeerStream>,
    /// Returns how many of the given connections fit into the current limit of open files.
    pub fits: fn(usize) -> usize,
}

/// State shared by the handlers.
struct Shared {
    app: App,
    streams: Streams,
    /// The text of `/metrics` that was rendered last.
    metrics: Mutex<Option<Rendered>>,
    /// Ticks of this listener since the election loop last turned. A pause of the whole process
    /// stops both, and does not count as a hang.
    quiet: AtomicU32,
}

/// A text of `/metrics`.
struct Rendered {
    at: Moment,
    /// The publication and the role that it shows.
    of: (u64, Role),
    text: Bytes,
}

impl Shared {
    /// Returns the status that was published last. It is copied, so that no request holds the lock
    /// that the driver needs to publish the next.
    fn published(&self) -> Published {
        self.app.published.borrow().clone()
    }

    /// Returns the text of `/metrics`. Rendering is the most expensive of all answers, so one text
    /// serves all requests of [`METRICS_HOLD`], unless status or role change.
    fn metrics_text(&self) -> Bytes {
        let (published, now) = (self.published(), (self.app.now)());
        let of = (published.sequence, Judgement::of(&published.status, now).role());
        let mut last = self.metrics.lock().expect("nothing panics while the lock is held");
        let holds = |it: &&Rendered| it.of == of && it.at.elapsed_max(now) < METRICS_HOLD;
        if let Some(rendered) = last.as_ref().filter(holds) {
            return rendered.text.clone();
        }
        let text = self.app.metrics.text(&published, (self.app.dropped_lines)(), now);
        last.insert(Rendered { at: now, of, text: text.into() }).text.clone()
    }
}

/// The routes of a listener, the same for every connection.
struct Paths {
    router: Router,
    shared: Arc<Shared>,
    hosts: Hosts,
}

impl ConnectionService for Paths {
    fn router(&self, _: &Stream) -> Router {
        self.router.clone()
    }

    fn mark(&self, request: &mut Request<Incoming>, peer: Peer) {
        // No other path needs it, and it takes an allocation.
        if matches!(request.uri().path(), WATCH | PEER) {
            request.extensions_mut().insert(peer);
        }
    }

    fn direct(&self, request: &Request<Incoming>) -> Option<Response> {
        let asks = request.method() == Method::GET && request.uri().path() == LEADER;
        asks.then(|| routes::leader(&self.shared, request.uri()))
    }

    fn refusal(&self, uri: &Uri, headers: &HeaderMap, body: u64) -> Option<Response> {
        let too_large = (StatusCode::PAYLOAD_TOO_LARGE, "request bodies are not accepted\n");
        let too_large = (body > MAX_BODY).then(|| too_large.into_response());
        too_large.or_else(|| self.hosts.refusal(headers)).or_else(|| parameters::refusal(uri))
    }
}

/// Serves the listeners until `shutdown`, then closes all connections; subscribers first receive
/// the last status if the driver is gone by then.
pub async fn serve(listeners: Vec<Listener>, app: App, shutdown: impl Future<Output = ()>) {
    let connections = Connections::new(app.max_connections, app.max_connections_per_peer, app.fits);
    let streams = MAX_STREAMS.min(app.max_connections.div_ceil(2));
    let per_peer = app.max_connections_per_peer;
    let shared = Arc::new(Shared {
        app,
        streams: Streams::new(streams, per_peer),
        metrics: Mutex::default(),
        quiet: AtomicU32::new(0),
    });
    let router = routes::router(Arc::clone(&shared));
    let mut tasks = JoinSet::new();
    for listener in listeners {
        let hosts = Hosts::of(&listener, &shared.app.allowed_hosts);
        let paths = Arc::new(Paths { router: router.clone(), shared: Arc::clone(&shared), hosts });
        tasks.spawn(listener::accept(listener, connections.clone(), paths));
    }
    tasks.spawn(connections.sweep());
    tasks.spawn(watch_the_election(Arc::clone(&shared)));
    shutdown.await;
    // A stream that is not read must not delay this.
    let peers = OptionFuture::from(shared.app.peers.as_ref().map(PeerStream::ended));
    let _ = timeout(LAST_WORD, async { tokio::join!(shared.streams.ended(), peers) }).await;
}

/// Counts for how long the election loop has not turned while this listener ran.
async fn watch_the_election(shared: Arc<Shared>) {
    let mut ticks = interval(TICK);
    // Ticks that were missed in a pause must not be made up for: they would look like a hang.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = shared.app.heartbeat.count();
    loop {
        ticks.tick().await;
        let count = shared.app.heartbeat.count();
        if count == last {
            shared.quiet.fetch_add(1, Ordering::Relaxed);
        } else {
            shared.quiet.store(0, Ordering::Relaxed);
        }
        last = count;
    }
}

//! The status listener: read-only, without authentication, small and bounded.
//!
//! Responses come from memory and are judged at each request. No lock is held across an await, and
//! no request, however slow or frequent, reaches the election.

mod reply;
mod routes;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::clock::Moment;
use crate::http::listener::{self, ConnectionService, Connections, Stream};
pub use crate::http::listener::{Listener, bind};
use crate::metrics::Metrics;
use crate::status::{About, Heartbeat, Published};

/// The most event streams and long polls at a time. They never take more than half of the
/// connections, so that probes always find a slot; above that they get 503.
pub const MAX_STREAMS: usize = 128;

/// The most bytes of a request's body; no request needs one.
const MAX_BODY: u64 = 1024;

/// The interval in which the listener checks whether the election loop has turned.
const TICK: Duration = Duration::from_secs(1);

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
    /// Returns how many of the given connections fit into the current limit of open files.
    pub fits: fn(usize) -> usize,
}

/// State shared by the handlers.
struct Shared {
    app: App,
    streams: Arc<Semaphore>,
    /// Ticks of this listener since the election loop last turned. A pause of the whole process
    /// stops both, and does not count as a hang.
    quiet: AtomicU32,
}

/// The routes, the same for every connection.
struct Paths(Router);

impl ConnectionService for Paths {
    fn router(&self, _: &Stream) -> Router {
        self.0.clone()
    }

    fn refusal(&self, body: u64) -> Option<Response> {
        let refusal = (StatusCode::PAYLOAD_TOO_LARGE, "request bodies are not accepted\n");
        (body > MAX_BODY).then(|| refusal.into_response())
    }
}

/// Serves the listeners until `shutdown`, then closes all connections; subscribers first receive
/// the last status if the driver is gone by then.
pub async fn serve(listeners: Vec<Listener>, app: App, shutdown: impl Future<Output = ()>) {
    let connections = Connections::new(app.max_connections, app.fits);
    let streams = MAX_STREAMS.min(app.max_connections.div_ceil(2));
    let shared = Arc::new(Shared {
        app,
        streams: Arc::new(Semaphore::new(streams)),
        quiet: AtomicU32::new(0),
    });
    let paths = Arc::new(Paths(routes::router(Arc::clone(&shared))));
    let mut tasks = JoinSet::new();
    for listener in listeners {
        tasks.spawn(listener::accept(listener, connections.clone(), Arc::clone(&paths)));
    }
    tasks.spawn(connections.sweep());
    tasks.spawn(watch_the_election(Arc::clone(&shared)));
    shutdown.await;
    // All permits are free when every stream has ended. A stream that is not read must not delay
    // this.
    let all = u32::try_from(streams).unwrap_or(u32::MAX);
    let _ = timeout(LAST_WORD, shared.streams.acquire_many(all)).await;
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

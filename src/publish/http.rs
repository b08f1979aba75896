//! The status listener: read-only, without sign-in, small and bounded.
//!
//! What it does not do: it changes nothing. Its answers come from memory, judged at each question;
//! no lock is held across an await, and nobody who asks, slowly or often, reaches the election.

mod page;
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

use super::metrics::Metrics;
use super::{About, Heartbeat, Published};
use crate::clock::Moment;
use crate::listener::{self, Connections, Site, Stream};
pub use crate::listener::{Listener, bind};

/// Most event streams and long polls at a time, and never more than half of the connections, so
/// that probes always find a place; above that 503.
pub const MAX_STREAMS: usize = 128;

/// Most bytes of a request's body, which nothing here needs.
const MAX_BODY: u64 = 1024;

/// How often the listener notes that it turns, and whether the election did.
const TICK: Duration = Duration::from_secs(1);

/// How long event streams and long polls may take to tell the last word.
const LAST_WORD: Duration = Duration::from_millis(200);

/// For how many ticks of the listener the election may stand still before `/livez` says so.
const PATIENCE: u32 = 10;

/// What the status listener answers from.
pub struct App {
    /// What does not change.
    pub about: About,
    /// What the driver published.
    pub published: tokio::sync::watch::Receiver<Published>,
    /// What is counted.
    pub metrics: Metrics,
    /// How many log lines were dropped until now.
    pub dropped_lines: Box<dyn Fn() -> usize + Send + Sync>,
    /// Proof that the election loop turns.
    pub heartbeat: Heartbeat,
    /// The reader of time: [`crate::clock::now`], or a test's.
    pub now: fn() -> Moment,
    /// Most connections at a time, over all listeners.
    pub max_connections: usize,
    /// How many of so many connections fit into the limit of open files at this moment.
    pub fits: fn(usize) -> usize,
}

/// What the handlers share.
struct Shared {
    app: App,
    streams: Arc<Semaphore>,
    /// Ticks of this listener since the election last turned: a pause of the whole process stops
    /// both, and is no hang.
    quiet: AtomicU32,
}

/// The paths as they are served to everybody.
struct Paths(Router);

impl Site for Paths {
    fn router(&self, _: &Stream) -> Router {
        self.0.clone()
    }

    fn refusal(&self, body: u64) -> Option<Response> {
        let refusal = (StatusCode::PAYLOAD_TOO_LARGE, "no request here needs a body\n");
        (body > MAX_BODY).then(|| refusal.into_response())
    }
}

/// Serves the listeners until `shutdown`; then all connections end, those of subscribers when they
/// were told the last status, if the driver is gone by then.
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
    // All places are free when every stream has ended. One that nobody reads may not hold us up.
    let all = u32::try_from(streams).unwrap_or(u32::MAX);
    let _ = timeout(LAST_WORD, shared.streams.acquire_many(all)).await;
}

/// Counts for how long the election has not turned while this listener did.
async fn watch_the_election(shared: Arc<Shared>) {
    let mut ticks = interval(TICK);
    // After a pause the missed ticks must not be made up for: they are nobody's hang.
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

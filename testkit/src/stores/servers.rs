//! What the stores on servers of their own have in common: all running tests share a plain server and a
//! secured one, and each lock is an election that nobody else uses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tenure::clock;

/// The timeout until a server is ready, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A server that all running tests share; it ends with the last of them.
pub struct Shared<S>(Mutex<Weak<S>>);

impl<S> Shared<S> {
    /// Creates the place of one that does not run yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// Returns the running one, or starts it.
    pub fn get(&self, start: impl FnOnce() -> S) -> Arc<S> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let started = Arc::new(start());
            *shared = Arc::downgrade(&started);
            started
        })
    }
}

/// A server that tests share in two forms.
pub trait SharedServer: Send + Sync + 'static {
    /// Returns the plain one.
    fn shared() -> Arc<Self>;

    /// Returns the one with TLS, and with what else protects it.
    fn shared_secured() -> Arc<Self>;
}

/// Which of the two a lock is on.
pub trait Ground: 'static {
    /// Returns it.
    fn server<S: SharedServer>() -> Arc<S>;
}

/// The plain one.
pub struct Plain;

impl Ground for Plain {
    fn server<S: SharedServer>() -> Arc<S> {
        S::shared()
    }
}

/// The secured one.
pub struct Secured;

impl Ground for Secured {
    fn server<S: SharedServer>() -> Arc<S> {
        S::shared_secured()
    }
}

/// Does what may block, such as to start a server, on a thread for that.
pub async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("the work is done")
}

/// Returns the server of a ground, and the name of an election that nobody else uses.
pub async fn place<G: Ground, S: SharedServer>() -> (Arc<S>, String) {
    static LOCKS: AtomicU64 = AtomicU64::new(0);
    let server = on_thread(G::server::<S>).await;
    (server, format!("lock-{}", LOCKS.fetch_add(1, Ordering::Relaxed)))
}

/// Waits for some real time.
pub async fn pass(time: Duration) {
    let start = clock::now();
    while start.elapsed_min(clock::now()) < time {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

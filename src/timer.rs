//! Timers: what wakes a task later. They decide nothing; a task that is woken reads the clock (R2).
//!
//! The driver and the writers of the status files are handed their timer, as they are handed the clock,
//! so that the simulator can run them in a time of its own.

use std::pin::pin;
use std::time::Duration;

use futures::future::{BoxFuture, Either, select};

/// Returns a future that resolves after a duration.
pub type Timer = fn(Duration) -> BoxFuture<'static, ()>;

/// The real timer, which is the runtime's.
pub fn sleep(duration: Duration) -> BoxFuture<'static, ()> {
    Box::pin(tokio::time::sleep(duration))
}

/// Awaits `work` for at most `bound`; `None` if it has not ended by then. Work that has ended counts,
/// however late that is noticed.
pub(crate) async fn within<T>(
    timer: Timer,
    bound: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    match select(pin!(work), timer(bound)).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

//! How long tasks may run in a term, by the status and the clock.

use std::time::Duration;

use tokio::sync::watch;

use crate::clock::{self, LONGEST_SLEEP, Moment};
use crate::election::Status;
use crate::status::Published;

/// Resolves when no task may run any more in this term: its belief or its drain is over by the
/// lease clocks, or the driver has ended.
pub(super) async fn over(mut published: watch::Receiver<Published>, term: u64) {
    loop {
        let left = left(&published.borrow_and_update().status, term, clock::now());
        if left.is_zero() {
            return;
        }
        tokio::select! {
            changed = published.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(left.min(LONGEST_SLEEP)) => {}
        }
    }
}

/// Returns how much longer tasks may run in this term.
pub(super) fn left(status: &Status, term: u64, now: Moment) -> Duration {
    if status.term() == Some(term) { status.work_remaining(now) } else { Duration::ZERO }
}

/// Returns whether the status is leading in this term, whatever the clock says.
pub(super) fn leads(status: &Status, term: u64) -> bool {
    status.standing.state().is_leading() && status.term() == Some(term)
}

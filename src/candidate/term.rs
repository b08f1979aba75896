//! How long tasks may run in a term, by the status and the clock.

use std::time::Duration;

use tokio::sync::watch;

use crate::clock::{self, LONGEST_SLEEP, Moment};
use crate::election::Status;
use crate::status::Published;

/// Judges how long tasks may run in one term.
pub(super) struct WorkClock {
    term: u64,
    /// The last reading of the clocks.
    last: Moment,
    over: bool,
}

impl WorkClock {
    pub(super) fn new(term: u64, now: Moment) -> Self {
        Self { term, last: now, over: false }
    }

    /// Returns how much longer tasks may run at `now`; zero for good once it was zero, or once a
    /// lease clock went back, since no deadline can be judged by it then.
    pub(super) fn left(&mut self, status: &Status, now: Moment) -> Duration {
        let back = now.boot < self.last.boot || now.raw < self.last.raw;
        self.last = now;
        let left = status.work_remaining(now);
        self.over |= back || status.term() != Some(self.term) || left.is_zero();
        if self.over { Duration::ZERO } else { left }
    }
}

/// Resolves when no task may run any more in this term: its belief or its drain is over by the
/// lease clocks, one of them went back, or the driver has ended.
pub(super) async fn over(mut published: watch::Receiver<Published>, term: u64) {
    let mut clock = WorkClock::new(term, clock::now());
    loop {
        let left = clock.left(&published.borrow_and_update().status, clock::now());
        if left.is_zero() {
            return;
        }
        tokio::select! {
            changed = published.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(left.min(LONGEST_SLEEP)) => {}
        }
    }
}

/// Returns whether the status is leading in this term, whatever the clock says.
pub(super) fn leads(status: &Status, term: u64) -> bool {
    status.standing.state().is_leading() && status.term() == Some(term)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::election::{Belief, LeaseView, Standing, StoreHealth};

    fn at(boot: u64, raw: u64) -> Moment {
        let reading = Duration::from_secs;
        Moment { boot: reading(boot), raw: reading(raw), wall: reading(boot) }
    }

    pub(in super::super) fn status(term: u64, sent: Moment, draining: bool) -> Status {
        let belief = Belief { sent, length: Duration::from_secs(10), suspended: false };
        let length = Duration::from_secs(8);
        let standing = if draining {
            Standing::Draining { term, belief, began: sent, length }
        } else {
            Standing::Leader { term, belief, jeopardy: false }
        };
        Status {
            standing,
            since: sent,
            holder: None,
            successor: None,
            hold_off: None,
            workload_term: None,
            released_term: None,
            contact_due: None,
            lease: LeaseView::default(),
            store: StoreHealth::default(),
            wait: None,
        }
    }

    #[test]
    fn a_lease_clock_that_goes_back_ends_the_work_for_good() {
        for draining in [false, true] {
            let held = status(7, at(100, 100), draining);
            for back in [at(104, 105), at(105, 104), at(5, 5)] {
                let mut clock = WorkClock::new(7, at(100, 100));
                assert!(!clock.left(&held, at(105, 105)).is_zero());
                assert_eq!(clock.left(&held, back), Duration::ZERO, "{back:?}");
                let renewed = status(7, at(106, 106), draining);
                assert_eq!(clock.left(&renewed, at(106, 106)), Duration::ZERO, "it was dropped");
            }
        }
    }

    #[test]
    fn work_ends_with_its_belief_its_drain_or_its_term_and_not_by_the_wall_clock() {
        let mut clock = WorkClock::new(7, at(100, 100));
        let held = status(7, at(100, 100), false);
        let mut jumped = at(104, 105);
        jumped.wall += Duration::from_secs(3_600);
        assert_eq!(clock.left(&held, jumped), Duration::from_secs(5), "by the faster clock");
        assert_eq!(clock.left(&held, at(110, 105)), Duration::ZERO);
        let mut clock = WorkClock::new(7, at(100, 100));
        let drained = status(7, at(100, 100), true);
        assert_eq!(clock.left(&drained, at(106, 106)), Duration::from_secs(2));
        assert_eq!(clock.left(&status(8, at(106, 106), false), at(106, 106)), Duration::ZERO);
    }
}

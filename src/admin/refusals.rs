//! Limits on callers without authorization: how many tokens may be guessed, and how many refusals
//! are logged.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::clock::Moment;

/// How many calls without the right token are answered in a second; until it is over, further calls
/// are refused whatever their token.
const GUESSES: (u64, Duration) = (10, Duration::from_secs(1));

/// How many refusals are logged one by one in a period; the others are counted.
const LOGGED: (u64, Duration) = (10, Duration::from_secs(10));

/// What has been refused lately.
#[derive(Default)]
pub(super) struct Refusals {
    counts: Mutex<Counts>,
    /// A refusal was not logged.
    unlogged: Notify,
}

#[derive(Default)]
struct Counts {
    guesses: Window,
    logged: Window,
    unlogged: u64,
}

/// A count that begins anew when its period is over.
#[derive(Default)]
struct Window {
    began: Option<Moment>,
    count: u64,
}

impl Window {
    fn is_full(&mut self, (most, period): (u64, Duration), now: Moment) -> bool {
        if self.began.is_none_or(|began| began.elapsed_max(now) >= period) {
            *self = Self { began: Some(now), count: 0 };
        }
        self.count >= most
    }
}

impl Refusals {
    /// Returns after which time a caller may try a token again; `None` if it may now.
    pub(super) fn retry_after(&self, now: Moment) -> Option<Duration> {
        self.counts().guesses.is_full(GUESSES, now).then_some(GUESSES.1)
    }

    /// Counts a call without the right token.
    pub(super) fn guessed(&self) {
        self.counts().guesses.count += 1;
    }

    /// Returns whether the refusal of a caller without authorization is logged now.
    pub(super) fn is_logged(&self, now: Moment) -> bool {
        let mut counts = self.counts();
        if counts.logged.is_full(LOGGED, now) {
            counts.unlogged += 1;
            self.unlogged.notify_one();
            return false;
        }
        counts.logged.count += 1;
        true
    }

    /// Logs the number of refusals that were not logged one by one, once in each period.
    pub(super) async fn report(&self) {
        loop {
            self.unlogged.notified().await;
            sleep(LOGGED.1).await;
            let calls = std::mem::take(&mut self.counts().unlogged);
            if calls > 0 {
                tracing::warn!(calls, "admin calls were refused without a log line of their own");
            }
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn guesses_and_log_lines_have_a_budget_for_each_period() {
        let refusals = Refusals::default();
        let start = clock::now();
        let later = |by: Duration| Moment { boot: start.boot + by, raw: start.raw + by, ..start };
        for period in 0..3 {
            let now = later(GUESSES.1 * period);
            for _ in 0..GUESSES.0 {
                assert_eq!(refusals.retry_after(now), None);
                refusals.guessed();
            }
            assert_eq!(refusals.retry_after(now), Some(GUESSES.1));
        }
        let logged = |now| (0..100).filter(|_| refusals.is_logged(now)).count() as u64;
        assert_eq!(logged(start), LOGGED.0);
        assert_eq!(logged(later(LOGGED.1 / 2)), 0);
        assert_eq!(logged(later(LOGGED.1)), LOGGED.0);
        assert_eq!(refusals.counts().unlogged, 90 + 100 + 90);
    }
}

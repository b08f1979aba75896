//! The pauses of a watch: from the end of one connection, query or stream to the next.

use std::mem;
use std::time::Duration;

use tokio::time::sleep;
use uuid::Uuid;

/// The first pause. A shorter one loads a failing server more.
const SHORTEST: Duration = Duration::from_millis(250);

/// What a pause doubles to while nothing is received. A longer one leaves standbys to their own polls.
const LONGEST: Duration = Duration::from_secs(30);

/// What it doubles to while a server refuses the watch, or has none; reached by doubling too, since a server
/// that has just started may refuse everything, and another may be there by then.
const REFUSED: Duration = Duration::from_secs(300);

/// The next pause.
pub(super) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(SHORTEST)
    }
}

impl Pause {
    /// Begins anew, since something was received.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Pauses after a watch that ended.
    pub(super) async fn pass(&mut self) {
        self.pass_up_to(LONGEST).await;
    }

    /// Pauses after a watch that was refused.
    pub(super) async fn pass_refused(&mut self) {
        self.pass_up_to(REFUSED).await;
    }

    async fn pass_up_to(&mut self, longest: Duration) {
        let next = (self.0 * 2).min(longest);
        sleep(spread(mem::replace(&mut self.0, next))).await;
    }
}

/// Returns half of the pause to all of it, at random, so that not all watchers of a server that ended return
/// at once.
fn spread(pause: Duration) -> Duration {
    let chance = (Uuid::new_v4().as_u128() & 0xff) as u32;
    pause / 2 + pause / 512 * chance
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "the clock of a paused runtime is measured")]

    use super::*;
    use tokio::time::Instant;

    /// Passes a pause; asserts that it lasts for half of this time to all of it, and a millisecond of the timer.
    async fn lasts(seconds: f64, pass: impl Future<Output = ()>) {
        let began = Instant::now();
        pass.await;
        let (passed, whole) = (began.elapsed(), Duration::from_secs_f64(seconds));
        let longest = whole + Duration::from_millis(1);
        assert!((whole / 2..=longest).contains(&passed), "{passed:?} of {whole:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_doubles_until_something_is_received() {
        for _ in 0..20 {
            let mut pause = Pause::default();
            for seconds in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
                lasts(seconds, pause.pass()).await;
            }
            pause.reset();
            lasts(0.25, pause.pass()).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_watch_is_tried_again_after_up_to_five_minutes() {
        let mut pause = Pause::default();
        for seconds in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0] {
            lasts(seconds, pause.pass_refused()).await;
        }
        lasts(300.0, pause.pass()).await;
        lasts(30.0, pause.pass()).await;
    }

    #[test]
    fn watchers_of_one_server_pause_for_different_times() {
        let whole = Duration::from_secs(256);
        let drawn: Vec<_> = (0..1000).map(|_| spread(whole)).collect();
        let (least, most) = (drawn.iter().min().unwrap(), drawn.iter().max().unwrap());
        assert!(*least >= whole / 2 && *most <= whole, "{least:?} {most:?}");
        assert!(*most - *least > whole / 3, "{least:?} {most:?}");
        let different: std::collections::BTreeSet<_> = drawn.iter().collect();
        assert!(different.len() > 100, "{different:?}");
    }
}

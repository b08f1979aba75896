//! What a piece of work knows of the leadership under which it runs, and the running of it: begun
//! under a term, and dropped when that is over.
//!
//! What it does not do: it judges no lease. It reads the status as published, by the clock.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

use super::term::{leads, left, over};
use super::works::{Counted, Works};
use crate::clock::{self, Moment};
use crate::publish::Published;

/// What a piece of work knows of the leadership under which it runs. A clone of it does not keep the
/// lease: what must be waited for is awaited by the work itself.
#[derive(Clone, Debug)]
pub struct Leadership {
    term: u64,
    published: watch::Receiver<Published>,
}

/// Why work as leader was dropped, or never began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// Leadership ended while the work ran; another may lead.
    #[error("leadership in term {term} ended")]
    Lost {
        /// The term that is over.
        term: u64,
    },
    /// The candidate has left the election for good.
    #[error("the candidate has resigned")]
    Resigned,
}

impl Leadership {
    /// The fencing token: larger than that of every leader before. Hand it to whatever you write
    /// to, and have it refuse lower ones.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Whether it still holds at `now`: to be asked before each step that no resource would refuse.
    /// False while draining.
    #[must_use]
    pub fn holds(&self, now: Moment) -> bool {
        !self.remaining(now).is_zero()
    }

    /// How long it holds yet at `now` if nothing renews it; zero while draining.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        let status = &self.published.borrow().status;
        if status.term() == Some(self.term) { status.remaining(now) } else { Duration::ZERO }
    }

    /// Resolves when it is time to come to an end: the candidate leaves by will, or leadership is
    /// over. The work has the rest of the drain-timeout. May be dropped and called again.
    pub async fn draining(&self) {
        let mut published = self.published.clone();
        // An error says that the candidate has ended.
        let _ = published.wait_for(|it| !leads(&it.status, self.term)).await;
    }
}

/// Waits for a leadership, and runs `work` under it.
pub(super) async fn run<W, F>(
    mut published: watch::Receiver<Published>,
    works: &watch::Sender<Works>,
    work: W,
) -> Result<F::Output, Ended>
where
    W: FnOnce(Leadership) -> F,
    F: Future,
{
    loop {
        // Counted first and judged then, so that the warden either sees us or we see its reason.
        let counted = Counted::new(works);
        if published.has_changed().is_err() {
            // A driver that is gone takes no status back.
            return Err(Ended::Resigned);
        }
        let status = published.borrow_and_update().status.clone();
        if let (true, Some(term)) = (status.is_leader(clock::now()), status.term()) {
            counted.begins_in(term);
            let leadership = Leadership { term, published: published.clone() };
            let outcome = under(published, term, work(leadership)).await;
            // The work has been dropped, whether it ended or not.
            drop(counted);
            return outcome.ok_or(Ended::Lost { term });
        }
        drop(counted);
        published.changed().await.map_err(|_| Ended::Resigned)?;
    }
}

/// Runs `work` while it may run in this term; `None` if it was dropped before its end.
///
/// The clock is read at each poll: after a freeze the work may be woken before any timer is.
async fn under<F: Future>(
    published: watch::Receiver<Published>,
    term: u64,
    work: F,
) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut over = pin!(over(published.clone(), term));
    std::future::poll_fn(|context| {
        let is_over = left(&published.borrow().status, term, clock::now()).is_zero();
        if is_over || over.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

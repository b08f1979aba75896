//! Tasks that run under a leadership: started in a term, and dropped when that is over.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

use super::tasks::{Counted, Tasks};
use super::term::{WorkClock, leads, over};
use crate::clock::{self, Moment};
use crate::status::Published;

/// The leadership under which a task runs. A clone does not keep the lease; the task must itself
/// await everything that it starts.
#[derive(Clone, Debug)]
pub struct Leadership {
    term: u64,
    published: watch::Receiver<Published>,
}

/// Why a task was dropped, or never started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// Leadership ended while the task ran; another candidate may lead.
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
    /// Returns the fencing token, which is larger than that of every earlier leader. Pass it to
    /// every resource that you write to, and let it refuse lower ones.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Returns whether the leadership still holds at `now`. Check this before each step that no
    /// resource would refuse. False while draining.
    #[must_use]
    pub fn holds(&self, now: Moment) -> bool {
        !self.remaining(now).is_zero()
    }

    /// Returns how long the leadership still holds at `now` if it is not renewed; zero while
    /// draining.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        let status = &self.published.borrow().status;
        if status.term() == Some(self.term) { status.remaining(now) } else { Duration::ZERO }
    }

    /// Resolves when the task should finish: the candidate steps down voluntarily, or leadership is
    /// over. The task has the rest of drain-timeout. May be dropped and called again.
    pub async fn draining(&self) {
        let mut published = self.published.clone();
        // An error means that the candidate has ended.
        let _ = published.wait_for(|it| !leads(&it.status, self.term)).await;
    }
}

/// Waits for a leadership, and runs `work` under it.
pub(super) async fn run<W, F>(
    mut published: watch::Receiver<Published>,
    tasks: &watch::Sender<Tasks>,
    work: W,
) -> Result<F::Output, Ended>
where
    W: FnOnce(Leadership) -> F,
    F: Future,
{
    loop {
        // Counted before the status is read, so that either the release guard sees this task, or the task
        // sees why it may not start.
        let counted = Counted::new(tasks);
        if published.has_changed().is_err() {
            // The last status of a driver that has ended is not updated any more.
            return Err(Ended::Resigned);
        }
        let status = published.borrow_and_update().status.clone();
        let term = status.term().filter(|term| !tasks.borrow().were_lost_in(*term));
        if let (true, Some(term)) = (status.is_leader(clock::now()), term) {
            counted.begins_in(term);
            let leadership = Leadership { term, published: published.clone() };
            let outcome = under(published, term, work(leadership)).await;
            if outcome.is_none() {
                counted.was_lost_in(term);
            }
            // The task has been dropped, whether it ended or not.
            drop(counted);
            return outcome.ok_or(Ended::Lost { term });
        }
        drop(counted);
        published.changed().await.map_err(|_| Ended::Resigned)?;
    }
}

/// Runs `work` while it may run in this term; `None` if it was dropped before it ended.
///
/// The clock is read at each poll: after a freeze the task may be woken before any timer.
async fn under<F: Future>(
    published: watch::Receiver<Published>,
    term: u64,
    work: F,
) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut over = pin!(over(published.clone(), term));
    let mut clock = WorkClock::new(term, clock::now());
    std::future::poll_fn(|context| {
        let is_over = clock.left(&published.borrow().status, clock::now()).is_zero();
        if is_over || over.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::super::term::tests::status;
    use super::*;

    #[tokio::test]
    async fn no_task_starts_again_in_a_term_in_which_one_was_dropped() {
        let (tasks, _) = watch::channel(Tasks::default());
        let leading = |term| Published::first(status(term, clock::now(), false));
        let (publisher, published) = watch::channel(leading(7));
        let start = || run(published.clone(), &tasks, |it| async move { it.term() }).now_or_never();
        assert_eq!(start(), Some(Ok(7)));
        Counted::new(&tasks).was_lost_in(7);
        assert_eq!(start(), None, "it waits for the next leadership");
        publisher.send_replace(leading(8));
        assert_eq!(start(), Some(Ok(8)));
    }
}

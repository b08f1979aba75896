//! Leader election inside a Rust service, without a second process: [`Candidate`].
//!
//! It is the same core under the same driver as `tenure run`, in a task of your runtime; candidates
//! of both kinds compete with each other for one election. What it does not do: it opens no
//! listener and writes no file, and it cannot save you from your own process. A sidecar goes on
//! judging by the clock when the service hangs; in here a future is dropped in time only if the
//! runtime gets to run. So hand the [term](Leadership::term) to whatever you write to, and have it
//! refuse older ones.

mod builder;
mod leadership;
mod term;
mod works;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Moment;
use crate::daemon::Control;
use crate::election::Standing;
use crate::publish::Published;
use works::Works;

pub use crate::config::{Fault, Faults, Source};
pub use crate::election::State;
pub use builder::{Builder, StartError};
pub use leadership::{Ended, Leadership};

/// One candidate of one election, running in a task of the tokio runtime.
///
/// Cheap to clone. When the last clone is dropped it resigns in the background; await
/// [`resign`](Self::resign) to know that the lease is given back before the process ends. If it is
/// not, the lease runs out.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::StartError> {
/// use tenure::Candidate;
///
/// // One process's own store: for tests. Otherwise "azure://ACCOUNT/CONTAINER" or "file:///DIR".
/// let candidate = Candidate::builder("orders", "memory:").identity("orders-1").start()?;
///
/// let mut changes = candidate.changes();
/// while !candidate.is_leader(tenure::clock::now()) {
///     changes.next().await;
/// }
/// assert!(candidate.status().term().is_some());
/// candidate.resign().await;
/// assert!(!candidate.is_leader(tenure::clock::now()));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Candidate(Arc<Running>);

/// What the clones share.
#[derive(Debug)]
struct Running {
    control: Control,
    published: watch::Receiver<Published>,
    /// What runs as leader: the lease is not given back before there is nothing.
    works: watch::Sender<Works>,
    /// Closed when the driver has ended.
    ended: watch::Receiver<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control.resign_in_passing();
    }
}

/// How a candidate stood when it was asked for.
///
/// It carries its own end, so a kept one does not say that it leads for longer than the lease was
/// sure. Of a step-down that came after it knows nothing: before you act, ask
/// [`Candidate::is_leader`].
#[derive(Clone, Debug)]
pub struct Status(crate::election::Status);

impl Status {
    /// Whether it leads at `now`.
    #[must_use]
    pub fn is_leader(&self, now: Moment) -> bool {
        self.0.is_leader(now)
    }

    /// How long it leads yet, at `now`; zero if it does not.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        self.0.remaining(now)
    }

    /// The term, while it leads or ends its work as leader: the fencing token.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        self.0.term()
    }

    /// The state at `now`.
    #[must_use]
    pub fn state(&self, now: Moment) -> State {
        self.0.state(now)
    }

    /// Who leads as far as it knows, itself included: identity and term.
    #[must_use]
    pub fn leader(&self) -> Option<(&str, u64)> {
        self.0.holder.as_ref().map(|it| (it.candidate.identity.as_str(), it.term))
    }

    /// What the store's last failure was, in words, until it answers again.
    #[must_use]
    pub fn store_error(&self) -> Option<&str> {
        self.0.store.last_error.as_ref().map(|it| it.failure().message.as_ref())
    }
}

/// The changes of a candidate's status: the latest, where several came since the last one was
/// fetched.
#[derive(Clone, Debug)]
pub struct Changes {
    published: watch::Receiver<Published>,
    /// The index of the change that was fetched last.
    fetched: Option<u64>,
}

impl Changes {
    /// Waits for the next change of state, term, holder or the store's trouble, and returns the
    /// status; at the first call, the present one. `None` when the candidate has ended. May be
    /// dropped and called again.
    ///
    /// A belief that runs out because renewals fail is a change that nobody sends: who acts as
    /// leader goes by [`Candidate::is_leader`], or by [`Candidate::run_while_leader`].
    pub async fn next(&mut self) -> Option<Status> {
        loop {
            if self.fetched.is_some() {
                self.published.changed().await.ok()?;
            }
            let published = self.published.borrow_and_update();
            // A renewal is published too, and is no change.
            if self.fetched.replace(published.index) != Some(published.index) {
                return Some(Status(published.status.clone()));
            }
        }
    }
}

impl Candidate {
    /// Begins to make a candidate for an election on a store, a URL as `--store` takes it.
    pub fn builder(election: &str, store: &str) -> Builder {
        Builder::new(election, store)
    }

    /// Whether it leads at `now`, judged at this call and not by an event that may come late:
    /// `candidate.is_leader(tenure::clock::now())`.
    #[must_use]
    pub fn is_leader(&self, now: Moment) -> bool {
        self.0.published.borrow().status.is_leader(now)
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> Status {
        Status(self.0.published.borrow().status.clone())
    }

    /// The changes of its status from now on, beginning with the present one.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes { published: self.0.published.clone(), fetched: None }
    }

    /// Waits until it leads, and runs `work` for as long as it does.
    ///
    /// `work` is given its [`Leadership`], with the term to hand on. When the candidate leaves by
    /// will, [`Leadership::draining`] resolves and `work` has the drain-timeout to end; when the
    /// belief ends, or the lease is lost, it is dropped at its next await. No other candidate can
    /// lead before `work` has ended or was dropped, as long as it awaits often enough: at least
    /// once in lease-duration − renew-deadline.
    ///
    /// When `work` ends by itself its value is returned, and the candidate leads on.
    ///
    /// # Errors
    /// [`Ended::Lost`] when `work` was dropped because leadership ended: call again to wait for the
    /// next one. [`Ended::Resigned`] when the candidate has ended and will never lead again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::StartError> {
    /// # let candidate = tenure::Candidate::builder("orders", "memory:").start()?;
    /// let term = candidate.run_while_leader(|leadership| async move {
    ///     // Work, and hand the term to every resource that can refuse an older one.
    ///     leadership.term()
    /// });
    /// assert!(term.await.is_ok());
    /// # candidate.resign().await; Ok(()) }
    /// ```
    pub async fn run_while_leader<W, F>(&self, work: W) -> Result<F::Output, Ended>
    where
        W: FnOnce(Leadership) -> F,
        F: Future,
    {
        leadership::run(self.0.published.clone(), &self.0.works, work).await
    }

    /// Gives leadership up, and does not compete for `hold_off` afterwards, so that another wins.
    /// Whether it led: `false` changes nothing.
    pub async fn step_down(&self, hold_off: Duration) -> bool {
        self.0.control.step_down(hold_off).await.is_ok()
    }

    /// Ends a drain: the work as leader is done, as far as it runs outside of
    /// [`run_while_leader`](Self::run_while_leader), whose works are waited for all the same. Where
    /// any of these ran in the term, nothing else is waited for, and this need not be said. Whether
    /// anything was draining.
    pub async fn drained(&self) -> bool {
        let Standing::Draining { term, .. } = self.status().0.standing else { return false };
        let taken = self.0.control.drained(Some(term)).await.is_ok();
        self.0.works.send_modify(|it| it.drained_in(term));
        taken
    }

    /// Leaves the election for good: drains, gives the lease back, and returns when that is done or
    /// given up; at most the drain-timeout and two request-timeouts later. Where a work does not let
    /// go even when it is dropped, or is a future that nobody polls, the lease is left to run out,
    /// and this takes a lease-duration more. Dropped in between, it resigns all the same.
    pub async fn resign(&self) {
        self.0.control.resign().await;
        let mut ended = self.0.ended.clone();
        // An error says that the driver has ended, which is what is waited for.
        while ended.changed().await.is_ok() {}
    }
}

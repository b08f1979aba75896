//! Leader election inside a Rust service, without a second process: [`Candidate`].
//!
//! It uses the same core and driver as `tenure run`, in a task of your runtime; candidates of both
//! kinds compete with each other in one election. It opens no listener and writes no file, so it is
//! connected to no peers (`docs/peers.md`): it learns of a handover by reading the store.
//!
//! It cannot protect you from your own process. A sidecar goes on checking the clock while the
//! service hangs; in this process a future is dropped in time only if the runtime gets to run. So
//! pass the [term](Leadership::term) to every resource that you write to, and let it refuse older
//! ones.

mod builder;
mod leadership;
mod tasks;
mod term;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Moment;
use crate::driver::Control;
use crate::election::{Command, Standing};
use crate::status::Published;
use tasks::Tasks;

pub use crate::config::{Fault, Faults, Source};
pub use crate::election::State;
pub use builder::{Builder, StartError};
pub use leadership::{Ended, Leadership};

/// One candidate of one election, running in a task of the tokio runtime.
///
/// Cheap to clone. When the last clone is dropped, it resigns in the background; await
/// [`resign`](Self::resign) to be sure that the lease is released before the process ends.
/// Otherwise the lease runs out.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::StartError> {
/// use tenure::Candidate;
///
/// // A store in this process, for tests. Otherwise "azure://ACCOUNT/CONTAINER" or "file:///DIR".
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

/// The state shared by the clones.
#[derive(Debug)]
struct Running {
    control: Control,
    published: watch::Receiver<Published>,
    /// The tasks that run as leader; the lease is not released before all of them have ended.
    tasks: watch::Sender<Tasks>,
    /// Closed when the driver has ended.
    ended: watch::Receiver<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control.mark_leaving();
    }
}

/// The status of a candidate at one instant.
///
/// It carries its own end, so a stored status does not report leadership for longer than the lease
/// was certain. It does not know of a later step-down: before you act, call
/// [`Candidate::is_leader`].
#[derive(Clone, Debug)]
pub struct Status(crate::election::Status);

impl Status {
    /// Returns whether the candidate leads at `now`.
    #[must_use]
    pub fn is_leader(&self, now: Moment) -> bool {
        self.0.is_leader(now)
    }

    /// Returns how much longer the candidate leads, at `now`; zero if it does not lead.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        self.0.remaining(now)
    }

    /// Returns the term while the candidate leads or drains: the fencing token.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        self.0.term()
    }

    /// Returns the state at `now`.
    #[must_use]
    pub fn state(&self, now: Moment) -> State {
        self.0.state(now)
    }

    /// Returns the identity and term of the leader, as last seen; this may be the candidate itself.
    #[must_use]
    pub fn leader(&self) -> Option<(&str, u64)> {
        self.0.holder.as_ref().map(|it| (it.candidate.identity.as_str(), it.term))
    }

    /// Returns the message of the store's last failure, until the store answers again.
    #[must_use]
    pub fn store_error(&self) -> Option<&str> {
        self.0.store.error().map(|it| it.failure().message.as_ref())
    }
}

/// The changes of a candidate's status. If several came since the last call, only the latest is
/// returned.
#[derive(Clone, Debug)]
pub struct Changes {
    published: watch::Receiver<Published>,
    /// The index of the last change returned.
    fetched: Option<u64>,
}

impl Changes {
    /// Waits for the next change of state, term, holder or the store's error, and returns the
    /// status; the first call returns the present one. Returns `None` when the candidate has ended.
    /// May be dropped and called again.
    ///
    /// A belief that expires because renewals fail is a change without an event: to act as leader,
    /// use [`Candidate::is_leader`] or [`Candidate::run_while_leader`].
    pub async fn next(&mut self) -> Option<Status> {
        loop {
            if self.fetched.is_some() {
                self.published.changed().await.ok()?;
            }
            let published = self.published.borrow_and_update();
            // A renewal is published too, and is not a change.
            if self.fetched.replace(published.index) != Some(published.index) {
                return Some(Status(published.status.clone()));
            }
        }
    }
}

impl Candidate {
    /// Creates a builder for a candidate in an election on a store, given as a URL as for
    /// `--store`.
    pub fn builder(election: &str, store: &str) -> Builder {
        Builder::new(election, store)
    }

    /// Returns whether the candidate leads at `now`, evaluated by this call and not from an event
    /// that may arrive late: `candidate.is_leader(tenure::clock::now())`.
    #[must_use]
    pub fn is_leader(&self, now: Moment) -> bool {
        self.0.published.borrow().status.is_leader(now)
    }

    /// Returns the present status.
    #[must_use]
    pub fn status(&self) -> Status {
        Status(self.0.published.borrow().status.clone())
    }

    /// Returns the changes of the status from now on, beginning with the present one.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes { published: self.0.published.clone(), fetched: None }
    }

    /// Waits until the candidate leads, and runs `work` for as long as it does.
    ///
    /// `work` is given its [`Leadership`], with the term. When the candidate steps down
    /// voluntarily, [`Leadership::draining`] resolves and `work` has drain-timeout to finish; when
    /// the belief ends or the lease is lost, `work` is dropped at its next await. No other
    /// candidate can lead before `work` has ended or was dropped, provided that it awaits often
    /// enough: at least once in lease-duration − renew-deadline.
    ///
    /// When `work` ends by itself, its value is returned and the candidate goes on leading.
    ///
    /// # Errors
    /// Returns [`Ended::Lost`] if `work` was dropped because leadership ended: call again to wait
    /// for the next one. Returns [`Ended::Resigned`] if the candidate has ended and will never lead
    /// again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::StartError> {
    /// # let candidate = tenure::Candidate::builder("orders", "memory:").start()?;
    /// let term = candidate.run_while_leader(|leadership| async move {
    ///     // Do the work, and pass the term to every resource that can refuse an older one.
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
        leadership::run(self.0.published.clone(), &self.0.tasks, work).await
    }

    /// Gives up leadership, and does not compete for `hold_off` afterwards, so that another
    /// candidate wins. Returns whether the candidate led or was about to; if `false`, nothing
    /// changes.
    pub async fn step_down(&self, hold_off: Duration) -> bool {
        self.0.control.command(Command::StepDown { hold_off }).await.is_ok()
    }

    /// Ends a drain: reports that work outside of [`run_while_leader`](Self::run_while_leader) is
    /// finished. Tasks in it are awaited in any case; if any ran in the term, nothing else is
    /// awaited, and this call is not needed. Returns whether the candidate was draining.
    pub async fn drained(&self) -> bool {
        let Standing::Draining { term, .. } = self.status().0.standing else { return false };
        let taken = self.0.control.command(Command::Drained(Some(term))).await.is_ok();
        self.0.tasks.send_modify(|it| it.drained_in(term));
        taken
    }

    /// Leaves the election for good: drains, releases the lease, and returns when that is done or
    /// given up, after at most drain-timeout and two request-timeouts. If a task does not end when
    /// it is dropped, or is a future that is never polled, the lease is left to run out, which
    /// takes up to one lease-duration more. If this future is dropped, the candidate resigns all
    /// the same.
    pub async fn resign(&self) {
        self.0.control.resign().await;
        let mut ended = self.0.ended.clone();
        // An error means that the driver has ended.
        while ended.changed().await.is_ok() {}
    }
}

//! A credential that is renewed in the background: a task reads secret files again when they change, and
//! renews tokens long before they expire, so that no request waits for either while there is a
//! credential to send.
//!
//! Whether a credential is still valid is for the store to decide. An old one is sent until there is a
//! new one, since this host's wall clock may be wrong.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::clock::{self, Moment};
use crate::lease::{Cause, Failure, StoreError};

/// The time between two reads of a secret file. A longer one delays a new secret, which a refusal
/// fetches at once anyway; a shorter one gains nothing.
const FILE_PERIOD: Duration = Duration::from_secs(2);

/// The time from a failed sign-in to the next, doubling from the first value to the second.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The time to the next sign-in where a new token has already expired by the clock of this host,
/// which must be wrong then: no cloud issues tokens for less than twice this time. Should the store
/// refuse the token earlier, the next sign-in is earlier.
const CLOCK_AHEAD: Duration = Duration::from_secs(5 * 60);

/// The least time between two sign-ins after a refused token, since the identity endpoints of
/// machines limit the rate of requests.
const DISTRUST: Duration = Duration::from_secs(10);

/// Where a credential comes from.
#[async_trait]
pub(super) trait Source<T>: Send {
    /// Reads or fetches the credential once; `Ok(None)` if it is the same as before. Returns too when to
    /// do that next.
    async fn fetch(&mut self) -> (Result<Option<T>, Failure>, Next);
}

/// When a credential is fetched next, from the sending of the last request on.
pub(super) struct Next {
    /// The time until then.
    after: Duration,
    /// The time until then, if the store refuses the credential meanwhile.
    refused_after: Duration,
}

impl Next {
    /// Returns when to read a file again.
    pub(super) fn of_file() -> Self {
        Self { after: FILE_PERIOD, refused_after: Duration::ZERO }
    }
}

/// The times at which tokens are fetched.
pub(super) struct Sessions {
    /// Whose tokens they are, for the log: `Azure`.
    of: &'static str,
    retry: Duration,
}

impl Sessions {
    pub(super) fn new(of: &'static str) -> Self {
        Self { of, retry: RETRY.0 }
    }

    /// Returns when to fetch the token after the present one, which lasts for this long; half of that
    /// is used. `None` after a failure.
    pub(super) fn next(&mut self, life: Option<time::Duration>) -> Next {
        let after = match life {
            Some(life) => {
                self.retry = RETRY.0;
                tracing::debug!(seconds = life.whole_seconds(), "signed in to {}", self.of);
                self.lasts(life)
            }
            None => {
                let wait = self.retry;
                self.retry = (wait * 2).min(RETRY.1);
                wait
            }
        };
        Next { after, refused_after: DISTRUST.min(after) }
    }

    fn lasts(&self, life: time::Duration) -> Duration {
        match Duration::try_from(life / 2) {
            Ok(half) if !half.is_zero() => half.max(RETRY.0),
            _ => {
                tracing::warn!(
                    "the new token for {} has already expired by the clock of this host: set the clock",
                    self.of
                );
                CLOCK_AHEAD
            }
        }
    }
}

/// The state of the credential.
#[derive(Debug)]
struct Standing<T> {
    /// The credential; kept while a newer one cannot be had.
    current: Option<Arc<T>>,
    /// Why the last read or sign-in failed; `None` after one that succeeded.
    failure: Option<Failure>,
}

/// The credential of one store. Its task ends when it is dropped.
#[derive(Debug)]
pub(super) struct Renewed<T> {
    standing: watch::Receiver<Standing<T>>,
    /// How long a request waits for the first credential, and the reason if there is none by then.
    patience: Duration,
    not_yet: Failure,
    distrusted: Arc<Notify>,
    task: Option<AbortHandle>,
}

impl<T> Drop for Renewed<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl<T: Send + Sync + 'static> Renewed<T> {
    /// Keeps a credential that does not change, or the reason why there is none.
    pub(super) fn fixed(credential: Result<T, Failure>) -> Self {
        let (current, failure) = match credential {
            Ok(it) => (Some(Arc::new(it)), None),
            Err(failure) => (None, Some(failure)),
        };
        let (_, standing) = watch::channel(Standing { current, failure });
        let not_yet = Failure::new(Cause::Auth, "no credential was obtained yet");
        Self { standing, patience: Duration::ZERO, not_yet, distrusted: Arc::default(), task: None }
    }

    /// Starts the task that fetches the credential and renews it; waits for nothing. `what` names the
    /// read or the sign-in, `store` the store, both for messages. A request waits for the first
    /// credential for three quarters of `request_timeout`: the rest is for the request itself, or at
    /// least for the reason to arrive in time.
    pub(super) fn start(
        source: impl Source<T> + 'static,
        what: &str,
        store: &'static str,
        request_timeout: Duration,
    ) -> Self {
        let (publish, standing) = watch::channel(Standing { current: None, failure: None });
        let distrusted = Arc::new(Notify::new());
        let kept = Kept { publish, distrusted: Arc::clone(&distrusted), store };
        #[allow(clippy::disallowed_methods, reason = "owned by Renewed, which ends it")]
        let task = tokio::spawn(kept.keep(source)).abort_handle();
        let not_yet = Failure::new(Cause::Auth, format!("no credential yet: {what} has not ended"));
        Self { standing, patience: request_timeout * 3 / 4, not_yet, distrusted, task: Some(task) }
    }

    /// Returns the credential for a request; waits for the first read or sign-in for as long as a
    /// request may.
    pub(super) async fn current(&self) -> Result<Arc<T>, StoreError> {
        if let Some(it) = &self.standing.borrow().current {
            return Ok(Arc::clone(it));
        }
        let first = timeout(self.patience, self.first()).await;
        first.unwrap_or_else(|_| Err(StoreError::Unknown(self.not_yet.clone())))
    }

    /// Returns the credential; waits until the first read or sign-in has ended.
    pub(super) async fn first(&self) -> Result<Arc<T>, StoreError> {
        let mut standing = self.standing.clone();
        // An error means that the task has ended; the last state still counts.
        let _ = standing.wait_for(|it| it.current.is_some() || it.failure.is_some()).await;
        let standing = self.standing.borrow();
        match (&standing.current, &standing.failure) {
            (Some(it), _) => Ok(Arc::clone(it)),
            (None, Some(failure)) => Err(StoreError::Unknown(failure.clone())),
            (None, None) => Err(StoreError::Unknown(self.not_yet.clone())),
        }
    }

    /// Returns the credential, if there is one yet.
    pub(super) fn known(&self) -> Option<Arc<T>> {
        self.standing.borrow().current.clone()
    }

    /// Requests another read or sign-in soon, after the store refused the credential.
    pub(super) fn distrust(&self) {
        self.distrusted.notify_one();
    }

    /// Returns why the last read or sign-in failed, if it did.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.standing.borrow().failure.clone()
    }
}

/// The state of the task.
struct Kept<T> {
    publish: watch::Sender<Standing<T>>,
    distrusted: Arc<Notify>,
    store: &'static str,
}

impl<T> Kept<T> {
    async fn keep(self, mut source: impl Source<T>) {
        loop {
            let asked = clock::now();
            let (fetched, next) = source.fetch().await;
            match fetched {
                Ok(Some(new)) => {
                    let current = Some(Arc::new(new));
                    self.publish.send_replace(Standing { current, failure: None });
                }
                Ok(None) => self.publish.send_modify(|standing| standing.failure = None),
                Err(failure) => self.fail(failure),
            }
            self.wait(asked, &next).await;
        }
    }

    /// Waits until the time is over, or shorter if the credential is distrusted. Timers stop in
    /// suspend, so they only decide when to read the clock.
    async fn wait(&self, from: Moment, next: &Next) {
        loop {
            let rest = next.after.saturating_sub(from.elapsed_max(clock::now()));
            if rest.is_zero() {
                return;
            }
            tokio::select! {
                () = sleep(rest.min(RETRY.1)) => (),
                () = self.distrusted.notified() => {
                    if from.elapsed_max(clock::now()) >= next.refused_after {
                        return;
                    }
                }
            }
        }
    }

    /// Records a failure and keeps the present credential; logs each failure once.
    fn fail(&self, failure: Failure) {
        if self.publish.borrow().failure.as_ref() != Some(&failure) {
            tracing::warn!(error = %failure, "failed to renew the credential for {}", self.store);
        }
        self.publish.send_modify(|standing| standing.failure = Some(failure));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::mpsc;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    type Fetched = (Result<Option<u8>, Failure>, Next);

    /// A source that takes what it returns from a test, and waits for that.
    struct Given(mpsc::Receiver<Fetched>);

    #[async_trait]
    impl Source<u8> for Given {
        async fn fetch(&mut self) -> Fetched {
            self.0.recv().await.expect("the test ends later")
        }
    }

    /// Starts with a request-timeout of 2 s. A value that is sent later has been fetched once the next one
    /// can be sent.
    fn start() -> (Renewed<u8>, mpsc::Sender<Fetched>) {
        let (send, given) = mpsc::channel(1);
        let of = Renewed::start(Given(given), "the read", "a test", Duration::from_secs(2));
        (of, send)
    }

    fn next(after: Duration, refused_after: Duration) -> Next {
        Next { after, refused_after }
    }

    fn broken() -> Failure {
        Failure::new(Cause::Auth, "broken")
    }

    /// Returns whether the source is asked, before the time of a paused runtime is over.
    async fn is_asked(send: &mpsc::Sender<Fetched>, within: Duration) -> bool {
        timeout(within, send.reserve()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_the_first_credential_for_three_quarters_of_its_time() {
        let (of, _send) = start();
        assert_eq!(of.known(), None);
        let mut current = Box::pin(of.current());
        assert!(timeout(Duration::from_millis(1_498), &mut current).await.is_err());
        let answer = timeout(Duration::from_millis(4), current).await.expect("it gives up");
        let error = answer.unwrap_err();
        assert_eq!(error.to_string(), "no credential yet: the read has not ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_credential_is_used_until_there_is_another_and_a_failure_is_kept_beside_it() {
        let (of, send) = start();
        let now = || next(Duration::ZERO, Duration::ZERO);
        send.send((Err(broken()), now())).await.unwrap();
        assert_eq!(of.current().await, Err(StoreError::Unknown(broken())));
        for (fetched, known, failure) in [
            (Ok(Some(1)), 1, None),
            (Err(broken()), 1, Some(broken())),
            (Ok(None), 1, None),
            (Ok(Some(2)), 2, None),
        ] {
            let mut standing = of.standing.clone();
            standing.mark_unchanged();
            send.send((fetched, now())).await.unwrap();
            timeout(HOUR, standing.changed()).await.expect("it is fetched at once").unwrap();
            assert_eq!(of.known().as_deref(), Some(&known));
            assert_eq!(of.current().await.as_deref(), Ok(&known));
            assert_eq!(of.failure(), failure);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_credential_is_renewed_at_once_unless_it_was_fetched_a_moment_ago() {
        for (refused_after, at_once) in [(Duration::ZERO, true), (HOUR, false)] {
            let (of, send) = start();
            send.send((Ok(Some(1)), next(HOUR, refused_after))).await.unwrap();
            of.first().await.unwrap();
            // It fills the channel until the source is asked.
            send.send((Ok(Some(2)), next(HOUR, HOUR))).await.unwrap();
            assert!(!is_asked(&send, Duration::from_secs(10)).await, "it is renewed in an hour");
            assert_eq!(of.known().as_deref(), Some(&1));
            of.distrust();
            assert_eq!(is_asked(&send, Duration::from_secs(10)).await, at_once);
            assert_eq!(of.known().as_deref(), Some(if at_once { &2 } else { &1 }));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_ends_with_its_credential() {
        let (of, send) = start();
        assert!(send.closed().now_or_never().is_none());
        drop(of);
        timeout(HOUR, send.closed()).await.expect("the source is dropped");
    }

    #[test]
    fn a_refused_token_is_renewed_after_ten_seconds_or_with_the_next_attempt() {
        let mut sessions = Sessions::new("a test");
        let refused = |it: Next| it.refused_after.as_secs();
        assert_eq!(refused(sessions.next(Some(time::Duration::HOUR))), 10);
        assert_eq!(refused(sessions.next(None)), 1);
    }

    #[test]
    fn a_token_that_seems_expired_is_not_fetched_again_each_second() {
        let mut sessions = Sessions::new("a test");
        let mut after = |life| sessions.next(Some(life)).after;
        assert_eq!(after(time::Duration::hours(1)), Duration::from_secs(1_800));
        assert_eq!(after(time::Duration::seconds(1)), RETRY.0);
        for seconds in [0, -1, -86_400] {
            assert_eq!(after(time::Duration::seconds(seconds)), CLOCK_AHEAD);
        }
    }

    #[test]
    fn failed_sign_ins_are_repeated_less_and_less_often() {
        let mut sessions = Sessions::new("a test");
        let waits: Vec<_> = (0..7).map(|_| sessions.next(None).after.as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        sessions.next(Some(time::Duration::HOUR));
        assert_eq!(sessions.next(None).after, RETRY.0, "it begins anew after a success");
    }
}

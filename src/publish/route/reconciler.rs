//! The reconciler of the route: writes this instance's role to the route when it changes, retries
//! after errors, and periodically verifies it. Labels and slices are hidden behind [`Way`].

use std::time::Duration;

use tokio::sync::watch;
use uuid::Uuid;

use super::client::Desk;
use super::endpointslice::Slice;
use super::label::Label;
use super::{Outcome, Trouble, Want};
use crate::clock::{LONGEST_SLEEP, Moment};
use crate::config::{Beside, Route};
use crate::driver::Control;
use crate::kube::{Kube, KubeError};
use crate::metrics::Metrics;
use crate::status::publish_acks::PublishAcks;
use crate::status::{Judgement, Published, Role, RouteReport};

/// The first pause after an error, which doubles up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// The shortest interval of verifications; the longest is three times that. Fast elections verify
/// more often: at five times their retry-period.
const VERIFY_EVERY: Duration = Duration::from_secs(10);

/// After this time a disagreement of route and role is logged; a handover takes less.
const SLOW: Duration = Duration::from_secs(5);

/// A route of either kind.
#[derive(Debug)]
enum Way {
    Label(Box<Label>),
    Slice(Box<Slice>),
}

impl Way {
    /// Makes the route report the wanted role, for as long as `still` returns true. May be dropped.
    async fn say(&mut self, want: Want, still: &(dyn Fn() -> bool + Sync)) -> Outcome {
        match self {
            Self::Label(it) => it.say(want, still).await,
            Self::Slice(it) => it.say(want, still).await,
        }
    }

    /// Returns the role that the route reports for this instance, if known.
    fn known(&self) -> Option<Role> {
        match self {
            Self::Label(it) => it.known(),
            Self::Slice(it) => it.known(),
        }
    }
}

/// Keeps the route of one instance in agreement with its role.
pub struct Reconciler {
    way: Way,
    control: Control,
    published: watch::Receiver<Published>,
    acked: watch::Sender<u64>,
    now: fn() -> Moment,
    verify_every: Duration,
    /// The last term in which this instance led.
    led: Option<u64>,
    /// The last attempt: what was wanted, when, and after how long it is repeated.
    tried: Option<(Want, Moment, Duration)>,
    /// What the route reports, or certainly cannot be made to report by a retry.
    settled: Option<Want>,
    failures: u32,
    logged: Logged,
}

/// What was logged last, so that it is logged once.
#[derive(Default)]
struct Logged {
    trouble: Option<String>,
    disagrees: bool,
}

impl Reconciler {
    /// Creates the reconciler of a route, if there is one, with its acknowledgements. It verifies
    /// the route about ten times less often than the election renews.
    #[must_use]
    pub fn new(
        (beside, kube): (&Beside, Kube),
        (control, metrics): (Control, Metrics),
        published: watch::Receiver<Published>,
        retry_period: Duration,
        now: fn() -> Moment,
    ) -> Option<(Self, PublishAcks)> {
        let (route, pod) = (beside.route.clone()?, beside.pod.clone()?);
        let desk = Desk { kube, namespace: beside.namespace.clone(), metrics };
        let election = beside.election.clone();
        let way = match route {
            Route::Label { key } => Way::Label(Box::new(Label::new(desk, pod, election, key))),
            Route::EndpointSlice { service, address } => {
                Way::Slice(Box::new(Slice::new(desk, pod, election, service, address)))
            }
        };
        let (acked, acks) = PublishAcks::channel();
        let reconciler = Self {
            way,
            control,
            published,
            acked,
            now,
            verify_every: VERIFY_EVERY.min(retry_period * 5),
            led: None,
            tried: None,
            settled: None,
            failures: 0,
            logged: Logged::default(),
        };
        Some((reconciler, acks))
    }

    /// Reconciles until the driver is gone and its last status is written.
    pub async fn run(mut self) {
        let mut gone = false;
        loop {
            let (want, sequence) = self.wanted();
            if self.is_due(want) {
                self.apply(want).await;
            }
            if self.settled == Some(want) {
                self.acked.send_replace(sequence);
                if gone {
                    return;
                }
            }
            self.log_agreement();
            let sleep = self.until_due(want).min(self.until_change());
            tokio::select! {
                changed = self.published.changed(), if !gone => gone = changed.is_err(),
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    /// Returns what the route is to report now, with the sequence number of its publication.
    fn wanted(&mut self) -> (Want, u64) {
        let last = self.published.borrow_and_update();
        let want = want_of(&last, self.led, (self.now)());
        if let Want::Active(term) = want {
            self.led = Some(term);
        }
        (want, last.sequence)
    }

    /// Tries once to make the route report what is wanted, for as long as that does not change.
    async fn apply(&mut self, want: Want) {
        let (published, now, led) = (self.published.clone(), self.now, self.led);
        let asked = published.clone();
        let still = move || want_of(&asked.borrow(), led, now()) == want;
        let outcome = tokio::select! {
            biased;
            () = changed(published, want, led, now) => None,
            outcome = self.way.say(want, &still) => Some(outcome),
        };
        let overtaken = || Outcome::default().with(Trouble::Overtaken);
        let Outcome { other, trouble } = outcome.unwrap_or_else(overtaken);
        let says = self.way.known();
        let is_settled =
            says == Some(want.role()) || trouble.as_ref().is_some_and(Trouble::is_lasting);
        self.settled = is_settled.then_some(want);
        let wait = self.next_attempt_in(trouble.as_ref());
        self.tried = Some((want, now(), wait));
        self.log_error(trouble);
        let last_error = self.logged.trouble.clone();
        self.control.route_reported(RouteReport { says, other, last_error }).await;
    }

    /// Returns the time until the next attempt.
    fn next_attempt_in(&mut self, trouble: Option<&Trouble>) -> Duration {
        let verify_every = self.verify_every + self.verify_every.mul_f64(2.0 * random());
        match trouble {
            Some(Trouble::Overtaken) => Duration::ZERO,
            Some(trouble) if !trouble.is_lasting() => {
                let wait = FIRST_RETRY * 2_u32.saturating_pow(self.failures.min(10));
                self.failures = self.failures.saturating_add(1);
                let wait = wait.min(LONGEST_RETRY).mul_f64(0.5 + 0.5 * random());
                match trouble {
                    Trouble::Asked(KubeError::Throttled { retry_after: Some(it), .. }) => {
                        wait.max(*it).min(VERIFY_EVERY)
                    }
                    _ => wait,
                }
            }
            _ => {
                self.failures = 0;
                verify_every
            }
        }
    }

    fn is_due(&self, want: Want) -> bool {
        self.until_due(want).is_zero()
    }

    fn until_due(&self, want: Want) -> Duration {
        match self.tried {
            Some((tried, at, wait)) if tried == want => {
                wait.saturating_sub(at.elapsed_max((self.now)()))
            }
            _ => Duration::ZERO,
        }
    }

    /// Returns the time until the clock alone may change what is wanted.
    fn until_change(&self) -> Duration {
        until_change(&self.published.borrow(), (self.now)())
    }

    fn log_error(&mut self, trouble: Option<Trouble>) {
        if matches!(trouble, Some(Trouble::Overtaken)) {
            return;
        }
        let words = trouble.map(|it| it.to_string());
        match &words {
            Some(words) if self.logged.trouble.as_ref() != Some(words) => {
                tracing::warn!("route: {words}");
            }
            Some(words) => tracing::debug!("route, the same error again: {words}"),
            None if self.logged.trouble.is_some() => {
                tracing::info!("route: requests succeed again")
            }
            None => {}
        }
        self.logged.trouble = words;
    }

    /// Logs once that route and role disagree for longer than a handover takes.
    fn log_agreement(&mut self) {
        let now = (self.now)();
        let published = self.published.borrow();
        let Some((route, agreement)) = published.route.as_ref().zip(published.route_agreement(now))
        else {
            return;
        };
        let role = Judgement::of(&published.status, now).role().as_str();
        if agreement.agrees {
            if std::mem::take(&mut self.logged.disagrees) {
                tracing::info!(role, "the route agrees with the role again");
            }
        } else if agreement.since >= SLOW && !self.logged.disagrees {
            self.logged.disagrees = true;
            tracing::warn!(
                role,
                says = route.report.says.map(Role::as_str),
                other = route.report.other,
                "the route does not agree with the role: requests may reach an instance that does not lead"
            );
        }
    }
}

/// Returns what the route is to report for this instance at `now`.
fn want_of(published: &Published, led: Option<u64>, now: Moment) -> Want {
    let judgement = Judgement::of(&published.status, now);
    match (judgement.role(), judgement.term) {
        (Role::Active, Some(term)) => Want::Active(term),
        _ => Want::Passive { led },
    }
}

/// Returns the time until the clock alone may change what is wanted.
fn until_change(published: &Published, now: Moment) -> Duration {
    let remaining = published.status.remaining(now);
    if remaining.is_zero() { LONGEST_SLEEP } else { remaining.min(LONGEST_SLEEP) }
}

/// Resolves when what is wanted differs from `is`.
async fn changed(
    mut published: watch::Receiver<Published>,
    is: Want,
    led: Option<u64>,
    now: fn() -> Moment,
) {
    loop {
        let sleep = {
            let (last, now) = (published.borrow_and_update(), now());
            if want_of(&last, led, now) != is {
                return;
            }
            until_change(&last, now)
        };
        tokio::select! {
            it = published.changed() => if it.is_err() { tokio::time::sleep(sleep).await },
            () = tokio::time::sleep(sleep) => {}
        }
    }
}

/// Returns a random number from 0 to 1.
fn random() -> f64 {
    // These 24 bits contain no version or variant field.
    f64::from((Uuid::new_v4().as_u128() & 0xff_ffff) as u32) / 16_777_216.0
}

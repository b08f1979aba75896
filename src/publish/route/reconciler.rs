//! The reconciler of the route: writes this instance's role to the route when it changes, retries
//! after errors, and periodically verifies it. Labels and slices are hidden behind [`Mechanism`].

use std::time::Duration;

use tokio::sync::watch;
use uuid::Uuid;

use super::client::RouteClient;
use super::endpointslice::Slice;
use super::label::Label;
use super::{Outcome, RouteError, Survey, Target};
use crate::clock::{LONGEST_SLEEP, Moment};
use crate::config::{KubePublishing, Route};
use crate::driver::Control;
use crate::kube::{Kube, KubeError};
use crate::metrics::Metrics;
use crate::status::publish_acks::PublishAcks;
use crate::status::{Judgement, Published, Role, RouteReport, Verified};

/// The first pause after an error, which doubles up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// The shortest interval of verifications. Fast elections verify more often: at five times their
/// retry-period.
const VERIFY_EVERY: Duration = Duration::from_secs(10);

/// The longest interval of verifications, in shortest ones.
const LONGEST_INTERVAL: u32 = 3;

/// How many of the longest intervals a verification counts: it is too old when the reconciler has
/// missed its turn.
const VALID_INTERVALS: u32 = 2;

/// After this time a disagreement of route and role is logged; a handover takes less.
const SLOW: Duration = Duration::from_secs(5);

/// A route of either kind.
#[derive(Debug)]
enum Mechanism {
    Label(Box<Label>),
    Slice(Box<Slice>),
}

impl Mechanism {
    /// Makes the route report the wanted role, for as long as `still` returns true. May be dropped.
    async fn reconcile(&mut self, target: Target, still: &(dyn Fn() -> bool + Sync)) -> Outcome {
        match self {
            Self::Label(it) => it.reconcile(target, still).await,
            Self::Slice(it) => it.reconcile(target, still).await,
        }
    }

    /// Surveys what is beyond the route of this instance. May be dropped.
    async fn survey(&self, target: Target, still: &(dyn Fn() -> bool + Sync)) -> Survey {
        match self {
            Self::Label(it) => it.survey(target).await,
            Self::Slice(it) => it.survey(target, still).await,
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
    mechanism: Mechanism,
    /// The name of this pod.
    pod: String,
    control: Control,
    published: watch::Receiver<Published>,
    acked: watch::Sender<u64>,
    now: fn() -> Moment,
    verify_every: Duration,
    /// The last term in which this instance led.
    led: Option<u64>,
    /// The last attempt: what was wanted, when, and after how long it is repeated.
    tried: Option<(Target, Moment, Duration)>,
    /// What the route reports, or certainly cannot be made to report by a retry.
    settled: Option<Target>,
    failures: u32,
    /// An endpoint that is not the leader's, as of the last survey.
    other: Option<String>,
    /// The last verification that succeeded.
    verified: Option<Verified>,
    /// Whether this instance was made to resign since its pod is gone.
    resigned: bool,
    logged: Logged,
}

/// What was logged last, so that it is logged once.
#[derive(Default)]
struct Logged {
    error: Option<String>,
    disagrees: bool,
}

impl Reconciler {
    /// Creates the reconciler of a route, if there is one, with its acknowledgements. It verifies
    /// the route about ten times less often than the election renews.
    #[must_use]
    pub fn new(
        (beside, kube): (&KubePublishing, Kube),
        (control, metrics): (Control, Metrics),
        published: watch::Receiver<Published>,
        retry_period: Duration,
        now: fn() -> Moment,
    ) -> Option<(Self, PublishAcks)> {
        let (route, pod) = (beside.route.clone()?, beside.pod.clone()?);
        let client = RouteClient { kube, namespace: beside.namespace.clone(), metrics };
        let election = beside.election.clone();
        let mechanism = match route {
            Route::Label { key } => {
                Mechanism::Label(Box::new(Label::new(client, pod.clone(), election, key)))
            }
            Route::EndpointSlice { service, address } => {
                let slice = Slice::new(client, pod.clone(), election, service, address);
                Mechanism::Slice(Box::new(slice))
            }
        };
        let (acked, acks) = PublishAcks::channel();
        let reconciler = Self {
            mechanism,
            pod,
            control,
            published,
            acked,
            now,
            verify_every: VERIFY_EVERY.min(retry_period * 5),
            led: None,
            tried: None,
            settled: None,
            failures: 0,
            other: None,
            verified: None,
            resigned: false,
            logged: Logged::default(),
        };
        Some((reconciler, acks))
    }

    /// Reconciles until the driver is gone and its last status is written.
    pub async fn run(mut self) {
        let mut gone = false;
        loop {
            let (target, sequence) = self.wanted();
            let is_due = self.is_due(target);
            if is_due {
                self.apply(target, sequence).await;
            }
            if self.settled == Some(target) {
                self.acked.send_replace(sequence);
                if gone {
                    return;
                }
            }
            // What was just reported is published a moment later.
            if !is_due {
                self.log_agreement();
            }
            let sleep = self.until_due(target).min(self.until_change());
            tokio::select! {
                changed = self.published.changed(), if !gone => gone = changed.is_err(),
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    /// Returns what the route is to report now, with the sequence number of its publication.
    fn wanted(&mut self) -> (Target, u64) {
        let last = self.published.borrow_and_update();
        let target = target_of(&last, self.led, (self.now)());
        if let Target::Active(term) = target {
            self.led = Some(term);
        }
        (target, last.sequence)
    }

    /// Tries once to make the route report what is wanted, for as long as that does not change, and
    /// then surveys the rest. A release waits for the first only.
    async fn apply(&mut self, target: Target, sequence: u64) {
        let (published, now, led) = (self.published.clone(), self.now, self.led);
        let (asked, began) = (published.clone(), now());
        let still = move || target_of(&asked.borrow(), led, now()) == target;
        let outcome = tokio::select! {
            biased;
            () = changed(published.clone(), target, led, now) => None,
            outcome = self.mechanism.reconcile(target, &still) => Some(outcome),
        };
        let overtaken = || Outcome::default().with(RouteError::Overtaken);
        let Outcome { other, mut error } = outcome.unwrap_or_else(overtaken);
        let is_settled = self.mechanism.known() == Some(target.role())
            || error.as_ref().is_some_and(RouteError::is_lasting);
        self.settled = is_settled.then_some(target);
        if is_settled {
            self.acked.send_replace(sequence);
        }
        let has_driver = published.has_changed().is_ok();
        if has_driver && error.as_ref().is_none_or(RouteError::is_lasting) {
            // What the last survey found holds until this one has ended.
            let words = error.as_ref().map(ToString::to_string);
            self.report(&other, words.or_else(|| self.logged.error.clone())).await;
            let survey = tokio::select! {
                biased;
                () = changed(published, target, led, now) => None,
                survey = self.mechanism.survey(target, &still) => Some(survey),
            };
            match survey {
                Some(survey) => {
                    self.other = survey.other;
                    error = error.or(survey.error);
                    if survey.pod_is_gone {
                        self.resign().await;
                    }
                }
                None => error = error.or(Some(RouteError::Overtaken)),
            }
        }
        if error.is_none() {
            let valid_for = self.verify_every * LONGEST_INTERVAL * VALID_INTERVALS;
            self.verified = Some(Verified { at: began, valid_for });
        }
        let wait = self.next_attempt_in(error.as_ref());
        self.tried = Some((target, now(), wait));
        self.log_error(error);
        self.report(&other, self.logged.error.clone()).await;
    }

    /// Reports to the driver what is known of the route.
    async fn report(&self, other: &Option<String>, last_error: Option<String>) {
        let other = other.clone().or_else(|| self.other.clone());
        let (says, verified) = (self.mechanism.known(), self.verified);
        self.control.route_reported(RouteReport { says, other, last_error, verified }).await;
    }

    /// Makes this instance leave the election, since its pod is gone: no route can lead to it.
    async fn resign(&mut self) {
        if std::mem::replace(&mut self.resigned, true) {
            return;
        }
        tracing::warn!(
            "the pod {} does not exist any more, so no requests can reach this leader: resigning",
            self.pod
        );
        self.control.resign().await;
    }

    /// Returns the time until the next attempt.
    fn next_attempt_in(&mut self, error: Option<&RouteError>) -> Duration {
        let verify_every =
            self.verify_every.mul_f64(1.0 + f64::from(LONGEST_INTERVAL - 1) * random());
        match error {
            Some(RouteError::Overtaken) => Duration::ZERO,
            Some(error) if !error.is_lasting() => {
                let wait = FIRST_RETRY * 2_u32.saturating_pow(self.failures.min(10));
                self.failures = self.failures.saturating_add(1);
                let wait = wait.min(LONGEST_RETRY).mul_f64(0.5 + 0.5 * random());
                match error {
                    RouteError::Asked(KubeError::Throttled { retry_after: Some(it), .. }) => {
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

    fn is_due(&self, target: Target) -> bool {
        self.until_due(target).is_zero()
    }

    fn until_due(&self, target: Target) -> Duration {
        match self.tried {
            Some((tried, at, wait)) if tried == target => {
                wait.saturating_sub(at.elapsed_max((self.now)()))
            }
            _ => Duration::ZERO,
        }
    }

    /// Returns the time until the clock alone may change what is wanted.
    fn until_change(&self) -> Duration {
        until_change(&self.published.borrow(), (self.now)())
    }

    fn log_error(&mut self, error: Option<RouteError>) {
        if matches!(error, Some(RouteError::Overtaken)) {
            return;
        }
        let words = error.map(|it| it.to_string());
        match &words {
            Some(words) if self.logged.error.as_ref() != Some(words) => {
                tracing::warn!("route: {words}");
            }
            Some(words) => tracing::debug!("route, the same error again: {words}"),
            None if self.logged.error.is_some() => {
                tracing::info!("route: requests succeed again")
            }
            None => {}
        }
        self.logged.error = words;
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
            let report = &route.report;
            let (says, other) = (report.says.map(Role::as_str), &report.other);
            if says == Some(role) && other.is_none() {
                tracing::warn!(role, says, "the route cannot be verified");
                return;
            }
            tracing::warn!(
                role,
                says,
                other,
                "the route does not agree with the role: requests may reach an instance that does not lead"
            );
        }
    }
}

/// Returns what the route is to report for this instance at `now`.
fn target_of(published: &Published, led: Option<u64>, now: Moment) -> Target {
    let judgement = Judgement::of(&published.status, now);
    match (judgement.role(), judgement.term) {
        (Role::Active, Some(term)) => Target::Active(term),
        _ => Target::Passive { led },
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
    is: Target,
    led: Option<u64>,
    now: fn() -> Moment,
) {
    loop {
        let sleep = {
            let (last, now) = (published.borrow_and_update(), now());
            if target_of(&last, led, now) != is {
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

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
use crate::kube::{Kube, KubeError};
use crate::metrics::Metrics;
use crate::status::publish_acks::Acknowledgements;
use crate::status::{Judgement, Published, Role, RouteBoard};

/// The first pause after an error, which doubles up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// The shortest interval of verifications; the longest is three times that. Fast elections verify
/// more often: at five times their retry-period.
const LOOK: Duration = Duration::from_secs(10);

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
pub struct Keeper {
    way: Way,
    board: RouteBoard,
    published: watch::Receiver<Published>,
    said: watch::Sender<u64>,
    now: fn() -> Moment,
    look: Duration,
    /// The last term in which this instance led.
    led: Option<u64>,
    /// The last attempt: what was wanted, when, and after how long it is repeated.
    tried: Option<(Want, Moment, Duration)>,
    /// What the route reports, or certainly cannot be made to report by a retry.
    answered: Option<Want>,
    failures: u32,
    told: Told,
}

/// What was logged last, so that it is logged once.
#[derive(Default)]
struct Told {
    trouble: Option<String>,
    disagrees: bool,
}

impl Keeper {
    /// Creates the reconciler of a route, if there is one, with its acknowledgements. It verifies
    /// the route about ten times less often than the election renews.
    #[must_use]
    pub fn new(
        (beside, kube): (&Beside, Kube),
        (board, metrics): (RouteBoard, Metrics),
        published: watch::Receiver<Published>,
        retry_period: Duration,
        now: fn() -> Moment,
    ) -> Option<(Self, Acknowledgements)> {
        let (route, pod) = (beside.route.clone()?, beside.pod.clone()?);
        let desk = Desk { kube, namespace: beside.namespace.clone(), metrics };
        let election = beside.election.clone();
        let way = match route {
            Route::Label { key } => Way::Label(Box::new(Label::new(desk, pod, election, key))),
            Route::EndpointSlice { service, address } => {
                Way::Slice(Box::new(Slice::new(desk, pod, election, service, address)))
            }
        };
        let (said, word) = Acknowledgements::channel();
        let keeper = Self {
            way,
            board,
            published,
            said,
            now,
            look: LOOK.min(retry_period * 5),
            led: None,
            tried: None,
            answered: None,
            failures: 0,
            told: Told::default(),
        };
        Some((keeper, word))
    }

    /// Reconciles until the driver is gone and its last status is written.
    pub async fn run(mut self) {
        let mut gone = false;
        loop {
            let (want, sequence) = self.wanted();
            if self.is_due(want) {
                self.go(want).await;
            }
            if self.answered == Some(want) {
                self.said.send_replace(sequence);
                if gone {
                    return;
                }
            }
            self.tell_agreement();
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
    async fn go(&mut self, want: Want) {
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
        let settled =
            says == Some(want.role()) || trouble.as_ref().is_some_and(Trouble::is_lasting);
        self.answered = settled.then_some(want);
        self.board.write(says, other);
        let wait = self.pace(trouble.as_ref());
        self.tried = Some((want, now(), wait));
        self.tell_trouble(trouble);
    }

    /// Returns the time until the next attempt.
    fn pace(&mut self, trouble: Option<&Trouble>) -> Duration {
        let look = self.look + self.look.mul_f64(2.0 * entropy());
        match trouble {
            Some(Trouble::Overtaken) => Duration::ZERO,
            Some(trouble) if !trouble.is_lasting() => {
                let wait = FIRST_RETRY * 2_u32.saturating_pow(self.failures.min(10));
                self.failures = self.failures.saturating_add(1);
                let wait = wait.min(LONGEST_RETRY).mul_f64(0.5 + 0.5 * entropy());
                match trouble {
                    Trouble::Asked(KubeError::Throttled { retry_after: Some(it), .. }) => {
                        wait.max(*it).min(LOOK)
                    }
                    _ => wait,
                }
            }
            _ => {
                self.failures = 0;
                look
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

    fn tell_trouble(&mut self, trouble: Option<Trouble>) {
        if matches!(trouble, Some(Trouble::Overtaken)) {
            return;
        }
        let words = trouble.map(|it| it.to_string());
        self.board.trouble(words.clone());
        match &words {
            Some(words) if self.told.trouble.as_ref() != Some(words) => {
                tracing::warn!("route: {words}");
            }
            Some(words) => tracing::debug!("route: repeated error: {words}"),
            None if self.told.trouble.is_some() => tracing::info!("route: recovered"),
            None => {}
        }
        self.told.trouble = words;
    }

    /// Logs once that route and role disagree for longer than a handover takes.
    fn tell_agreement(&mut self) {
        let now = (self.now)();
        let role = Judgement::of(&self.published.borrow().status, now).role();
        let Some(document) = self.board.document(role, now) else { return };
        let role = role.as_str();
        if document.agrees {
            if std::mem::take(&mut self.told.disagrees) {
                tracing::info!(role, "the route agrees with the role again");
            }
        } else if document.since_ms >= SLOW.as_millis() as u64 && !self.told.disagrees {
            self.told.disagrees = true;
            let says = document.says.map(Role::as_str);
            tracing::warn!(
                role,
                says,
                other = document.other,
                "the route does not agree with the role: requests may reach an instance that does \
                 not lead"
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
fn entropy() -> f64 {
    // These 24 bits contain no version or variant field.
    f64::from((Uuid::new_v4().as_u128() & 0xff_ffff) as u32) / 16_777_216.0
}

//! Routing: the cluster leads requests to whoever leads, by a label of the pods or by an
//! `EndpointSlice`, and hears of each change by an Event.
//!
//! It reads what the driver published, and judges it by the clock: a belief ends by itself, and the
//! route is taken back then too. The newest state is said, and said again until it is heard; now
//! and then it is looked up, so that what others changed is repaired.
//!
//! What it does not do: nothing waits for it but a release, and that no longer than one
//! request-timeout (R8). It is no safeguard: requests that are under way, and proxies that have not
//! heard yet, still come to an old leader, whose answers must not depend on the route.

mod desk;
pub(crate) mod endpointslice;
mod events;
mod examine;
mod label;

use std::time::Duration;

use tokio::sync::watch;
use uuid::Uuid;

use crate::clock::Moment;
use crate::config::{Beside, Route};
use crate::kube::objects::Metadata;
use crate::kube::{Kube, KubeError};
use crate::publish::acknowledgements::Acknowledgements;
use crate::publish::metrics::Metrics;
use crate::publish::{Judgement, Published, Role, RouteBoard};
use desk::Desk;
use endpointslice::Slice;
pub use events::Events;
pub use examine::examine;
use label::Label;

/// The label of the election on everything that a route writes.
pub(crate) const ELECTION: &str = "tenure.dev/election";

/// The annotation of the term in which it was last written, and by which older writes are refused.
pub(crate) const TERM: &str = "tenure.dev/term";

/// The annotation that is drawn anew by a write which must overtake one that may yet arrive: it
/// changes the version where nothing else would.
const FENCE: &str = "tenure.dev/fence";

/// The longest sleep at a stretch: timers stop in suspend, so the clock is looked at this often
/// whatever a timer says (R2).
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The first wait after a failure, which doubles up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// The shortest time between two looks at a route that is as it should be; the longest is three
/// times that. Fast elections look more often: five times their retry-period.
const LOOK: Duration = Duration::from_secs(10);

/// After how long it is told that route and role disagree: a handover takes less.
const SLOW: Duration = Duration::from_secs(5);

/// What the route is to say of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// That we lead, in this term.
    Active(u64),
    /// That we do not.
    Passive {
        /// The last term in which this process led.
        led: Option<u64>,
    },
}

impl Want {
    fn role(self) -> Role {
        match self {
            Self::Active(_) => Role::Active,
            Self::Passive { .. } => Role::Passive,
        }
    }
}

/// What one go at the route has shown.
#[derive(Debug, Default)]
struct Outcome {
    /// Another that it says active of, though we lead.
    other: Option<String>,
    /// What was wrong.
    trouble: Option<Trouble>,
}

impl Outcome {
    fn with(self, trouble: Trouble) -> Self {
        Self { trouble: Some(trouble), ..self }
    }
}

/// Why the route is not as it should be, or may not stay so.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Asked(#[from] KubeError),
    #[error(
        "{what} says term {newer}, and ours is {ours}: another leads, or led; if none did, take its \
         annotation tenure.dev/term away"
    )]
    Newer { what: String, newer: u64, ours: u64 },
    #[error("{0}")]
    Setting(String),
    #[error("{0} is written by others again and again")]
    Busy(String),
    #[error("a newer state is there")]
    Overtaken,
}

impl Trouble {
    fn newer(what: String, newer: u64, want: Want) -> Self {
        let ours = match want {
            Want::Active(ours) => ours,
            Want::Passive { led } => led.unwrap_or_default(),
        };
        Self::Newer { what, newer, ours }
    }

    fn busy(what: &str) -> Self {
        Self::Busy(what.to_owned())
    }

    /// Whether trying again soon would be no use.
    fn is_lasting(&self) -> bool {
        match self {
            Self::Newer { .. } | Self::Setting(_) => true,
            Self::Busy(_) | Self::Overtaken => false,
            Self::Asked(error) => matches!(
                error,
                KubeError::Missing(_)
                    | KubeError::NoNamespace(_)
                    | KubeError::Forbidden(_)
                    | KubeError::Invalid(_)
            ),
        }
    }
}

/// Whether a write that was answered so has certainly changed nothing, now or later.
fn changed_nothing(error: &KubeError) -> bool {
    matches!(
        error,
        KubeError::Missing(_)
            | KubeError::NoNamespace(_)
            | KubeError::Unauthorized(_)
            | KubeError::Forbidden(_)
            | KubeError::Throttled { .. }
            | KubeError::Invalid(_)
            | KubeError::Files(_)
    )
}

/// A route of either kind.
#[derive(Debug)]
enum Way {
    Label(Box<Label>),
    Slice(Box<Slice>),
}

impl Way {
    /// Has it say what is wanted, while that `still` is wanted. May be dropped.
    async fn say(&mut self, want: Want, still: &(dyn Fn() -> bool + Sync)) -> Outcome {
        match self {
            Self::Label(it) => it.say(want, still).await,
            Self::Slice(it) => it.say(want, still).await,
        }
    }

    /// What it says of us as far as is known.
    fn known(&self) -> Option<Role> {
        match self {
            Self::Label(it) => it.known(),
            Self::Slice(it) => it.known(),
        }
    }
}

/// Keeps the route of one instance as its role is.
pub struct Keeper {
    way: Way,
    board: RouteBoard,
    published: watch::Receiver<Published>,
    said: watch::Sender<u64>,
    now: fn() -> Moment,
    look: Duration,
    /// The last term in which we led.
    led: Option<u64>,
    /// What was last tried, when, and after how long it is tried again.
    tried: Option<(Want, Moment, Duration)>,
    /// What the route says, or is sure not to say however often it is tried.
    answered: Option<Want>,
    failures: u32,
    told: Told,
}

/// What was told to the log, so that it is told once.
#[derive(Default)]
struct Told {
    trouble: Option<String>,
    disagrees: bool,
}

/// The board of the route that is set; empty where none is.
#[must_use]
pub fn board(beside: Option<&Beside>, now: Moment) -> RouteBoard {
    match beside.and_then(|it| it.route.as_ref()) {
        None => RouteBoard::default(),
        Some(Route::Label { .. }) => RouteBoard::new("label", now),
        Some(Route::EndpointSlice { .. }) => RouteBoard::new("endpointslice", now),
    }
}

impl Keeper {
    /// Makes the keeper of a route, if there is one, with its word on what it has said. It looks at
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

    /// Keeps the route until the driver is gone and the last of its word is said.
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

    /// What the route is to say at this instant, and by which publication.
    fn wanted(&mut self) -> (Want, u64) {
        let last = self.published.borrow_and_update();
        let want = want(&last, self.led, (self.now)());
        if let Want::Active(term) = want {
            self.led = Some(term);
        }
        (want, last.sequence)
    }

    /// Tries once to have the route say what is wanted, for as long as it is.
    async fn go(&mut self, want: Want) {
        let (published, now, led) = (self.published.clone(), self.now, self.led);
        let asked = published.clone();
        let still = move || crate::route::want(&asked.borrow(), led, now()) == want;
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

    /// After how long it is tried again.
    fn pace(&mut self, trouble: Option<&Trouble>) -> Duration {
        let look = self.look + self.look.mul_f64(2.0 * chance());
        match trouble {
            Some(Trouble::Overtaken) => Duration::ZERO,
            Some(trouble) if !trouble.is_lasting() => {
                let wait = FIRST_RETRY * 2_u32.saturating_pow(self.failures.min(10));
                self.failures = self.failures.saturating_add(1);
                let wait = wait.min(LONGEST_RETRY).mul_f64(0.5 + 0.5 * chance());
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

    /// How long until the clock alone may change what is wanted.
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
            Some(words) => tracing::debug!("route, again: {words}"),
            None if self.told.trouble.is_some() => tracing::info!("route: it is well again"),
            None => {}
        }
        self.told.trouble = words;
    }

    /// Tells once that route and role disagree for longer than a handover takes.
    fn tell_agreement(&mut self) {
        let now = (self.now)();
        let role = Judgement::of(&self.published.borrow().status, now).role();
        let Some(document) = self.board.document(role, now) else { return };
        let role = role.as_str();
        if document.agrees {
            if std::mem::take(&mut self.told.disagrees) {
                tracing::info!(role, "the route agrees with our role again");
            }
        } else if document.since_ms >= SLOW.as_millis() as u64 && !self.told.disagrees {
            self.told.disagrees = true;
            let says = document.says.map(Role::as_str);
            tracing::warn!(
                role,
                says,
                other = document.other,
                "the route does not agree with our role: requests may go to one who does not lead"
            );
        }
    }
}

/// What the route is to say of us at `now`.
fn want(published: &Published, led: Option<u64>, now: Moment) -> Want {
    let judgement = Judgement::of(&published.status, now);
    match (judgement.role(), judgement.term) {
        (Role::Active, Some(term)) => Want::Active(term),
        _ => Want::Passive { led },
    }
}

/// How long until the clock alone may change what is wanted.
fn until_change(published: &Published, now: Moment) -> Duration {
    let remaining = published.status.remaining(now);
    if remaining.is_zero() { LONGEST_SLEEP } else { remaining.min(LONGEST_SLEEP) }
}

/// Resolves when something else is wanted than this.
async fn changed(
    mut published: watch::Receiver<Published>,
    is: Want,
    led: Option<u64>,
    now: fn() -> Moment,
) {
    loop {
        let sleep = {
            let (last, now) = (published.borrow_and_update(), now());
            if want(&last, led, now) != is {
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

/// The term in which an object was last written; `None` where it bears none.
fn term_of(found: &Metadata) -> Option<u64> {
    found.annotations.get(TERM)?.parse().ok()
}

/// Draws a value for [`FENCE`].
fn draw() -> String {
    format!("{:016x}", Uuid::new_v4().as_u128() & u128::from(u64::MAX))
}

/// Draws chance from 0 to 1.
fn chance() -> f64 {
    // 24 bits that no version or variant field touches.
    f64::from((Uuid::new_v4().as_u128() & 0xff_ffff) as u32) / 16_777_216.0
}

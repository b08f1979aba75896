//! Many races on one course, until their number or their time is over.

#![allow(clippy::print_stdout, reason = "the seed of a run that fails")]

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::clock;
use tokio::task::JoinSet;

use super::checker::check;
use super::courses::Course;
use super::history::{Asked, Call};
use super::script::race;

/// How often a failing race is raced again.
const AGAIN: u64 = 100;

/// How many races to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed of the first race; the others have the next ones.
    pub seed: u64,
    pub races: u64,
    /// Starts no race after this time.
    pub time: Duration,
}

impl Plan {
    /// Returns a plan with a fresh seed, unless the environment has another one: `TENURE_RACES`,
    /// `TENURE_RACES_SEED` and `TENURE_RACES_SECONDS`.
    pub fn from_environment() -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
        };
        let races = number("TENURE_RACES");
        let seed = number("TENURE_RACES_SEED").unwrap_or_else(|| fastrand::u64(..1 << 48));
        let seconds =
            number("TENURE_RACES_SECONDS").unwrap_or(if races.is_some() { 86_400 } else { 4 });
        Self { seed, races: races.unwrap_or(2_000), time: Duration::from_secs(seconds) }
    }
}

/// The result of the races on a course.
#[derive(Debug)]
pub struct Result {
    pub store: &'static str,
    pub seed: u64,
    pub races: u64,
    pub calls: u64,
    /// The calls without a definite answer.
    pub open: u64,
    pub violations: u64,
    pub seconds: f64,
    /// The first violation, with its history.
    pub first: Option<String>,
}

/// The line of JSON that `tests/evidence` reads.
impl fmt::Display for Result {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = serde_json::json!({
            "store": self.store,
            "seed": self.seed,
            "races": self.races,
            "calls": self.calls,
            "open": self.open,
            "violations": self.violations,
            "seconds": (self.seconds * 10.0).round() / 10.0,
        });
        write!(f, "{line}")
    }
}

/// Runs races on a course; ends after the first violation.
pub async fn run(course: Arc<dyn Course>, plan: Plan) -> Result {
    println!("races on {}: seed {}", course.name(), plan.seed);
    let began = clock::now();
    let next = Arc::new(AtomicU64::new(0));
    let violated = Arc::new(AtomicU64::new(0));
    let mut lanes = JoinSet::new();
    for lane in 0..course.lanes() {
        let (course, next, violated) =
            (Arc::clone(&course), Arc::clone(&next), Arc::clone(&violated));
        lanes.spawn(async move {
            let (mut races, mut calls, mut open, mut first) = (0, 0, 0, None);
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                let over = began.elapsed_min(clock::now()) >= plan.time;
                if number >= plan.races || over || violated.load(Ordering::SeqCst) > 0 {
                    return (races, calls, open, first);
                }
                let seed = plan.seed.wrapping_add(number);
                let lock = course.lock(lane, seed).await;
                let model = lock.model.clone();
                let from = clock::now();
                let history = race(seed, lock).await;
                if course.longest().is_some_and(|it| from.elapsed_max(clock::now()) >= it) {
                    continue;
                }
                races += 1;
                let parts = |it: &&Call| {
                    !matches!(it.asked, Asked::Create | Asked::ReadRecord | Asked::FindHeld)
                };
                let made = history.0.iter().filter(parts);
                calls += made.clone().count() as u64;
                open += made.filter(|it| it.answer().is_none()).count() as u64;
                if let Err(violation) = check(&model, &history) {
                    violated.fetch_add(1, Ordering::SeqCst);
                    let again = fails_again(&*course, lane, seed).await;
                    first = Some(format!(
                        "a race on {} with the seed {seed} is not linearizable ({again} of {AGAIN} \
                         repetitions, by TENURE_RACES_SEED={seed} TENURE_RACES=1):\n{history}\n\
                         {violation}",
                        course.name(),
                    ));
                }
            }
        });
    }
    let lanes = lanes.join_all().await;
    let seconds = began.elapsed_min(clock::now()).as_secs_f64();
    let mut result = Result {
        store: course.name(),
        seed: plan.seed,
        races: 0,
        calls: 0,
        open: 0,
        violations: violated.load(Ordering::SeqCst),
        seconds,
        first: None,
    };
    for (races, calls, open, first) in lanes {
        result.races += races;
        result.calls += calls;
        result.open += open;
        result.first = result.first.or(first);
    }
    report(&format!("races: {result}\n"));
    result
}

/// Prints past the capture of the test harness, which shows nothing of a test that passes.
fn report(line: &str) {
    std::io::stdout().lock().write_all(line.as_bytes()).expect("printed");
}

/// Returns how often a race fails when it is repeated.
async fn fails_again(course: &dyn Course, lane: usize, seed: u64) -> u64 {
    let mut failures = 0;
    for _ in 0..AGAIN {
        let lock = course.lock(lane, seed).await;
        let model = lock.model.clone();
        failures += u64::from(check(&model, &race(seed, lock).await).is_err());
    }
    failures
}

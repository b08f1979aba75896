//! Limits how many lines one place in the code logs: a peer's stream, a client or a store can cause any
//! number of them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::callsite::{Callsite, Identifier};
use tracing::field::FieldSet;
use tracing::metadata::Kind;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::clock::Moment;

/// How many lines of one place are logged at once; then one more in each [`REFILL`].
const BURST: u32 = 30;
const REFILL: Duration = Duration::from_secs(2);

/// How often it is logged that lines were left out, at most.
const TOLD: Duration = Duration::from_secs(10);

/// Modules that limit their lines themselves: the output of commands, which is shared out among them, and
/// the calls of operators.
const LIMITED: [&str; 2] = ["tenure::process::output", "tenure::admin"];

/// Hands the lines on to another layer, but for those beyond the limit, which are counted. Lines of the
/// levels debug and trace are not limited: they are logged where somebody asked for all.
pub(super) struct Limit<L> {
    to: L,
    now: fn() -> Moment,
    places: Mutex<Places>,
    left_out: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Places {
    budgets: HashMap<Identifier, Budget>,
    /// How many lines were left out since it was logged last, and when that was.
    left_out: u64,
    told: Option<Moment>,
}

struct Budget {
    left: u32,
    /// Since when no line was added.
    since: Moment,
}

impl Budget {
    fn take(&mut self, now: Moment) -> bool {
        let lines = self.since.elapsed_min(now).as_millis() / REFILL.as_millis();
        if lines > 0 {
            let lines = u32::try_from(lines).unwrap_or(BURST);
            *self = Self { left: self.left.saturating_add(lines).min(BURST), since: now };
        }
        let taken = self.left > 0;
        self.left = self.left.saturating_sub(1);
        taken
    }
}

impl<L> Limit<L> {
    /// Limits the lines that go to a layer.
    pub(super) fn new(to: L, now: fn() -> Moment) -> Self {
        Self { to, now, places: Mutex::default(), left_out: Arc::default() }
    }

    /// Returns the counter of the lines that were left out.
    pub(super) fn left_out(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.left_out)
    }

    /// Returns whether a line is within the limit, and how many others it is time to report as left out.
    fn admit(&self, line: &'static Metadata<'static>) -> (bool, Option<u64>) {
        let is_limited = *line.level() <= Level::INFO
            && !LIMITED.iter().any(|module| line.target().starts_with(module));
        let now = (self.now)();
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = !is_limited
            || match places.budgets.entry(line.callsite()) {
                Entry::Occupied(known) => known.into_mut().take(now),
                Entry::Vacant(new) => new.insert(Budget { left: BURST, since: now }).take(now),
            };
        if !admitted {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            places.left_out += 1;
        }
        let is_due = places.told.is_none_or(|it| it.elapsed_max(now) >= TOLD);
        if places.left_out == 0 || !is_due {
            return (admitted, None);
        }
        places.told = Some(now);
        (admitted, Some(std::mem::take(&mut places.left_out)))
    }
}

impl<S: Subscriber, L: Layer<S>> Layer<S> for Limit<L> {
    fn on_event(&self, line: &Event<'_>, context: Context<'_, S>) {
        let (admitted, left_out) = self.admit(line.metadata());
        if let Some(lines) = left_out {
            report(lines, |it| self.to.on_event(it, context.clone()));
        }
        if admitted {
            self.to.on_event(line, context);
        }
    }
}

/// Where it is logged that lines were left out. A line that is logged within another one would be lost, so
/// it is made by hand.
struct Report;

static REPORT: Report = Report;

static REPORT_LINE: Metadata<'static> = Metadata::new(
    "lines left out",
    "tenure::logs",
    Level::WARN,
    None,
    None,
    None,
    FieldSet::new(&["message", "lines"], Identifier(&REPORT)),
    Kind::EVENT,
);

impl Callsite for Report {
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        &REPORT_LINE
    }
}

fn report(lines: u64, log: impl FnOnce(&Event<'_>)) {
    let fields = REPORT_LINE.fields();
    let (Some(message), Some(count)) = (fields.field("message"), fields.field("lines")) else {
        return;
    };
    let words = "log lines were left out, since too many came from the same place in the code";
    let values = [(&message, Some(&words as _)), (&count, Some(&lines as _))];
    log(&Event::new(&REPORT_LINE, &fields.value_set(&values)));
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{self, Write};

    use tracing_subscriber::prelude::*;

    use super::*;

    thread_local! {
        static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    fn now() -> Moment {
        let reading = NOW.get();
        Moment { boot: reading, raw: reading, wall: reading }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn count(&self, word: &str) -> usize {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            text.lines().filter(|it| it.contains(word)).count()
        }
    }

    /// Logs a line at each level, from a place each.
    fn log() {
        tracing::error!("an error");
        tracing::warn!("a warning");
        tracing::info!("news");
        tracing::debug!("detail");
        tracing::info!(target: "tenure::process::output", "hook: output");
        tracing::info!(target: "tenure::admin::routes", "admin call");
    }

    #[test]
    fn lines_of_one_place_are_limited_and_those_left_out_are_counted() {
        let lines = Lines::default();
        let to = lines.clone();
        let layer = tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(move || to.clone());
        let limit = Limit::new(layer, now);
        let left_out = limit.left_out();
        let subscriber = tracing_subscriber::registry().with(limit);
        tracing::subscriber::with_default(subscriber, || {
            // As a stream that lies for 12 s.
            for _ in 0..500 {
                log();
                NOW.set(NOW.get() + Duration::from_millis(24));
            }
            for limited in ["\"an error\"", "\"a warning\"", "\"news\""] {
                assert_eq!(lines.count(limited), 35, "{limited}");
            }
            for other in ["\"detail\"", "\"hook: output\"", "\"admin call\""] {
                assert_eq!(lines.count(other), 500, "{other}");
            }
            assert_eq!(left_out.load(Ordering::Relaxed), 3 * 465);
            NOW.set(NOW.get() + Duration::from_secs(3_600));
            for _ in 0..100 {
                log();
            }
            assert_eq!(lines.count("\"news\""), 35 + 30, "a pause saves up no more");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let told = text.lines().filter_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let is_told = line["message"].as_str()?.starts_with("log lines were left out");
            assert!(!is_told || line["level"] == "WARN", "{line}");
            line["lines"].as_u64().filter(|_| is_told)
        });
        let told: Vec<u64> = told.collect();
        assert_eq!(told.len(), 3, "not more often than each ten seconds: {told:?}");
    }
}

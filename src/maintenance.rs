//! Watches the maintenance of this machine that its cloud announces, so that leadership has moved
//! before it begins.
//!
//! What is announced is reported to the driver. A source that does not answer changes nothing: it is
//! asked again, and the election goes on.

mod azure;
mod examine;

use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::clock::Moment;
use crate::config::{ScheduledEvents, duration};
use crate::status::document::MaintenanceDocument;
use crate::status::{Maintenance, Published};
use azure::{Event, MetadataService};
pub use examine::examine;

/// The time between two questions. The shortest notice, of a Spot machine's end, is 30 s.
const PERIOD: Duration = Duration::from_secs(5);

/// The time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time limit for the first answer: the first question enables scheduled events, which takes up to
/// two minutes.
const FIRST_PATIENCE: Duration = Duration::from_secs(150);

/// How long before an event this instance hands over. Hardware that is expected to fail is announced
/// days before; all else at most 15 minutes before, and the wall clock may be wrong by the rest.
const LEAD: Duration = Duration::from_secs(3600);

/// After this time without an answer an event is taken as over: an instance must not stay out of the
/// election because nobody can tell it of the end.
const LONGEST_SILENCE: Duration = Duration::from_secs(900);

/// Watches the maintenance of this machine.
pub struct MaintenanceWatch {
    service: MetadataService,
    now: fn() -> Moment,
}

/// What is known of this machine and its events.
#[derive(Default)]
struct Known {
    /// The name of the machine, which does not change.
    machine: Option<String>,
    /// Its events in the last answer, and when that arrived.
    events: Option<(Vec<Event>, Moment)>,
    /// What was reported last.
    reported: Option<Maintenance>,
    /// Whether the last question was not answered.
    failing: bool,
}

impl MaintenanceWatch {
    /// Creates the watch, without asking anything.
    ///
    /// # Errors
    /// Returns an error if the HTTP client cannot be built.
    pub fn new(source: &ScheduledEvents, now: fn() -> Moment) -> anyhow::Result<Self> {
        let ScheduledEvents::Azure(endpoint) = source;
        Ok(Self { service: MetadataService::new(endpoint)?, now })
    }

    /// Asks periodically until the driver is gone. Each change of the next maintenance is passed to
    /// `report`.
    pub async fn run<R, F>(self, mut published: watch::Receiver<Published>, report: R)
    where
        R: Fn(Option<Maintenance>) -> F,
        F: Future<Output = ()>,
    {
        let gone = async { while published.changed().await.is_ok() {} };
        tokio::select! {
            () = self.repeat(report) => {}
            () = gone => {}
        }
    }

    async fn repeat<R, F>(self, report: R)
    where
        R: Fn(Option<Maintenance>) -> F,
        F: Future<Output = ()>,
    {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut known = Known::default();
        loop {
            ticks.tick().await;
            let answer = self.ask(&mut known).await;
            let now = (self.now)();
            known.take(answer, now);
            let next = known.next(now);
            if next != known.reported {
                log_change(known.reported.as_ref(), next.as_ref());
                known.reported.clone_from(&next);
                report(next).await;
            }
        }
    }

    /// Asks for the events of this machine, and first for its name.
    async fn ask(&self, known: &mut Known) -> Result<Vec<Event>, String> {
        let machine = match &known.machine {
            Some(machine) => machine,
            None => {
                let machine = self.service.machine(PATIENCE).await?;
                tracing::info!(machine, "watching the scheduled events of this machine");
                known.machine.insert(machine)
            }
        };
        let patience = if known.events.is_some() { PATIENCE } else { FIRST_PATIENCE };
        let mut events = self.service.events(patience).await?;
        events.retain(|it| it.concerns(machine));
        Ok(events)
    }
}

impl Known {
    /// Records an answer, or that there is none. The first failure in a row is a warning.
    fn take(&mut self, answer: Result<Vec<Event>, String>, now: Moment) {
        let was_failing = std::mem::replace(&mut self.failing, answer.is_err());
        match answer {
            Ok(events) => {
                if was_failing {
                    tracing::info!("scheduled events are known again");
                }
                self.events = Some((events, now));
            }
            Err(why) if was_failing => tracing::debug!("scheduled events are not known: {why}"),
            Err(why) => tracing::warn!(
                "scheduled events are not known: {why}; asking again every {}, and competing \
                 meanwhile",
                duration::format(PERIOD)
            ),
        }
    }

    /// Returns the next maintenance by the last answer, unless that is too old.
    fn next(&self, now: Moment) -> Option<Maintenance> {
        let (events, at) = self.events.as_ref()?;
        (at.elapsed_max(now) < LONGEST_SILENCE).then(|| earliest(events, now.date()))?
    }
}

/// Returns the event that begins first; one that has begun is before all others.
fn earliest(events: &[Event], now: OffsetDateTime) -> Option<Maintenance> {
    let announced = events.iter().filter_map(|it| it.maintenance(now, LEAD));
    announced.min_by_key(|it| (!it.started, it.not_before))
}

fn log_change(before: Option<&Maintenance>, next: Option<&Maintenance>) {
    let Some(next) = next else {
        tracing::info!("the maintenance of this machine is over, was cancelled, or is unknown");
        return;
    };
    let words = MaintenanceDocument::from(next).announcement();
    let event_id = &next.event_id;
    match (next.imminent, before.is_some_and(|it| it.imminent)) {
        (true, false) => tracing::info!(
            event_id,
            "maintenance of this machine: {words}; not competing until it is over"
        ),
        (true, true) => tracing::info!(event_id, "maintenance of this machine: {words}"),
        (false, _) => tracing::info!(
            event_id,
            "maintenance of this machine: {words}; handing over {} before",
            duration::format(LEAD)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        let reading = Duration::from_secs(seconds);
        Moment { boot: reading, raw: reading, wall: reading }
    }

    fn event(status: &str, not_before: &str) -> Event {
        Event::of("Reboot", status, not_before, &["web-1"])
    }

    #[test]
    fn an_event_is_imminent_an_hour_before_and_from_its_start() {
        let now = at(1_800_000_000).date();
        let of = |status, not_before| earliest(&[event(status, not_before)], now).unwrap();
        // 1_800_000_000 is 15 January 2027, 08:00:00.
        for (not_before, imminent) in [
            ("Fri, 15 Jan 2027 09:00:01 GMT", false),
            ("Fri, 15 Jan 2027 09:00:00 GMT", true),
            ("Fri, 15 Jan 2027 08:15:00 GMT", true),
            ("Fri, 15 Jan 2027 07:00:00 GMT", true),
        ] {
            let found = of("Scheduled", not_before);
            assert_eq!((found.imminent, found.started), (imminent, false), "{not_before}");
            assert!(found.not_before.is_some());
        }
        for unknown in ["", "soon"] {
            let found = of("Scheduled", unknown);
            assert_eq!((found.imminent, found.not_before), (true, None), "{unknown}");
        }
        let begun = of("Started", "");
        assert_eq!((begun.imminent, begun.started, begun.status()), (true, true, "Started"));
    }

    #[test]
    fn the_event_that_begins_first_is_reported() {
        let now = at(1_800_000_000).date();
        let later = event("Scheduled", "Fri, 15 Jan 2027 08:30:00 GMT");
        let sooner = event("Scheduled", "Fri, 15 Jan 2027 08:15:00 GMT");
        let begun = Event::of("Freeze", "Started", "", &["web-1"]);
        let first = |events: &[Event]| earliest(events, now).map(|it| (it.kind, it.not_before));
        let date = earliest(std::slice::from_ref(&sooner), now).unwrap().not_before;
        assert_eq!(first(&[later.clone(), sooner.clone()]), Some(("Reboot", date)));
        assert_eq!(first(&[later, begun, sooner]), Some(("Freeze", None)));
        assert_eq!(first(&[]), None);
    }

    #[test]
    fn an_event_is_kept_while_the_source_is_silent_but_not_for_ever() {
        let mut known = Known::default();
        assert_eq!(known.next(at(0)), None);
        known.take(Err("connection refused".to_owned()), at(0));
        assert_eq!(known.next(at(0)), None);
        known.take(Ok(vec![event("Started", "")]), at(10));
        assert!(known.next(at(10)).is_some());
        known.take(Err("connection refused".to_owned()), at(900));
        assert!(known.next(at(909)).is_some());
        assert_eq!(known.next(at(910)), None, "nobody can tell of its end");
        known.take(Ok(Vec::new()), at(20));
        assert_eq!(known.next(at(20)), None);
    }
}

//! The calls of one race: when each was made, and what came of it.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use tenure::lease::{Bid, Cause, Record, Snapshot, Successor, Version};
use tenure::store::BreakOutcome;

/// An instant of a race.
#[derive(Clone, Copy, Debug, Default)]
pub struct Instant {
    /// Counts the instants of the race: a call that returned at a lower one than another was made
    /// has happened before it.
    pub order: u64,
    /// The time by the clock that counts the lease.
    pub time: Duration,
}

/// What a client asked of the store.
#[derive(Clone, Debug)]
pub enum Asked {
    Read,
    Acquire,
    WriteTerm {
        floor: u64,
    },
    Renew,
    SetSuccessor(Successor),
    Release,
    Break {
        at_once: bool,
    },
    /// The part of an acquisition that creates the lock.
    Create,
    /// The part of an acquisition that reads the record under the granted lease.
    ReadRecord,
    /// The part of a break that reads the lease before it is broken.
    FindHeld,
}

/// What the store answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Snapshot(Snapshot),
    /// The lease was granted, with this record; `None` if the record was read by another call.
    Granted(Option<Record>),
    Term(u64),
    Record(Record),
    Done,
    Refused,
    Broken(BreakOutcome),
    /// The record is not one of Tenure. Never right in a race.
    Foreign(String),
}

/// What came of a call.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A definite answer.
    Answered(Answer),
    /// An error that leaves open whether the call was performed, or will be: the call is *open*, and
    /// may take effect at any later instant, or never (R4).
    Unknown(Cause, String),
    /// An error that says that the call changed nothing and never will.
    HadNoEffect(Cause, String),
    /// There is no answer, since the client did not wait for it, or the call is part of another one:
    /// it is open too, but takes no effect after the instant `until`, if there is one.
    Open { until: Option<u64> },
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    pub client: usize,
    pub asked: Asked,
    /// The bid that it is for; `None` for reads and breaks.
    pub bid: Option<Bid>,
    pub invoked: Instant,
    /// When the client got the answer, or stopped waiting for it.
    pub returned: Instant,
    pub outcome: Outcome,
    /// The call that it follows, by its index: the other part of the same request.
    pub after: Option<usize>,
}

impl Call {
    /// Returns the answer, if there is a definite one.
    pub fn answer(&self) -> Option<&Answer> {
        match &self.outcome {
            Outcome::Answered(answer) => Some(answer),
            _ => None,
        }
    }

    /// Returns the last instant at which the call may have taken effect.
    pub fn latest(&self) -> u64 {
        match self.outcome {
            Outcome::Answered(_) | Outcome::HadNoEffect(..) => self.returned.order,
            Outcome::Unknown(..) | Outcome::Open { until: None } => u64::MAX,
            Outcome::Open { until: Some(until) } => until,
        }
    }

    /// Returns the latest time at which the call may have taken effect.
    pub fn latest_time(&self) -> Duration {
        match self.outcome {
            Outcome::Answered(_) | Outcome::HadNoEffect(..) => self.returned.time,
            Outcome::Unknown(..) | Outcome::Open { .. } => Duration::MAX,
        }
    }
}

/// The calls of one race, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct History(pub Vec<Call>);

impl History {
    /// Returns a call without a definite answer that was alone, and took less than the lease-duration:
    /// only the network, or a server that is busy, can be the reason of that. A call without an answer
    /// is never over, since what it left behind may still be in the way of others.
    pub fn undecided_alone(&self) -> Option<usize> {
        let over = |it: &Call| match it.outcome {
            Outcome::Open { .. } => u64::MAX,
            _ => it.latest(),
        };
        self.0.iter().enumerate().position(|(index, call)| {
            let (Outcome::Unknown(cause, _) | Outcome::HadNoEffect(cause, _)) = &call.outcome
            else {
                return false;
            };
            let lasted = call.returned.time.saturating_sub(call.invoked.time);
            let is_apart = |(other, it): (usize, &Call)| {
                let later = it.invoked.order > call.returned.order;
                other == index || later || over(it) < call.invoked.order
            };
            !matches!(cause, Cause::Network | Cause::Timeout | Cause::Throttled)
                && call.bid.as_ref().is_none_or(|bid| lasted < bid.lease_duration)
                && self.0.iter().enumerate().all(is_apart)
        })
    }
}

/// The table of a history: one line for each call.
/// Returns a version for people: of a whole Lease, its resourceVersion.
fn name(version: &Version) -> String {
    let lease: Option<Value> = serde_json::from_str(&version.0).ok();
    let number = lease.as_ref().and_then(|it| it["metadata"]["resourceVersion"].as_str());
    number.unwrap_or(&version.0).to_owned()
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "call  client  made–answered  time                 asked → answered")?;
        for (index, call) in self.0.iter().enumerate() {
            let span = format!("{}–{}", call.invoked.order, call.returned.order);
            let time = if call.invoked.time == call.returned.time {
                format!("{:?}", call.invoked.time)
            } else {
                format!("{:?}–{:?}", call.invoked.time, call.returned.time)
            };
            let client = char::from(b'A' + u8::try_from(call.client % 26).unwrap_or_default());
            writeln!(f, "{index:4}  {client:6}  {span:13}  {time:19}  {}", Words(call))?;
        }
        Ok(())
    }
}

/// A call and its outcome in words.
struct Words<'a>(&'a Call);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(call) = self;
        match &call.asked {
            Asked::Read => write!(f, "read")?,
            Asked::Acquire => write!(f, "acquire")?,
            Asked::WriteTerm { floor } => write!(f, "write_term, at least {floor}")?,
            Asked::Renew => write!(f, "renew")?,
            Asked::SetSuccessor(it) => {
                write!(f, "set_successor {:?} for {:?}", it.identity, it.hold_off)?;
            }
            Asked::Release => write!(f, "release")?,
            Asked::Break { at_once: false } => write!(f, "break")?,
            Asked::Break { at_once: true } => write!(f, "break at once")?,
            Asked::Create => write!(f, "  (creates the lock)")?,
            Asked::ReadRecord => write!(f, "  (reads the record)")?,
            Asked::FindHeld => write!(f, "  (reads the lease)")?,
        }
        if let Some(bid) = &call.bid {
            write!(f, " [bid {} for {:?}", bid.nonce.0, bid.lease_duration)?;
            if matches!(call.asked, Asked::Acquire) {
                write!(f, ", seen {}", name(&bid.seen))?;
            }
            write!(f, "]")?;
        }
        match &call.outcome {
            Outcome::Answered(Answer::Snapshot(it)) => {
                let free = if it.free { "free" } else { "held" };
                let ends = it.ends_in.map(|it| format!(", ends in {it:?}")).unwrap_or_default();
                let claim = it.claim.as_ref().map(|it| format!(", claim {}", &*it.spec.0));
                let (record, claim) = (Recorded(&it.record), claim.unwrap_or_default());
                let version = name(&it.version);
                write!(f, " → {free}, {record}, version {version}{ends}{claim}")
            }
            Outcome::Answered(Answer::Granted(Some(record))) => {
                write!(f, " → granted, {}", Recorded(record))
            }
            Outcome::Answered(Answer::Granted(None)) => write!(f, " → granted"),
            Outcome::Answered(Answer::Term(term)) => write!(f, " → term {term}"),
            Outcome::Answered(Answer::Record(record)) => write!(f, " → {}", Recorded(record)),
            Outcome::Answered(Answer::Done) => write!(f, " → done"),
            Outcome::Answered(Answer::Refused) => write!(f, " → refused"),
            Outcome::Answered(Answer::Broken(BreakOutcome::NotHeld)) => write!(f, " → not held"),
            Outcome::Answered(Answer::Broken(BreakOutcome::Held { record, free_in })) => {
                write!(f, " → held, {}, free in {free_in:?}", Recorded(record))
            }
            Outcome::Answered(Answer::Foreign(why)) => write!(f, " → foreign: {why}"),
            Outcome::Unknown(_, why) => write!(f, " → unknown: {why}"),
            Outcome::HadNoEffect(_, why) => write!(f, " → had no effect: {why}"),
            Outcome::Open { .. } => write!(f, " → no answer"),
        }
    }
}

/// A record in words.
pub struct Recorded<'a>(pub &'a Record);

impl fmt::Display for Recorded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(record) = self;
        match record.term {
            Some(term) => write!(f, "term {term}")?,
            None => write!(f, "no term")?,
        }
        if let Some(nonce) = record.nonce {
            write!(f, " of bid {}", nonce.0)?;
        }
        if let Some(holder) = &record.holder {
            write!(f, " by {}", holder.instance)?;
        }
        if let Some(next) = &record.successor {
            write!(f, " to {:?} for {:?}", next.identity, next.hold_off)?;
        }
        Ok(())
    }
}

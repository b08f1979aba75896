//! The sequential model: one lock that performs one call at a time.
//!
//! The lock is a record (term, nonce, holder, successor), and a lease (the bid that holds it, and its
//! end). [`Model::perform`] tells whether a call can have its answer now, and what the lock is after
//! it. A store may differ from others only in what [`Model`] names.
//!
//! **Time.** The store reads its clock once or more between the start and the end of a call, and the
//! history has the clock of both. So the end of a lease is not an instant but a window: it begins with
//! the reading at the start of the call that was granted, plus the lease-duration, and it ends with
//! the reading at its end, plus the lease-duration. A later call that finds the lease over, or not over,
//! or says how long it lasts, makes the window smaller; if nothing is left of it, the answers
//! contradict each other. Where observers count the time, the lease has no end of its own: it
//! may be taken by any bid for its present version, but not before an observer can have seen it for
//! its whole duration.
//!
//! **Versions.** A version names the state that a read has shown, and a bid is for that state. The
//! model knows only when a version must change, may change, or stays; it learns the name from the
//! first read that shows it, and no earlier state may have had the same.

use std::fmt;
use std::time::Duration;

use tenure::lease::{Bid, Nonce, Record, Snapshot, Successor, Version};
use tenure::store::BreakOutcome;

use super::history::{Answer, Asked, Call, Recorded};

/// The version of a blob, or of a Lease, that does not exist.
const MISSING: &str = "missing";

/// What changes the version of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Every write, perhaps except for a renewal that changes nothing.
    EveryWrite,
    /// Every write that is of interest to a standby: no renewal, and no break that lets the lease run
    /// out.
    EveryChange,
    /// Writes of the record alone, and its creation. The store compares nothing for a bid that saw no
    /// lock.
    RecordAlone,
}

/// How a kind of store behaves where stores may differ.
#[derive(Clone, Debug)]
pub struct Model {
    /// Whether observers count the time, instead of the store.
    pub observed: bool,
    /// What changes the version that a bid is for.
    pub versions: Versions,
    /// Whether a read tells when the lease ends.
    pub tells_end: bool,
    /// By how much a break, or a read that tells, may overstate the rest of the lease.
    pub rounding: Duration,
    /// The unit of lease durations: they are rounded up to it.
    pub unit: Duration,
    /// Whether the holder may still write the record while its lease is being broken.
    pub writes_while_breaking: bool,
    /// Whether a lease that was broken at once is still its holder's to release, though it is free.
    pub broken_is_kept: bool,
    /// Whether a bid that has written the record gets its term again without the lease.
    pub repeats_without_lease: bool,
    /// Whether some calls are two requests that other calls may come between: an acquisition reads the
    /// record after the grant, and a break reads the lease before it breaks it.
    pub in_parts: bool,
    /// Whether what a read shows as done already is written once more, and whether the release of a bid that
    /// does not hold the lease changes the version that it was for.
    pub writes_again: bool,
    /// Whether a call that its client has dropped takes no effect once the client has the answer to a
    /// later one for a bid.
    pub ends_dropped: bool,
    /// Whether a term is above the number of times that the lease was taken.
    pub counts_takings: bool,
    /// The first term of a lock that was created before the race. In the model of a store, the one that each race
    /// needs.
    pub first_term: Option<u64>,
}

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_nanos(1);

impl Model {
    /// The model of `memory:`.
    pub const MEMORY: Self = Self {
        observed: false,
        versions: Versions::EveryChange,
        tells_end: true,
        rounding: Duration::ZERO,
        unit: TICK,
        writes_while_breaking: false,
        broken_is_kept: false,
        repeats_without_lease: false,
        in_parts: false,
        writes_again: false,
        ends_dropped: false,
        counts_takings: false,
        first_term: None,
    };

    /// The model of `file:`.
    pub const FILE: Self =
        Self { versions: Versions::EveryWrite, ends_dropped: true, ..Self::MEMORY };

    /// The model of `azure:`.
    pub const AZURE: Self = Self {
        versions: Versions::RecordAlone,
        tells_end: false,
        rounding: SECOND,
        unit: SECOND,
        writes_while_breaking: true,
        broken_is_kept: true,
        repeats_without_lease: true,
        in_parts: true,
        ..Self::MEMORY
    };

    /// The model of `kubernetes:`.
    pub const KUBERNETES: Self = Self {
        observed: true,
        versions: Versions::EveryWrite,
        unit: SECOND,
        counts_takings: true,
        ..Self::MEMORY
    };

    /// The model of a register.
    pub const REGISTER: Self = Self {
        unit: Duration::from_millis(1),
        counts_takings: false,
        writes_again: true,
        ..Self::KUBERNETES
    };

    fn length(&self, bid: &Bid) -> Duration {
        let units = bid.lease_duration.as_nanos().div_ceil(self.unit.as_nanos());
        let nanos = u64::try_from(units * self.unit.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos)
    }

    /// Returns the lock after a call that took effect by this time; `None` if the call cannot have its answer
    /// now, or if it is open and would change nothing.
    pub fn perform(&self, register: &Register, call: &Call, by: Duration) -> Option<Register> {
        let mut next = Performing {
            model: self,
            register: register.clone(),
            from: call.invoked.time,
            to: call.latest_time().min(by),
        };
        let answer = call.answer();
        if answer == Some(&Answer::Refused) {
            let refused = call.bid.as_ref().is_some_and(|bid| next.refuse(&call.asked, bid));
            return refused.then_some(next.register);
        }
        let bid = || call.bid.as_ref().expect("a call for a bid has one");
        let can = match (&call.asked, answer) {
            (Asked::Read, Some(Answer::Snapshot(it))) => next.read(it),
            (Asked::Acquire, Some(Answer::Granted(record))) => {
                record.as_ref().is_none_or(|it| *it == next.register.record) && next.acquire(bid())
            }
            (Asked::Acquire, None) => next.acquire(bid()),
            (Asked::WriteTerm { floor }, Some(Answer::Term(term))) => {
                next.write_term(bid(), *floor) == Some(*term)
            }
            (Asked::WriteTerm { floor }, None) => next.write_term(bid(), *floor).is_some(),
            (Asked::Renew, Some(Answer::Done) | None) => next.renew(bid()),
            (Asked::SetSuccessor(it), Some(Answer::Done) | None) => next.set_successor(bid(), it),
            (Asked::Release, None) if next.outdates(bid()) => true,
            (Asked::Release, Some(Answer::Done) | None) => next.release(bid()),
            (Asked::Break { at_once }, Some(Answer::Broken(it))) => next.end(*at_once, Some(it)),
            (Asked::Break { at_once }, None) => next.end(*at_once, None),
            (Asked::Create, None) => next.create(),
            (Asked::FindHeld, Some(Answer::Done)) => next.is_running(),
            (Asked::ReadRecord, Some(Answer::Record(it))) => next.register.record == *it,
            _ => false,
        };
        (can && (answer.is_some() || next.register != *register)).then_some(next.register)
    }
}

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    record: Record,
    lease: Option<Lease>,
    version: Names,
    /// The names of the claim that observers count.
    claim: Names,
    /// How often the lease was taken: a Lease counts it, and its term is above it.
    takings: u64,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    nonce: Nonce,
    length: Duration,
    /// The window in which it ends: the first and the last instant at which it may be over for the
    /// first time.
    end: (Duration, Duration),
    /// Whether it is being broken, or was.
    breaking: bool,
}

/// The name of a state, as far as it is known, and those of earlier states.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Names {
    now: Name,
    past: Vec<Version>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Known(Version),
    /// Another one than all earlier ones.
    New,
    /// Another one, or still this one.
    Perhaps(Version),
}

impl Names {
    /// Reports whether the state can have this name, and learns that it has.
    fn is(&mut self, name: &Version) -> bool {
        let fits = match &self.now {
            Name::Known(known) => known == name,
            Name::New => !self.past.contains(name),
            Name::Perhaps(before) if before == name => true,
            Name::Perhaps(before) => {
                let before = before.clone();
                self.past.push(before);
                !self.past.contains(name)
            }
        };
        self.now = Name::Known(name.clone());
        fits
    }

    /// Reports whether the state can have another name than this one, which a read has shown.
    fn can_differ(&self, name: &Version) -> bool {
        !matches!(&self.now, Name::Known(known) if known == name)
    }

    /// Reports whether the state has this name, which a read has shown, and learns it.
    fn is_shown(&mut self, name: &Version) -> bool {
        let fits = matches!(&self.now, Name::Known(it) | Name::Perhaps(it) if it == name);
        if fits {
            self.now = Name::Known(name.clone());
        }
        fits
    }

    fn change(&mut self) {
        if let Name::Known(it) | Name::Perhaps(it) = std::mem::replace(&mut self.now, Name::New) {
            self.past.push(it);
        }
    }

    fn change_perhaps(&mut self) {
        if let Name::Known(it) = &self.now {
            self.now = Name::Perhaps(it.clone());
        }
    }
}

impl Register {
    /// Returns the lock at the start of a race: unused, or with a first term.
    pub fn new(model: &Model) -> Self {
        let missing = model.first_term.is_none() && model.versions == Versions::RecordAlone;
        let now = if missing { Name::Known(Version(MISSING.into())) } else { Name::New };
        Self {
            record: Record { term: model.first_term, ..Record::default() },
            lease: None,
            version: Names { now, past: Vec::new() },
            claim: Names { now: Name::New, past: Vec::new() },
            takings: 0,
        }
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lease {
            None => write!(f, "free")?,
            Some(Lease { nonce, end: (from, to), breaking, .. }) => {
                let breaking = if *breaking { ", being broken" } else { "" };
                write!(f, "held by bid {} until {from:?}–{to:?}{breaking}", nonce.0)?;
            }
        }
        let version = match &self.version.now {
            Name::Known(it) => it.0.to_string(),
            Name::New => "new".to_owned(),
            Name::Perhaps(it) => format!("new or {}", &*it.0),
        };
        write!(f, "; {}; version {version}", Recorded(&self.record))
    }
}

/// A call in progress, during which the clock reads from `from` to `to`.
struct Performing<'a> {
    model: &'a Model,
    register: Register,
    from: Duration,
    to: Duration,
}

impl Performing<'_> {
    // --- time ----------------------------------------------------------------------------------------

    /// Reports whether the lease can be over, and learns that it is.
    fn is_over(&mut self) -> bool {
        let Some(lease) = &mut self.register.lease else {
            return true;
        };
        if self.model.observed {
            return false;
        }
        let over = self.to >= lease.end.0;
        lease.end.1 = lease.end.1.min(self.to);
        over
    }

    /// Reports whether the lease can be held and not over, and learns that it is.
    fn is_running(&mut self) -> bool {
        let Some(lease) = &mut self.register.lease else {
            return false;
        };
        if self.model.observed {
            return true;
        }
        let running = self.from < lease.end.1;
        lease.end.0 = lease.end.0.max(self.from.saturating_add(TICK));
        running
    }

    /// Reports whether there is a lease that was over before the call.
    fn was_over_before(&self) -> bool {
        self.register.lease.as_ref().is_some_and(|it| it.end.1 <= self.from)
    }

    /// Reports whether the lease can end after `left`, or up to `error` earlier, and learns it.
    fn ends_in(&mut self, left: Duration, error: Duration) -> bool {
        let Some(lease) = &mut self.register.lease else {
            return false;
        };
        let (from, to) = (self.from.saturating_add(left), self.to.saturating_add(left));
        lease.end.0 = lease.end.0.max(from.saturating_sub(error));
        lease.end.1 = lease.end.1.min(to);
        lease.end.0 <= lease.end.1
    }

    /// Counts the duration of the lease anew; an earlier grant is not shortened.
    fn extend(&mut self) {
        if let Some(lease) = &mut self.register.lease {
            lease.end.0 = lease.end.0.max(self.from.saturating_add(lease.length));
            lease.end.1 = lease.end.1.max(self.to.saturating_add(lease.length));
        }
        self.register.claim.change();
        if self.model.versions == Versions::EveryWrite {
            self.register.version.change_perhaps();
        }
    }

    // --- the lease -----------------------------------------------------------------------------------

    fn is_of(&self, bid: &Bid) -> bool {
        self.register.lease.as_ref().is_some_and(|it| it.nonce == bid.nonce)
    }

    fn is_breaking(&self) -> bool {
        self.register.lease.as_ref().is_some_and(|it| it.breaking)
    }

    /// A change of the lease that is of interest to a standby.
    fn changed(&mut self) {
        if self.model.versions != Versions::RecordAlone {
            self.register.version.change();
        }
    }

    fn free(&mut self) {
        self.register.lease = None;
        self.changed();
    }

    /// Reports whether the bid is for the present version.
    fn is_for_present(&mut self, bid: &Bid) -> bool {
        if self.model.versions == Versions::RecordAlone && &*bid.seen.0 == MISSING {
            return self.register.version.can_differ(&bid.seen);
        }
        self.register.version.is_shown(&bid.seen)
    }

    /// Reports whether the bid can be for another version than the present one.
    fn can_be_outdated(&self, bid: &Bid) -> bool {
        if self.model.versions == Versions::RecordAlone && &*bid.seen.0 == MISSING {
            return false;
        }
        self.register.version.can_differ(&bid.seen)
    }

    fn acquire(&mut self, bid: &Bid) -> bool {
        if self.is_of(bid) && !self.is_breaking() {
            self.extend();
            return true;
        }
        let observed = self.model.observed;
        let wait = self.register.lease.as_ref().map(|it| it.end.0).filter(|_| observed);
        let free = match wait {
            Some(end) => self.to >= end,
            None => self.is_over(),
        };
        if !free || !self.is_for_present(bid) {
            return false;
        }
        let length = self.model.length(bid);
        let end = (self.from.saturating_add(length), self.to.saturating_add(length));
        let end = if observed { (end.0, Duration::MAX) } else { end };
        self.register.lease = Some(Lease { nonce: bid.nonce, length, end, breaking: false });
        self.register.claim.change();
        let made = &*bid.seen.0 == MISSING;
        self.register.takings += u64::from(!(observed && made));
        self.changed();
        true
    }

    fn refuse_acquire(&mut self, bid: &Bid) -> bool {
        if self.is_of(bid) && !self.is_breaking() {
            return false;
        }
        self.can_be_outdated(bid) || !self.model.observed && self.is_running()
    }

    fn renew(&mut self, bid: &Bid) -> bool {
        let can = self.is_of(bid) && !self.is_breaking();
        self.extend();
        can
    }

    fn release(&mut self, bid: &Bid) -> bool {
        let can = self.is_of(bid);
        self.free();
        can
    }

    /// Changes the version that a bid was for, if it does not hold the lease; reports whether it does.
    fn outdates(&mut self, bid: &Bid) -> bool {
        let is_outdated = self.model.writes_again
            && !self.is_of(bid)
            && self.register.version.is_shown(&bid.seen);
        if is_outdated {
            self.register.version.change();
        }
        is_outdated
    }

    /// Breaks the lease; `None` for an outcome that is not known.
    fn end(&mut self, at_once: bool, outcome: Option<&BreakOutcome>) -> bool {
        if outcome == Some(&BreakOutcome::NotHeld) {
            return self.is_over();
        }
        if self.model.in_parts && self.was_over_before() {
            // It was held when the same call read it, and what is over stays so.
            let Some(BreakOutcome::Held { record, free_in }) = outcome else {
                return false;
            };
            self.register.lease.iter_mut().for_each(|it| it.breaking = true);
            return *free_in <= self.model.rounding && *record == self.shown();
        }
        if !self.is_running() {
            return false;
        }
        if let Some(BreakOutcome::Held { record, free_in }) = outcome {
            let left = match &self.register.lease {
                _ if at_once => free_in.is_zero(),
                Some(lease) if self.model.observed => *free_in == lease.length,
                _ => self.ends_in(*free_in, self.model.rounding),
            };
            if !left || *record != self.shown() {
                return false;
            }
        }
        let (observed, from, to) = (self.model.observed, self.from, self.to);
        let was_breaking = self.is_breaking();
        if at_once && !self.model.broken_is_kept {
            self.free();
        } else if let Some(lease) = &mut self.register.lease {
            lease.breaking = true;
            if at_once {
                lease.end = (lease.end.0.min(from), lease.end.1.min(to));
            } else if observed && !was_breaking {
                lease.end.0 = from.saturating_add(lease.length);
            }
        }
        if !at_once && !was_breaking {
            self.register.claim.change();
            if self.model.versions == Versions::EveryWrite {
                self.register.version.change();
            }
        }
        true
    }

    /// Reports whether a call for a bid can be refused.
    fn refuse(&mut self, asked: &Asked, bid: &Bid) -> bool {
        match asked {
            Asked::Acquire => self.refuse_acquire(bid),
            Asked::Renew => !self.is_of(bid) || self.is_breaking(),
            Asked::Release => self.outdates(bid) || !self.is_of(bid),
            Asked::WriteTerm { .. } => self.cannot_write(bid),
            Asked::SetSuccessor(_) => {
                self.register.record.nonce != Some(bid.nonce) || self.cannot_write(bid)
            }
            _ => false,
        }
    }

    // --- the record ----------------------------------------------------------------------------------

    /// Reports whether the bid can hold the lease and may write under it.
    fn can_write(&mut self, bid: &Bid) -> bool {
        let is_broken = self.is_breaking() && !self.model.writes_while_breaking;
        self.is_of(bid) && !is_broken && self.is_running()
    }

    fn cannot_write(&mut self, bid: &Bid) -> bool {
        let is_broken = self.is_breaking() && !self.model.writes_while_breaking;
        !self.is_of(bid) || is_broken || self.is_over()
    }

    /// Returns the term that the record has after the call.
    fn write_term(&mut self, bid: &Bid, floor: u64) -> Option<u64> {
        let is_written = self.register.record.nonce == Some(bid.nonce);
        let is_repeated = is_written && self.model.repeats_without_lease;
        if !is_repeated && !self.can_write(bid) {
            return None;
        }
        if is_written {
            if self.model.writes_again {
                self.register.version.change();
            }
            return self.register.record.term;
        }
        let counted = if self.model.counts_takings { self.register.takings } else { 0 };
        let last = self.register.record.term.unwrap_or(0).max(counted);
        let term = floor.max(last + 1);
        self.register.record = Record {
            term: Some(term),
            holder: Some(bid.candidate.clone()),
            nonce: Some(bid.nonce),
            successor: None,
        };
        self.register.version.change();
        Some(term)
    }

    fn set_successor(&mut self, bid: &Bid, successor: &Successor) -> bool {
        let successor = Some(successor.as_stored());
        let is_written = self.register.record.nonce == Some(bid.nonce);
        let is_set = is_written && self.register.record.successor == successor;
        if is_set && self.model.repeats_without_lease {
            return true;
        }
        if !is_set {
            self.register.record.successor = successor;
            self.register.version.change();
        } else if self.model.writes_again {
            self.register.version.change_perhaps();
        }
        is_written && self.can_write(bid)
    }

    /// Creates the lock, as part of an acquisition that found none.
    fn create(&mut self) -> bool {
        let missing = Version(MISSING.into());
        let is_missing = self.register.version.is_shown(&missing);
        self.register.version.change();
        is_missing
    }

    // --- reads ---------------------------------------------------------------------------------------

    /// Returns the record as a read shows it: where observers count the time, that of an earlier
    /// holder has its term alone.
    fn shown(&self) -> Record {
        let record = &self.register.record;
        match &self.register.lease {
            Some(lease) if self.model.observed && !lease.breaking => {
                if record.nonce == Some(lease.nonce) {
                    return record.clone();
                }
                Record { term: record.term, ..Record::default() }
            }
            _ => record.clone(),
        }
    }

    fn read(&mut self, snapshot: &Snapshot) -> bool {
        let Snapshot { free, record, version, claim, ends_in } = snapshot;
        if *record != self.shown() || !self.register.version.is(version) {
            return false;
        }
        if self.model.observed {
            let length = self.register.lease.as_ref().map(|it| it.length);
            let claimed = match claim {
                Some(it) => self.register.claim.is(&it.spec) && length == Some(it.lease_duration),
                None => length.is_none(),
            };
            return claimed && *free == length.is_none() && *ends_in == length;
        }
        let can = if *free { self.is_over() } else { self.is_running() };
        can && claim.is_none() && self.tells(*ends_in)
    }

    /// Reports whether a read can tell this end of the lease.
    fn tells(&mut self, ends_in: Option<Duration>) -> bool {
        match ends_in {
            None => !self.model.tells_end || self.register.lease.is_none(),
            Some(Duration::ZERO) => self.model.tells_end && self.is_over(),
            Some(left) => self.model.tells_end && self.ends_in(left, self.model.rounding),
        }
    }
}

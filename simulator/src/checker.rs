//! Checks the properties: at each true instant, over all terms, and in each period without faults.
//!
//! It changes nothing in the world, and knows what no candidate does: true time, which requests the
//! store has performed, and which candidate wrote which term.

use tenure::lease::Nonce;

use super::Instant;

/// The property that was violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Two candidates believed at one true instant that they lead.
    DualLeaders,
    /// Two clients acted at one true instant on the answers of two leaders.
    DualClients,
    /// A term was not greater than all before, or two leaders had the same one.
    TermFell,
    /// A leader had not written its term under the lease.
    TermUnwritten,
    /// A leadership whose deadline had passed was resumed.
    Revived,
    /// A clock jump was detected, and forgotten before a later renewal was granted.
    JumpForgotten,
    /// A second request was sent while one was in flight.
    TwoRequests,
    /// A candidate resigned without disturbance, and its lease was not released, although no
    /// unkillable child was alive.
    LeftBehind,
    /// At one true instant two children were alive, or a child and another leader.
    DualChildren,
    /// A lease was released before its drain was over or its processes had exited, or a lapsed lease
    /// before its whole length was over by the slower clock.
    ReleasedEarly,
    /// A lease lapsed in an undisturbed drain.
    DrainLapsed,
    /// A leadership ended because of probes that began before the term.
    StaleProbeCounted,
    /// A candidate bid before its hold-off was over.
    HoldOffBroken,
    /// A candidate bid or led while it was paused, unhealthy, about to be interrupted by maintenance,
    /// or had processes of an earlier term.
    Ineligible,
    /// A leader counted its lease as lost, although the store had not refused it.
    LostUnrefused,
    /// A read, bid or renewal came before the rules allow it.
    TooEarly,
    /// A read, bid or renewal comes later than the rules allow.
    TooLate,
    /// Many reads in a row came at equal intervals.
    NoJitter,
    /// An undisturbed transfer went to another candidate than the one named.
    WrongSuccessor,
    /// An observer led.
    ObserverLed,
    /// No leader within the bound after the faults had stopped.
    Leaderless,
    /// The handover after a resignation took too long.
    SlowHandover,
    /// A status file of an undisturbed leader does not say that it leads.
    FileBehind,
    /// A bid for a lease that was not read as free.
    BidUnread,
    /// A notice of an earlier term caused a read.
    StaleNotice,
    /// More reads in a retry-period than notices may cause.
    TooManyReads,
    /// The heir was notified of a release, and did not bid at once.
    SlowHeir,
    /// Several bids were refused in a handover to an heir that was notified.
    Herd,
    /// A standby read as often as without notices.
    NotSlowed,
    /// An assertion of the election failed.
    Panicked,
}

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub kind: Kind,
    pub at: Instant,
    /// The description.
    pub text: String,
}

/// A term that was written, and its writer.
#[derive(Clone, Copy, Debug)]
pub struct Leadership {
    pub term: u64,
    pub nonce: Nonce,
    pub node: u8,
    pub life: u32,
    /// Until when earlier answers may be acted on, after the leader stepped down voluntarily.
    pub revoked_at: Option<Instant>,
}

/// The checker of one episode.
#[derive(Debug, Default)]
pub struct Checker {
    /// The terms in the order in which they were written.
    pub leaderships: Vec<Leadership>,
    /// A later term must be greater.
    pub floor: u64,
    /// The greatest term.
    pub highest: u64,
    /// Whether a term occurred again after the record was set back, so that terms guarantee nothing in
    /// the rest of this episode.
    pub terms_void: bool,
    /// Whether the record was lost or set back since the last term was written.
    pub record_lost: bool,
    pub elections: u64,
    pub violation: Option<Violation>,
}

impl Checker {
    /// Records a violation, if it is the first.
    pub fn report(&mut self, kind: Kind, at: Instant, text: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { kind, at, text: text() });
        }
    }

    /// Records that the store wrote a term. `seen_term` is the greatest that its writer has seen, and
    /// `clock` the lowest unix milliseconds that it can have read.
    pub fn written(&mut self, leadership: Leadership, seen_term: u64, clock: u64, now: Instant) {
        let Leadership { term, node, nonce, .. } = leadership;
        if self.leaderships.iter().rev().any(|it| it.nonce == nonce) {
            return; // a late copy of the same write, where the record had been set back
        }
        if term <= seen_term {
            self.report(Kind::TermFell, now, || {
                format!("candidate {node} wrote term {term}, although it had seen {seen_term}")
            });
        }
        // After a loss of the record, terms grow only if the clock is ahead of every earlier one.
        if self.record_lost && clock <= self.floor {
            self.floor = 0;
        }
        let floor = self.floor;
        if term <= floor {
            self.report(Kind::TermFell, now, || {
                format!("candidate {node} wrote term {term} after {floor}")
            });
        }
        self.terms_void |= term <= self.highest;
        self.highest = self.highest.max(term);
        self.floor = self.floor.max(term);
        self.record_lost = false;
        self.leaderships.push(leadership);
    }

    /// Forgets a term that a failover has taken back before its writer was told that it is written; `kept` is
    /// the term that is recorded since.
    pub fn take_back(&mut self, nonce: Nonce, kept: Option<u64>) {
        self.leaderships.retain(|it| it.nonce != nonce);
        self.floor = kept.unwrap_or(0);
        let terms = self.leaderships.iter().map(|it| it.term);
        self.highest = terms.max().unwrap_or(0);
    }

    /// Returns whether a candidate gave up this term voluntarily before `now`.
    pub fn has_given_up(&self, term: u64, node: u8, now: Instant) -> bool {
        let its = self.leaderships.iter().rfind(|it| it.term == term && it.node == node);
        its.and_then(|it| it.revoked_at).is_some_and(|until| until <= now)
    }

    /// Returns the index of the leadership of this process in this term.
    pub fn find(&self, term: u64, node: u8, life: u32) -> Option<usize> {
        let is_it = |it: &Leadership| it.term == term && it.node == node && it.life == life;
        self.leaderships.iter().rposition(is_it)
    }

    /// Records that a leader stepped down voluntarily: clients act on its answers no longer than `until`.
    pub fn revoke(&mut self, term: u64, node: u8, life: u32, until: Instant) {
        if let Some(index) = self.find(term, node, life) {
            let kept = &mut self.leaderships[index].revoked_at;
            *kept = Some(kept.map_or(until, |it| it.min(until)));
        }
    }

    /// Returns whether the answers of a leader are revoked at `now`.
    pub fn is_revoked(&self, term: u64, node: u8, life: u32, now: Instant) -> bool {
        let leadership = self.find(term, node, life).map(|it| self.leaderships[it]);
        leadership.and_then(|it| it.revoked_at).is_some_and(|until| until <= now)
    }
}

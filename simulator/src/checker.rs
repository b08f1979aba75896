//! What must hold, and whether it does: at each true instant, over each term, in each calm.
//!
//! What it does not do: it changes nothing of the world. It knows the truth, which no candidate
//! does: true time, which request the store has done, who wrote which term.

use tenure::lease::Nonce;

use super::Instant;

/// What was violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Two candidates believed at one true instant.
    DualLeaders,
    /// Two clients acted at one true instant on the words of two leaders.
    DualClients,
    /// A term was not larger than all before, or two leaders bore the same.
    TermFell,
    /// A leader without a term of its own under the lease.
    TermUnwritten,
    /// A tenure whose deadline had passed was led again.
    Revived,
    /// A jump of the clocks was seen, and forgotten before a later renewal was granted.
    JumpForgotten,
    /// A second request was sent while one was under way.
    TwoRequests,
    /// A candidate had left, and its lease was still there, though nothing had gone wrong and no
    /// child lived that nothing can end.
    LeftBehind,
    /// Two children lived, or one beside another's leader, at one true instant.
    DualChildren,
    /// A lease was given back before its drain was over, its processes had ended, or, where it lapsed,
    /// before its whole length was over by the slower clock.
    ReleasedEarly,
    /// A lease was not renewed through its drain, though nothing had gone wrong.
    DrainLapsed,
    /// A leader was deposed for its health by probes that were begun before its term.
    DeposedByThePast,
    /// Who stepped down bid before its hold-off was over.
    HoldOffBroken,
    /// Who is paused, not well, or has processes of an earlier term, bid or led.
    TookPart,
    /// A leader counted its lease as lost, which the store had not said.
    LostUnsaid,
    /// Look after look came at one pace, as those of others may.
    Unjittered,
    /// A transfer in peace went to another than the one named.
    WrongHeir,
    /// An observer led.
    ObserverLed,
    /// No leader within the bound after the faults had stopped.
    Leaderless,
    /// The next leader came too late after one that resigned.
    SlowHandover,
    /// The election broke one of its own assertions.
    Panicked,
}

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub kind: Kind,
    pub at: Instant,
    /// In words.
    pub text: String,
}

/// A term that was written, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Tenure {
    pub term: u64,
    pub nonce: Nonce,
    pub node: u8,
    pub life: u32,
    /// The leader stepped down voluntarily: what it promised before holds no longer than this.
    pub kept_until: Option<Instant>,
}

/// The judge of one episode.
#[derive(Debug, Default)]
pub struct Judge {
    /// Terms as they were written, in true order.
    pub tenures: Vec<Tenure>,
    /// No later term may be lower.
    pub floor: u64,
    /// The largest term of all.
    pub highest: u64,
    /// A term came again after the record was set back by somebody who had not been told of it:
    /// terms promise nothing any more in this episode.
    pub terms_void: bool,
    /// Whether the record was lost or set back since the last term was written.
    pub record_lost: bool,
    pub elections: u64,
    pub violation: Option<Violation>,
}

impl Judge {
    /// Notes a violation, if it is the first.
    pub fn accuse(&mut self, kind: Kind, at: Instant, text: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { kind, at, text: text() });
        }
    }

    /// The store wrote a term. `heard` is the largest that its writer was ever told; `clock` is the
    /// least unix milliseconds that the writer's sources could have told.
    pub fn written(&mut self, tenure: Tenure, heard: u64, clock: u64, now: Instant) {
        let Tenure { term, node, nonce, .. } = tenure;
        if self.tenures.iter().rev().any(|it| it.nonce == nonce) {
            return; // a late copy of the same write, where the record had been set back
        }
        if term <= heard {
            self.accuse(Kind::TermFell, now, || {
                format!("candidate {node} wrote term {term}, though it had been told of {heard}")
            });
        }
        // Where the record was lost, terms grow only if the clock is ahead of every earlier one.
        if self.record_lost && clock <= self.floor {
            self.floor = 0;
        }
        let floor = self.floor;
        if term <= floor {
            self.accuse(Kind::TermFell, now, || {
                format!("candidate {node} wrote term {term} after {floor}")
            });
        }
        self.terms_void |= term <= self.highest;
        self.highest = self.highest.max(term);
        self.floor = self.floor.max(term);
        self.record_lost = false;
        self.tenures.push(tenure);
    }

    /// The tenure of a leader in this term.
    pub fn tenure(&self, term: u64, node: u8, life: u32) -> Option<usize> {
        let is_it = |it: &Tenure| it.term == term && it.node == node && it.life == life;
        self.tenures.iter().rposition(is_it)
    }

    /// A leader gives this term up by will: whoever acts on its word does so until then at most.
    pub fn take_back(&mut self, term: u64, node: u8, life: u32, until: Instant) {
        if let Some(tenure) = self.tenure(term, node, life) {
            let kept = &mut self.tenures[tenure].kept_until;
            *kept = Some(kept.map_or(until, |it| it.min(until)));
        }
    }

    /// Whether a leader's word was taken back by now.
    pub fn is_taken_back(&self, term: u64, node: u8, life: u32, now: Instant) -> bool {
        let tenure = self.tenure(term, node, life).map(|it| self.tenures[it]);
        tenure.and_then(|it| it.kept_until).is_some_and(|until| until <= now)
    }
}

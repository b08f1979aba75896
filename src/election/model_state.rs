//! The state of an election as a sequence of values, so that the model checker can tell two states
//! apart.
//!
//! Each struct is destructured: a new field does not compile until it is listed here as part of the
//! state or as ignored.

use std::time::Duration;

use super::hold_off::{Aside, Deference};
use super::retry::RetryTimer;
use super::role::{Activating, Bidding, Draining, Leader, PendingRelease, Role, Tenure};
use super::{Election, InFlight, Op};
use crate::clock::Moment;
use crate::lease::{LeaseId, Version};

/// One value of the state of an election.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Which of several variants follows, or a boolean.
    Form(u8),
    /// A lease, which stands for all of its bid.
    Lease(LeaseId),
    /// When a standby reads next.
    Looks {
        /// The start of the wait.
        from: Moment,
        /// The length of the wait.
        wait: Duration,
        /// Whether wake-ups are ignored.
        patient: bool,
    },
    /// The time of the next attempt.
    RetryTimer {
        /// The start of the wait.
        from: Moment,
        /// The length of the wait.
        wait: Duration,
        /// Whether the one immediate retry has been used.
        hurried: bool,
        /// The number of delayed retries after failures.
        steps: u32,
    },
    /// When the bid was first sent.
    Bid(Moment),
    /// When the request in flight was sent.
    Sent(Moment),
    /// The start of the belief.
    Belief(Moment),
    /// When the lease was granted, and how long it is held before the term is written.
    Hold(Moment, Duration),
    /// When the write of the term was first sent.
    FirstWrite(Moment),
    /// The start and length of a wait: a drain, a hold-off, the wait for a successor, an
    /// observation.
    Wait(Moment, Duration),
    /// The claim that is observed, where observers count the time.
    Claim(Version),
    /// Since when a release is pending.
    PendingRelease(Moment),
    /// The start and length of the time for which clients may still act on an answer.
    Promise(Moment, Duration),
    /// The least term.
    Floor(u64),
    /// The term of the leadership, or of processes that may still run.
    Term(u64),
    /// The largest term ever seen.
    Highest(u64),
}

impl Election {
    /// Passes all that determines the further behaviour of this election to `tell`, in a fixed
    /// order. Two elections of one config that yield the same values behave alike from then on.
    pub fn pieces(&self, tell: &mut impl FnMut(Piece)) {
        let Self {
            role,
            in_flight,
            pending_release,
            health,
            paused,
            aside,
            deference,
            observation,
            occupied,
            highest,
            // Never changes, is empty between two turns, or is only reported.
            config: _,
            outbox: _,
            next_id: _,
            since: _,
            notices: _,
            heard: _,
            store: _,
            holder: _,
            successor: _,
            past: _,
            defect: _,
            state: _,
        } = self;
        tell(Piece::Highest(*highest));
        role.pieces(tell);
        tell(Piece::Form(in_flight.is_some().into()));
        if let Some(InFlight { id: _, op, sent, after_jump }) = in_flight {
            tell(Piece::Form(op.form()));
            if let Some(lease) = op.lease() {
                tell(Piece::Lease(lease));
            }
            tell(Piece::Sent(*sent));
            tell(Piece::Form((*after_jump).into()));
        }
        tell(Piece::Form(pending_release.is_some().into()));
        if let Some(PendingRelease { bid, since, announced, promised, leaving, pace }) =
            pending_release
        {
            tell(Piece::Lease(bid.lease));
            tell(Piece::PendingRelease(*since));
            tell(Piece::Form((*announced).into()));
            tell(Piece::Form((*leaving).into()));
            tell(Piece::Form(promised.is_some().into()));
            if let Some((sent, length)) = promised {
                tell(Piece::Promise(*sent, *length));
            }
            pace.pieces(tell);
        }
        tell(Piece::Form(u8::from(health.is_well()) + 2 * u8::from(*paused)));
        tell(Piece::Form(u8::from(aside.is_some()) + 2 * u8::from(deference.is_some())));
        if let Some(Aside { nonce: _, length, from: Some(from) }) = aside {
            tell(Piece::Wait(*from, *length));
        }
        if let Some(Deference { nonce: _, length, named, free, waived }) = deference {
            tell(Piece::Form((*waived).into()));
            tell(Piece::Wait(*named, *length));
            tell(Piece::Wait(free.unwrap_or(*named), *length));
        }
        tell(Piece::Form(observation.is_some().into()));
        if let Some(observation) = observation {
            let (from, length) = observation.wait();
            tell(Piece::Claim(observation.spec().clone()));
            tell(Piece::Wait(from, length));
        }
        if let Some(term) = occupied {
            tell(Piece::Term(*term));
        }
    }
}

impl Op {
    fn form(&self) -> u8 {
        match self {
            Self::Look => 0,
            Self::Acquire(_) => 1,
            Self::Inaugurate { .. } => 2,
            Self::Renew(_) => 3,
            Self::Release(_) => 4,
            Self::Nominate { .. } => 5,
        }
    }
}

impl RetryTimer {
    fn pieces(&self, tell: &mut impl FnMut(Piece)) {
        let Self { from, wait, hurried, steps, patient: _ } = *self;
        tell(Piece::RetryTimer { from, wait, hurried, steps });
    }
}

impl Role {
    fn pieces(&self, tell: &mut impl FnMut(Piece)) {
        match self {
            Self::Standby { looks, bidding } => {
                tell(Piece::Form(0));
                let RetryTimer { from, wait, hurried: _, steps: _, patient } = *looks;
                tell(Piece::Looks { from, wait, patient });
                if let Some(Bidding { bid, first_sent, pace }) = bidding {
                    tell(Piece::Lease(bid.lease));
                    tell(Piece::Bid(*first_sent));
                    pace.pieces(tell);
                }
            }
            Self::Activating(it) => {
                let Activating { tenure, granted, hold, floor, write, first_write } = it;
                tell(Piece::Form(1));
                tenure.pieces(tell);
                tell(Piece::Hold(*granted, *hold));
                tell(Piece::Floor(*floor));
                write.pieces(tell);
                if let Some(first) = first_write {
                    tell(Piece::FirstWrite(*first));
                }
            }
            Self::Leader(Leader { tenure, term, since: _, jeopardy: _ }) => {
                tell(Piece::Form(2));
                tenure.pieces(tell);
                tell(Piece::Term(*term));
            }
            Self::Draining(it) => {
                let Draining { tenure, term, began, length, nomination, .. } = it;
                tell(Piece::Form(4));
                tenure.pieces(tell);
                tell(Piece::Term(*term));
                tell(Piece::Wait(*began, *length));
                let said = [it.drained, it.announced, it.resigning, nomination.is_some()];
                said.into_iter().for_each(|said| tell(Piece::Form(said.into())));
            }
            Self::Resigned => tell(Piece::Form(3)),
        }
    }
}

impl Tenure {
    fn pieces(&self, tell: &mut impl FnMut(Piece)) {
        let Self { bid, belief, renewal } = self;
        tell(Piece::Lease(bid.lease));
        tell(Piece::Belief(belief.sent));
        tell(Piece::Form(belief.suspended.into()));
        renewal.pieces(tell);
    }
}

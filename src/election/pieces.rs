//! What an election is made of, piece by piece, so that a model checker can tell two apart.
//!
//! What it does not do: it leaves out nothing that decides, and tells nothing that only tells:
//! a field more in the election or a role does not compile until it is put on one side here.
//! Nothing but the checker asks.

use std::time::Duration;

use super::pace::Pace;
use super::role::{Activating, Bidding, Draining, Leader, Owed, Role, Tenure};
use super::yielding::{Aside, Courtesy};
use super::{Election, InFlight, Op};
use crate::clock::Moment;
use crate::store::{LeaseId, Version};

/// One thing that an election goes by.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Which of several forms follows, or a yes or no.
    Form(u8),
    /// A lease, and with it all that its bid bears.
    Lease(LeaseId),
    /// When a standby looks next; `patient` if no wake-up brings it forward.
    Looks {
        /// From when the wait counts.
        from: Moment,
        /// How long it is.
        wait: Duration,
        /// Whether nothing but time makes it due.
        patient: bool,
    },
    /// When to try again.
    Pace {
        /// From when the wait counts.
        from: Moment,
        /// How long it is.
        wait: Duration,
        /// Whether the one immediate retry is spent.
        hurried: bool,
        /// How many waits followed failures.
        steps: u32,
    },
    /// When the bid was sent first.
    Bid(Moment),
    /// When the request in flight was sent.
    Sent(Moment),
    /// From when the belief counts.
    Belief(Moment),
    /// When the lease was granted, and how long it is held before the term is written.
    Hold(Moment, Duration),
    /// When the term's write was sent first.
    FirstWrite(Moment),
    /// From when a wait counts, and how long it is: a drain, a hold-off, a courtesy, an observation.
    Wait(Moment, Duration),
    /// The lease that is seen standing there, where observers count the time.
    Claim(Version),
    /// Since when a lease is owed.
    Owed(Moment),
    /// From when, and for how long, our word may still be acted on.
    Promise(Moment, Duration),
    /// The least term.
    Floor(u64),
    /// The term that we lead in.
    Term(u64),
    /// The largest term ever seen.
    Highest(u64),
}

impl Election {
    /// Tells all that decides what this election will do, in a fixed order. Two elections of one
    /// config that tell the same answer all that may come alike.
    pub fn pieces(&self, tell: &mut impl FnMut(Piece)) {
        let Self {
            role,
            in_flight,
            owed,
            health,
            paused,
            aside,
            courtesy,
            observation,
            occupied,
            highest,
            // What never changes, is empty between two turns, or only tells.
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
        tell(Piece::Form(owed.is_some().into()));
        if let Some(Owed { bid, since, announced, promised, leaving, pace }) = owed {
            tell(Piece::Lease(bid.lease));
            tell(Piece::Owed(*since));
            tell(Piece::Form((*announced).into()));
            tell(Piece::Form((*leaving).into()));
            tell(Piece::Form(promised.is_some().into()));
            if let Some((sent, length)) = promised {
                tell(Piece::Promise(*sent, *length));
            }
            pace.pieces(tell);
        }
        tell(Piece::Form(u8::from(health.is_well()) + 2 * u8::from(*paused)));
        tell(Piece::Form(u8::from(aside.is_some()) + 2 * u8::from(courtesy.is_some())));
        if let Some(Aside { nonce: _, length, from: Some(from) }) = aside {
            tell(Piece::Wait(*from, *length));
        }
        if let Some(Courtesy { nonce: _, length, named, free, waived }) = courtesy {
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

impl Pace {
    fn pieces(&self, tell: &mut impl FnMut(Piece)) {
        let Self { from, wait, hurried, steps, patient: _ } = *self;
        tell(Piece::Pace { from, wait, hurried, steps });
    }
}

impl Role {
    fn pieces(&self, tell: &mut impl FnMut(Piece)) {
        match self {
            Self::Standby { looks, bidding } => {
                tell(Piece::Form(0));
                let Pace { from, wait, hurried: _, steps: _, patient } = *looks;
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

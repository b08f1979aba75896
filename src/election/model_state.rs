//! The state of an election as a sequence of values, so that the model checker can tell two states
//! apart.
//!
//! Each struct is destructured: a new field does not compile until it is listed here as part of the
//! state or as ignored.

use std::time::Duration;

use super::hold_off::{Deference, HoldOff};
use super::retry::RetryTimer;
use super::role::{Activating, Bidding, Draining, HeldLease, Leader, PendingRelease, Role};
use super::stream::{Holding, LeaderStream, LeaseEnd};
use super::{Election, InFlight, Observation, Op};
use crate::clock::Moment;
use crate::lease::{LeaseId, Version};

/// One value of the state of an election.
#[derive(Clone, Debug)]
pub enum StateValue {
    /// Which of several variants follows, or a boolean.
    Variant(u8),
    /// A lease, which stands for all of its bid.
    Lease(LeaseId),
    /// When a standby reads next.
    NextRead {
        /// The start of the wait.
        from: Moment,
        /// The length of the wait.
        wait: Duration,
        /// Whether wake-ups are ignored.
        ignores_wakeups: bool,
    },
    /// The time of the next attempt.
    RetryTimer {
        /// The start of the wait.
        from: Moment,
        /// The length of the wait.
        wait: Duration,
        /// Whether the one immediate retry has been used.
        retried_at_once: bool,
        /// The number of delayed retries after failures.
        delayed_retries: u32,
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
    ClientWindow(Moment, Duration),
    /// The least term.
    Floor(u64),
    /// The term of the leadership, or of processes that may still run.
    Term(u64),
    /// The largest term ever seen.
    Highest(u64),
    /// The term in a notice of the leader's stream.
    NoticeTerm(u64),
    /// The start and length of a wait that moves reads alone, from such a notice.
    NoticeTime(Moment, Duration),
    /// When the lease was first seen free.
    SeenFree(Moment),
}

impl StateValue {
    /// Returns flags as one value.
    fn of(flags: [bool; 3]) -> Self {
        Self::Variant(flags.iter().rev().fold(0, |all, flag| 2 * all + u8::from(*flag)))
    }
}

impl Election {
    /// Passes all that determines the further behaviour of this election to `emit`, in a fixed
    /// order. Two elections of one config that yield the same values behave alike from then on.
    pub fn model_state(&self, emit: &mut impl FnMut(StateValue)) {
        let Self {
            role,
            in_flight,
            woken,
            pending_release,
            health,
            paused,
            maintenance,
            hold_off,
            deference,
            observation,
            stream,
            seen_free,
            workload_term,
            highest_term,
            // Never changes, is empty between two turns, limits requests, or is only reported.
            config: _,
            hints: _,
            outbox: _,
            next_id: _,
            since: _,
            notices: _,
            store_reached: _,
            store: _,
            holder: _,
            lease_view: _,
            successor: _,
            free_record: _,
            reported_defect: _,
            released_term: _,
            state: _,
            // Of jobs alone, which the model has none of.
            wait: _,
        } = self;
        emit(StateValue::Highest(*highest_term));
        role.model_state(emit);
        emit(StateValue::Variant(u8::from(in_flight.is_some()) + 2 * u8::from(*woken)));
        if let Some(InFlight { id: _, op, sent, after_jump }) = in_flight {
            emit(StateValue::Variant(op.variant()));
            if let Some(lease) = op.lease() {
                emit(StateValue::Lease(lease));
            }
            emit(StateValue::Sent(*sent));
            emit(StateValue::Variant((*after_jump).into()));
        }
        emit(StateValue::Variant(pending_release.is_some().into()));
        if let Some(pending_release) = pending_release {
            pending_release.model_state(emit);
        }
        emit(StateValue::of([health.is_healthy(), *paused, *maintenance]));
        emit(StateValue::Variant(u8::from(hold_off.is_some()) + 2 * u8::from(deference.is_some())));
        if let Some(HoldOff { nonce: _, length, from: Some(from) }) = hold_off {
            emit(StateValue::Wait(*from, *length));
        }
        if let Some(Deference { nonce: _, length, named, free, waived }) = deference {
            emit(StateValue::Variant((*waived).into()));
            emit(StateValue::Wait(*named, *length));
            emit(StateValue::Wait(free.unwrap_or(*named), *length));
        }
        emit(StateValue::Variant(observation.is_some().into()));
        if let Some(observation) = observation {
            observation.model_state(emit);
        }
        stream.model_state(emit);
        emit(StateValue::Variant(seen_free.is_some().into()));
        if let Some(from) = seen_free {
            emit(StateValue::SeenFree(*from));
        }
        if let Some(term) = workload_term {
            emit(StateValue::Term(*term));
        }
    }
}

impl Observation {
    fn model_state(&self, emit: &mut impl FnMut(StateValue)) {
        let (from, length) = self.wait();
        emit(StateValue::Claim(self.spec().clone()));
        emit(StateValue::Wait(from, length));
    }
}

impl PendingRelease {
    fn model_state(&self, emit: &mut impl FnMut(StateValue)) {
        let Self {
            bid,
            may_be_held,
            term: _,
            since,
            publish_acked,
            client_window,
            resigned,
            retry,
        } = self;
        emit(StateValue::Lease(bid.lease));
        emit(StateValue::Variant((*may_be_held).into()));
        emit(StateValue::PendingRelease(*since));
        emit(StateValue::Variant((*publish_acked).into()));
        emit(StateValue::Variant((*resigned).into()));
        emit(StateValue::Variant(client_window.is_some().into()));
        if let Some((sent, length)) = client_window {
            emit(StateValue::ClientWindow(*sent, *length));
        }
        retry.model_state(emit);
    }
}

impl LeaderStream {
    fn model_state(&self, emit: &mut impl FnMut(StateValue)) {
        let Self { holding, is_heir, released, read, lease_end, put_off: _, sent } = self;
        let parts = [holding.is_some(), *is_heir, released.is_some(), read.is_some()];
        parts.into_iter().for_each(|part| emit(StateValue::Variant(part.into())));
        if let Some(Holding { term, received, sent_ago, lease, silence }) = holding {
            emit(StateValue::NoticeTerm(*term));
            emit(StateValue::NoticeTime(*received, *silence));
            emit(StateValue::NoticeTime(*received, lease.saturating_sub(*sent_ago)));
            emit(StateValue::NoticeTime(*received, *lease));
        }
        if let Some(term) = released {
            emit(StateValue::NoticeTerm(*term));
        }
        if let Some(read) = read {
            emit(StateValue::NoticeTime(read.from, read.wait));
        }
        emit(StateValue::Variant(lease_end.is_some().into()));
        if let Some(LeaseEnd { from, next, step: _, last, delay: _ }) = lease_end {
            emit(StateValue::NoticeTime(*from, *next));
            emit(StateValue::NoticeTime(*from, *last));
        }
        sent.iter().flatten().for_each(|sent| emit(StateValue::NoticeTime(*sent, Duration::ZERO)));
    }
}

impl Op {
    fn variant(&self) -> u8 {
        match self {
            Self::Read => 0,
            Self::Acquire(_) => 1,
            Self::WriteTerm { .. } => 2,
            Self::Renew(_) => 3,
            Self::Release(_) => 4,
            Self::SetSuccessor { .. } => 5,
        }
    }
}

impl RetryTimer {
    fn model_state(&self, emit: &mut impl FnMut(StateValue)) {
        let Self { from, wait, retried_at_once, delayed_retries, ignores_wakeups: _ } = *self;
        emit(StateValue::RetryTimer { from, wait, retried_at_once, delayed_retries });
    }
}

impl Role {
    fn model_state(&self, emit: &mut impl FnMut(StateValue)) {
        match self {
            Self::Standby { next_read, bidding } => {
                emit(StateValue::Variant(0));
                let RetryTimer {
                    from,
                    wait,
                    retried_at_once: _,
                    delayed_retries: _,
                    ignores_wakeups,
                } = *next_read;
                emit(StateValue::NextRead { from, wait, ignores_wakeups });
                if let Some(Bidding { bid, first_sent, may_be_granted, retry }) = bidding {
                    emit(StateValue::Lease(bid.lease));
                    emit(StateValue::Variant((*may_be_granted).into()));
                    emit(StateValue::Bid(*first_sent));
                    retry.model_state(emit);
                }
            }
            Self::Activating(it) => {
                let Activating { held, granted, hold, for_earlier: _, floor, write, first_write } =
                    it;
                emit(StateValue::Variant(1));
                held.model_state(emit);
                emit(StateValue::Hold(*granted, *hold));
                emit(StateValue::Floor(*floor));
                write.model_state(emit);
                if let Some(first) = first_write {
                    emit(StateValue::FirstWrite(*first));
                }
            }
            Self::Leader(Leader { held, term, since: _, jeopardy: _ }) => {
                emit(StateValue::Variant(2));
                held.model_state(emit);
                emit(StateValue::Term(*term));
            }
            Self::Draining(it) => {
                let Draining { held, term, began, length, pending_successor, .. } = it;
                emit(StateValue::Variant(4));
                held.model_state(emit);
                emit(StateValue::Term(*term));
                emit(StateValue::Wait(*began, *length));
                let flags =
                    [it.drained, it.publish_acked, it.resigning, pending_successor.is_some()];
                flags.into_iter().for_each(|flag| emit(StateValue::Variant(flag.into())));
            }
            Self::Resigned => emit(StateValue::Variant(3)),
        }
    }
}

impl HeldLease {
    fn model_state(&self, emit: &mut impl FnMut(StateValue)) {
        // The hints limit requests, and no wake-up of a holder is modelled.
        let Self { bid, belief, renewal, hints: _ } = self;
        emit(StateValue::Lease(bid.lease));
        emit(StateValue::Belief(belief.sent));
        emit(StateValue::Variant(belief.suspended.into()));
        renewal.model_state(emit);
    }
}

//! The earliest and the latest time of each read and bid of a standby, as the rules have them.
//!
//! They follow from what the standby was answered and notified of, by its own clocks. So a poll too many
//! is noticed, and a wake-up that is lost, and a read that is scheduled too late, before it is late.

use std::time::Duration;

use tenure::clock::Moment;
use tenure::election::{Answer, Op, PeerNotice, Reason, State, Transition};
use tenure::lease::{LeaseId, Nonce, Snapshot, StoreError};

use super::due::{Due, Retries, slow_period};
use super::operate::identity;
use super::requests::{Course, Kept, Reader};

/// How many reads in a retry-period wake-ups bring forward.
const MOST_HINTED: usize = 4;

/// A bid whose outcome is unknown.
#[derive(Clone, Copy, Debug)]
struct Bid {
    lease: LeaseId,
    first_sent: Moment,
    may_be_granted: bool,
    due: Due,
    retries: Retries,
}

/// The reads and bids of one process.
#[derive(Clone, Debug)]
pub struct Pace {
    course: Course,
    read: Due,
    retries: Retries,
    bid: Option<Bid>,
    /// Whether a read or a bid is in flight.
    asks: Option<bool>,
    /// Whether wake-ups do not count before the next read.
    backs_off: bool,
    /// Whether a wake-up counts from the next answer, and whether it did before the last one.
    woken: [bool; 2],
    /// When the last wake-ups came that may have moved a read, the oldest first.
    hints: [Option<Moment>; MOST_HINTED],
    /// The same before the last one.
    hints_before: [Option<Moment>; MOST_HINTED],
    /// The leadership that named this candidate as successor, and since when it knows.
    named: Option<(Option<Nonce>, Moment)>,
    /// What the notices of a leader allow.
    notified: Notified,
    /// When it reads since the store has told it of what is most likely its own release, and when the store
    /// did so last: a clock that has gone back since makes the read due.
    hinted: Option<(Due, Moment)>,
}

/// How the notices of a leader move the reads of a standby. [`super::peers`] checks that they cause few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Notified {
    /// There were none.
    #[default]
    Never,
    /// They may have caused reads.
    Once,
    /// They may also put reads off, since the last one said that the lease is held.
    Held,
}

impl Pace {
    /// A candidate that starts reads at once.
    pub fn new(now: Moment) -> Self {
        Self {
            course: Course::Reads,
            read: Due::at_once(now),
            retries: Retries::default(),
            bid: None,
            asks: None,
            backs_off: false,
            woken: [false; 2],
            hints: [None; MOST_HINTED],
            hints_before: [None; MOST_HINTED],
            named: None,
            notified: Notified::Never,
            hinted: None,
        }
    }

    /// Returns what it does.
    pub fn course(&self) -> Course {
        self.course
    }

    /// Returns how long until the next read, or the next bid of an unknown one, at the latest.
    pub fn left(&self, now: Moment) -> Duration {
        match (self.course, &self.bid) {
            (Course::Bids, Some(bid)) => bid.due.left(now),
            _ => self.read.left(now),
        }
    }

    /// Returns how long until the next read at the earliest, without a wake-up.
    pub fn not_before(&self, now: Moment) -> Duration {
        self.read.least.saturating_sub(self.read.from.elapsed_max(now))
    }

    /// Returns when the bid whose outcome is unknown, or that was granted, was first sent.
    pub fn first_sent(&self) -> Option<Moment> {
        self.bid.map(|it| it.first_sent)
    }

    /// Returns whether it stays away so that others may try.
    pub fn backs_off(&self) -> bool {
        self.backs_off
    }

    /// Returns whether a lease cannot be held: no request of its bid may have had an effect.
    fn has_no_effect(&self, lease: LeaseId) -> bool {
        let bid = self.bid.filter(|it| it.lease == lease);
        bid.is_some_and(|it| !it.may_be_granted) && self.asks != Some(true)
    }

    /// Records a request; returns whether it comes too early, or is one too many.
    pub fn sent(&mut self, op: &Op, now: Moment) -> bool {
        match op {
            Op::Read => {
                self.asks = Some(false);
                self.course = Course::Reads;
                self.woken[1] = false;
                self.read.is_early(now) && !self.is_hinted(now)
            }
            Op::Release(bid) => self.has_no_effect(bid.lease),
            Op::Acquire(bid) => {
                self.asks = Some(true);
                self.course = Course::Bids;
                if let Some(again) = self.bid.filter(|it| it.lease == bid.lease) {
                    return again.due.is_early(now);
                }
                self.bid = Some(Bid {
                    lease: bid.lease,
                    first_sent: now,
                    may_be_granted: false,
                    due: Due::at_once(now),
                    retries: Retries::default(),
                });
                // A wake-up before the bid counts from the answer to it.
                if self.woken[1] {
                    self.woken[0] = true;
                    self.hints = self.hints_before;
                }
                false
            }
            _ => false,
        }
    }

    /// Records that time has passed: a bid that is unknown for a whole lease is given up.
    pub fn pass(&mut self, lease: Duration, now: Moment) {
        if let (Course::Bids, Some(bid)) = (self.course, &self.bid)
            && bid.first_sent.elapsed_max(now) >= lease
        {
            self.give_up_bid();
            self.back_off(lease, now);
        }
    }

    /// The lease of a bid is released, unless it was certainly not granted.
    fn give_up_bid(&mut self) {
        let may_be_granted =
            self.bid.is_some_and(|it| it.may_be_granted) || self.asks == Some(true);
        self.course = if may_be_granted { Course::Releases } else { Course::Reads };
    }

    fn back_off(&mut self, lease: Duration, now: Moment) {
        self.read = Due::jittered(now, lease);
        self.retries = Retries::default();
        self.backs_off = true;
        if self.is_put_off() {
            self.read.most = self.read.most.max(slow_period(lease));
        }
    }

    fn read_later(&mut self, period: Duration, now: Moment) {
        self.read = Due::jittered(now, period);
        self.retries = Retries::default();
        self.backs_off = false;
        self.widen(period);
    }

    /// Nothing is left to release; a back-off counts from here.
    pub fn released(&mut self, now: Moment) {
        if self.course == Course::Releases {
            self.course = Course::Reads;
            if self.backs_off {
                self.read.from = now;
            }
        }
    }

    /// The store or a peer notifies of a change: the next read is due, after the answer to the present one.
    pub fn wake(&mut self, now: Moment, period: Duration) {
        self.woken[0] = true;
        if self.asks != Some(false) {
            self.apply_wakeup(now, period);
        }
    }

    /// Returns whether a wake-up must move a read: four in a retry-period do, whenever that begins.
    fn must_read(&mut self, now: Moment, period: Duration) -> bool {
        self.hints_before = self.hints;
        let is_over = |it: Moment| it.elapsed_max(now) >= period;
        let must = self.hints[0].is_none_or(is_over);
        self.hints.rotate_left(1);
        self.hints[MOST_HINTED - 1] = Some(now);
        must
    }

    /// The store shows a renewal of a lease of which so much is left: it need not poll before none has come
    /// for one and a half periods, or a slow period after the last answer.
    pub fn put_off(&mut self, left: Duration, now: Moment, period: Duration) {
        if matches!(self.course, Course::Reads | Course::Releases) {
            let silence = (period * 3 / 2).min(left);
            let most = self.read.from.elapsed_max(now).saturating_add(silence);
            self.read.most = self.read.most.max(most.min(slow_period(period)));
        }
    }

    /// The store tells a candidate that has just stepped down of a change.
    pub fn hint(&mut self, now: Moment, period: Duration) {
        let due = Due { from: now, least: period / 4, most: period / 2 };
        let (known, told) = self.hinted.get_or_insert((due, now));
        if told.went_back(now) {
            *known = Due::at_once(now);
        }
        *told = now;
    }

    /// Returns whether a read that would be early is the one that a hint allows, once.
    fn is_hinted(&mut self, now: Moment) -> bool {
        let due = |(due, told): &mut (Due, Moment)| told.went_back(now) || !due.is_early(now);
        self.hinted.take_if(due).is_some()
    }

    /// The leader has notified this candidate, or the stream is lost. Notices may be forged, so they only
    /// widen the time of the next read: it may come now, or a slow period after the last answer.
    pub fn notify(&mut self, notice: &PeerNotice, period: Duration) {
        self.notified = match (notice, self.notified) {
            (PeerNotice::Holding { .. }, _) => Notified::Held,
            (PeerNotice::Lost, _) | (_, Notified::Never) => Notified::Once,
            (_, known) => known,
        };
        self.widen(period);
    }

    /// Widens the time of the next read by what notices may have caused.
    fn widen(&mut self, period: Duration) {
        if self.notified != Notified::Never && !self.backs_off {
            self.read.hasten();
        }
        if self.is_put_off() {
            self.read.most = self.read.most.max(slow_period(period));
        }
    }

    /// Records that the request in flight has been answered.
    pub fn is_answered(&mut self) {
        self.asks = None;
    }

    /// A holder was woken while a request was in flight.
    pub fn wake_later(&mut self) {
        self.woken[0] = true;
    }

    /// Returns whether there was a wake-up that no answer has followed yet.
    pub fn take_wakeup(&mut self) -> bool {
        std::mem::take(&mut self.woken[0])
    }

    /// Returns when the next read, or the next bid of an unknown one, is due.
    pub fn due(&self) -> Option<(&Due, &'static str)> {
        match (self.course, &self.bid) {
            (Course::Reads, _) => Some((&self.read, "read")),
            (Course::Bids, Some(bid)) => Some((&bid.due, "bid")),
            _ => None,
        }
    }

    /// Returns whether its reads may be put off by notices.
    pub fn is_put_off(&self) -> bool {
        self.notified == Notified::Held
    }

    /// Applies a wake-up after an answer; returns whether it is one for a holder.
    pub fn apply_wakeup(&mut self, now: Moment, period: Duration) -> bool {
        match self.course {
            Course::Bids => {}
            Course::Reads | Course::Releases => {
                if std::mem::take(&mut self.woken[0]) && !self.backs_off {
                    // A notice may have named another candidate that goes first.
                    match (self.notified, self.must_read(now, period)) {
                        (Notified::Never, true) => self.read = Due::at_once(now),
                        _ => self.read.hasten(),
                    }
                }
            }
            Course::Holds => {
                self.woken[1] = std::mem::take(&mut self.woken[0]);
                return self.woken[1];
            }
            Course::Left => self.woken[0] = false,
        }
        false
    }

    /// Records a change of state.
    pub fn changed(&mut self, change: &Transition, kept: Kept, now: Moment) {
        let Transition { from, to, reason, .. } = *change;
        match (holds(from), holds(to)) {
            (_, true) => {
                self.course = Course::Holds;
            }
            _ if to == State::Stopped => self.course = Course::Left,
            (true, false) => {
                let lapsed = reason == Reason::Lapsed && from != State::Activating && kept.is_over;
                let nothing_left = reason == Reason::Lost || lapsed;
                self.course = if nothing_left { Course::Reads } else { Course::Releases };
                match reason {
                    Reason::WriteFailed => self.back_off(kept.lease, now),
                    _ => self.read_later(kept.period, now),
                }
                if std::mem::take(&mut self.woken[1]) {
                    self.must_read(now, kept.period);
                    self.read.hasten();
                }
            }
            _ if self.course == Course::Bids && matches!(to, State::Paused | State::Unhealthy) => {
                self.give_up_bid();
                self.apply_wakeup(now, kept.period);
            }
            _ => {}
        }
    }

    /// Records the answer to a read.
    pub fn read_answered(
        &mut self,
        answer: &Result<Answer, StoreError>,
        node: &Reader<'_>,
        now: Moment,
    ) {
        let period = node.period;
        self.backs_off = false;
        match answer {
            Ok(Answer::Snapshot(seen)) => {
                let (may, must) = self.reads_often(seen, node, now);
                self.read_later(period, now);
                if may {
                    self.read.least /= 4;
                }
                if must {
                    self.read.most /= 4;
                }
                let left = node.sighting.map(|it| it.left(now)).or(seen.ends_in);
                if let Some(left) = left.filter(|it| !it.is_zero()) {
                    self.read.least = self.read.least.min(left);
                    self.read.most = self.read.most.min(left.saturating_add(period / 8));
                }
            }
            Err(error @ (StoreError::RetryNow(_) | StoreError::Unknown(_))) => {
                self.read = self.retries.fail(error, now, period, 0.5);
            }
            _ => self.read_later(period, now),
        }
        self.widen(period);
        self.woken[1] = self.woken[0];
    }

    /// Returns whether a successor may and must read more often than others.
    fn reads_often(&mut self, seen: &Snapshot, node: &Reader<'_>, now: Moment) -> (bool, bool) {
        let Some(successor) = &seen.record.successor else {
            self.named = None;
            return (false, false);
        };
        let nonce = seen.record.nonce;
        let known = self.named.filter(|it| it.0 == nonce);
        let (_, since) = *self.named.insert(known.unwrap_or((nonce, now)));
        let may = successor.identity == identity(node.index)
            && !since.went_back(now)
            && since.elapsed_max(now) < successor.hold_off;
        (may, may && node.competes)
    }

    /// Records the answer to a bid.
    pub fn bid_answered(
        &mut self,
        answer: &Result<Answer, StoreError>,
        node: &Reader<'_>,
        now: Moment,
    ) {
        let Some(bid) = self.bid.as_mut().filter(|_| self.course == Course::Bids) else {
            return self.late(answer, now);
        };
        match answer {
            Ok(_) => {
                bid.may_be_granted = true;
                let sent = bid.first_sent;
                if sent.elapsed_max(now) >= node.deadline || sent.jumped(now) {
                    self.course = Course::Releases;
                    self.read_later(node.period, now);
                }
            }
            Err(error @ (StoreError::RetryNow(_) | StoreError::Unknown(_))) => {
                bid.may_be_granted |= !error.failure().had_no_effect;
                bid.due = bid.retries.fail(error, now, node.period, 0.5);
            }
            Err(StoreError::Foreign(_)) => {
                bid.may_be_granted = true;
                self.course = Course::Releases;
                self.back_off(node.lease, now);
            }
            Err(StoreError::Refused(_)) => {
                self.course = Course::Reads;
                self.read_later(node.period, now);
            }
        }
    }

    /// Records the answer to a request for a lease that is no longer used: a definite one leaves nothing to
    /// release.
    pub fn late(&mut self, answer: &Result<Answer, StoreError>, now: Moment) {
        let was_without_effect = |error: &StoreError| {
            error.failure().had_no_effect && self.bid.is_some_and(|it| !it.may_be_granted)
        };
        match answer {
            Err(StoreError::Refused(_)) => self.released(now),
            Err(error) if self.asks == Some(true) && was_without_effect(error) => {
                self.released(now)
            }
            _ if self.asks == Some(true) => {
                if let Some(bid) = &mut self.bid {
                    bid.may_be_granted = true;
                }
            }
            _ => {}
        }
    }
}

/// Returns whether a candidate has the lease in this state.
fn holds(state: State) -> bool {
    matches!(state, State::Activating | State::Leader | State::Jeopardy | State::Draining)
}

//! What must hold whatever is notified: a notice schedules reads, a few of them, and is never evidence.

use tenure::election::{Answer, Input, Op, PeerNotice, State};
use tenure::lease::{Bid, StoreError};

use super::Connection;
use crate::checker::Kind;
use crate::due;
use crate::examine::Step;
use crate::network::Fate;
use crate::queue::Event;
use crate::store;
use crate::world::World;
use crate::{Instant, MILLI, SECOND, Span, span};

/// The most reads of a standby within a retry-period: four that notices cause, and two of its own.
const MOST_READS: usize = 6;

/// How many of them notices cause.
const NOTIFIED_READS: usize = 4;

/// The shortest retry-period of candidates whose stream is expected to put reads off: many times what a
/// notice takes to arrive.
const SHORTEST_PUT_OFF: Span = SECOND / 2;

/// How far a timer may fire after its time.
const TICK: Span = 2 * MILLI;

/// The reads of one process, as the checker knows them.
#[derive(Debug, Default)]
pub struct ReadLog {
    /// Whether the last answered read showed a lease that may be acquired.
    showed_free: bool,
    /// The term that it showed.
    term: u64,
    /// When a read last showed a named successor, which reads more often.
    successor_at: Option<Instant>,
    /// When the last reads were sent, the next to be replaced at `oldest`.
    sent: [Option<Instant>; MOST_READS],
    oldest: usize,
    /// When the last bid was sent.
    bid_at: Option<Instant>,
    /// The number of reads.
    count: u32,
    /// That number at the last honest notice.
    at_notice: u32,
    /// That number and the connection, when the patience of the examination began.
    at_patience: Option<(u32, u32)>,
}

/// A handover by an undisturbed leader to an heir that was notified.
#[derive(Debug)]
pub struct Handover {
    began: Instant,
    heir: u8,
    /// When the heir, or another, must have sent its bid.
    due: Instant,
    /// Whether one has.
    bid: bool,
    /// Until when only the notices cause bids.
    crowd_until: Instant,
    /// The refused bids of that time.
    refused: u32,
}

impl ReadLog {
    /// Records a read; returns whether too many were sent within `window`.
    fn is_one_too_many(&mut self, now: Instant, window: Span) -> bool {
        self.count += 1;
        let first = self.sent[self.oldest].replace(now);
        self.oldest = (self.oldest + 1) % MOST_READS;
        first.is_some_and(|first| now < first + window)
    }

    /// Returns whether a notice may cause a read at once: fewer than the limit were sent within `window`.
    fn may_read(&self, now: Instant, window: Span) -> bool {
        let lately = self.sent.iter().flatten().filter(|at| now < *at + window);
        lately.count() < NOTIFIED_READS
    }
}

impl World<'_> {
    /// Records what a read has shown, and subscribes to the leader in it.
    pub(crate) fn note_snapshot(&mut self, node: u8, answer: &Result<Answer, StoreError>) {
        let moment = self.nodes[usize::from(node)].moment(self.now);
        let Some(process) = &mut self.nodes[usize::from(node)].process else { return };
        let log = &mut process.subscription.log;
        let Ok(Answer::Snapshot(snapshot)) = answer else { return };
        let over = process.sighting.as_ref().is_some_and(|it| it.left(moment).is_zero());
        log.showed_free = snapshot.free || over;
        log.term = snapshot.record.term.unwrap_or(0);
        if snapshot.record.successor.is_some() {
            log.successor_at = Some(self.now);
        }
        let (sent_at, is_held) = (process.sent_at, !log.showed_free);
        if self.scenario.peers && !snapshot.free {
            self.subscribe(node, snapshot.record.nonce);
        }
        // Another candidate was faster than the heir.
        let is_heir = |it: &mut Handover| it.heir == node && it.began <= sent_at;
        if is_held {
            self.peers.handover.take_if(is_heir);
        }
    }

    /// Checks that a bid follows a read that showed the lease free, or repeats an earlier one.
    pub(crate) fn check_bid(&mut self, node: u8, bid: &Bid) {
        let Some(process) = &mut self.nodes[usize::from(node)].process else { return };
        let repeats = process.lease == Some(bid.lease);
        let log = &mut process.subscription.log;
        log.bid_at = Some(self.now);
        if !std::mem::take(&mut log.showed_free) && !repeats {
            let say = || format!("candidate {node} bids for a lease that it has not read as free");
            self.checker.report(Kind::BidUnread, self.now, say);
        }
    }

    /// Checks that few reads are sent, however many notices there are. Only where neither the store nor a
    /// failed request causes some.
    pub(crate) fn check_read(&mut self, node: u8) {
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = &mut it.process else { return };
        let period = span(it.plan.timings.retry_period);
        let log = &mut process.subscription.log;
        let lately = |at: Option<Instant>| at.is_some_and(|at| self.now < at + 2 * period);
        let is_calm = !lately(process.disturbed_at) && !lately(log.successor_at);
        // The candidate counts by clocks of its own.
        let too_many = log.is_one_too_many(self.now, period / 10 * 8);
        if too_many && is_calm && self.scenario.store == store::Kind::Blob {
            let say =
                || format!("candidate {node} reads more than {MOST_READS} times in a retry-period");
            self.checker.report(Kind::TooManyReads, self.now, say);
        }
    }

    /// Hands a notice to a candidate, and checks that one of an earlier term causes no read.
    pub(super) fn hand_in(&mut self, node: u8, notice: PeerNotice) {
        let reads = self.reads_so_far(node);
        // Only of a core alone the world knows when a read is due by itself.
        let it = &self.nodes[usize::from(node)];
        let keeps_time = !it.wall_disturbed && it.disturbed.is_none();
        let judged = it.process.as_ref().is_some_and(|it| {
            let is_old = notice.term().is_some_and(|term| term < it.subscription.log.term);
            let is_due = it.wakes_at <= self.now + TICK;
            let lately = it.disturbed_at.is_some_and(|at| self.now < at + 2 * SECOND);
            is_old && keeps_time && !lately && !is_due && !self.has_shells()
        });
        self.set_hears(node, true);
        self.turn(node, Input::Peer(notice));
        self.set_hears(node, false);
        // It may also be the moment at which a candidate that has resigned is finished.
        if judged && self.reads_so_far(node) > reads {
            let say = || format!("candidate {node} reads because of a notice of an earlier term");
            self.checker.report(Kind::StaleNotice, self.now, say);
        }
    }

    fn set_hears(&mut self, node: u8, hears: bool) {
        if let Some(process) = &mut self.nodes[usize::from(node)].process {
            process.subscription.hears = hears;
        }
    }

    fn reads_so_far(&self, node: u8) -> u32 {
        let process = self.nodes[usize::from(node)].process.as_ref();
        process.map_or(0, |it| it.subscription.log.count)
    }

    /// Counts the reads of a standby between two notices of an honest leader.
    pub(super) fn count_reads(&mut self, node: u8) {
        let is_lied_to = self.deceived_for() > 0;
        let Some(process) = &mut self.nodes[usize::from(node)].process else { return };
        let it = &mut process.subscription;
        let reads = it.log.count - std::mem::replace(&mut it.log.at_notice, it.log.count);
        if it.heard > it.since && !is_lied_to {
            let (count, time) = self.peers.notified;
            self.peers.notified = (count + u64::from(reads), time + (self.now - it.heard));
        }
    }

    /// Starts to judge a handover, if nothing but the heir's own reads can delay its bid.
    pub(super) fn judge_handover(&mut self, leader: u8, term: u64, arrivals: [Option<Instant>; 8]) {
        if self.examination.step() != Step::Handover || self.deceived_for() > 0 {
            return;
        }
        let Some(heir) = self.heir(leader) else { return };
        let Some(arrival) = arrivals[usize::from(heir)] else { return };
        let it = &self.nodes[usize::from(heir)];
        let Some(process) = &it.process else { return };
        let others_wait = self
            .store
            .successor()
            .is_some_and(|named| named.identity != crate::operate::identity(heir));
        let is_ready = process.status.standing.state() == State::Standby
            && it.asleep_until <= self.now
            && process.seen_term <= term;
        let bids =
            process.waits_for.is_some() && process.subscription.log.bid_at == Some(process.sent_at);
        let waits_for = process.waits_for;
        // The candidate counts by clocks of its own.
        let period = span(it.plan.timings.retry_period) * 5 / 4;
        let may_read = process.subscription.log.may_read(self.now, period);
        if !is_ready || !may_read || others_wait || bids || self.store.is_leased(self.now) {
            return;
        }
        // A request in flight ends first.
        let answered = if waits_for.is_some() { 420 * MILLI } else { 0 };
        let due = arrival + answered + TICK;
        let crowd_until = self.crowd_until(leader);
        let (began, bid, refused) = (self.now, false, 0);
        self.peers.handover = Some(Handover { began, heir, due, bid, crowd_until, refused });
        self.queue.plan(due, Event::HandoverDue);
    }

    /// Returns until when the standbys are not due to read by themselves, and not yet because of the
    /// notice, except for the heir.
    fn crowd_until(&self, leader: u8) -> Instant {
        if self.scenario.store != store::Kind::Blob || self.has_shells() {
            return self.now;
        }
        let mut until = Instant::MAX;
        for it in self.nodes.iter().filter(|it| it.index != leader) {
            let Some(process) = &it.process else { continue };
            let connected = process.subscription.connection == Connection::Connected;
            let is_idle = connected && process.waits_for.is_none();
            let quiet = if is_idle { process.wakes_at } else { self.now };
            until = until.min(quiet).min(self.now + span(it.plan.timings.retry_period) / 10);
        }
        until
    }

    /// Records a request for the handover that is judged.
    pub(crate) fn note_handover(&mut self, node: u8, op: &Op, fate: &Fate) {
        let Some(handover) = &mut self.peers.handover else { return };
        match op {
            Op::Acquire(_) => handover.bid = true,
            Op::Read if node == handover.heir => {
                let answered = fate.answered_after(1).unwrap_or_default();
                handover.due = handover.due.max(self.now + answered + TICK);
            }
            _ => {}
        }
    }

    /// Checks that the next leader's bid was sent in time.
    pub(crate) fn check_handover(&mut self) {
        let Some(handover) = &self.peers.handover else { return };
        let (heir, due) = (handover.heir, handover.due);
        if handover.bid || self.examination.step() != Step::Handover {
            return;
        }
        if self.now < due {
            return self.queue.plan(due, Event::HandoverDue);
        }
        let say = || format!("candidate {heir} was notified of the release, and does not bid");
        self.checker.report(Kind::SlowHeir, self.now, say);
    }

    /// Checks that few bids are refused in a handover.
    pub(crate) fn note_refused_bid(&mut self, node: u8) {
        let process = self.nodes[usize::from(node)].process.as_ref();
        let sent_at = process.map_or(Instant::MAX, |it| it.sent_at);
        let Some(handover) = &mut self.peers.handover else { return };
        handover.refused += u32::from(sent_at < handover.crowd_until);
        if handover.refused > 1 {
            let say = || format!("candidate {node} is not the only one whose bid is refused");
            self.checker.report(Kind::Herd, self.now, say);
        }
    }

    /// Ends the handover that is judged.
    pub(crate) fn end_handover(&mut self) {
        self.peers.handover = None;
    }

    /// Begins to count the reads of the standbys that are notified, and not lied to.
    pub(crate) fn begin_patience(&mut self) {
        let honest = self.deceived_for() == 0;
        for it in &mut self.nodes {
            let Some(process) = &mut it.process else { continue };
            let it = &mut process.subscription;
            let connected = it.connection == Connection::Connected;
            it.log.at_patience = (connected && honest).then_some((it.stamp, it.log.count));
        }
    }

    /// Checks that standbys that were notified for `length` have read little.
    pub(crate) fn end_patience(&mut self, length: Span) {
        // A record of one host notifies its standbys of each renewal.
        let tells = self.scenario.store == store::Kind::Host || self.store.successor().is_some();
        if !self.scenario.peers || tells || self.deceived_for() > 0 {
            return;
        }
        let longest = self.nodes.iter().map(|it| it.plan.timings.retry_period).max();
        for index in 0..self.nodes.len() {
            let period = self.nodes[index].plan.timings.retry_period;
            let slow = due::slow_period(period);
            // A leader that renews less often counts as silent.
            if longest.is_none_or(|it| it + period > slow) || span(period) < SHORTEST_PUT_OFF {
                continue;
            }
            let most = 6 + (2 * length / span(slow)) as u32;
            let Some(process) = &self.nodes[index].process else { continue };
            let it = &process.subscription;
            let connected = it.connection == Connection::Connected;
            let Some((_, before)) = it.log.at_patience.filter(|(stamp, _)| *stamp == it.stamp)
            else {
                continue;
            };
            let reads = it.log.count - before;
            // After the record was set back, the terms of true notices are too low.
            if connected && reads > most && process.seen_term <= it.log.term {
                let say = || format!("candidate {index} reads {reads} times while it is notified");
                self.checker.report(Kind::NotSlowed, self.now, say);
            }
        }
    }
}

//! Notices of the leader's stream to its standbys. A notice moves the time of the next read; it is
//! never evidence: only the store's answers grant, refuse or free anything.

use std::time::Duration;

use super::stream::Holding;
use super::{Election, Ending, Entropy, Leaving, Notice, Reason, Role};
use crate::clock::Moment;

/// A notice of the leader's stream, or the news that there is none. It may be late, repeated or forged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerNotice {
    /// The leader's renewal was granted.
    Holding {
        /// The term of the leader.
        term: u64,
        /// How long before this notice the renewal was sent.
        sent_ago: Duration,
        /// How long the lease lasts after each grant.
        lease: Duration,
        /// When the next renewal is due, from this notice.
        next: Duration,
    },
    /// The leader drains, and releases the lease afterwards.
    Draining {
        /// The term of the leader.
        term: u64,
        /// Whether this candidate is next in line.
        is_heir: bool,
    },
    /// The store has confirmed the release.
    Released {
        /// The term that has ended.
        term: u64,
        /// Whether this candidate is next in line.
        is_heir: bool,
    },
    /// The leadership is over, and the lease may not be.
    Ended {
        /// The term that has ended.
        term: u64,
        /// Why; `None` for a reason that this version does not know.
        reason: Option<Reason>,
    },
    /// The candidates have changed, or the state of one.
    Candidates {
        /// Whether this candidate is next in line.
        is_heir: bool,
    },
    /// The stream has ended without a release, or has been silent for too long.
    Lost,
}

/// What a notice has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerOutcome {
    /// It moved the next read, or will when the stream is lost.
    Applied,
    /// Nothing: the release is known, or no stream was there to be lost.
    Repeated,
    /// Nothing: its term is lower than the recorded one.
    OldTerm,
    /// Nothing: this candidate holds the lease, or has resigned.
    NotStandby,
}

impl PeerNotice {
    /// The names of all kinds, for metrics whose series exist from the start.
    pub const KINDS: [&'static str; 6] =
        ["holding", "draining", "released", "ended", "candidates", "lost"];

    /// Returns the kind of the notice in metrics and logs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Holding { .. } => "holding",
            Self::Draining { .. } => "draining",
            Self::Released { .. } => "released",
            Self::Ended { .. } => "ended",
            Self::Candidates { .. } => "candidates",
            Self::Lost => "lost",
        }
    }

    /// Returns the term that the notice is about; `None` if it is about none.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        match self {
            Self::Holding { term, .. }
            | Self::Draining { term, .. }
            | Self::Released { term, .. }
            | Self::Ended { term, .. } => Some(*term),
            Self::Candidates { .. } | Self::Lost => None,
        }
    }
}

impl PeerOutcome {
    /// All outcomes, for metrics whose series exist from the start.
    pub const ALL: [Self; 4] = [Self::Applied, Self::Repeated, Self::OldTerm, Self::NotStandby];

    /// Returns the name of the outcome in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Repeated => "repeated",
            Self::OldTerm => "old-term",
            Self::NotStandby => "not-standby",
        }
    }
}

impl Election {
    /// Handles a notice of the leader's stream, and reports what it has changed
    /// ([`Notice::Peer`]).
    pub(super) fn handle_peer(&mut self, notice: &PeerNotice, now: Moment, entropy: Entropy) {
        self.apply_deadlines(now, entropy);
        let outcome = self.apply_notice(notice, now, entropy);
        self.notices.push_back(Notice::Peer { kind: notice.kind(), outcome });
        self.queue_request(now);
    }

    fn apply_notice(&mut self, notice: &PeerNotice, now: Moment, entropy: Entropy) -> PeerOutcome {
        if !matches!(self.role, Role::Standby { .. }) {
            return PeerOutcome::NotStandby;
        }
        // What a notice says is not remembered as a term: a forged one would outdo all true ones.
        if notice.term().is_some_and(|term| term < self.highest_term) {
            return PeerOutcome::OldTerm;
        }
        self.note(notice, now);
        match *notice {
            PeerNotice::Holding { term, sent_ago, lease, next } => {
                let silence = self.longest_silence(next);
                self.stream.holding =
                    Some(Holding { term, received: now, sent_ago, lease, silence });
                self.stream.released = None;
                self.stream.lease_end = None;
                self.put_off_read(now, entropy);
            }
            PeerNotice::Draining { is_heir, .. } | PeerNotice::Candidates { is_heir } => {
                self.stream.is_heir = is_heir;
            }
            // The store tells when the lease is free; the end of the stream causes the next read.
            PeerNotice::Ended { .. } => {}
            PeerNotice::Released { term, is_heir } => {
                if self.stream.released == Some(term) {
                    return PeerOutcome::Repeated;
                }
                self.stream.released = Some(term);
                self.stream.is_heir = is_heir;
                self.on_released(now, entropy);
            }
            PeerNotice::Lost if self.stream.holding.is_none() => return PeerOutcome::Repeated,
            PeerNotice::Lost => self.on_stream_lost(now, entropy),
        }
        PeerOutcome::Applied
    }

    /// Records what a notice tells of the holder, for what is shown of it.
    fn note(&mut self, notice: &PeerNotice, now: Moment) {
        let of_holder = |term| self.holder.as_ref().is_some_and(|it| it.term == term);
        if !notice.term().is_none_or(of_holder) {
            return;
        }
        let longest = self.longest_silence(Duration::MAX);
        let Some(renewals) = &mut self.lease_view.renewals else { return };
        match *notice {
            PeerNotice::Holding { sent_ago, lease, next, .. } => {
                renewals.told(&self.config, (sent_ago, lease, next), longest, now);
            }
            PeerNotice::Draining { .. } => renewals.leaving = Some(Leaving::Draining),
            PeerNotice::Released { .. } => {
                renewals.leaving = Some(Leaving::Ended(Some(Ending::Released)));
            }
            PeerNotice::Ended { reason, .. } => {
                renewals.leaving = Some(Leaving::Ended(reason.map(Ending::Told)));
            }
            PeerNotice::Candidates { .. } | PeerNotice::Lost => {}
        }
    }

    /// Schedules the read that follows a release: at once for the heir, and for the others when the heir
    /// has had time to acquire the lease.
    fn on_released(&mut self, now: Moment, entropy: Entropy) {
        let wait = if self.is_heir() { Duration::ZERO } else { self.head_start(entropy) };
        self.stream.holding = None;
        self.stream.lease_end = None;
        self.stream_is_over();
        self.resume_reads(now, entropy);
        self.stream.ask_read(now, wait);
    }

    /// Schedules a read at once, and more of them at the end of the lease that the last notice
    /// bounds.
    pub(super) fn on_stream_lost(&mut self, now: Moment, entropy: Entropy) {
        self.stream_is_over();
        let delay = self.bid_delay(entropy);
        let Some(holding) = self.stream.holding.take() else { return };
        self.stream.lease_end = holding.lease_end(delay, now);
        self.resume_reads(now, entropy);
        self.stream.ask_read(now, Duration::ZERO);
    }

    fn stream_is_over(&mut self) {
        if let Some(renewals) = &mut self.lease_view.renewals {
            renewals.by_stream = false;
        }
    }

    /// Returns how long the others leave the lease to the heir.
    pub(super) fn head_start(&self, entropy: Entropy) -> Duration {
        (self.config.retry_period / 4).mul_f32(1.0 + entropy.jitter)
    }

    /// Returns whether the leader's stream is there, or was until a release, and names another heir.
    pub(super) fn gives_way(&self) -> bool {
        let is_released = self.stream.released.is_some() && self.stream.read.is_some();
        (self.stream.holding.is_some() || is_released) && !self.is_heir()
    }

    /// Returns whether this candidate is next in line, and may bid.
    pub(super) fn is_heir(&self) -> bool {
        self.stream.is_heir && self.competes()
    }
}

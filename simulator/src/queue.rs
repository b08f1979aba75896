//! The event queue, ordered by true time; events of one instant keep the order in which they were
//! scheduled.

use super::Instant;

/// A scheduled event.
// Of aligned words: copies in overlapping parts would delay the reads that follow.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A driver's timer fires, if it still has this stamp.
    Wake { node: u8, stamp: u32 },
    /// A driver's request times out.
    GiveUp { node: u8, life: u32, request: u32 },
    /// All publishers of a node have published passive.
    PublishAcked { node: u8, stamp: u32 },
    /// A disk has ended a write of a status file.
    Written { node: u8, life: u32, write: u32 },
    /// The publishers of a candidate run.
    Publish { node: u8, life: u32 },
    /// The store notifies a standby of a change.
    Changed { node: u8 },
    /// The watch of a candidate reports the value, or what it was a few changes before.
    Told { node: u8, back: u8 },
    /// A message reaches the store.
    Arrive { message: u32 },
    /// An answer reaches the candidate.
    Deliver { message: u32 },
    /// The machine or process of a node continues.
    Continue { node: u8 },
    /// A process starts.
    Start { node: u8 },
    /// A client sends a request, a periodic one if `again`.
    Ask { client: u8, again: bool },
    /// A request reaches a candidate's listener.
    Question { client: u8, stamp: u32 },
    /// The answer reaches the client.
    Answered { client: u8, stamp: u32 },
    /// A fault of the schedule begins.
    Inject { fault: u32 },
    /// A lasting fault ends.
    EndFault { fault: u32 },
    /// A probe of a service begins.
    Probe { node: u8, probe: u8, stamp: u32 },
    /// A probe ends.
    Probed { node: u8, probe: u8, stamp: u32 },
    /// A service reports that it has ended its work of the nth leadership.
    Drained { node: u8, stamp: u32 },
    /// A child starts, if its candidate still leads.
    Launch { node: u8, stamp: u32 },
    /// A watchdog checks the deadline of its child.
    Watchdog { node: u8, stamp: u32 },
    /// A child exits, as it was asked to.
    ChildEnds { node: u8, stamp: u32 },
    /// A candidate is notified that no process of its term is left.
    WorkloadExited { node: u8, stamp: u32 },
    /// An operator gives an order that has waited for a window.
    Order { node: u8, fault: u32 },
    /// A notice of a leader reaches a standby.
    Notice { message: u32 },
    /// A standby connects to the leader that it has read of.
    Connect { node: u8, stamp: u32 },
    /// A standby checks for how long its leader has been silent.
    Silence { node: u8, stamp: u32 },
    /// A liar speaks, or a notice is replayed.
    Lie { fault: u32 },
    /// The heir must have bid.
    HandoverDue,
    /// The next step of the examination after a phase of faults.
    Examine,
}

impl Event {
    /// Returns the node that must be awake for the event, if any.
    pub fn needs_awake(self) -> Option<u8> {
        match self {
            Self::Wake { node, .. }
            | Self::GiveUp { node, .. }
            | Self::PublishAcked { node, .. }
            | Self::Written { node, .. }
            | Self::Publish { node, .. }
            | Self::Changed { node }
            | Self::Told { node, .. }
            | Self::Probe { node, .. }
            | Self::Probed { node, .. }
            | Self::Drained { node, .. }
            | Self::Launch { node, .. }
            | Self::WorkloadExited { node, .. }
            | Self::Order { node, .. }
            | Self::Connect { node, .. }
            | Self::Silence { node, .. }
            | Self::Start { node } => Some(node),
            Self::Question { client, .. } => Some(client),
            _ => None,
        }
    }

    /// Returns a number that identifies the event in the digest of the history.
    pub fn digest(self) -> u64 {
        let index = |probe: u8, stamp: u32| u64::from(probe) << 32 | u64::from(stamp);
        let (kind, a, b) = match self {
            Self::Wake { node, stamp } => (1, node, u64::from(stamp)),
            Self::GiveUp { node, request, .. } => (2, node, u64::from(request)),
            Self::PublishAcked { node, stamp } => (3, node, u64::from(stamp)),
            Self::Changed { node } => (4, node, 0),
            Self::Told { node, back } => (30, node, u64::from(back)),
            Self::Arrive { message } => (5, 0, u64::from(message)),
            Self::Deliver { message } => (6, 0, u64::from(message)),
            Self::Continue { node } => (7, node, 0),
            Self::Start { node } => (8, node, 0),
            Self::Ask { client, again } => (9, client, u64::from(again)),
            Self::Question { client, stamp } => (10, client, u64::from(stamp)),
            Self::Answered { client, stamp } => (11, client, u64::from(stamp)),
            Self::Inject { fault } => (12, 0, u64::from(fault)),
            Self::EndFault { fault } => (13, 0, u64::from(fault)),
            Self::Examine => (14, 0, 0),
            Self::Probe { node, probe, stamp } => (15, node, index(probe, stamp)),
            Self::Probed { node, probe, stamp } => (16, node, index(probe, stamp)),
            Self::Drained { node, stamp } => (17, node, u64::from(stamp)),
            Self::Launch { node, stamp } => (18, node, u64::from(stamp)),
            Self::Watchdog { node, stamp } => (19, node, u64::from(stamp)),
            Self::ChildEnds { node, stamp } => (20, node, u64::from(stamp)),
            Self::WorkloadExited { node, stamp } => (21, node, u64::from(stamp)),
            Self::Written { node, write, .. } => (22, node, u64::from(write)),
            Self::Publish { node, .. } => (23, node, 0),
            Self::Order { node, fault } => (29, node, u64::from(fault)),
            Self::Notice { message } => (24, 0, u64::from(message)),
            Self::Connect { node, stamp } => (25, node, u64::from(stamp)),
            Self::Silence { node, stamp } => (26, node, u64::from(stamp)),
            Self::Lie { fault } => (27, 0, u64::from(fault)),
            Self::HandoverDue => (28, 0, 0),
        };
        kind << 56 | u64::from(a) << 48 | b
    }
}

/// The pending events, the next one last.
///
/// A handful of them is pending at any time, and most are scheduled for soon, so that a sorted list
/// is cheaper than a heap.
#[derive(Debug, Default)]
pub struct Queue {
    pending: Vec<(Instant, Event)>,
}

impl Queue {
    /// Schedules an event, after those of the same instant.
    pub fn plan(&mut self, at: Instant, event: Event) {
        // They are few: moved one by one, they cost less than a search and a call.
        let mut index = self.pending.len();
        self.pending.push((at, event));
        while let Some(before) = index.checked_sub(1)
            && self.pending[before].0 <= at
        {
            self.pending[index] = self.pending[before];
            index = before;
        }
        self.pending[index] = (at, event);
    }

    /// Returns when the next event is due.
    pub fn next_at(&self) -> Option<Instant> {
        self.pending.last().map(|it| it.0)
    }

    /// Removes and returns the next event.
    pub fn pop(&mut self) -> Option<(Instant, Event)> {
        self.pending.pop()
    }
}

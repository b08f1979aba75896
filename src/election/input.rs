//! What the driver hands to an election: one [`Input`] at a time.

use std::time::Duration;

use super::{Answer, PeerNotice, RequestId, State};
use crate::lease::{Change, StoreError, Successor};

/// An event, the argument of [`Election::handle`](super::Election::handle).
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Time has passed, or may have.
    Timeout,
    /// The answer to a request; one that has timed out is unknown. Any answer but the first to the
    /// request in flight is dropped (R3).
    Answer {
        /// The request.
        id: RequestId,
        /// Its answer.
        answer: Result<Answer, StoreError>,
    },
    /// The store reports a change: a hint, never evidence. After news, the next read of a standby is
    /// due now, unless it backs off, and so is the next renewal of a holder that the report does not
    /// name. A renewal starts a standby's wait for the lease.
    Changed(Change),
    /// A notice of the leader's stream: a hint like a wake-up, never evidence.
    Peer(PeerNotice),
    /// All publishers have acknowledged passive since the leadership ended: a pending release may be
    /// sent (R8).
    PublishAcked,
    /// A health probe has finished. Ignored if the term has changed since it began.
    ProbeResult {
        /// The index of the probe.
        probe: usize,
        /// Whether it succeeded.
        healthy: bool,
        /// The term in which it began, if any.
        begun_in: Option<u64>,
    },
    /// Maintenance of the machine is imminent, or no longer is. Until it is over, this candidate does
    /// not compete, and leadership ends as with an unhealthy service.
    Maintenance {
        /// Whether it is imminent, or has begun.
        imminent: bool,
    },
    /// All processes of a term have exited, or none will start. If this candidate still leads in that
    /// term, its leadership ends.
    WorkloadExited {
        /// The term.
        term: u64,
        /// The hold-off, if they exited by themselves.
        hold_off: Option<Duration>,
    },
    /// A command of an operator or of the service.
    Command(Command),
    /// This candidate leaves the election for good.
    Resign,
}

/// A command of an operator or of the service, the same type from the admin API to the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Give up leadership, and hold off so that another candidate wins. The hold-off counts from
    /// the first read after the release that shows the lease free or held by another.
    StepDown {
        /// The length of the hold-off.
        hold_off: Duration,
    },
    /// Give up leadership to this successor, for which the other candidates wait.
    Transfer(Successor),
    /// Give up any leadership, and do not compete until resumed.
    Pause,
    /// Compete again.
    Resume,
    /// End the drain: the service has finished its work as leader in this term, or in whichever
    /// term is draining.
    Drained(Option<u64>),
}

/// How far a [`Command`] has been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Started: this candidate is passive, and releases the lease as soon as it may.
    Begun,
    /// Complete.
    Done,
}

/// A [`Command`] that is not possible in the present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The present state.
    pub state: State,
}

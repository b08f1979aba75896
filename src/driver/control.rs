//! The queue of messages to the driver, from operators, probes, the service and its processes. The
//! driver takes a message between two events, and the election's reply is returned to the sender.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::election::{Command, Input, PeerNotice, Progress, Refusal, State};
use crate::status::{CandidateTable, Maintenance, ProbeResult, RouteReport};

/// The capacity of the queue; a sender waits while it is full.
const QUEUE: usize = 16;

/// Sends messages to one driver. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    inbox: mpsc::Sender<Message>,
    /// Whether the driver has been asked to leave the election for good.
    leaving: watch::Sender<bool>,
}

/// The driver's end of the queue.
pub type Inbox = mpsc::Receiver<Message>;

/// What is sent to the driver.
#[derive(Debug)]
pub enum Message {
    /// An input of the election.
    Input {
        /// The input.
        input: Input,
        /// Where the outcome of a command is sent once the status is published.
        reply: Option<oneshot::Sender<Result<Progress, Refusal>>>,
    },
    /// The result of a health probe, for the election and for the status.
    Probe {
        /// The index of the probe.
        probe: usize,
        /// Its result.
        result: ProbeResult,
        /// The term in which the run began, if any.
        begun_in: Option<u64>,
    },
    /// What is known of the route, for the status alone.
    Route(RouteReport),
    /// The candidates, for the status alone.
    Candidates(CandidateTable),
    /// The next maintenance of this machine, for the election and for the status; `None` if none is
    /// announced.
    Maintenance(Option<Maintenance>),
}

impl Control {
    /// Creates a queue and returns its two ends.
    #[must_use]
    pub fn new() -> (Self, Inbox) {
        let (sender, inbox) = mpsc::channel(QUEUE);
        (Self { inbox: sender, leaving: watch::Sender::new(false) }, inbox)
    }

    /// Sends a command, and returns its outcome once the status is published.
    ///
    /// # Errors
    /// Returns [`Refusal`] if the command is not possible in the present state.
    pub async fn command(&self, command: Command) -> Result<Progress, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Input { input: Input::Command(command), reply: Some(reply) }).await;
        // A driver that has ended has stopped.
        answer.await.unwrap_or(Err(Refusal { state: State::Stopped }))
    }

    /// Reports the result of a health probe, which began in the term `begun_in`.
    pub async fn probe_finished(&self, probe: usize, result: ProbeResult, begun_in: Option<u64>) {
        self.send(Message::Probe { probe, result, begun_in }).await;
    }

    /// Reports what is known of the route.
    pub async fn route_reported(&self, report: RouteReport) {
        self.send(Message::Route(report)).await;
    }

    /// Reports a notice of the leader's stream.
    pub async fn peer_notified(&self, notice: PeerNotice) {
        self.send(Message::Input { input: Input::Peer(notice), reply: None }).await;
    }

    /// Reports the candidates.
    pub async fn candidates_reported(&self, table: CandidateTable) {
        self.send(Message::Candidates(table)).await;
    }

    /// Reports the next maintenance of this machine; `None` if none is announced.
    pub async fn maintenance_reported(&self, announced: Option<Maintenance>) {
        self.send(Message::Maintenance(announced)).await;
    }

    /// Reports that all processes of this term have exited, or that none will start. If this
    /// instance still leads in the term, it gives up the lease and holds off for `hold_off`.
    pub async fn workload_exited(&self, term: u64, hold_off: Option<Duration>) {
        let input = Input::WorkloadExited { term, hold_off };
        self.send(Message::Input { input, reply: None }).await;
    }

    /// Makes the driver leave the election for good, and end when that is done.
    pub async fn resign(&self) {
        self.leaving.send_replace(true);
        self.send(Message::Input { input: Input::Resign, reply: None }).await;
    }

    /// Marks the driver as leaving, for callers that cannot wait; the task that awaits
    /// [`leaving`](Self::leaving) then sends the message.
    pub fn mark_leaving(&self) {
        self.leaving.send_replace(true);
    }

    /// Resolves when the driver has been asked to leave the election for good.
    pub async fn leaving(&self) {
        // Never fails: `self` holds the sender.
        let _ = self.leaving.subscribe().wait_for(|leaving| *leaving).await;
    }

    /// Sends a message. One to a driver that has ended no longer matters.
    async fn send(&self, message: Message) {
        let _ = self.inbox.send(message).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_driver_is_leaving_once_it_was_asked_to_resign_or_marked() {
        let (control, _inbox) = Control::new();
        assert!(control.leaving().now_or_never().is_none());
        control.mark_leaving();
        assert!(control.leaving().now_or_never().is_some());
        let (control, _inbox) = Control::new();
        control.resign().await;
        assert!(control.leaving().now_or_never().is_some());
    }
}

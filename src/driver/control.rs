//! The queue of orders to the driver, from operators, probes, the service and its processes. The
//! driver takes an order between two events, and the election's reply is returned to the sender.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::election::{Command, Input, Progress, Refusal, State};

/// The capacity of the queue; a sender waits while it is full.
const QUEUE: usize = 16;

/// Sends orders to one driver. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    orders: mpsc::Sender<Order>,
    /// Whether the driver has been asked to leave the election for good.
    leaving: watch::Sender<bool>,
}

/// The driver's end of the queue.
pub type Orders = mpsc::Receiver<Order>;

/// An input of the election, with the channel for its reply if it is a command.
#[derive(Debug)]
pub struct Order {
    /// The input.
    pub input: Input,
    /// Where the outcome is sent once the status is published.
    pub reply: Option<oneshot::Sender<Result<Progress, Refusal>>>,
}

impl Control {
    /// Creates a queue and returns its two ends.
    #[must_use]
    pub fn new() -> (Self, Orders) {
        let (sender, orders) = mpsc::channel(QUEUE);
        (Self { orders: sender, leaving: watch::Sender::new(false) }, orders)
    }

    /// Sends a command, and returns its outcome once the status is published.
    ///
    /// # Errors
    /// Returns [`Refusal`] if the command is not possible in the present state.
    pub async fn command(&self, command: Command) -> Result<Progress, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.give(Input::Command(command), Some(reply)).await;
        // A driver that has ended has stopped.
        answer.await.unwrap_or(Err(Refusal { state: State::Stopped }))
    }

    /// Reports the result of a health probe; `term` is the one in which it began.
    pub async fn probed(&self, probe: usize, well: bool, term: Option<u64>) {
        self.give(Input::ProbeResult { probe, healthy: well, begun_in: term }, None).await;
    }

    /// Reports that all processes of this term have exited, or that none will start. If this
    /// instance still leads in the term, it gives up the lease and holds off for `hold_off`.
    pub async fn vacated(&self, term: u64, hold_off: Option<Duration>) {
        self.give(Input::WorkloadExited { term, hold_off }, None).await;
    }

    /// Makes the driver leave the election for good, and end when that is done.
    pub async fn resign(&self) {
        self.leaving.send_replace(true);
        self.give(Input::Resign, None).await;
    }

    /// Marks the driver as leaving, for callers that cannot wait; the task that awaits
    /// [`leaving`](Self::leaving) then sends the order.
    pub fn resign_in_passing(&self) {
        self.leaving.send_replace(true);
    }

    /// Resolves when the driver has been asked to leave the election for good.
    pub async fn leaving(&self) {
        // Never fails: `self` holds the sender.
        let _ = self.leaving.subscribe().wait_for(|leaving| *leaving).await;
    }

    /// Sends an input. One to a driver that has ended no longer matters.
    async fn give(&self, input: Input, reply: Option<oneshot::Sender<Result<Progress, Refusal>>>) {
        let _ = self.orders.send(Order { input, reply }).await;
    }
}

//! The queue of orders to the driver, from operators, probes, the service and its processes. The
//! driver takes an order between two events, and the election's reply is returned to the sender.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::election::{Progress, Refusal, State, Will};
use crate::lease::Successor;

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

/// An order for the driver.
#[derive(Debug)]
pub enum Order {
    /// A command, with the channel for its reply.
    Will(Will, oneshot::Sender<Result<Progress, Refusal>>),
    /// A probe has finished, which began in this term, or in none.
    Probed {
        /// The index of the probe.
        probe: usize,
        /// The result.
        well: bool,
        /// The term in which the probe began.
        term: Option<u64>,
    },
    /// The processes of a term have exited.
    Vacated {
        /// The term.
        term: u64,
        /// The hold-off, if they exited by themselves.
        hold_off: Option<Duration>,
    },
    /// Leave the election for good.
    Resign,
}

impl Control {
    /// Creates a queue and returns its two ends.
    #[must_use]
    pub fn new() -> (Self, Orders) {
        let (sender, orders) = mpsc::channel(QUEUE);
        (Self { orders: sender, leaving: watch::Sender::new(false) }, orders)
    }

    /// Makes a leader give up leadership, and hold off for `hold_off`.
    ///
    /// # Errors
    /// Returns [`Refusal`] unless this instance leads or is activating.
    pub async fn step_down(&self, hold_off: Duration) -> Result<Progress, Refusal> {
        self.will(Will::StepDown { hold_off }).await
    }

    /// Makes a leader give up leadership to a successor, for which the other candidates wait.
    ///
    /// # Errors
    /// Returns [`Refusal`] if this instance does not lead.
    pub async fn transfer(&self, successor: Successor) -> Result<Progress, Refusal> {
        self.will(Will::Transfer(successor)).await
    }

    /// Stops this instance from competing; a leader steps down first.
    ///
    /// # Errors
    /// Returns [`Refusal`] if this instance never competes, or is leaving the election for good.
    pub async fn pause(&self) -> Result<Progress, Refusal> {
        self.will(Will::Pause).await
    }

    /// Makes a paused instance compete again. If it is not paused, ends its hold-off or its wait
    /// for a successor.
    ///
    /// # Errors
    /// Returns [`Refusal`] if there is neither a pause nor such a wait to end.
    pub async fn resume(&self) -> Result<Progress, Refusal> {
        self.will(Will::Resume).await
    }

    /// Reports that the service has finished its work as leader of this term, or of whichever is
    /// draining.
    ///
    /// # Errors
    /// Returns [`Refusal`] if nothing is draining, or another term is.
    pub async fn drained(&self, term: Option<u64>) -> Result<Progress, Refusal> {
        self.will(Will::Drained(term)).await
    }

    /// Reports the result of a health probe; `term` is the one in which it began.
    pub async fn probed(&self, probe: usize, well: bool, term: Option<u64>) {
        self.give(Order::Probed { probe, well, term }).await;
    }

    /// Reports that all processes of this term have exited, or that none will start. If this
    /// instance still leads in the term, it gives up the lease and holds off for `hold_off`.
    pub async fn vacated(&self, term: u64, hold_off: Option<Duration>) {
        self.give(Order::Vacated { term, hold_off }).await;
    }

    /// Makes the driver leave the election for good, and end when that is done.
    pub async fn resign(&self) {
        self.leaving.send_replace(true);
        self.give(Order::Resign).await;
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

    async fn will(&self, will: Will) -> Result<Progress, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.give(Order::Will(will, reply)).await;
        // A driver that has ended has stopped.
        answer.await.unwrap_or(Err(Refusal { state: State::Stopped }))
    }

    /// Sends an order. One to a driver that has ended no longer matters.
    async fn give(&self, order: Order) {
        let _ = self.orders.send(order).await;
    }
}

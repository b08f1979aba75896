//! The way into the driver for all who want something of the election: operators, probes, the
//! service and its processes.
//!
//! What it does not do: it decides nothing. An order waits in a short queue until the driver takes it
//! in between two events; what the election says of it comes back.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::election::{Progress, Refusal, State, Will};
use crate::store::Successor;

/// How many orders wait at most; whoever comes then waits itself.
const QUEUE: usize = 16;

/// Gives orders to one driver. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    orders: mpsc::Sender<Order>,
    /// Whether the driver has been told to leave for good.
    leaving: watch::Sender<bool>,
}

/// The driver's end of the queue.
pub type Orders = mpsc::Receiver<Order>;

/// What the driver is to hand in.
#[derive(Debug)]
pub enum Order {
    /// Somebody wants something.
    Will(Will, oneshot::Sender<Result<Progress, Refusal>>),
    /// A probe that was begun in this term, or in none, has ended.
    Probed {
        /// Which of them.
        probe: usize,
        /// What it found.
        well: bool,
        /// In which term it was begun.
        term: Option<u64>,
    },
    /// The processes of a term have ended.
    Vacated {
        /// Of which.
        term: u64,
        /// How long to stand back, if they ended by themselves.
        hold_off: Option<Duration>,
    },
    /// We leave for good.
    Resign,
}

impl Control {
    /// Makes a queue, and gives its two ends.
    #[must_use]
    pub fn new() -> (Self, Orders) {
        let (sender, orders) = mpsc::channel(QUEUE);
        (Self { orders: sender, leaving: watch::Sender::new(false) }, orders)
    }

    /// Has a leader give its leadership up, and not bid for `hold_off` afterwards.
    ///
    /// # Errors
    /// When this instance neither leads nor is about to.
    pub async fn step_down(&self, hold_off: Duration) -> Result<Progress, Refusal> {
        self.will(Will::StepDown { hold_off }).await
    }

    /// Has a leader give its leadership up to a successor, for whom the others wait.
    ///
    /// # Errors
    /// When this instance does not lead.
    pub async fn transfer(&self, successor: Successor) -> Result<Progress, Refusal> {
        self.will(Will::Transfer(successor)).await
    }

    /// Takes this instance out of the election; a leader resigns first.
    ///
    /// # Errors
    /// When it never competes, or is about to leave for good.
    pub async fn pause(&self) -> Result<Progress, Refusal> {
        self.will(Will::Pause).await
    }

    /// Has a paused instance take part again.
    ///
    /// # Errors
    /// When it is not paused.
    pub async fn resume(&self) -> Result<Progress, Refusal> {
        self.will(Will::Resume).await
    }

    /// The service has ended its work as leader of this term, or of whichever is being drained.
    ///
    /// # Errors
    /// When nothing is being drained, or another term.
    pub async fn drained(&self, term: Option<u64>) -> Result<Progress, Refusal> {
        self.will(Will::Drained(term)).await
    }

    /// A probe of the service has ended; `term` is the one in which it was begun.
    pub async fn probed(&self, probe: usize, well: bool, term: Option<u64>) {
        self.give(Order::Probed { probe, well, term }).await;
    }

    /// The processes of this term have ended, all of them, or will never begin. Those that ended by
    /// themselves give the lease up, and this instance stands back for `hold_off`.
    pub async fn vacated(&self, term: u64, hold_off: Option<Duration>) {
        self.give(Order::Vacated { term, hold_off }).await;
    }

    /// Has the driver leave for good, and end when that is done.
    pub async fn resign(&self) {
        self.leaving.send_replace(true);
        self.give(Order::Resign).await;
    }

    /// Says that the driver is to be told to leave for good, by whoever waits for
    /// [`leaving`](Self::leaving); for those who cannot wait.
    pub fn resign_in_passing(&self) {
        self.leaving.send_replace(true);
    }

    /// Resolves when the driver has been told to leave for good.
    pub async fn leaving(&self) {
        // The sender is in `self`, so it is there.
        let _ = self.leaving.subscribe().wait_for(|leaving| *leaving).await;
    }

    async fn will(&self, will: Will) -> Result<Progress, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.give(Order::Will(will, reply)).await;
        // A driver that has ended has stopped.
        answer.await.unwrap_or(Err(Refusal { state: State::Stopped }))
    }

    /// An order to a driver that has ended comes too late to matter.
    async fn give(&self, order: Order) {
        let _ = self.orders.send(order).await;
    }
}

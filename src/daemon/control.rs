//! The one way into the driver for those who operate it.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::election::State;
use crate::store::Successor;

/// What an operator asks for.
#[derive(Debug)]
pub enum Wish {
    /// Step down.
    StepDown(Duration),
    /// Hand over.
    Transfer(Successor),
    /// Leave the election.
    Pause,
    /// Come back.
    Resume,
    /// The service has ended its work.
    Drained(Option<u64>),
}

/// How far a wish has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has begun.
    Begun,
    /// It is done.
    Done,
}

/// The state that forbids it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The state.
    pub state: State,
}

/// Asks the driver.
#[derive(Clone, Debug)]
pub struct Control(pub mpsc::Sender<(Wish, oneshot::Sender<Result<Progress, Refusal>>)>);

impl Control {
    async fn ask(&self, wish: Wish) -> Result<Progress, Refusal> {
        let stopped = Refusal { state: State::Stopped };
        let (sender, answer) = oneshot::channel();
        self.0.send((wish, sender)).await.map_err(|_| stopped)?;
        answer.await.map_err(|_| stopped)?
    }

    /// Steps down.
    pub async fn step_down(&self, hold_off: Duration) -> Result<Progress, Refusal> {
        self.ask(Wish::StepDown(hold_off)).await
    }

    /// Hands over.
    pub async fn transfer(&self, successor: Successor) -> Result<Progress, Refusal> {
        self.ask(Wish::Transfer(successor)).await
    }

    /// Leaves the election.
    pub async fn pause(&self) -> Result<Progress, Refusal> {
        self.ask(Wish::Pause).await
    }

    /// Comes back.
    pub async fn resume(&self) -> Result<Progress, Refusal> {
        self.ask(Wish::Resume).await
    }

    /// The service has ended its work.
    pub async fn drained(&self, term: Option<u64>) -> Result<Progress, Refusal> {
        self.ask(Wish::Drained(term)).await
    }
}

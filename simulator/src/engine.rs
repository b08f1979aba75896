//! What drives the core of a candidate: the world itself, or the shell that ships.

use fastrand::Rng;
use tenure::clock::Moment;
use tenure::election::{
    Config, Election, Entropy, Input, Notice, Progress, Refusal, Request, Standing,
};

use super::shell::{Disk, Shell};

/// What runs in each candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// The real core, driven by the world: fast.
    #[default]
    Core,
    /// The real core in the real driver, with the real publisher and status files.
    Shell,
}

/// A running candidate.
#[derive(Debug)]
pub enum Engine {
    Core(Box<Election>),
    Shell(Box<Shell>),
}

impl Engine {
    /// Starts a candidate, whose shell has this disk and this randomness.
    pub fn start(extent: Extent, config: Config, disk: &Disk, rng: Rng, now: Moment) -> Self {
        match extent {
            Extent::Core => Self::Core(Box::new(Election::new(config, now))),
            Extent::Shell => Self::Shell(Box::new(Shell::start(config, disk.clone(), rng, now))),
        }
    }

    /// Returns the shell, if there is one.
    pub fn shell(&mut self) -> Option<&mut Shell> {
        match self {
            Self::Core(_) => None,
            Self::Shell(shell) => Some(shell),
        }
    }

    /// Returns whether the core was handed anything since the last call.
    pub fn has_run(&mut self) -> bool {
        match self {
            Self::Core(_) => true,
            Self::Shell(shell) => shell.has_run(),
        }
    }

    /// Hands in one input; returns the outcome of a command.
    pub fn turn(
        &mut self,
        input: Input,
        now: Moment,
        entropy: Entropy,
    ) -> Option<Result<Progress, Refusal>> {
        match self {
            Self::Core(election) => Some(election.handle(input, now, entropy)),
            Self::Shell(shell) => shell.turn(input, now),
        }
    }

    /// Returns the next request to the store.
    pub fn poll_request(&mut self) -> Option<Request> {
        match self {
            Self::Core(election) => election.poll_request(),
            Self::Shell(shell) => shell.poll_request(),
        }
    }

    /// Returns the next notice; of a shell, the next state transition.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        match self {
            Self::Core(election) => election.poll_notice(),
            Self::Shell(shell) => shell.poll_transition().map(Notice::Transition),
        }
    }

    /// Returns what is published.
    pub fn standing(&self) -> Standing {
        match self {
            Self::Core(election) => election.standing(),
            Self::Shell(shell) => shell.standing(),
        }
    }

    /// Returns whether it has resigned, and nothing is left to do.
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Core(election) => election.is_finished(),
            Self::Shell(shell) => shell.is_finished(),
        }
    }
}

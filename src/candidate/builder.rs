//! How a candidate is told what to do: the settings of `tenure run`, by their names.
//!
//! What it does not do: it checks nothing itself; [`crate::config`] does, all faults at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::leadership::Warden;
use super::{Candidate, Running};
use crate::assembly::Assembly;
use crate::config::{self, Environment, Faults, Flags, Verb, duration};
use crate::publish::Board;
use crate::publish::file::Acknowledgements;

/// The settings of a candidate that is not started yet; those that are not given have the defaults
/// of `tenure run`.
///
/// Variables named `TENURE_…` are not read, since a service may run beside a sidecar of its own.
/// Credentials come from the same variables as the sidecar's (`AZURE_…`).
#[derive(Clone, Debug)]
#[must_use = "nothing is started before start()"]
pub struct Builder {
    flags: Flags,
    unknown: Vec<String>,
}

/// Why a candidate could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Settings are wrong: all of them, each with its name, its value and what would be right.
    #[error("{0}")]
    Settings(#[from] Faults),
    /// There is no setting of this name.
    #[error("no setting is called {0:?}: `tenure run --help` lists them")]
    Unknown(String),
    /// The store's client could not be made.
    #[error("{0:#}")]
    Store(anyhow::Error),
}

impl Builder {
    pub(super) fn new(election: &str, store: &str) -> Self {
        Self { flags: Flags::new(), unknown: Vec::new() }
            .setting("election", election)
            .setting("store", store)
    }

    /// Who we are, for people: 1 to 128 printable ASCII characters. Default: `POD_NAME`, else the
    /// host's name.
    pub fn identity(self, identity: &str) -> Self {
        self.setting("identity", identity)
    }

    /// The address of the service, published to the others while it leads.
    pub fn advertise(self, address: &str) -> Self {
        self.setting("advertise", address)
    }

    /// From each grant to the end of the lease in the store; default 15 s. Longer survives longer
    /// outages and finds a dead leader later.
    pub fn lease_duration(self, length: Duration) -> Self {
        self.length("lease-duration", length)
    }

    /// From the sending of the last granted request to the end of our belief; default 10 s. What is
    /// left to lease-duration is the margin for clocks that drift and pauses that no clock shows.
    pub fn renew_deadline(self, length: Duration) -> Self {
        self.length("renew-deadline", length)
    }

    /// Time between renewals, and the mean time between a standby's looks; default 2 s.
    pub fn retry_period(self, length: Duration) -> Self {
        self.length("retry-period", length)
    }

    /// Bound on one request to the store; default 2 s.
    pub fn request_timeout(self, length: Duration) -> Self {
        self.length("request-timeout", length)
    }

    /// From saying that it leads no more, by will, to giving the lease back, at most; default 0 s.
    pub fn drain_timeout(self, length: Duration) -> Self {
        self.length("drain-timeout", length)
    }

    /// Gives any setting of the election and its store by the name that it has in `tenure run`:
    /// `azure-endpoint`, `activation-delay`. A switch is `true` or `false`. What belongs to the
    /// sidecar alone (listeners, files, hooks, probes, logs) is checked and has no effect.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        match config::SETTINGS.iter().find(|it| it.name == name) {
            Some(setting) => {
                self.flags.insert(setting.name, vec![value.to_owned()]);
            }
            None => self.unknown.push(name.to_owned()),
        }
        self
    }

    /// Starts the candidate in the present tokio runtime, which must have its timers on (and its
    /// I/O, for stores on the network). Does not wait for the store: one that is away is asked until
    /// it answers.
    ///
    /// # Errors
    /// [`StartError`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(self) -> Result<Candidate, StartError> {
        if let Some(name) = self.unknown.into_iter().next() {
            return Err(StartError::Unknown(name));
        }
        let environment = Environment::of_process().without_settings();
        let settings = config::load(&self.flags, &environment, Verb::Run)?.settings;
        let assembly =
            Assembly::of(&settings, Board::default(), true).map_err(StartError::Store)?;
        let published = assembly.published.clone();
        let (driver, control) = assembly.driver(Acknowledgements::of_no_files());
        let (works, working) = watch::channel(0);
        let (end, ended) = watch::channel(());
        let warden = Warden::new(published.clone(), working, control.clone());
        #[allow(clippy::disallowed_methods, reason = "the driver lives as long as it has to")]
        tokio::spawn(async move {
            tokio::select! {
                () = driver.run() => {}
                () = warden.run() => {}
            }
            drop(end);
        });
        Ok(Candidate(Arc::new(Running { control, published, works, ended })))
    }

    fn length(self, name: &str, length: Duration) -> Self {
        self.setting(name, &duration::format(length))
    }
}

//! How a candidate is told what to do: the settings of `tenure run`, by their names.
//!
//! What it does not do: it checks nothing itself; [`crate::config`] does, all faults at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::works::{Warden, Works};
use super::{Candidate, Running};
use crate::assembly::Assembly;
use crate::config::{self, Environment, Fault, Faults, Flags, Settings, Source, Verb, duration};
use crate::daemon::Control;
use crate::publish::acknowledgements::Acknowledgements;

/// The settings of a candidate that is not started yet; those that are not given have the defaults
/// of `tenure run`.
///
/// Variables named `TENURE_…` are not read, since a service may run beside a sidecar of its own.
/// Credentials come from the same variables as the sidecar's (`AZURE_…`).
#[derive(Clone, Debug)]
#[must_use = "nothing is started before start()"]
pub struct Builder {
    flags: Flags,
    /// Names that are no settings of a candidate.
    unknown: Vec<String>,
}

/// The settings of an election and its store; the others are the sidecar's.
const OURS: [&str; 17] = [
    "election",
    "identity",
    "advertise",
    "observe",
    "store",
    "azure-endpoint",
    "azure-blob-prefix",
    "azure-insecure-http",
    "kube-api",
    "kube-token-file",
    "kube-ca-file",
    "lease-duration",
    "renew-deadline",
    "retry-period",
    "request-timeout",
    "activation-delay",
    "drain-timeout",
];

/// Why a candidate could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Settings are wrong: all of them, each with its name, its value and what would be right.
    #[error("{0}")]
    Settings(Faults),
    /// The store's client could not be made, for this reason.
    #[error("{0}")]
    Store(String),
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

    /// Gives any setting of the election or its store by the name that it has in `tenure run`:
    /// `azure-endpoint`, `activation-delay`. A switch is `true` or `false`; what is given twice
    /// counts as given last. What belongs to the sidecar alone (listeners, files, hooks, probes,
    /// logs) is no setting here, and [`start`](Self::start) says so.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        let setting = config::SETTINGS.iter().find(|it| it.name == name);
        match setting.filter(|it| OURS.contains(&it.name)) {
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
        let settings = self.settings().map_err(StartError::Settings)?;
        let assembly = Assembly::of(&settings, Default::default(), true)
            .map_err(|error| StartError::Store(format!("{error:#}")))?;
        let published = assembly.published.clone();
        let (control, orders) = Control::new();
        let driver = assembly.driver(orders, Acknowledgements::of_nobody());
        let (works, working) = watch::channel(Works::default());
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

    /// The settings, or all that is wrong with them.
    fn settings(self) -> Result<Settings, Faults> {
        let environment = Environment::of_process().for_program();
        let loaded = config::load(&self.flags, &environment, Verb::Run);
        let mut faults: Vec<Fault> = self.unknown.iter().map(|name| unknown(name)).collect();
        match loaded {
            Ok(loaded) if faults.is_empty() => return Ok(loaded.settings),
            Ok(_) => {}
            Err(Faults(more)) => faults.extend(more),
        }
        Err(Faults(faults))
    }

    fn length(self, name: &str, length: Duration) -> Self {
        self.setting(name, &duration::format(length))
    }
}

fn unknown(name: &str) -> Fault {
    let of_sidecar = config::SETTINGS.iter().any(|it| it.name == name);
    let problem = if of_sidecar {
        "is a setting of the sidecar, which a candidate inside a service does not have"
    } else {
        "is not a setting"
    };
    Fault {
        setting: name.to_owned(),
        value: None,
        source: Source::Program,
        problem: problem.to_owned(),
        remedy: format!("leave it out; there are {}", OURS.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_of_a_candidate_is_one_of_the_sidecars_too() {
        for name in OURS {
            assert!(config::SETTINGS.iter().any(|it| it.name == name), "{name}");
        }
    }
}

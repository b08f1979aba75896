//! The settings of a candidate, by the names of `tenure run`. [`crate::config`] checks them, and
//! reports all errors at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::tasks::{ReleaseGuard, Tasks};
use super::{Candidate, Running};
use crate::config::{self, Environment, Fault, Faults, Flags, Settings, Source, Verb, duration};
use crate::driver::Control;
use crate::driver::instance::Instance;
use crate::status::publish_acks::PublishAcks;

/// The settings of a candidate that has not been started. Settings that are not given have the
/// defaults of `tenure run`.
///
/// Variables named `TENURE_…` are not read, since a sidecar may run next to the service.
/// Credentials come from the same variables as for the sidecar (`AZURE_…`).
#[derive(Clone, Debug)]
#[must_use = "nothing is started before start()"]
pub struct Builder {
    flags: Flags,
    /// Names that are not settings of a candidate.
    unknown: Vec<String>,
}

/// Why a candidate could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Settings are invalid: lists all of them, each with its name, its value and the remedy.
    #[error("{0}")]
    Settings(Faults),
    /// The store's client could not be built, for this reason.
    #[error("{0}")]
    Store(String),
}

impl Builder {
    pub(super) fn new(election: &str, store: &str) -> Self {
        Self { flags: Flags::new(), unknown: Vec::new() }
            .setting("election", election)
            .setting("store", store)
    }

    /// Sets the name of this candidate, for people: 1 to 128 printable ASCII characters. Default:
    /// `POD_NAME`, or else the host name.
    pub fn identity(self, identity: &str) -> Self {
        self.setting("identity", identity)
    }

    /// Sets the address of the service, published to the other candidates while this one leads.
    pub fn advertise(self, address: &str) -> Self {
        self.setting("advertise", address)
    }

    /// Sets the time from each grant to the end of the lease in the store; default 15 s. A longer
    /// one survives longer outages, and detects a dead leader later.
    pub fn lease_duration(self, length: Duration) -> Self {
        self.length("lease-duration", length)
    }

    /// Sets the time from the sending of the last granted request to the end of the belief; default
    /// 10 s. The difference to lease-duration is the margin for clock drift and for pauses that no
    /// clock shows.
    pub fn renew_deadline(self, length: Duration) -> Self {
        self.length("renew-deadline", length)
    }

    /// Sets the time between renewals, and the mean time between a standby's reads; default 2 s.
    pub fn retry_period(self, length: Duration) -> Self {
        self.length("retry-period", length)
    }

    /// Sets the timeout of one request to the store; default 2 s.
    pub fn request_timeout(self, length: Duration) -> Self {
        self.length("request-timeout", length)
    }

    /// Sets the longest time from the end of active to the release of the lease, in a voluntary
    /// step-down; default 0 s.
    pub fn drain_timeout(self, length: Duration) -> Self {
        self.length("drain-timeout", length)
    }

    /// Sets any setting of the election or its store by its name in `tenure run`, such as
    /// `azure-endpoint` or `activation-delay`. A switch is `true` or `false`; the last value given
    /// counts. Settings of the sidecar (listeners, files, hooks, probes, logs) are not accepted,
    /// and make [`start`](Self::start) fail.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        match config::Setting::named(name).filter(|it| it.in_library) {
            Some(setting) => {
                self.flags.insert(setting.name, vec![value.to_owned()]);
            }
            None => self.unknown.push(name.to_owned()),
        }
        self
    }

    /// Starts the candidate in the current tokio runtime, which must have timers enabled (and I/O,
    /// for stores on the network). Does not wait for the store, which is retried until it answers.
    ///
    /// # Errors
    /// Returns [`StartError`] if settings are invalid, or the store's client cannot be built.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn start(self) -> Result<Candidate, StartError> {
        let settings = self.settings().map_err(StartError::Settings)?;
        let instance = Instance::of(&settings, true, None)
            .map_err(|error| StartError::Store(format!("{error:#}")))?;
        let published = instance.published.clone();
        let (control, inbox) = Control::new();
        let driver = instance.driver(inbox, PublishAcks::none());
        let (tasks, working) = watch::channel(Tasks::default());
        let (end, ended) = watch::channel(());
        let release_guard = ReleaseGuard::new(published.clone(), working, control.clone());
        #[allow(clippy::disallowed_methods, reason = "the driver lives as long as it has to")]
        tokio::spawn(async move {
            tokio::select! {
                () = driver.run() => {}
                () = release_guard.run() => {}
            }
            drop(end);
        });
        Ok(Candidate(Arc::new(Running { control, published, tasks, ended })))
    }

    /// Returns the settings, or all errors in them.
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
    let (problem, near) = match config::Setting::named(name) {
        Some(_) => ("is a setting of the sidecar, which a candidate inside a service lacks", None),
        None => ("is not a setting", config::Setting::nearest(name, |it| it.in_library)),
    };
    let known = config::SETTINGS.iter().filter(|it| it.in_library).map(|it| it.name);
    let remedy = match near {
        Some(near) => format!("did you mean {near}?"),
        None => format!("remove it; there are {}", known.collect::<Vec<_>>().join(", ")),
    };
    Fault {
        setting: name.to_owned(),
        value: None,
        source: Source::Program,
        problem: problem.to_owned(),
        remedy,
    }
}

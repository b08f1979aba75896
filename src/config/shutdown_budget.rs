//! The upper bound on the time of an orderly shutdown, for `terminationGracePeriodSeconds` in
//! Kubernetes and `TimeoutStopSec` in systemd.

use std::fmt;
use std::time::Duration;

use super::duration;
use super::hooks::{HOOK_GRACE, Hooks};
use super::settings::Settings;

/// For everything without a setting: signals, the last update of files and subscribers, process
/// exit.
const REST: Duration = Duration::from_secs(1);

/// The parts of an orderly shutdown, from the signal to the end of the process.
///
/// It is a bound, not an estimate: with a service that reports the end of its work, and a store
/// that answers, a shutdown is much faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// From reporting passive to the release: drain-timeout. Under `exec` the command is dead by
    /// then.
    drain: Duration,
    /// How many hook runs may be outstanding when the lease is released: if the shutdown triggers a
    /// hook, that run and the one before it in the queue.
    hooks: u32,
    /// The bound on each of them: hook-timeout.
    hook: Duration,
    /// The bound on each of two requests: the one in flight when the signal arrives or the drain
    /// ends, and the release. Each may take request-timeout.
    request: Duration,
}

impl Ending {
    /// Returns the bound for a run with these settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let Hooks { on_active, on_passive, on_drain, on_leader_change, timeout, .. } =
            &settings.hooks;
        let called = on_passive.is_some() || on_drain.is_some() || on_leader_change.is_some();
        Self {
            drain: settings.drain_timeout,
            hooks: if called { 2 } else { u32::from(on_active.is_some()) },
            hook: *timeout,
            request: settings.timings.request_timeout,
        }
    }

    /// Returns the sum in whole seconds, rounded up, as Kubernetes and systemd take it.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        let sum = self.drain + (self.hook + HOOK_GRACE) * self.hooks + self.request * 2 + REST;
        sum.as_secs() + u64::from(sum.subsec_nanos() > 0)
    }
}

impl fmt::Display for Ending {
    /// Formats the sum with its parts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s = drain-timeout {} + ", self.seconds(), duration::format(self.drain))?;
        if self.hooks > 0 {
            let (hook, grace) = (duration::format(self.hook), duration::format(HOOK_GRACE));
            write!(f, "{} × (hook-timeout {hook} + {grace}) + ", self.hooks)?;
        }
        let (request, rest) = (duration::format(self.request), duration::format(REST));
        write!(f, "2 × request-timeout {request} + {rest}")
    }
}

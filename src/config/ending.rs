//! How long an orderly end takes at most, and so how much time whoever ends us must leave: the
//! `terminationGracePeriodSeconds` of Kubernetes, the `TimeoutStopSec` of systemd.
//!
//! What it does not do: it knows neither of the two as they are set, since neither tells us.

use std::fmt;
use std::time::Duration;

use super::hooks::HOOK_GRACE;
use super::{Hooks, Settings, duration};

/// For what no setting bounds: signals, the last word to files and subscribers, the process's end.
const REST: Duration = Duration::from_secs(1);

/// What an orderly end is made of, from the signal to the end of the process.
///
/// It is a bound, not an estimate: a service that says when it has ended its work, and a store that
/// answers, leave it far behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// From saying passive to the release: drain-timeout. Under `exec` the command is dead by then.
    drain: Duration,
    /// How many hooks may still be at work, one after another, when the lease is released: where an
    /// end calls one, that and the one that it has to wait for.
    hooks: u32,
    /// How long each of them may take: hook-timeout.
    hook: Duration,
    /// For the request that is under way when the signal comes, or the drain ends, and for the
    /// release: each request-timeout.
    request: Duration,
}

impl Ending {
    /// The end of a run with these settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let Hooks { on_active, on_passive, on_drain, on_leader_change, timeout } = &settings.hooks;
        let called = on_passive.is_some() || on_drain.is_some() || on_leader_change.is_some();
        Self {
            drain: settings.drain_timeout,
            hooks: if called { 2 } else { u32::from(on_active.is_some()) },
            hook: *timeout,
            request: settings.timings.request_timeout,
        }
    }

    /// The sum in whole seconds, rounded up, as both managers of processes take it.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        let sum = self.drain + (self.hook + HOOK_GRACE) * self.hooks + self.request * 2 + REST;
        sum.as_secs() + u64::from(sum.subsec_nanos() > 0)
    }
}

impl fmt::Display for Ending {
    /// The sum and what it is the sum of.
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

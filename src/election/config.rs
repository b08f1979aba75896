//! The configuration of one candidate, fixed when its election begins. [`crate::config`] checks
//! that the durations fit together.

use std::sync::Arc;
use std::time::Duration;

use super::health::HealthRule;
use crate::lease::{Candidate, Rules};

/// The configuration of one candidate.
#[derive(Clone, Debug)]
pub struct Config {
    /// The identity of this candidate.
    pub candidate: Arc<Candidate>,
    /// The properties of this kind of store.
    pub rules: Rules,
    /// From each grant to the end of the lease in the store; longer than `renew_deadline` by the
    /// margin for clock drift and unseen pauses.
    pub lease_duration: Duration,
    /// From the sending of the last granted request to the end of the belief (R1).
    pub renew_deadline: Duration,
    /// Leader: from the sending of one renewal to the next. Standby: the mean time between reads.
    pub retry_period: Duration,
    /// The longest that one request may take.
    pub request_timeout: Duration,
    /// From the answer to a grant to the earliest moment at which this candidate may be active.
    pub activation_delay: Duration,
    /// The longest time from reporting passive to releasing the lease in a voluntary step-down;
    /// ends early when the service reports that its work is finished.
    pub drain_timeout: Duration,
    /// When the service counts as healthy; `None` if it has no probes.
    pub health: Option<HealthRule>,
    /// Whether processes run in a term, whose exit is awaited before the lease is released.
    pub has_workload: bool,
    /// The longest wait for the first lease; zero tries once. See [`Wait`](super::Wait).
    pub wait: Option<Duration>,
    /// Whether this candidate only reads and never competes.
    pub observe: bool,
    /// 0 to 100. Below [`DEFAULT_PRIORITY`](Self::DEFAULT_PRIORITY) this candidate lets others bid
    /// first for a lease that it sees free, unless it is next in line: up to one retry-period, for
    /// priority 0.
    pub priority: u8,
}

impl Config {
    /// The priority of a candidate that was given none.
    pub const DEFAULT_PRIORITY: u8 = 50;
}

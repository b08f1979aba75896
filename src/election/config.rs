//! What a candidate is told once, when its election begins.
//!
//! What it does not do: it checks nothing. [`crate::config`] sees to it that the lengths fit together.

use std::sync::Arc;
use std::time::Duration;

use super::health::HealthRule;
use crate::store::{Candidate, Rules};

/// What one candidate was told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who we are.
    pub candidate: Arc<Candidate>,
    /// How this kind of store behaves.
    pub rules: Rules,
    /// From each grant to the end of the lease in the store; over `renew_deadline` by the margin
    /// for drift and unseen pauses.
    pub lease_duration: Duration,
    /// From the sending of the last granted request to the end of our belief (R1).
    pub renew_deadline: Duration,
    /// Leader: from the sending of one renewal to the next; standby: mean time between looks.
    pub retry_period: Duration,
    /// The longest that one request may take.
    pub request_timeout: Duration,
    /// From the grant's answer to the first moment we may be active.
    pub activation_delay: Duration,
    /// From saying passive to giving the lease back, when we leave by will; ends early when the
    /// service says that its work is done.
    pub drain_timeout: Duration,
    /// When the service beside us is well; `None` if nobody asks it.
    pub health: Option<HealthRule>,
    /// Whether processes run in our term, whose end is awaited before the lease is given back.
    pub escorts: bool,
    /// Never compete, only look.
    pub observe: bool,
}

//! The last result of each health probe. The election decides how many failures in a row matter.

use crate::clock::Moment;

/// A health probe and its last result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeState {
    /// The probe as configured, without credentials.
    pub probe: String,
    /// Its last result; `None` before the first.
    pub last: Option<ProbeResult>,
}

/// The result of one run of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    /// Whether it succeeded.
    pub succeeded: bool,
    /// The result in words.
    pub message: String,
    /// When it ended.
    pub at: Moment,
}

impl ProbeState {
    /// Returns a probe that has not run yet.
    #[must_use]
    pub fn new(probe: String) -> Self {
        Self { probe, last: None }
    }

    /// Records a result; returns whether success has changed to failure, failure to success, or
    /// whether it is the first result.
    pub fn record(&mut self, result: ProbeResult) -> bool {
        let succeeded = result.succeeded;
        self.last.replace(result).is_none_or(|before| before.succeeded != succeeded)
    }
}

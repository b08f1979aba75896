//! The health of the store as this candidate sees it, from the answers to its requests.

use std::sync::Arc;

use super::{Answer, Op};
use crate::clock::Moment;
use crate::lease::StoreError;

/// The health of the store, from its answers.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct StoreHealth {
    /// When the store last answered; a refusal is an answer too.
    pub last_success: Option<Moment>,
    /// The number of failures since then.
    pub failures: u32,
    /// The failure of the last request; `None` if it was answered.
    pub last_failure: Option<Arc<StoreError>>,
    /// The writes that fail, until one is answered or another candidate is seen to hold the lease:
    /// a read says nothing about them.
    pub failing_writes: Option<FailingWrites>,
    /// The place of the store that the election has moved to, by the last record seen; nobody bids here
    /// then.
    pub moved_to: Option<Arc<str>>,
    /// Whether the lease was last seen held without an end, by another tool.
    pub lease_has_no_end: bool,
}

/// Writes of which none was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct FailingWrites {
    /// When the first one failed.
    pub since: Moment,
    /// The last failure.
    pub error: Arc<StoreError>,
    /// Whether a write of the record is among them: acquiring, renewing and releasing the lease may
    /// need fewer rights, so that they end nothing.
    pub of_record: bool,
}

impl StoreHealth {
    /// Returns the error to show: that of the last request, else that of the writes.
    #[must_use]
    pub fn error(&self) -> Option<&Arc<StoreError>> {
        self.last_failure.as_ref().or(self.failing_writes.as_ref().map(|it| &it.error))
    }

    /// Records the answer to a request.
    pub(super) fn record(&mut self, op: &Op, answer: &Result<Answer, StoreError>, now: Moment) {
        let is_write = op.lease().is_some();
        let of_record = matches!(op, Op::WriteTerm { .. } | Op::SetSuccessor { .. });
        match answer {
            Ok(_) | Err(StoreError::Refused(_)) => {
                self.last_success = Some(now);
                self.failures = 0;
                self.last_failure = None;
                self.failing_writes.take_if(|it| is_write && (of_record || !it.of_record));
            }
            Err(error) => {
                let error = Arc::new(error.clone());
                self.failures = self.failures.saturating_add(1);
                self.last_failure = Some(error.clone());
                if is_write {
                    let (since, other) = self
                        .failing_writes
                        .take()
                        .map_or((now, false), |it| (it.since, it.of_record));
                    let of_record = of_record || other;
                    self.failing_writes = Some(FailingWrites { since, error, of_record });
                }
            }
        }
    }

    /// Records that another candidate holds the lease, and so could write.
    pub(super) fn another_holds(&mut self) {
        self.failing_writes = None;
    }
}

//! The maintenance of this machine that its cloud has announced, for the status. Whether this instance
//! takes part in the election meanwhile is part of the state instead.

use time::OffsetDateTime;

/// An announced maintenance of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// The id of the event.
    pub event_id: String,
    /// The kind of event: `Freeze`, `Reboot`, `Redeploy`, `Preempt` or `Terminate`.
    pub kind: &'static str,
    /// The time before which it does not begin; `None` if it has begun, or may begin at any time.
    pub not_before: Option<OffsetDateTime>,
    /// Whether it has begun.
    pub started: bool,
    /// Whether it is so near that this instance hands over and does not compete.
    pub imminent: bool,
}

impl Maintenance {
    /// Returns the status of the event: `Scheduled` or `Started`.
    #[must_use]
    pub fn status(&self) -> &'static str {
        if self.started { "Started" } else { "Scheduled" }
    }
}

//! What an instance does, in words, by the fields of its status document alone.

use std::time::Duration;

use super::document::{ActivationDocument, Document, MaintenanceDocument};
use super::words;

impl Document<'_> {
    /// Returns what the instance does: the end of a sentence that begins with its name.
    #[must_use]
    pub fn activity(&self) -> String {
        match (&*self.state, &self.maintenance) {
            ("standby", _) if self.store.moved_to.is_some() => {
                let to = self.store.moved_to.as_deref().unwrap_or_default();
                format!("does not compete: the election has moved to {to}")
            }
            ("standby", _) => self.readiness(),
            ("activating", _) => match &self.activation {
                Some(it) => format!("holds the lease and does not lead yet: {}", it.words()),
                None => words::state(&self.state).to_owned(),
            },
            ("unhealthy", Some(it)) if it.imminent => {
                format!("does not compete during maintenance of its machine: {}", it.announcement())
            }
            _ => words::state(&self.state).to_owned(),
        }
    }

    /// Returns what a standby is ready for. It is not ready to take over while requests to the store fail.
    fn readiness(&self) -> String {
        let error = self.store.last_error.as_deref();
        match (self.can_take_over, error, self.hold_off_remaining_ms) {
            _ if self.held_without_end => {
                format!("is a standby, but cannot take over: {}", words::HELD_WITHOUT_END)
            }
            (Some(false), error, _) => {
                let why = error.unwrap_or("the store does not answer");
                format!("is a standby, but cannot take over: {why}")
            }
            (_, Some(why), _) => format!("is a standby; requests to the store fail: {why}"),
            (_, None, Some(ms)) => {
                let left = words::spoken(Duration::from_millis(ms));
                format!("is a standby and holds off for {left}")
            }
            (_, None, None) => "is a standby, ready to take over".to_owned(),
        }
    }
}

impl ActivationDocument<'_> {
    /// Returns what is waited for, and for how long.
    #[must_use]
    pub fn words(&self) -> String {
        let left = words::spoken(Duration::from_millis(self.remaining_ms));
        match &*self.waits_for {
            "earlier-leader" => {
                format!("it waits {left}, in case an earlier leader is still active")
            }
            "activation-delay" => format!("it waits {left}, its activation-delay"),
            _ => "the term is being written".to_owned(),
        }
    }
}

impl MaintenanceDocument<'_> {
    /// Returns what is announced, in words.
    #[must_use]
    pub fn announcement(&self) -> String {
        match (&self.not_before, &*self.status) {
            (_, "Started") => format!("{} has begun", self.kind),
            (Some(date), _) => format!("{} not before {date}", self.kind),
            (None, _) => format!("{} at any time", self.kind),
        }
    }
}

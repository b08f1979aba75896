//! Who leads, in words: the same for tables, the page, systemd and messages. It goes by the fields of the
//! status document alone, so that one version can describe the sidecar of another.

use std::time::Duration;

use super::Role;
use super::document::{Document, HolderDocument, LastHolderDocument};
use super::words::{self, spoken};

/// What is said of a leader whose renewals cannot be seen.
pub(crate) const UNSEEN: &str = "it holds the lease, whose renewals cannot be seen here";

impl HolderDocument<'_> {
    /// Returns whether it may be named as the leader.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        !self.overdue && !self.stale && self.leaving.is_none()
    }

    /// Returns why it is not simply named as the leader, as a sentence without its full stop; `None` if it
    /// is. `reads` is whether the store is read without failures.
    #[must_use]
    pub fn doubt(&self, reads: bool) -> Option<String> {
        let name = &self.identity;
        if self.stale {
            let seen = self.renewed_ms_ago.unwrap_or_default().max(self.seen_ms_ago);
            return Some(format!(
                "unknown (last seen: {name}, term {}, {} ago)",
                self.term,
                ms(seen)
            ));
        }
        match self.leaving.as_deref() {
            Some("draining") => return Some(format!("none: {name} is draining")),
            Some(reason) => {
                let why = words::ending(reason);
                return Some(format!(
                    "none: {name} no longer leads: {why}{}",
                    self.lease_end(reads)
                ));
            }
            None if !self.overdue => return None,
            None => {}
        }
        let sees = reads && self.shows_renewals();
        let renewed = match self.renewed_ms_ago {
            Some(ago) if sees => format!("{name} has not renewed for {}", ms(ago)),
            Some(ago) => format!("no renewal of {name} was seen for {}", ms(ago)),
            None => format!("no renewal of {name} was seen yet"),
        };
        Some(renewed + &self.lease_end(reads))
    }

    fn shows_renewals(&self) -> bool {
        matches!(self.renewals_shown_by.as_deref(), Some("store" | "peers"))
    }

    /// Returns when its lease ends, to follow another clause.
    fn lease_end(&self, reads: bool) -> String {
        let unless = if reads && self.shows_renewals() { "" } else { ", unless it renewed" };
        match self.lease_ends_within_ms {
            None => String::new(),
            Some(0) => "; its lease is about to end".to_owned(),
            Some(left) => format!("; its lease ends in at most {}{unless}", ms(left)),
        }
    }
}

impl LastHolderDocument<'_> {
    /// Returns why its leadership ended, in words; `None` if unknown.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.reason.as_deref().map(words::ending)
    }
}

impl Document<'_> {
    /// Returns the name of the leader: this instance if it is active, else the holder, if it may be named.
    #[must_use]
    pub fn leader(&self) -> Option<&str> {
        if self.role == Role::Active {
            return Some(&self.identity);
        }
        self.holder.as_ref().filter(|it| it.is_leader()).map(|it| &*it.identity)
    }

    /// Returns why no leader is named, or what is not known of the one that is; `None` if there is no doubt.
    #[must_use]
    pub fn doubt(&self) -> Option<String> {
        if self.role == Role::Active {
            return None;
        }
        let Some(holder) = &self.holder else { return Some(self.no_leader()) };
        let doubt = holder.doubt(self.store.failures == 0);
        if self.state == "draining" && self.term == Some(holder.term) {
            return Some(format!("none: {}, this instance, is draining", holder.identity));
        }
        match (&self.successor, doubt) {
            // An older version says no more of a transfer.
            (Some(successor), None) => Some(format!(
                "none: {} is draining, for a transfer to {}",
                holder.identity, successor.identity
            )),
            (Some(successor), Some(doubt)) if holder.leaving.as_deref() == Some("draining") => {
                Some(format!("{doubt}, for a transfer to {}", successor.identity))
            }
            (_, doubt) => doubt,
        }
    }

    /// Returns whether the holder is named though its renewals cannot be seen here.
    #[must_use]
    pub fn is_unseen(&self) -> bool {
        let holder = self.holder.as_ref().filter(|it| it.is_leader() && self.role == Role::Passive);
        holder.is_some_and(|it| it.renewals_shown_by.as_deref() == Some("nothing"))
    }

    /// Returns that no leader is known: for how long, who was last, and why that ended.
    fn no_leader(&self) -> String {
        let mut text = "no leader known".to_owned();
        if let Some(left) = self.leaderless_ms {
            text += &format!(" for {}", ms(left));
        }
        if let Some(last) = &self.last_holder {
            text += &format!(" (last: {}, term {}, until ", last.identity, last.term);
            text += &words::utc(&last.until);
            text += &last.why().map_or(")".to_owned(), |why| format!(": {why})"));
        }
        match (&*self.state, self.lease_held) {
            ("activating", _) => text += "; this instance holds the lease and does not lead yet",
            (_, true) if self.held_without_end => {
                text += &format!("; {}", words::HELD_WITHOUT_END);
            }
            (_, true) => text += "; the lease is held by a candidate that does not lead yet",
            (_, false) => {}
        }
        text
    }
}

fn ms(ms: u64) -> String {
    spoken(Duration::from_millis(ms))
}

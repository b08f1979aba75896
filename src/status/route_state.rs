//! The last known state of the route: whether the cluster sends requests to this instance, and
//! whether that agrees with its role. It is as old as the last response of the API server; the
//! agreement is judged at each request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::{Role, whole_ms};
use crate::clock::Moment;

/// The last known state of the route, shared between clones; empty if there is no route.
#[derive(Clone, Debug, Default)]
pub struct RouteBoard(Option<Arc<Mutex<Entry>>>);

#[derive(Debug)]
struct Entry {
    kind: &'static str,
    /// The role it reports for this instance; `None` before the first response, and after a write
    /// whose result is unknown.
    says: Option<Role>,
    /// Another pod that it reports active although this instance leads.
    other: Option<String>,
    last_error: Option<String>,
    /// Whether it agreed when last judged, and since when.
    agreed: Option<bool>,
    since: Moment,
}

/// Whether role and route agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Whether they agree.
    pub agrees: bool,
    /// For how long they have agreed, or have not.
    pub since: Duration,
}

/// The route in the status document.
#[derive(Clone, Debug, Serialize)]
pub struct RouteDocument {
    /// `label` or `endpointslice`.
    pub kind: &'static str,
    /// The role it reports for this instance; `null` if unknown.
    pub says: Option<Role>,
    /// Another pod that it reports active although this instance leads.
    pub other: Option<String>,
    /// Whether that agrees with the role of this instance.
    pub agrees: bool,
    /// For how long it has agreed, or has not.
    pub since_ms: u64,
    /// The last error, until the next success.
    pub last_error: Option<String>,
}

impl RouteBoard {
    /// Creates a board for a route without any response yet.
    #[must_use]
    pub fn new(kind: &'static str, now: Moment) -> Self {
        let entry =
            Entry { kind, says: None, other: None, last_error: None, agreed: None, since: now };
        Self(Some(Arc::new(Mutex::new(entry))))
    }

    /// Returns whether there is a route.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Records the role that the route reports for this instance, and another pod that it wrongly
    /// reports active.
    pub fn write(&self, says: Option<Role>, other: Option<String>) {
        if let Some(mut entry) = self.lock() {
            (entry.says, entry.other) = (says, other);
        }
    }

    /// Records the last error; `None` after a success.
    pub fn trouble(&self, error: Option<String>) {
        if let Some(mut entry) = self.lock() {
            entry.last_error = error;
        }
    }

    /// Judges whether the route agrees with the role at `now`; `None` if there is no route.
    #[must_use]
    pub fn judge(&self, role: Role, now: Moment) -> Option<Agreement> {
        Some(judged(&mut *self.lock()?, role, now))
    }

    /// Returns the route's part of the status document at `now`; `None` if there is no route.
    #[must_use]
    pub fn document(&self, role: Role, now: Moment) -> Option<RouteDocument> {
        let mut entry = self.lock()?;
        let Agreement { agrees, since } = judged(&mut entry, role, now);
        let Entry { kind, says, other, last_error, .. } = &*entry;
        Some(RouteDocument {
            kind,
            says: *says,
            other: other.clone(),
            agrees,
            since_ms: whole_ms(since),
            last_error: last_error.clone(),
        })
    }

    fn lock(&self) -> Option<MutexGuard<'_, Entry>> {
        Some(self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn judged(entry: &mut Entry, role: Role, now: Moment) -> Agreement {
    let agrees = entry.says == Some(role) && entry.other.is_none();
    if entry.agreed != Some(agrees) {
        // Before the first response nothing could agree; that time counts from the start.
        if entry.agreed.is_some() || agrees {
            entry.since = now;
        }
        entry.agreed = Some(agrees);
    }
    Agreement { agrees, since: entry.since.elapsed_max(now) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        let reading = Duration::from_secs(seconds);
        Moment { boot: reading, raw: reading, wall: reading }
    }

    #[test]
    fn it_agrees_when_it_says_our_role_and_of_nobody_else_active() {
        let board = RouteBoard::new("label", at(0));
        let judge = |role, now| {
            let it = board.judge(role, at(now)).unwrap();
            (it.agrees, it.since.as_secs())
        };
        assert_eq!(judge(Role::Passive, 3), (false, 3), "nothing is known yet");
        board.write(Some(Role::Passive), None);
        assert_eq!(judge(Role::Passive, 4), (true, 0));
        assert_eq!(judge(Role::Passive, 9), (true, 5));
        // A change of the role changes the agreement too, without a write.
        assert_eq!(judge(Role::Active, 10), (false, 0));
        assert_eq!(judge(Role::Active, 16), (false, 6));
        board.write(Some(Role::Active), Some("b".to_owned()));
        assert_eq!(judge(Role::Active, 17), (false, 7));
        board.write(Some(Role::Active), None);
        assert_eq!(judge(Role::Active, 18), (true, 0));
        board.trouble(Some("forbidden".to_owned()));
        let document = board.document(Role::Active, at(20)).unwrap();
        let json = serde_json::to_string(&document).unwrap();
        assert_eq!(
            json,
            r#"{"kind":"label","says":"active","other":null,"agrees":true,"since_ms":2000,"last_error":"forbidden"}"#
        );
    }

    #[test]
    fn without_a_route_there_is_nothing_to_say() {
        let board = RouteBoard::default();
        board.write(Some(Role::Active), None);
        assert!(!board.is_there());
        assert!(board.document(Role::Active, at(1)).is_none());
    }
}

//! The last known state of the route: whether the cluster sends requests to this instance, and
//! whether that agrees with its role. It is as old as the last response of the API server.

use std::time::Duration;

use super::Role;
use crate::clock::Moment;

/// The route of this instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteState {
    /// `label` or `endpointslice`.
    pub kind: &'static str,
    /// What is known of it.
    pub report: RouteReport,
    /// Whether it agreed with the role at the last publication.
    agrees: bool,
    /// Since when it has agreed, or has not.
    since: Moment,
}

/// What is known of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteReport {
    /// The role that it reports for this instance; `None` before the first response, and after a
    /// write whose result is unknown.
    pub says: Option<Role>,
    /// Another pod that it reports active although this instance leads.
    pub other: Option<String>,
    /// The last error, until the next success.
    pub last_error: Option<String>,
}

/// Whether role and route agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Whether they agree.
    pub agrees: bool,
    /// For how long they have agreed, or have not.
    pub since: Duration,
}

impl RouteState {
    /// Returns a route without any response yet. It agrees with no role, which counts from `now`.
    #[must_use]
    pub fn new(kind: &'static str, now: Moment) -> Self {
        Self { kind, report: RouteReport::default(), agrees: false, since: now }
    }

    /// Records a report; returns whether anything in it is new. To be followed by
    /// [`judge`](Self::judge).
    pub fn record(&mut self, report: RouteReport) -> bool {
        let is_new = self.report != report;
        self.report = report;
        is_new
    }

    /// Judges the route with each publication, so that the time of a change is known.
    pub fn judge(&mut self, role: Role, now: Moment) {
        let agrees = self.agrees_with(role);
        if agrees != self.agrees {
            (self.agrees, self.since) = (agrees, now);
        }
    }

    /// Returns whether the route agrees with the role at `now`, where the last belief expired
    /// `expired_for` ago: an expiry is not published, and may be what has changed the agreement.
    #[must_use]
    pub fn agreement(&self, role: Role, expired_for: Duration, now: Moment) -> Agreement {
        let agrees = self.agrees_with(role);
        let since = if agrees == self.agrees { self.since.elapsed_max(now) } else { expired_for };
        Agreement { agrees, since }
    }

    fn agrees_with(&self, role: Role) -> bool {
        self.report.says == Some(role) && self.report.other.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        let reading = Duration::from_secs(seconds);
        Moment { boot: reading, raw: reading, wall: reading }
    }

    fn report(says: Role, other: Option<&str>) -> RouteReport {
        RouteReport { says: Some(says), other: other.map(str::to_owned), last_error: None }
    }

    #[test]
    fn a_route_agrees_if_it_reports_the_role_and_no_other_pod_active() {
        let mut route = RouteState::new("label", at(0));
        let agreement = |route: &RouteState, role, expired_for, now| {
            let it = route.agreement(role, Duration::from_secs(expired_for), at(now));
            (it.agrees, it.since.as_secs())
        };
        assert_eq!(agreement(&route, Role::Passive, 0, 3), (false, 3), "nothing is known yet");
        assert!(route.record(report(Role::Passive, None)));
        route.judge(Role::Passive, at(4));
        assert_eq!(agreement(&route, Role::Passive, 0, 9), (true, 5));
        assert!(!route.record(report(Role::Passive, None)), "the same again");
        // A published change of the role.
        route.judge(Role::Active, at(10));
        assert_eq!(agreement(&route, Role::Active, 0, 16), (false, 6));
        route.record(report(Role::Active, Some("b")));
        route.judge(Role::Active, at(17));
        assert_eq!(agreement(&route, Role::Active, 0, 17), (false, 7));
        route.record(report(Role::Active, None));
        route.judge(Role::Active, at(18));
        assert_eq!(agreement(&route, Role::Active, 0, 20), (true, 2));
        // A belief that expired two seconds ago, without a publication.
        assert_eq!(agreement(&route, Role::Passive, 2, 30), (false, 2));
    }
}

//! The last known state of the route: whether the cluster sends requests to this instance, and
//! whether that agrees with its role. It is as old as the last response of the API server, and a
//! route that cannot be verified agrees with no role.

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
    /// Another pod that it reports active although this instance leads, or an endpoint behind the
    /// Service that is not the leader's.
    pub other: Option<String>,
    /// The last error, until the next success.
    pub last_error: Option<String>,
    /// The last complete verification that succeeded.
    pub verified: Option<Verified>,
}

/// A complete verification of the route that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// When it began.
    pub at: Moment,
    /// How long it counts.
    pub valid_for: Duration,
}

impl Verified {
    /// Returns for how long it has not counted any more; zero while it counts.
    fn overdue(self, now: Moment) -> Duration {
        self.at.elapsed_max(now).saturating_sub(self.valid_for)
    }
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

    /// Records a report; returns whether anything in it is new. A verification alone is not, unless
    /// the last one counted no more. To be followed by [`judge`](Self::judge).
    pub fn record(&mut self, report: RouteReport) -> bool {
        let counts_again = report.verified.is_some_and(|new| {
            self.report.verified.is_none_or(|old| !old.overdue(new.at).is_zero())
        });
        self.report.verified = report.verified;
        let is_new = counts_again || self.report != report;
        self.report = report;
        is_new
    }

    /// Judges the route with each publication, so that the time of a change is known.
    pub fn judge(&mut self, role: Role, now: Moment) {
        let agrees = self.agrees_with(role, now);
        if agrees != self.agrees {
            (self.agrees, self.since) = (agrees, now);
        }
    }

    /// Returns whether the route agrees with the role at `now`, where the last belief expired
    /// `expired_for` ago: an expiry is not published, nor is a verification that has become too old,
    /// and either may be what has changed the agreement.
    #[must_use]
    pub fn agreement(&self, role: Role, expired_for: Duration, now: Moment) -> Agreement {
        let agrees = self.agrees_with(role, now);
        let overdue = self.report.verified.map_or(Duration::ZERO, |it| it.overdue(now));
        let since = if agrees == self.agrees {
            self.since.elapsed_max(now)
        } else if self.reports(role) {
            overdue
        } else {
            expired_for
        };
        Agreement { agrees, since }
    }

    /// Returns whether the route is verified to report this role, and no other endpoint.
    fn agrees_with(&self, role: Role, now: Moment) -> bool {
        let is_recent = self.report.verified.is_some_and(|it| it.overdue(now).is_zero());
        self.reports(role) && self.report.last_error.is_none() && is_recent
    }

    fn reports(&self, role: Role) -> bool {
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
        let verified = Some(Verified { at: at(0), valid_for: Duration::from_secs(60) });
        RouteReport {
            says: Some(says),
            other: other.map(str::to_owned),
            verified,
            last_error: None,
        }
    }

    #[test]
    fn a_route_that_cannot_be_verified_agrees_with_no_role() {
        let mut route = RouteState::new("label", at(0));
        let agreement = |route: &RouteState, now| {
            let it = route.agreement(Role::Passive, Duration::ZERO, at(now));
            (it.agrees, it.since.as_secs())
        };
        route.record(RouteReport { verified: None, ..report(Role::Passive, None) });
        route.judge(Role::Passive, at(1));
        assert_eq!(agreement(&route, 2), (false, 2), "never verified");
        assert!(route.record(report(Role::Passive, None)), "the first verification");
        route.judge(Role::Passive, at(3));
        let verified = Some(Verified { at: at(2), valid_for: Duration::from_secs(58) });
        assert!(!route.record(RouteReport { verified, ..report(Role::Passive, None) }), "no news");
        assert_eq!(agreement(&route, 60), (true, 57));
        assert_eq!(agreement(&route, 63), (false, 3), "the verification is too old");
        let verified = Some(Verified { at: at(62), valid_for: Duration::from_secs(60) });
        let again = RouteReport { verified, ..report(Role::Passive, None) };
        assert!(route.record(again.clone()), "it counts again");
        assert_eq!(agreement(&route, 63), (true, 60));
        route.record(RouteReport { last_error: Some("timeout".to_owned()), ..again });
        route.judge(Role::Passive, at(64));
        assert_eq!(agreement(&route, 66), (false, 2), "the last verification failed");
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

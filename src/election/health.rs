//! The health of the service, from the consecutive results of its probes. The caller drops the
//! results of probes that began in another term.

/// When a service counts as healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthRule {
    /// The number of probes; all must be healthy.
    pub probes: usize,
    /// The number of consecutive failures of one probe that make the service unhealthy; at least 1.
    pub failures: u32,
    /// The number of consecutive successes of every probe that make the service healthy; at least
    /// 1.
    pub successes: u32,
}

/// The results of the probes, and whether the service counts as healthy.
#[derive(Clone, Debug)]
pub(super) struct Health {
    rule: Option<HealthRule>,
    streaks: Vec<Streak>,
    healthy: bool,
}

/// The latest consecutive results of one probe: one of the two is 0.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    successes: u32,
    failures: u32,
}

impl Health {
    /// Creates the initial health: healthy without probes, unhealthy with any until they have
    /// succeeded.
    pub(super) fn new(rule: Option<HealthRule>) -> Self {
        let streaks = rule.map(|rule| vec![Streak::default(); rule.probes]).unwrap_or_default();
        Self { rule, streaks, healthy: rule.is_none() }
    }

    /// Returns whether the service is healthy enough to lead.
    pub(super) fn is_healthy(&self) -> bool {
        self.healthy
    }

    /// Resets the failures when a term begins, so that earlier ones do not count against it.
    pub(super) fn forget_failures(&mut self) {
        for streak in &mut self.streaks {
            streak.failures = 0;
        }
    }

    /// Records the result of one probe, and returns whether the health changed.
    pub(super) fn update(&mut self, probe: usize, healthy: bool) -> bool {
        let (Some(rule), Some(streak)) = (self.rule, self.streaks.get_mut(probe)) else {
            return false;
        };
        *streak = if healthy {
            Streak { successes: streak.successes.saturating_add(1), failures: 0 }
        } else {
            Streak { successes: 0, failures: streak.failures.saturating_add(1) }
        };
        let before = self.healthy;
        if self.healthy {
            self.healthy = self.streaks.iter().all(|it| it.failures < rule.failures);
        } else {
            self.healthy = self.streaks.iter().all(|it| it.successes >= rule.successes);
        }
        before != self.healthy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(probes: usize) -> Health {
        Health::new(Some(HealthRule { probes, failures: 3, successes: 2 }))
    }

    #[test]
    fn a_service_is_unhealthy_until_every_probe_succeeded_often_enough() {
        let mut health = health(2);
        for (probe, changes) in [(0, false), (0, false), (1, false), (1, true)] {
            assert!(!health.is_healthy());
            assert_eq!(health.update(probe, true), changes);
        }
        assert!(health.is_healthy());
    }

    #[test]
    fn only_consecutive_failures_of_one_probe_make_it_unhealthy() {
        let mut health = health(2);
        for probe in [0, 0, 1, 1] {
            health.update(probe, true);
        }
        for (probe, healthy) in
            [(0, false), (0, false), (1, false), (0, true), (1, false), (0, false), (0, false)]
        {
            assert!(!health.update(probe, healthy));
        }
        assert!(health.update(1, false), "the third of this probe in a row");
        assert!(!health.is_healthy());
        for (probe, changes) in [(0, false), (1, false), (0, false), (1, true)] {
            assert_eq!(health.update(probe, true), changes);
        }
    }

    #[test]
    fn a_term_begins_without_the_failures_before_it() {
        let mut health = health(1);
        health.update(0, true);
        health.update(0, true);
        health.update(0, false);
        health.update(0, false);
        health.forget_failures();
        assert!(!health.update(0, false) && !health.update(0, false));
        assert!(health.is_healthy());
        assert!(health.update(0, false), "the third in the term");
    }

    #[test]
    fn a_service_without_probes_is_healthy() {
        let mut health = Health::new(None);
        assert!(health.is_healthy() && !health.update(0, false) && health.is_healthy());
    }
}

//! Whether the service beside us is well, by what its probes found in a row.
//!
//! What it does not do: it probes nothing. A result counts only for the term in which its probe was
//! begun, so that what a service answered before it led says nothing about how it leads.

/// When a service counts as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthRule {
    /// How many probes there are; all must be well.
    pub probes: usize,
    /// After so many failures in a row of one probe it is not well; at least 1.
    pub failures: u32,
    /// After so many successes in a row of every probe it is well; at least 1.
    pub successes: u32,
}

/// What the probes found, and what follows.
#[derive(Clone, Debug)]
pub(super) struct Health {
    rule: Option<HealthRule>,
    streaks: Vec<Streak>,
    well: bool,
}

/// What one probe found last, in a row: one of the two is 0.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    successes: u32,
    failures: u32,
}

impl Health {
    /// A service that nobody asks is well; one that is asked is not until it has answered.
    pub(super) fn new(rule: Option<HealthRule>) -> Self {
        let probes = rule.map_or(0, |rule| rule.probes);
        Self { rule, streaks: vec![Streak::default(); probes], well: rule.is_none() }
    }

    /// Whether the service is well enough to lead.
    pub(super) fn is_well(&self) -> bool {
        self.well
    }

    /// A term begins: failures from before it do not count against it.
    pub(super) fn forget_failures(&mut self) {
        for streak in &mut self.streaks {
            streak.failures = 0;
        }
    }

    /// Takes in what one probe found, and says whether that changed anything.
    pub(super) fn take(&mut self, probe: usize, well: bool) -> bool {
        let (Some(rule), Some(streak)) = (self.rule, self.streaks.get_mut(probe)) else {
            return false;
        };
        *streak = if well {
            Streak { successes: streak.successes.saturating_add(1), failures: 0 }
        } else {
            Streak { successes: 0, failures: streak.failures.saturating_add(1) }
        };
        let before = self.well;
        if self.well {
            self.well = self.streaks.iter().all(|it| it.failures < rule.failures);
        } else {
            self.well = self.streaks.iter().all(|it| it.successes >= rule.successes);
        }
        before != self.well
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(probes: usize) -> Health {
        Health::new(Some(HealthRule { probes, failures: 3, successes: 2 }))
    }

    #[test]
    fn a_service_is_ill_until_every_probe_succeeded_often_enough() {
        let mut health = health(2);
        for (probe, changes) in [(0, false), (0, false), (1, false), (1, true)] {
            assert!(!health.is_well());
            assert_eq!(health.take(probe, true), changes);
        }
        assert!(health.is_well());
    }

    #[test]
    fn only_failures_in_a_row_of_one_probe_make_it_ill() {
        let mut health = health(2);
        for probe in [0, 0, 1, 1] {
            health.take(probe, true);
        }
        for (probe, well) in [(0, false), (0, false), (1, false), (0, true), (1, false), (0, false)]
        {
            assert!(!health.take(probe, well));
        }
        assert!(health.take(1, false), "the third of this probe in a row");
        assert!(!health.is_well());
    }

    #[test]
    fn a_term_begins_without_the_failures_before_it() {
        let mut health = health(1);
        health.take(0, true);
        health.take(0, true);
        health.take(0, false);
        health.take(0, false);
        health.forget_failures();
        assert!(!health.take(0, false));
        assert!(health.is_well());
    }

    #[test]
    fn a_service_that_nobody_asks_is_well() {
        let mut health = Health::new(None);
        assert!(health.is_well() && !health.take(0, false) && health.is_well());
    }
}

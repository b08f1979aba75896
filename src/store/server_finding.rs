//! What the reports of `tenure doctor` on stores on servers share.

use time::OffsetDateTime;

use super::finding::{Findings, apart};
use crate::clock::Moment;

/// The clock of a server.
pub(super) struct ServerClock {
    /// Whose it is: `etcd`.
    pub(super) of: &'static str,
    /// What its dates are rounded down to.
    pub(super) unit: time::Duration,
    /// The difference, in seconds, from which on it is a warning.
    pub(super) skewed: i64,
    /// What to do about that.
    pub(super) remedy: &'static str,
}

impl Findings {
    /// Compares the date of a server, taken between request and answer, with this host's clock.
    pub(super) fn skew(
        &mut self,
        subject: &'static str,
        clock: &ServerClock,
        date: Option<OffsetDateTime>,
        (asked, answered): (Moment, Moment),
    ) {
        let Some(date) = date else { return };
        let apart = apart(date, clock.unit, asked, answered).whole_seconds();
        let detail = format!("the clocks of this host and of {} are {apart} s apart", clock.of);
        if apart >= clock.skewed {
            return self.warning(subject, detail, clock.remedy);
        }
        self.passed(subject, detail);
    }

    /// Reports the recorded term, and who holds the lease: `held by "web-1"`.
    pub(super) fn term(
        &mut self,
        subject: &'static str,
        place: &str,
        term: Option<u64>,
        holder: Option<&str>,
    ) {
        let who = holder.unwrap_or("not held");
        if let Some(term) = term {
            return self.passed(subject, format!("{place}: term {term}, {who}"));
        }
        let detail =
            format!("{place} has no term, {who}: the first leader waits for a lease-duration");
        // A first term may be written only while nobody leads, and this holder may lead.
        let remedy = match holder {
            None => "run `tenure doctor --create` to avoid that wait",
            Some(_) => "nothing, if an instance was just elected",
        };
        self.warning(subject, detail, remedy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Verdict;

    #[test]
    fn a_first_term_is_proposed_only_while_nobody_holds_the_lease() {
        for (holder, remedy) in [(None, "--create"), (Some("held by \"web-1\""), "nothing")] {
            let mut findings = Findings::new(&["record"]);
            findings.term("record", "orders", None, holder);
            let found = findings.finish().remove(0);
            assert!(found.remedy.is_some_and(|it| it.contains(remedy)), "{holder:?}");
            assert!(found.detail.contains(holder.unwrap_or("not held")), "{}", found.detail);
        }
    }

    #[test]
    fn a_clock_that_is_apart_is_a_warning_from_its_bound_on() {
        let clock =
            ServerClock { of: "etcd", unit: time::Duration::SECOND, skewed: 31, remedy: "set it" };
        let now = crate::clock::now();
        for (seconds, verdict) in
            [(0, Verdict::Passed), (30, Verdict::Passed), (31, Verdict::Warning)]
        {
            let mut findings = Findings::new(&["clock"]);
            let date = now.date() - time::Duration::seconds(seconds) - clock.unit;
            findings.skew("clock", &clock, Some(date), (now, now));
            let found = findings.finish().remove(0);
            assert_eq!(found.verdict, verdict);
            let words = format!("of this host and of etcd are {seconds} s apart");
            assert!(found.detail.contains(&words), "{}", found.detail);
        }
    }
}

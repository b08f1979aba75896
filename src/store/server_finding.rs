//! What the reports of `tenure doctor` on stores on servers share.

use time::OffsetDateTime;

use super::finding::{Findings, apart};
use super::register::RegisterError;
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
    /// Reports which of the servers of a store have answered, each with its name or with why not, in the
    /// order of the URL. `how` is how they are reached, such as `with TLS`, and `runs` the program that should
    /// run there. Returns whether one answered what it was asked.
    #[allow(dead_code, reason = "for stores whose URL names several servers")]
    pub(super) fn servers(
        &mut self,
        subject: &'static str,
        how: &str,
        runs: &str,
        outcomes: &[Result<String, RegisterError>],
    ) -> bool {
        if let Some(Err(error)) =
            outcomes.iter().find(|it| matches!(it, Err(RegisterError::Local(_))))
        {
            self.local(error.to_string());
            return false;
        }
        let names: Vec<_> = outcomes.iter().flatten().map(String::as_str).collect();
        let refused = outcomes.iter().any(|it| it.as_ref().is_err_and(RegisterError::is_answer));
        let silent: Vec<_> = outcomes.iter().filter_map(|it| it.as_ref().err()).collect();
        let silent: Vec<_> =
            silent.into_iter().filter(|it| !it.is_answer()).map(ToString::to_string).collect();
        let answered = match names.as_slice() {
            [] => format!("answered, {how}"),
            names => format!("answered, {how}: {}", names.join(", ")),
        };
        let remedy = format!("check --store, firewalls, and whether {runs} runs there");
        match (names.is_empty() && !refused, silent.is_empty()) {
            (true, _) => self.failed(subject, silent.join("; "), &remedy),
            (false, true) => self.passed(subject, answered),
            (false, false) => {
                self.warning(subject, format!("{answered}; but {}", silent.join("; ")), &remedy);
            }
        }
        !names.is_empty()
    }

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
    use crate::store::network::NetworkError;

    #[test]
    fn a_server_has_answered_only_where_one_did() {
        let ok = || Ok("a:1 (primary)".to_owned());
        let refused = || Err(RegisterError::Credential("no such user".to_owned()));
        let silent = || Err(NetworkError::Disconnected("cannot connect to b:1".to_owned()).into());
        let local = || Err(RegisterError::no_credential("failed to read /secret: not found"));
        for (outcomes, subject, verdict, words, goes_on) in [
            (
                vec![ok(), ok()],
                "servers",
                Verdict::Passed,
                "answered, with TLS: a:1 (primary), a:1",
                true,
            ),
            (
                vec![ok(), silent()],
                "servers",
                Verdict::Warning,
                "a:1 (primary); but cannot connect",
                true,
            ),
            (
                vec![silent(), silent()],
                "servers",
                Verdict::Failed,
                "cannot connect to b:1; cannot",
                false,
            ),
            (vec![refused()], "servers", Verdict::Passed, "answered, with TLS", false),
            (
                vec![silent(), refused()],
                "servers",
                Verdict::Warning,
                "TLS; but cannot connect",
                false,
            ),
            (vec![local(), local()], "this host", Verdict::Failed, "failed to read /secret", false),
            (
                vec![silent(), local()],
                "this host",
                Verdict::Failed,
                "failed to read /secret",
                false,
            ),
        ] {
            let mut findings = Findings::new(&["servers"]);
            assert_eq!(findings.servers("servers", "with TLS", "etcd", &outcomes), goes_on);
            let found = findings.finish();
            assert_eq!((&*found[0].subject, found[0].verdict), (subject, verdict), "{found:?}");
            assert!(found[0].detail.contains(words), "{found:?}");
            let remedy = found[0].remedy.as_deref().unwrap_or_default();
            assert_eq!(remedy.contains("firewalls"), words.contains("cannot connect"), "{found:?}");
            assert!(found[1..].iter().all(|it| it.verdict == Verdict::Skipped), "{found:?}");
        }
    }

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

//! The report of `tenure doctor` on a store or a route.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use time::OffsetDateTime;

use crate::clock::Moment;

/// One line of the report of `tenure doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The subject, in a word or two: `container`, `clock skew`.
    pub subject: Cow<'static, str>,
    /// The result.
    pub verdict: Verdict,
    /// The details, for people.
    pub detail: String,
    /// What to do about it, if anything.
    pub remedy: Option<String>,
}

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Passed,
    /// It works, but an operator should know about it.
    Warning,
    /// It does not work; `tenure doctor` exits with 1.
    Failed,
    /// Not checked, because of an earlier finding.
    Skipped,
}

/// How many requests are timed.
pub(super) const TIMED: usize = 5;

/// Returns the least distance of a date, which a server took between two moments and rounded down to
/// `unit`, from this host's clock.
pub(super) fn apart(
    date: OffsetDateTime,
    unit: time::Duration,
    asked: Moment,
    answered: Moment,
) -> time::Duration {
    let ahead = asked.date() - date.saturating_add(unit);
    let behind = date - answered.date();
    ahead.max(behind).max(time::Duration::ZERO)
}

/// Judges the slowest of [`TIMED`] requests, where a renewal takes one or two of them: half of
/// request-timeout is a warning. Returns the verdict, the details, and the remedy, which begins with
/// what to check.
pub(super) fn of_timings(
    slowest: Duration,
    renewal: u32,
    request_timeout: Duration,
    check: &str,
) -> (Verdict, String, Option<String>) {
    let takes = if renewal > 1 { "; a renewal takes two" } else { "" };
    let detail = format!(
        "the slowest of {TIMED} requests took {} ms{takes}, and request-timeout is {} ms",
        slowest.as_millis(),
        request_timeout.as_millis()
    );
    let took = slowest * renewal;
    let verdict = match took {
        _ if took >= request_timeout => Verdict::Failed,
        _ if took * 2 >= request_timeout => Verdict::Warning,
        _ => Verdict::Passed,
    };
    let remedy = || {
        format!(
            "{check}, or raise --request-timeout and with it --renew-deadline and --lease-duration"
        )
    };
    (verdict, detail, (verdict != Verdict::Passed).then(remedy))
}

/// The subject of what is wrong with this host's own files and settings, before any of a store's.
#[allow(dead_code, reason = "of stores that a build may lack")]
const LOCAL: &str = "this host";

/// The findings of a store so far.
pub(super) struct Findings {
    /// All subjects, in order; those not reached are reported as skipped.
    subjects: &'static [&'static str],
    found: Vec<Finding>,
}

impl Findings {
    /// Begins a report on these subjects, in this order.
    pub(super) fn new(subjects: &'static [&'static str]) -> Self {
        Self { subjects, found: Vec::new() }
    }

    fn add(
        &mut self,
        subject: &'static str,
        verdict: Verdict,
        detail: impl Into<String>,
        remedy: Option<&str>,
    ) {
        let remedy = remedy.map(str::to_owned);
        self.found.push(Finding {
            subject: subject.into(),
            verdict,
            detail: detail.into(),
            remedy,
        });
    }

    /// Adds a finding that is as it should be.
    pub(super) fn passed(&mut self, subject: &'static str, detail: impl Into<String>) {
        self.add(subject, Verdict::Passed, detail, None);
    }

    /// Adds a finding that does not work.
    pub(super) fn failed(
        &mut self,
        subject: &'static str,
        detail: impl Into<String>,
        remedy: &str,
    ) {
        self.add(subject, Verdict::Failed, detail, Some(remedy));
    }

    /// Adds that a file or a setting of this host is wrong, so that no request was sent.
    #[allow(dead_code, reason = "of stores that a build may lack")]
    pub(super) fn local(&mut self, why: impl Into<String>) {
        if !self.found.iter().any(|it| it.subject == LOCAL) {
            self.failed(LOCAL, why, "correct the file or the setting: no request was sent");
        }
    }

    /// Adds a finding that works, but may fail later.
    pub(super) fn warning(
        &mut self,
        subject: &'static str,
        detail: impl Into<String>,
        remedy: &str,
    ) {
        self.add(subject, Verdict::Warning, detail, Some(remedy));
    }

    /// Adds what [`of_timings`] has found.
    pub(super) fn timings(
        &mut self,
        subject: &'static str,
        (verdict, detail, remedy): (Verdict, String, Option<String>),
    ) {
        self.add(subject, verdict, detail, remedy.as_deref());
    }

    /// Adds a check that could not be made, since a request for it failed.
    #[allow(dead_code, reason = "of stores that a build may lack")]
    pub(super) fn skipped(&mut self, subject: &'static str, why: impl fmt::Display) {
        self.add(
            subject,
            Verdict::Skipped,
            format!("not tried, since a request failed: {why}"),
            None,
        );
    }

    /// Returns whether there is a finding on a subject.
    #[allow(dead_code, reason = "of stores that a build may lack")]
    pub(super) fn has(&self, subject: &str) -> bool {
        self.found.iter().any(|it| it.subject == subject)
    }

    /// Sorts the findings, and adds those that were skipped.
    pub(super) fn finish(self) -> Vec<Finding> {
        let mut findings = self.found;
        for subject in self.subjects {
            if !findings.iter().any(|it| it.subject == *subject) {
                findings.push(Finding {
                    subject: (*subject).into(),
                    verdict: Verdict::Skipped,
                    detail: "not tried, because of an earlier error".to_owned(),
                    remedy: None,
                });
            }
        }
        findings.sort_by_key(|it| self.subjects.iter().position(|subject| it.subject == *subject));
        findings
    }
}

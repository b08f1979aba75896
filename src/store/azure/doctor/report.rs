//! The findings of an examination, in order.
//!
//! What this module does not do: it looks at nothing itself.

use crate::store::{Finding, Verdict};

/// All that is looked at, in order; what could not be is said to have been skipped.
const SUBJECTS: [&str; 10] =
    [NAMES, CONNECTION, SIGN_IN, CONTAINER, BLOB, TIER, LEASE, METADATA, SKEW, TIMINGS];
pub(super) const NAMES: &str = "name resolution";
pub(super) const CONNECTION: &str = "connection";
pub(super) const SIGN_IN: &str = "sign-in";
pub(super) const CONTAINER: &str = "container";
pub(super) const BLOB: &str = "lock blob";
pub(super) const TIER: &str = "blob tier";
pub(super) const LEASE: &str = "permission to lease";
pub(super) const METADATA: &str = "permission to write metadata";
pub(super) const SKEW: &str = "clock skew";
pub(super) const TIMINGS: &str = "timings";

/// The findings so far.
#[derive(Default)]
pub(super) struct Report(Vec<Finding>);

impl Report {
    fn say(
        &mut self,
        subject: &'static str,
        verdict: Verdict,
        detail: impl Into<String>,
        remedy: Option<&str>,
    ) {
        let remedy = remedy.map(str::to_owned);
        self.0.push(Finding { subject: subject.into(), verdict, detail: detail.into(), remedy });
    }

    /// Notes that something is as it should be.
    pub(super) fn well(&mut self, subject: &'static str, detail: impl Into<String>) {
        self.say(subject, Verdict::Well, detail, None);
    }

    /// Notes that something does not work.
    pub(super) fn wrong(&mut self, subject: &'static str, detail: impl Into<String>, remedy: &str) {
        self.say(subject, Verdict::Wrong, detail, Some(remedy));
    }

    /// Notes that something works, and may not for ever.
    pub(super) fn doubtful(
        &mut self,
        subject: &'static str,
        detail: impl Into<String>,
        remedy: &str,
    ) {
        self.say(subject, Verdict::Doubtful, detail, Some(remedy));
    }

    /// Puts the findings in order, and says what was not looked at.
    pub(super) fn finish(self) -> Vec<Finding> {
        let mut findings = self.0;
        for subject in SUBJECTS {
            if !findings.iter().any(|it| it.subject == subject) {
                findings.push(Finding {
                    subject: subject.into(),
                    verdict: Verdict::Skipped,
                    detail: "not looked at, because of what is wrong above".to_owned(),
                    remedy: None,
                });
            }
        }
        findings.sort_by_key(|it| SUBJECTS.iter().position(|subject| it.subject == *subject));
        findings
    }
}

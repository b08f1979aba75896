//! The findings of the checks, in order.

use crate::store::{Finding, Verdict};

/// All subjects, in order; those not reached are reported as skipped.
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
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    fn add(
        &mut self,
        subject: &'static str,
        verdict: Verdict,
        detail: impl Into<String>,
        remedy: Option<&str>,
    ) {
        let remedy = remedy.map(str::to_owned);
        self.0.push(Finding { subject: subject.into(), verdict, detail: detail.into(), remedy });
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

    /// Adds a finding that works, but may fail later.
    pub(super) fn warning(
        &mut self,
        subject: &'static str,
        detail: impl Into<String>,
        remedy: &str,
    ) {
        self.add(subject, Verdict::Warning, detail, Some(remedy));
    }

    /// Sorts the findings, and adds those that were skipped.
    pub(super) fn finish(self) -> Vec<Finding> {
        let mut findings = self.0;
        for subject in SUBJECTS {
            if !findings.iter().any(|it| it.subject == subject) {
                findings.push(Finding {
                    subject: subject.into(),
                    verdict: Verdict::Skipped,
                    detail: "skipped because of an earlier error".to_owned(),
                    remedy: None,
                });
            }
        }
        findings.sort_by_key(|it| SUBJECTS.iter().position(|subject| it.subject == *subject));
        findings
    }
}

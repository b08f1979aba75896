//! The report of `tenure doctor` on a store or a route.

use std::borrow::Cow;

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

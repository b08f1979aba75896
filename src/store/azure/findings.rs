//! The subjects of the checks.

/// All subjects, in order.
pub(super) const SUBJECTS: [&str; 10] =
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

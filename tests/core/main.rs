//! The architecture: which module may depend on which.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod architecture;

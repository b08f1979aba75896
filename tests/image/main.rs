//! The container image.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod contents;
mod pod;
mod run;

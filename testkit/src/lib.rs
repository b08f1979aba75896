//! Support for the tests: starts, observes and disturbs real processes and servers.
//!
//! Only [`stores::conformance`] and [`kubernetes::lease_format`], which several test binaries
//! share, assert properties of Tenure.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(async_fn_in_trait, reason = "the tests await what they call")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

pub mod azure;
pub mod faults;
pub mod generated;
pub mod http;
pub mod kubernetes;
pub mod paths;
pub mod ports;
pub mod processes;
pub mod recorder;
pub mod soak_report;
pub mod stores;
pub mod tasks;
pub mod tools;

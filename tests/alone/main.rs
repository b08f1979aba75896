//! Tests that need the machine or a process to themselves; they run one after another.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod azure_identity;
mod candidate_leaving;
mod descriptors;
mod file_directory;
mod file_processes;
mod file_store;
mod no_ipv6;

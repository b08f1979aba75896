//! Tests with a real Kubernetes control plane.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod clientgo;
mod deployments;
mod lease;
mod lease_format;
mod plugin;
mod races;
mod rollout;
mod route;
mod stand_in;
mod store;

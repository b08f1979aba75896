//! The driver, health probes and the Rust API, on a paused clock and in real processes.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod candidate;
mod haproxy;
mod health;
mod health_gate;
mod hostile;
mod maintenance;
mod paused_clock;
mod processes;
mod secrets;

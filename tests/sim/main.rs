//! The simulator on fixed seeds and a fresh one, the simulated stores, and the model checker.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod campaigns;
mod clocks;
mod kernel;
mod model;
mod peers;
mod settings;
mod store;

//! Supervised commands, their watchdog, terminals and locks; hooks.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod commands;
mod hooks;
mod hooks_run;
mod lock;
mod privacy;
mod terminal;
mod watchdog;

//! The verbs, their settings and output; systemd notification.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod check;
mod holder;
mod install;
mod kubectl;
mod migrate;
mod peers;
mod settings;
mod status;
mod systemd;
mod terminal;
mod tls;
mod verbs;
mod wait;

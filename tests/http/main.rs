//! The listener, the status API, agent checks, the page, metrics, the status file and the admin API.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod admin;
mod agent_check;
mod api;
mod bounds;
mod candidates;
mod metrics;
mod page;
mod page_browser;
mod page_processes;
mod peers;
mod sockets;
mod status_file;
mod tls;
mod watch;

//! The commands and tables of the docs, the monitoring files and the units.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod benches;
mod contributing;
mod dashboard;
mod deploy_systemd;
mod evidence;
mod examples;
mod exec;
mod generated;
mod haproxy;
mod kubernetes;
mod links;
mod monitoring;
mod pages;
mod runbook;

//! The faults of `docs/verification.md` in real processes.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod consul;
mod cut;
mod disk;
mod dns_tls;
mod etcd;
mod gcs;
mod listener;
mod log;
mod mongodb;
mod network;
mod on_server;
mod peers;
mod poison;
mod postgres;
mod processes;
mod record;
mod redis;
mod s3;
mod soak;
mod store;
mod zookeeper;

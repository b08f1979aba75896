//! The conformance suite on every backend, and each backend under faults.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod azure;
mod azure_doctor;
mod azure_faults;
mod azure_operator;
mod azure_secrets;
mod breaking;
mod conformance;
mod consul;
mod etcd;
mod fault_proxy;
mod file_watch;
mod flood;
mod gcs;
mod kube_client;
mod kube_client_watch;
mod kubernetes_connections;
mod kubernetes_faults;
mod kubernetes_leader;
mod kubernetes_watch;
mod migrate;
mod mongodb;
mod postgres;
mod postgres_doctor;
mod postgres_fence;
mod race_checker;
mod races;
mod redis;
mod redis_doctor;
mod s3;
mod transfer;
mod zookeeper;

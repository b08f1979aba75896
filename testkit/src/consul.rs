//! A real Consul: one server or three, with or without TLS and access control, and a lock in it.

pub mod lock;
pub mod server;

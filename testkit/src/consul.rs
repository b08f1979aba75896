//! A real Consul: one server or three, with or without TLS and access control.

pub mod server;

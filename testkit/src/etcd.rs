//! A real etcd: one member or three, with or without TLS and users.

pub mod server;

//! A real ZooKeeper: one server or three, with or without TLS and users, and a lock in it.

pub mod lock;
pub mod server;
mod shell;

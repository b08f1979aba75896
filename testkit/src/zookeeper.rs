//! A real ZooKeeper: one server or three, with or without TLS and users, and a proxy for its messages.

pub mod proxy;
pub mod server;
mod shell;

//! Redis: the real server, and the lock of the conformance suite in it.

pub mod server;

//! Clients and servers of the status listener.

pub mod mounted;
pub mod raw;
pub mod server;
pub mod status;
pub mod wire;

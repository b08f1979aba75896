//! HTTP: the status listener, its clients, and servers of the tests' own.

pub mod front;
pub mod mounted;
pub mod raw;
pub mod server;
pub mod status;
pub mod turns;
pub mod wire;

//! Shared plumbing of HTTP: listeners with their limits, the client and the resolver.

pub(crate) mod client;
pub mod listener;
pub(crate) mod reconnecting;
pub(crate) mod resolver;

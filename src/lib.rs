//! Leader election beside a service.
pub mod cli;
pub mod clock;
pub mod config;
pub mod election;
pub mod store;

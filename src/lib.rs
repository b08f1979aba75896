//! Leader election beside a service.
pub mod clock;
pub mod config;
pub mod election;
pub mod store;

//! The conformance suite for stores, and the harnesses of the backends.

pub mod bids;
pub mod certificates;
pub mod conformance;
pub mod file_place;
pub mod observed;
pub mod register_lock;
pub mod servers;
pub mod simulated_lock;
pub mod watched;

//! The conformance suite, and what a backend needs to be held to it.

pub mod bids;
pub mod conformance;
pub mod file_child;
pub mod file_place;
pub mod simulated_lock;
pub mod two_node;

//! Real `tenure` processes, and the services next to them.

pub mod candidate_process;
pub mod cluster;
pub mod command;
pub mod exec_process;
pub mod process;
pub mod running;
pub mod scene;
pub mod service;
pub mod sidecar;

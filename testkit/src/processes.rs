//! Real `tenure` processes, and the services next to them.

pub mod cluster;
pub mod exec_process;
pub mod file_child;
pub mod process;
pub mod service;
pub mod sidecar;
pub mod tool;

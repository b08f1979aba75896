//! Child processes, and the signals and limits of this one.

pub(crate) mod command;
pub(crate) mod descriptors;
mod output;
pub mod signals;

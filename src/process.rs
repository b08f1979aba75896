//! Child processes, and the signals and limits of this one.

pub(crate) mod captured;
pub(crate) mod command;
pub(crate) mod descriptors;
mod output;
pub(crate) mod privacy;
pub mod signals;

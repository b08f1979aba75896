//! Child processes and the limits of this one.

pub(crate) mod command;
pub(crate) mod descriptors;
mod output;

//! The command line.
pub mod run;

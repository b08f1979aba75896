//! Runs a command only while we lead, and has it dead before anybody else can lead.
//!
//! Between Tenure and the command stands a keeper, a process of its own that learns each new end of
//! belief and ends the command by its own clock. So the command is dead in time even when Tenure
//! is killed, stopped, or hangs.
//!
//! What it does not do: it decides nothing about the lease. It reads the status as published, and
//! tells the driver when nothing is left of the command.

mod descendants;
pub mod handle;
mod keeper;
pub mod rule;
pub mod stage;
pub mod wire;

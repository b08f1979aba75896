//! Runs a command only while we lead, and has it dead before anybody else can lead.
//!
//! ```text
//! tenure ── keeper ── CMD, in a process group of its own
//!        orders ⇄ reports
//! ```
//!
//! Between Tenure and the command stands a keeper, a process of its own that learns each new end of
//! belief and ends the command by its own clock. So the command is dead in time even when Tenure
//! is killed, stopped, or hangs. There is one keeper for each term, and it ends with the last of the
//! command's processes; only then is the lease given back.
//!
//! What it does not do: it decides nothing about the lease. It reads the status as published, and
//! tells the driver when nothing is left of the command.

mod backoff;
mod course;
mod descendants;
pub mod handle;
mod init;
pub mod inside;
mod keeper;
mod launch;
pub mod rule;
mod running;
mod signals;
pub mod stage;
mod supervisor;
mod terminal;
pub mod wire;

pub use signals::Signals;
pub use supervisor::{Mode, Over, Supervisor};

//! Runs a command only while this instance leads, and ends it before another instance can lead.
//!
//! ```text
//! tenure ── reaper ── watchdog ── CMD, in a process group of its own
//!              orders ⇄ reports
//! ```
//!
//! Between Tenure and the command stands a watchdog process. It is sent the deadline of each
//! renewed belief and ends the command by its own clock, so that the command is dead in time even
//! if Tenure is killed, stopped, or hangs. Each term has its own watchdog, which ends after the
//! last of the command's processes; only then is the lease released. If the watchdog is killed, even
//! together with Tenure, its parent, the reaper, kills what is left of the command.
//!
//! This module makes no decision about the lease. It reads the published status, and reports to the
//! driver when no process of the command is left.

mod backoff;
mod child;
pub mod deadline;
mod descendants;
mod exit;
mod init;
pub mod kernel;
pub mod launch;
pub mod nesting;
pub mod reaper;
pub mod reexec;
mod supervisor;
mod terminal;
pub mod watchdog;
pub mod watchdog_client;
pub mod wire;

pub use supervisor::{Mode, Start, Supervisor, SupervisorExit};

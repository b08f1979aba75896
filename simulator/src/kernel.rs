//! `tenure exec` as it ships on a simulated kernel: the supervisor with the driver and its election, the
//! watchdog, the reaper and the launcher of each term, and processes of the command that exit, fork,
//! leave their group, ignore signals or are in a call that no signal interrupts.
//!
//! Nothing here is a model of Tenure's own code. The kernel (`table`, `link`) has processes with
//! parents, groups and sessions, ids that are used again at once, signals, zombies, subreapers, sockets,
//! clocks and a suspend. The `world` lets one process run at a time, in one order; what can happen
//! meanwhile are the [`Event`]s of a [`Script`], each at any call of any process or between two instants.
//! [`explore()`] plays all scripts of one event and of two.

mod calls;
mod check;
mod event;
mod explore;
mod inject;
mod lease;
mod link;
mod program;
mod signal;
mod table;
mod tenure;
mod world;

pub use event::{Event, Script};
pub use explore::{Extent, Found, explore};
pub use world::{Outcome, play};

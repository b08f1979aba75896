//! A deterministic simulation of the production election core under faults.
//!
//! A *campaign* is many *episodes*. The settings and the schedule of faults of an episode are drawn
//! from a seed ([`scenario`]). The [`world`] runs it in true time, with the real core in every
//! candidate; the [`checker`] checks the properties at every true instant. A schedule that violates
//! a property is shrunk to the shortest one that still does ([`shrink`]).
//!
//! There are no threads, no real clocks and no randomness other than the seed's: the same seed
//! gives the same history, bit for bit.

pub mod bounds;
pub mod campaign;
pub mod checker;
pub mod child;
pub mod client;
pub mod clock;
pub mod driver;
pub mod due;
pub mod engine;
pub mod examine;
pub mod faults;
mod free;
pub mod inject;
pub mod kernel;
pub mod machine;
pub mod model;
pub mod network;
pub mod operate;
pub mod pace;
pub mod peers;
pub mod post;
pub mod process;
pub mod question;
pub mod queue;
pub mod register;
pub mod renewals;
pub mod requests;
pub mod scenario;
pub mod service;
pub mod settings;
pub mod shell;
pub mod shrink;
pub mod store;
pub mod timeline;
pub mod values;
pub mod window;
pub mod world;

/// True time, in nanoseconds since the start of the episode.
pub type Instant = u64;

/// A duration in true time, in nanoseconds.
pub type Span = u64;

pub const SECOND: Span = 1_000_000_000;

pub const MILLI: Span = 1_000_000;

/// Converts a duration to nanoseconds.
pub fn span(duration: std::time::Duration) -> Span {
    duration.as_secs() * SECOND + u64::from(duration.subsec_nanos())
}

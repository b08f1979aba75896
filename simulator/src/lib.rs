//! The simulation: the election that ships, in a world where everything goes wrong by a seed.
//!
//! A *campaign* is many *episodes*. An episode is drawn from a seed: its settings and its schedule
//! of faults ([`scenario`]). The [`world`] plays it in true time, with the real core in every
//! candidate; the [`judge`] watches at every true instant. What a campaign finds is shrunk to the
//! shortest schedule that still shows it ([`shrink`]).
//!
//! What it does not do: no threads, no clock, no chance but the seed's. The same seed is the same
//! history, bit for bit.

pub mod campaign;
pub mod checker;
pub mod child;
pub mod client;
pub mod clock;
pub mod examine;
pub mod faults;
pub mod inject;
pub mod machine;
pub mod model;
pub mod network;
pub mod operate;
pub mod post;
pub mod process;
pub mod question;
pub mod queue;
pub mod scenario;
pub mod service;
pub mod shrink;
pub mod store;
pub mod timeline;
pub mod world;

/// True time: nanoseconds since the episode began.
pub type Instant = u64;

/// A length of true time in nanoseconds.
pub type Span = u64;

/// One second.
pub const SECOND: Span = 1_000_000_000;

/// One millisecond.
pub const MILLI: Span = 1_000_000;

/// A length of true time as nanoseconds.
pub fn span(duration: std::time::Duration) -> Span {
    duration.as_secs() * SECOND + u64::from(duration.subsec_nanos())
}

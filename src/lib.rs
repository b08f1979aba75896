//! Leader election: **Tenure** competes for a lease, renews it, and says whether it leads, judged
//! from a deadline at the moment it is asked. As a sidecar, for a service in any language, it is the
//! program `tenure`; inside a Rust service it is [`Candidate`].
//!
//! ```no_run
//! # async fn poll_orders(term: u64) {}
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::StartError> {
//! use tenure::Candidate;
//! use tenure::candidate::Ended;
//!
//! let candidate = Candidate::builder("orders", "azure://myaccount/elections").start()?;
//! loop {
//!     // Runs while we lead, and is dropped before another can.
//!     let ended = candidate.run_while_leader(|leadership| async move {
//!         loop {
//!             poll_orders(leadership.term()).await; // the term: a fencing token
//!         }
//!     });
//!     match ended.await {
//!         Err(Ended::Lost { .. }) => continue, // stand by, and lead again
//!         Err(_) => break,
//!         Ok(()) => unreachable!("the work never ends by itself"),
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! The public surface, kept by semantic versioning, is what this documentation shows: [`Candidate`],
//! [`StartError`], and the modules [`candidate`] and [`clock`]. Every other module is open to the
//! program `tenure` and to its tests alone: hidden here, and changed without notice. Settings,
//! answers and files of the program are a contract of their own. Both kinds of candidate compete
//! with each other. The guide is `docs/library.md` in the repository.
//!
//! # How it is built
//!
//! ```text
//!    SIGTERM, SIGINT ───────────┐        ┌──────── clock::now() ── Moment
//!                               v        v
//!  ┌────────────┐  answer  ┌───────────────────────────┐  event + now    ┌────────────────────┐
//!  │ store/*    │ ───────> │ daemon                    │ ──────────────> │ election (pure)    │
//!  │ LeaseStore │ <─────── │   select → handle → drain │ <────────────── │ Standby, Activating│
//!  └─────┬──────┘ acquire  └─────────────┬─────────────┘ command,        │ Leader, Draining,  │
//!        │        renew                  │               next deadline,  │ Resigned           │
//!   Blob, Lease   release                │               status          └────────────────────┘
//!                           watch<Published>  one writer; the status carries its own end
//!               ┌────────────┬───────────┴┬─────────────┐
//!             http         file        metrics       route                 readers
//! ```
//!
//! # Where things are
//! - [`election`] is the core: what a candidate believes and asks for. Pure.
//! - [`clock`] reads time, as a [`clock::Moment`] of three clocks.
//! - [`store`] is the trait that every lease store fulfils, with one file for each backend.
//! - [`daemon`] drives one election: it selects an event, hands it in, and drains what comes out.
//! - [`sidecar`] puts a whole one together from the settings, and runs it.
//! - [`publish`] says the status in outside words, by HTTP, files, metrics and to systemd.
//! - [`health`] asks what must be well for us to compete; [`hooks`] tell others of what became of us.
//! - [`admin`] takes what an operator wants, and hands it to the driver.
//! - [`listener`] binds and bounds what listens.
//! - [`kube`] speaks with the API server of Kubernetes; [`route`] has a Service follow the leader.
//! - [`config`] makes valid settings of arguments, environment and file.
//! - [`exec`] keeps a command running while we lead, and ends it in time.
//! - [`cli`] is the command line, with a file for each verb; [`logs`] writes what is told.
//!
//! # What is absent, and stays so
//! 1. The election does no I/O, reads no clock, draws no chance, logs nothing, never waits.
//! 2. A backend decides nothing: no retry, no sleep, no cache. One call under the deadline it is
//!    given; it says what came back.
//! 3. Only the driver calls the election; only the driver writes the status; publishers read.
//! 4. No publisher, client, log or disk can delay a renewal or a step-down. The driver awaits none
//!    of them, but for R8's bounded wait before a release.
//! 5. Leader and standby inside; active and passive only in [`publish`] and beyond.
//!
//! # The claim
//! At each real instant at most one instance answers active, provided that the store grants no
//! other lease before lease-duration of its own time has passed (where no store counts, that nobody
//! takes one before that much of their own time has), that
//! `drift × lease-duration + unseen pause ≤ lease-duration − renew-deadline`, and that nobody frees
//! the lease behind the holder's back. Beyond that only the term, checked by the resource, protects.
//!
//! # The rules
//! Comments and tests name them.
//!
//! - **R1** Belief is a deadline, not a flag: active iff `now < sent + renew-deadline`, judged when
//!   the question is asked. `sent` is when the granted request was sent, not when its answer came.
//! - **R2** Time is compared between two Moments, never in totals. The larger of the two clocks'
//!   advances ends a belief, the smaller ends a wait. Timers may schedule, never decide. Where no
//!   store counts the time of a lease, each observer waits for the whole of it from the receipt of
//!   the first answer that showed it so.
//! - **R3** One request is in flight, and its answer counts once. A step-down does not drop it: the
//!   release is sent when it has ended. A grant that comes after we resigned is released.
//! - **R4** An outcome is granted, refused or unknown; every error is unknown until proven
//!   definite. Unknown never makes a leader and never extends a deadline.
//! - **R5** A lease id is random per acquisition and dead as soon as we released or demoted. An
//!   unknown bid is repeated with its id, at most for one lease-duration; then it is released.
//! - **R6** When the deadline has passed the tenure is over; a late renewal does not revive it.
//! - **R7** Active only after the term is written under the lease and time is left. "The record is
//!   ours" means its nonce, not its name.
//! - **R8** Stepping down is: passive in memory at once; then, by will, the drain, renewing on, until
//!   the service has ended its work or its time is up; status files and route say passive too (a
//!   wait of at most one request-timeout) and no process of the term lives; then the release. A
//!   lease that lapsed is released only when its whole length is over by the slower clock, since
//!   clients count what they were told by clocks of their own, for whose drift the margin is. A
//!   resignation, pause or step-down after the lapse shortens nothing; a candidate that resigns leaves
//!   within two request-timeouts, and a lapsed lease that lasts longer runs out unreleased.
//! - **R9** The driver owns every retry: at once after a broken connection, then a quarter of the
//!   retry-period, doubling. Each answer must name our lease id.
//! - **R10** Belief ends also when the wall clock ran over 1 s ahead of the lease clocks (a pause
//!   that no guest clock saw), or a clock went back. Only a renewal sent after that restores it.
//! - **R11** On a record that is missing, or whose term went back, a new lease is held for the
//!   longest lease that the store allows before its term, of unix milliseconds, is written.
//! - **R12** Breaking a lease lets it run out, where nobody counts for its holder by having
//!   observers wait anew; at once is a choice of its own, with a warning.

#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod admin;
mod assembly;
pub mod candidate;
#[doc(hidden)]
pub mod cli;
pub mod clock;
pub(crate) mod command;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod daemon;
mod descriptors;
#[doc(hidden)]
pub mod election;
#[doc(hidden)]
pub mod exec;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod health;
#[doc(hidden)]
pub mod hooks;
pub(crate) mod http_client;
#[doc(hidden)]
pub mod kube;
#[doc(hidden)]
pub mod listener;
#[doc(hidden)]
pub mod logs;
#[doc(hidden)]
pub mod publish;
pub(crate) mod resolver;
#[doc(hidden)]
pub mod route;
#[doc(hidden)]
pub mod sidecar;
#[doc(hidden)]
pub mod store;

pub use candidate::{Candidate, StartError};

/// The guide's code, as doctests.
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
struct Guide;

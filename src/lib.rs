//! Leader election: **Tenure** competes for a lease, renews it and reports whether this instance
//! leads. The answer is computed from a deadline at the moment of the question. It runs as a
//! sidecar, the program `tenure`, for a service in any language, or inside a Rust service as
//! [`Candidate`].
//!
//! ```no_run
//! # async fn poll_orders(term: u64) {}
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::StartError> {
//! use tenure::Candidate;
//! use tenure::candidate::Ended;
//!
//! let candidate = Candidate::builder("orders", "azure://myaccount/elections").start()?;
//! loop {
//!     // Runs while this candidate leads; dropped before another can lead.
//!     let ended = candidate.run_while_leader(|leadership| async move {
//!         loop {
//!             poll_orders(leadership.term()).await; // the term is a fencing token
//!         }
//!     });
//!     match ended.await {
//!         Err(Ended::Lost { .. }) => continue, // wait for the next leadership
//!         Err(_) => break,
//!         Ok(()) => unreachable!("the work never ends by itself"),
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! The public API, covered by semantic versioning, is what this documentation shows: [`Candidate`],
//! [`StartError`], and the modules [`candidate`] and [`clock`]. Every other module exists for the
//! program `tenure` and its tests; it is hidden here and changes without notice. The settings, HTTP
//! documents and files of the program are a contract of their own. Sidecars and library candidates
//! compete with each other. The guide is `docs/library.md` in the repository.
//!
//! # Architecture
//!
//! ```text
//!    SIGTERM, SIGINT ───────────┐        ┌──────── clock::now() ── Moment
//!                               v        v
//!  ┌────────────┐  answer  ┌───────────────────────────┐  event + now    ┌────────────────────┐
//!  │ store/*    │ ───────> │ driver                    │ ──────────────> │ election (pure)    │
//!  │ LeaseStore │ <─────── │   select → handle → drain │ <────────────── │ Standby, Activating│
//!  └─────┬──────┘ request  └─────────────┬─────────────┘ request,        │ Leader, Draining,  │
//!        │                               │               next deadline,  │ Resigned           │
//!   Blob, Lease, file                    │               status          └────────────────────┘
//!                           watch<Published>  one writer; the status carries its own end
//!               ┌────────────┬───────────┴┬─────────────┐
//!             http         file        metrics       route                 readers
//! ```
//!
//! # Modules
//! - [`lease`] and [`clock`]: the ground: the values of a lease, and the time as a
//!   [`clock::Moment`] of three clocks.
//! - [`election`]: the core, pure: what a candidate believes and requests.
//! - [`store`]: the traits that every lease store implements, and one file for each backend.
//! - [`status`]: the published value: its judgement at an instant, its document, and the state of
//!   probes and route.
//! - [`driver`]: drives one election: selects an event, hands it to the election, drains the output.
//! - [`metrics`]: counts events, and computes gauges when they are scraped.
//! - [`publish`]: the readers of the status: HTTP, page, files, systemd, hooks and the route
//!   of a Service.
//! - [`probe`]: runs the health probes; [`peers`]: the leader's stream to its standbys, and their
//!   subscriptions; [`maintenance`]: watches what the cloud announces for this machine.
//! - [`admin`]: the operators' API; passes commands to the driver.
//! - [`exec`]: runs a command while this instance leads, and stops it in time.
//! - [`http`]: listeners with their limits, client and resolver; [`kube`]: client for the Kubernetes
//!   API server; `process`: child processes; `files`: directories by their descriptors, and
//!   small files that may hang; [`timer`]: what wakes a task later.
//! - [`sidecar`]: builds one sidecar from the settings and runs it; [`candidate`]: the same for a Rust
//!   service.
//! - [`config`]: reads and validates settings from arguments, environment and file.
//! - [`cli`]: the command line, one file for each verb; [`logs`]: writes the log.
//!
//! # Invariants
//! 1. The election does no I/O, reads no clock, draws no randomness, logs nothing and never waits.
//! 2. A backend decides nothing: no retry, no sleep, no cache. One call is one attempt under the
//!    given deadline, and returns what the store answered.
//! 3. Only the driver calls the election. Only the driver writes the status; publishers read it.
//! 4. No publisher, client, log or disk can delay a renewal or a step-down. The driver awaits none
//!    of them, except for R8's bounded wait before a release.
//! 5. Leader and standby inside; active and passive only in [`status`] and above.
//!
//! # The claim
//! At each real instant at most one instance answers active, provided that the store grants no
//! other lease before lease-duration of its own time has passed (where no store counts, that no
//! observer takes one before that much of its own time has passed), that `drift × lease-duration +
//! unseen pause ≤ lease-duration − renew-deadline`, and that nobody frees the lease behind the
//! holder's back. Beyond that only the term, checked by the resource, protects.
//!
//! # Rules
//! Comments and tests refer to these by number.
//!
//! - **R1** Belief is a deadline, not a flag: active iff `now < sent + renew-deadline`, evaluated
//!   on each question. `sent` is when the granted request was sent, not when its answer arrived.
//! - **R2** Time is compared between two Moments, never as totals. The larger advance of the two
//!   lease clocks ends a belief, the smaller ends a wait. Timers schedule; they never decide. Where
//!   no store counts the time of a lease, each observer waits for the whole lease-duration from the
//!   receipt of the first answer that showed the same claim.
//! - **R3** One request is in flight, and its answer counts once. A step-down does not cancel it:
//!   the release is sent when it has ended. A grant that arrives after a resignation is released.
//! - **R4** An outcome is granted, refused or unknown; every error is unknown until proven
//!   definite. Unknown never makes a leader and never extends a deadline.
//! - **R5** A lease id is random per acquisition, and dead once the lease is released or lost. An
//!   unknown bid is repeated with its id for at most one lease-duration; then it is released.
//! - **R6** Once the deadline has passed the leadership is over; a late renewal does not revive it.
//! - **R7** Active only after the term is written under the lease and time is left. "The record is
//!   ours" means its nonce, not its name.
//! - **R8** Stepping down: passive in memory at once; in a voluntary step-down, a drain while the
//!   lease is still renewed, until the service has finished its work or drain-timeout is over; then
//!   the release, once status files and route have published passive (a wait of at most one
//!   request-timeout) and no process of the term lives. A lapsed lease is released only when its
//!   whole length is over by the slower clock, since clients count the answers they were given by
//!   clocks of their own, for whose drift the margin exists. A resignation, pause or step-down after
//!   the lapse shortens nothing: a candidate that resigns leaves within two request-timeouts, and a
//!   lapsed lease that lasts longer runs out unreleased.
//! - **R9** The driver owns every retry: at once after a broken connection, then after a quarter of
//!   the retry-period, doubling. Each answer must name the same lease id.
//! - **R10** Belief ends also when the wall clock ran over 1 s ahead of the lease clocks (a pause
//!   that no guest clock saw), or when any clock went back. Only a renewal sent after that restores
//!   it.
//! - **R11** If the record is missing, or its term is lower than one seen, a new lease is held for
//!   the longest lease that the store allows before its term, taken from unix milliseconds, is
//!   written. In `file:` and `memory:` an instance that has seen no term there need not hold for a
//!   missing record.
//! - **R12** Breaking a lease lets it run out; where no store counts the time, it makes the
//!   observers wait anew. Freeing it at once takes `--now` and a warning.

#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod admin;
pub mod candidate;
#[doc(hidden)]
pub mod cli;
pub mod clock;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod driver;
#[doc(hidden)]
pub mod election;
#[doc(hidden)]
pub mod exec;
mod files;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod http;
#[doc(hidden)]
pub mod kube;
#[doc(hidden)]
pub mod lease;
#[doc(hidden)]
pub mod logs;
#[doc(hidden)]
pub mod maintenance;
#[doc(hidden)]
pub mod metrics;
#[doc(hidden)]
pub mod peers;
#[doc(hidden)]
pub mod probe;
#[doc(hidden)]
pub mod process;
#[doc(hidden)]
pub mod publish;
#[doc(hidden)]
pub mod sidecar;
#[doc(hidden)]
pub mod status;
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod timer;
#[doc(hidden)]
pub mod tls;

pub use candidate::{Candidate, StartError};

/// The code of the guide, as doctests.
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
struct Guide;

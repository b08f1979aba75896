//! Races: short histories of 2 to 5 clients that call one lock of a real store at the same time,
//! recorded and judged by a linearizability checker.
//!
//! - [`script`] draws a race from a seed and runs it: who calls what, when the store's time passes,
//!   which calls are dropped.
//! - [`history`] is what was called, when, and with which answer; a failing one is shown as a table.
//! - [`model`] is the lock as one register that performs one call at a time, with the differences
//!   that `src/store.rs` allows between stores.
//! - [`checker`] searches an order of the calls that the model can perform with the same answers.
//! - [`courses`] are the stores, [`run`] races on one of them until a number of races or a time.
//!
//! A race with number `n` of a run with the seed `s` is drawn from the seed `s + n` alone, so that a
//! failing race is raced again by `TENURE_RACES_SEED=<its seed> TENURE_RACES=1`. The same calls are
//! then made by the same clients in the same rounds; the operating system still decides how calls of
//! one round overlap, so a failing race is repeated at once to show how often it fails. A quarter of
//! the races make one call at a time, and repeat exactly.

pub mod checker;
pub mod courses;
pub mod history;
pub mod model;
pub mod run;
pub mod script;

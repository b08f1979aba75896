//! The election, pure.
mod status;
pub use status::{Belief, Holder, Reason, Standing, State, Status, StoreHealth, Transition};

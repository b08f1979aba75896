//! x
/// The hooks' names.
pub const NAMES: [&str; 4] = ["on-active", "on-passive", "on-drain", "on-leader-change"];
/// What can come of a hook.
pub const OUTCOMES: [&str; 4] = ["ok", "failed", "timeout", "skipped"];

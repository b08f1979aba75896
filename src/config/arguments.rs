//! Parsers of the arguments of commands, whose faults have the form of those of the settings.

use std::time::Duration;

use super::faults::Problem;
use super::values;

/// Parses a duration.
///
/// # Errors
/// Returns what is wrong, and what to write.
pub fn duration(text: &str) -> Result<Duration, Problem> {
    values::duration(text)
}

/// Parses a duration above zero; `remedy` says what to do about zero.
///
/// # Errors
/// Returns what is wrong, and what to write.
pub fn positive_duration(text: &str, remedy: &str) -> Result<Duration, Problem> {
    match duration(text)? {
        Duration::ZERO => Err(Problem::new("is zero", remedy)),
        it => Ok(it),
    }
}

/// Parses a whole number from `least`.
///
/// # Errors
/// Returns what is wrong, and what to write.
pub fn number(text: &str, least: u64, remedy: &str) -> Result<u64, Problem> {
    match text.parse::<u64>() {
        Ok(it) if it >= least => Ok(it),
        _ => Err(Problem::new(format!("is not a whole number from {least}"), remedy)),
    }
}

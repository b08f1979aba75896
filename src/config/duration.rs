//! Durations as people write them: `15s`, `1m30s`, `500ms`.
//!
//! What it does not do: no bare numbers, no fractions, no negative values; a number without its
//! unit is a fault, since nobody could tell which was meant.

use std::time::Duration;

/// The units, from large to small, with their length in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a duration.
///
/// # Errors
/// When it is none, in words that say what would be one.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration; write 15s, 1m30s or 500ms");
    let mut rest = text;
    let mut total: u64 = 0;
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let digits = rest
            .find(|it: char| !it.is_ascii_digit())
            .ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest
            .find(|it: char| it.is_ascii_digit())
            .unwrap_or(rest.len());
        let (unit, after) = rest.split_at(letters);
        // Each unit at most once, the larger first: what follows a unit is smaller.
        let (_, millis) = units.find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let length = number.checked_mul(*millis).ok_or_else(wrong)?;
        total = total.checked_add(length).ok_or_else(wrong)?;
        rest = after;
    }
    if text.is_empty() {
        Err(wrong())
    } else {
        Ok(Duration::from_millis(total))
    }
}

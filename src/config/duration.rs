//! Parses and formats durations: `15s`, `1m30s`, `500ms`. Fractions, other units and numbers
//! without a unit are rejected.

use std::time::Duration;

/// The units, largest first, with their lengths in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The longest duration: ten thousand hours, over a year, so that no sum of a few durations
/// overflows.
pub const LONGEST: Duration = Duration::from_secs(10_000 * 3_600);

/// Parses a duration: whole numbers with `h`, `m`, `s` or `ms`, each at most once, largest first.
///
/// ```
/// use std::time::Duration;
/// use tenure::config::duration;
/// assert_eq!(duration::parse("1m30s"), Ok(Duration::from_secs(90)));
/// assert!(duration::parse("15").unwrap_err().contains("no unit"));
/// ```
///
/// # Errors
/// Returns what is wrong, without the text itself.
pub fn parse(text: &str) -> Result<Duration, String> {
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    let mut rest = text;
    let mut total: u64 = 0;
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|it: char| it.is_ascii_digit()).len();
        if digits == 0 {
            return Err(unreadable(rest));
        }
        let (number, tail) = rest.split_at(digits);
        let word = tail.len() - tail.trim_start_matches(|it: char| it.is_ascii_alphabetic()).len();
        let (unit, tail) = tail.split_at(word);
        if unit.is_empty() {
            return Err(if tail.is_empty() {
                format!("has no unit after {number}")
            } else {
                unreadable(tail)
            });
        }
        let Some((_, length)) = units.find(|(name, _)| *name == unit) else {
            return Err(wrong_unit(unit));
        };
        let part = number.parse::<u64>().ok().and_then(|it| it.checked_mul(*length));
        total = part.and_then(|it| total.checked_add(it)).ok_or_else(too_long)?;
        rest = tail;
    }
    let total = Duration::from_millis(total);
    if total > LONGEST { Err(too_long()) } else { Ok(total) }
}

/// Formats a duration as [`parse`] takes it, truncated to the millisecond.
#[must_use]
pub fn format(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, length) in UNITS {
        let count = rest / length;
        rest %= length;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

fn unreadable(rest: &str) -> String {
    match rest.chars().next() {
        Some('.' | ',') => "has a fraction; only whole numbers are accepted".to_owned(),
        Some('-' | '+') => "has a sign".to_owned(),
        Some(other) => format!("has {other:?} where a number with a unit should be"),
        None => "is empty".to_owned(),
    }
}

fn wrong_unit(unit: &str) -> String {
    if UNITS.iter().any(|(name, _)| *name == unit) {
        format!("has {unit:?} twice, or after a smaller unit")
    } else {
        format!("has the unknown unit {unit:?}")
    }
}

fn too_long() -> String {
    format!("is longer than {}", format(LONGEST))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_forms_of_the_contract_are_read() {
        for (text, ms) in
            [("15s", 15_000), ("1m30s", 90_000), ("500ms", 500), ("0s", 0), ("1h1ms", 3_600_001)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn each_fault_is_named() {
        for (text, words) in [
            ("", "empty"),
            ("15", "no unit"),
            ("1.5s", "fraction"),
            ("-5s", "sign"),
            ("5 s", "' '"),
            ("5sec", "\"sec\""),
            ("5S", "\"S\""),
            ("1s1m", "smaller unit"),
            ("1s1s", "twice"),
            ("s", "'s'"),
            ("99999999999999999999s", "longer than"),
            ("10001h", "longer than 10000h"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(words), "{text}: {fault}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(ms in 0_u64..=36_000_000_000) {
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics_and_none_is_read_as_longer_than_the_longest(text in ".{0,40}") {
            if let Ok(duration) = parse(&text) {
                prop_assert!(duration <= LONGEST);
            }
        }

        #[test]
        fn no_digits_and_units_panic(text in "([0-9]{1,25}(h|m|s|ms|x)?){0,6}") {
            let _ = parse(&text);
        }
    }
}

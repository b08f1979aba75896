//! Parses and formats durations: `15s`, `1m30s`, `1.5m`, `500ms`. Other units, numbers without a unit
//! and parts of a millisecond are rejected.

use std::borrow::Cow;
use std::time::Duration;

use crate::lease::text::excerpt;

/// The units, largest first, with their lengths in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The longest duration: ten thousand hours, over a year, so that no sum of a few durations
/// overflows.
pub const LONGEST: Duration = Duration::from_secs(10_000 * 3_600);

/// Parses a duration: numbers with `h`, `m`, `s` or `ms`, each at most once, largest first. A number
/// may have a fraction.
///
/// ```
/// use std::time::Duration;
/// use tenure::config::duration;
/// assert_eq!(duration::parse("1m30s"), Ok(Duration::from_secs(90)));
/// assert_eq!(duration::parse("1.5m"), Ok(Duration::from_secs(90)));
/// assert!(duration::parse("15").unwrap_err().contains("no unit"));
/// ```
///
/// # Errors
/// Returns what is wrong, with at most 20 characters of the text.
pub fn parse(text: &str) -> Result<Duration, String> {
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    let mut rest = text;
    let mut total: u64 = 0;
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let (number, tail) = digits(rest);
        if number.is_empty() {
            return Err(unreadable(rest));
        }
        let (fraction, tail) = match tail.strip_prefix('.').map(digits) {
            Some(("", _)) => return Err(format!("has no digit after {}.", shown(number))),
            Some(split) => split,
            None => ("", tail),
        };
        let word = tail.len() - tail.trim_start_matches(|it: char| it.is_ascii_alphabetic()).len();
        let (unit, tail) = tail.split_at(word);
        if unit.is_empty() {
            return Err(if tail.is_empty() {
                format!("has no unit after {}", shown(rest))
            } else {
                unreadable(tail)
            });
        }
        let Some((_, length)) = units.find(|(name, _)| *name == unit) else {
            return Err(wrong_unit(unit));
        };
        let whole = number.parse::<u64>().ok().and_then(|it| it.checked_mul(*length));
        let part = part_of(fraction, *length).ok_or("has a part of a millisecond")?;
        total = whole
            .and_then(|it| it.checked_add(part))
            .and_then(|it| total.checked_add(it))
            .ok_or_else(too_long)?;
        rest = tail;
    }
    let total = Duration::from_millis(total);
    if total > LONGEST { Err(too_long()) } else { Ok(total) }
}

/// Splits a text after its digits.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.len() - text.trim_start_matches(|it: char| it.is_ascii_digit()).len())
}

/// Returns the milliseconds of a unit's fraction, given by its digits; `None` if they are not whole.
fn part_of(fraction: &str, length: u64) -> Option<u64> {
    let fraction = fraction.trim_end_matches('0');
    // No unit has so many milliseconds that more digits could give whole ones.
    let scale =
        u32::try_from(fraction.len()).ok().filter(|it| *it <= 9).map(|it| 10_u64.pow(it))?;
    let scaled = fraction.parse::<u64>().unwrap_or_default() * length;
    (scaled.is_multiple_of(scale)).then_some(scaled / scale)
}

/// Formats a duration as [`parse`] takes it, truncated to the millisecond: `1m30s`, `3.3s`, `500ms`.
#[must_use]
pub fn format(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, length) in UNITS {
        let count = rest / length;
        rest %= length;
        if count > 0 && unit == "s" && rest > 0 {
            let fraction = format!("{rest:03}");
            return text + &format!("{count}.{}s", fraction.trim_end_matches('0'));
        }
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

fn unreadable(rest: &str) -> String {
    match rest.chars().next() {
        Some(',') => "has a comma; a fraction has a point".to_owned(),
        Some('-' | '+') => "has a sign".to_owned(),
        Some(other) => format!("has {other:?} where a number with a unit should be"),
        None => "is empty".to_owned(),
    }
}

/// Returns a part of the text as messages show it.
fn shown(part: &str) -> Cow<'static, str> {
    excerpt(part.to_owned().into(), 20)
}

fn wrong_unit(unit: &str) -> String {
    if UNITS.iter().any(|(name, _)| *name == unit) {
        format!("has {unit:?} twice, or after a smaller unit")
    } else {
        format!("has the unknown unit {:?}", shown(unit))
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
    fn each_documented_form_is_parsed() {
        for (text, ms) in [
            ("15s", 15_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("0s", 0),
            ("1h1ms", 3_600_001),
            ("1.5m", 90_000),
            ("0.25s", 250),
            ("1.5h0.5s", 5_400_500),
            ("3.300s", 3_300),
            ("0.0000025h", 9),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn a_duration_is_formatted_with_a_fraction_of_a_second() {
        for (ms, text) in [
            (3_300, "3.3s"),
            (13_500, "13.5s"),
            (25_001, "25.001s"),
            (90_000, "1m30s"),
            (90_050, "1m30.05s"),
            (500, "500ms"),
            (3_600_001, "1h1ms"),
            (0, "0s"),
        ] {
            assert_eq!(format(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn each_fault_is_named() {
        for (text, words) in [
            ("", "empty"),
            ("15", "no unit"),
            ("1,5s", "comma"),
            (".5s", "'.'"),
            ("1.s", "no digit after 1."),
            ("1.5", "no unit after 1.5"),
            ("1.0005s", "part of a millisecond"),
            ("0.5ms", "part of a millisecond"),
            ("0.0000000000000000000001h", "part of a millisecond"),
            ("-5s", "sign"),
            ("5 s", "' '"),
            ("5sec", "\"sec\""),
            ("5S", "\"S\""),
            ("1s1m", "smaller unit"),
            ("1s1s", "twice"),
            ("s", "'s'"),
            ("99999999999999999999s", "longer than"),
            ("18446744073709551.616s", "longer than"),
            ("18446744073709551s616ms", "longer than"),
            ("10001h", "longer than 10000h"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(words), "{text}: {fault}");
        }
    }

    proptest! {
        #[test]
        fn a_formatted_duration_is_parsed_back(ms in 0_u64..=36_000_000_000) {
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics_or_exceeds_the_longest(text in ".{0,40}") {
            if let Ok(duration) = parse(&text) {
                prop_assert!(duration <= LONGEST);
            }
        }

        #[test]
        fn no_digits_and_units_panic(text in "([0-9]{1,25}([.][0-9]{0,25})?(h|m|s|ms|x)?){0,6}") {
            let _ = parse(&text);
        }
    }
}

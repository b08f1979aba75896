//! What may be shown of text that others wrote: to a terminal, a page, a log, a hook.

use std::borrow::Cow;

/// The most characters of an identity or an address.
pub const LONGEST_NAME: usize = 128;

/// Stands for an identity or an address that cannot be shown.
pub const INVALID_NAME: &str = "(invalid name)";

/// Returns whether a character may be shown. Controls may not, C1 included, nor characters that
/// change the direction of text, break a line or are invisible.
#[must_use]
pub fn is_printable(character: char) -> bool {
    let is_format = matches!(
        character,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    !character.is_control() && !is_format
}

/// Returns whether a text can be an identity or an address: 1 to 128 printable characters.
#[must_use]
pub fn is_name(text: &str) -> bool {
    // No character has more than four bytes.
    let fits = text.len() <= 4 * LONGEST_NAME && text.chars().count() <= LONGEST_NAME;
    !text.is_empty() && fits && text.chars().all(is_printable)
}

/// Returns at most `most` characters of a text, with a blank for each that may not be shown.
#[must_use]
pub fn excerpt(text: Cow<'static, str>, most: usize) -> Cow<'static, str> {
    let end = text.char_indices().nth(most).map(|(at, _)| at);
    if end.is_none() && text.chars().all(is_printable) {
        return text;
    }
    let kept = text[..end.unwrap_or(text.len())].chars();
    let mut shown: String = kept.map(|it| if is_printable(it) { it } else { ' ' }).collect();
    if end.is_some() {
        shown.push('…');
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_printable_characters_of_any_script_and_an_end() {
        for name in
            ["web-1", "a b", "orders_0/1:80", "Füße", "東京", &"x".repeat(128), &"京".repeat(128)]
        {
            assert!(is_name(name), "{name}");
        }
        let long = "x".repeat(129);
        for text in [
            "",
            &long,
            "a\0b",
            "a\x1b[31m",
            "a\nb",
            "\u{9b}31m",
            "a\u{202e}b",
            "\u{2066}",
            "a\u{200b}",
            "\u{2028}",
            "\u{feff}a",
        ] {
            assert!(!is_name(text), "{text:?}");
        }
        assert!(is_name(INVALID_NAME));
    }

    #[test]
    fn an_excerpt_is_bounded_and_can_be_shown() {
        let of = |text: &'static str, most| excerpt(text.into(), most).into_owned();
        assert_eq!(of("abc", 3), "abc");
        assert_eq!(of("abcd", 3), "abc…");
        assert_eq!(of("ä\u{9b}b\u{202e}\0c", 9), "ä b  c");
        assert!(matches!(excerpt("abc".into(), 3), Cow::Borrowed(_)));
    }
}

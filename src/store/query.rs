//! Queries of URLs, and forms.

use std::fmt::Write;

/// Returns the query of a URL, or a form: sorted, and with everything escaped but letters, digits and
/// `-._~`, as AWS signs it.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
    let mut all: Vec<_> =
        pairs.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
    all.sort_unstable();
    all.join("&")
}

/// Returns a text with everything escaped but letters, digits and `-._~`.
pub(super) fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut all, it| {
        if it.is_ascii_alphanumeric() || b"-._~".contains(&it) {
            all.push(char::from(it));
        } else {
            let _ = write!(all, "%{it:02X}");
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_sorted_and_escaped() {
        assert_eq!(
            query(&[("prefix", "a/b c"), ("list-type", "2")]),
            "list-type=2&prefix=a%2Fb%20c"
        );
    }
}

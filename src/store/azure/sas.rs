//! The time of a shared access signature, by its own parameters.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::auth::Proof;

/// Returns a parameter of a shared access signature.
pub(super) fn parameter<'a>(proof: &'a Proof, name: &str) -> Option<&'a str> {
    let Proof::Sas(pairs) = proof else { return None };
    pairs.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
}

/// Returns when a shared access signature begins to be valid; `None` if it does not say.
pub(super) fn start(proof: &Proof) -> Option<OffsetDateTime> {
    parse(parameter(proof, "st")?)
}

/// Returns when a shared access signature expires; `None` if it does not say, or its stored access policy
/// does.
pub(super) fn end(proof: &Proof) -> Option<OffsetDateTime> {
    parse(parameter(proof, "se")?)
}

/// Parses a time in one of the forms of a SAS: a date, or a date and a time with or without seconds.
fn parse(text: &str) -> Option<OffsetDateTime> {
    let whole = match text.len() {
        10 => format!("{text}T00:00:00Z"),
        // No seconds: the zone follows the minutes.
        _ if text.as_bytes().get(16).is_some_and(|it| *it != b':') => {
            format!("{}:00{}", text.get(..16)?, text.get(16..)?)
        }
        _ => text.to_owned(),
    };
    OffsetDateTime::parse(&whole, &Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn each_form_of_a_time_is_read() {
        let of = |text: &str| {
            let proof = Proof::sas(&format!("sv=1&sig=x&st={text}&se={text}"));
            assert_eq!(start(&proof), end(&proof));
            end(&proof)
        };
        for (text, time) in [
            ("2030-01-02", datetime!(2030-01-02 00:00 UTC)),
            ("2030-01-02T03:04Z", datetime!(2030-01-02 03:04 UTC)),
            ("2030-01-02T03:04%2B02:00", datetime!(2030-01-02 01:04 UTC)),
            ("2030-01-02T03:04:05Z", datetime!(2030-01-02 03:04:05 UTC)),
            ("2030-01-02T03:04:05.5000000Z", datetime!(2030-01-02 03:04:05.5 UTC)),
        ] {
            assert_eq!(of(text), Some(time), "{text}");
        }
        for text in ["", "soon", "2030-01", "2030-13-01", "€€€€€€€€€€€€"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn a_proof_that_is_no_sas_has_no_time() {
        let key = Proof::Key { account: "acct".to_owned(), key: "a2V5".into() };
        assert_eq!((start(&key), end(&key)), (None, None));
    }
}

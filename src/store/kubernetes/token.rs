//! The claims of a service account token: subject, audience and expiry. Nothing is verified, since
//! only the API server can; the claims are for `tenure doctor`, and never prevent a request.

use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;

/// The claims of a JSON Web Token that are of interest to an operator.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Token {
    /// The subject: `system:serviceaccount:NAMESPACE:NAME`.
    #[serde(rename = "sub")]
    pub(super) subject: String,
    /// The audience: one name or several.
    #[serde(rename = "aud")]
    audience: Value,
    #[serde(rename = "exp")]
    expires: Option<i64>,
}

impl Token {
    /// Reads the claims; `None` if it is not a JSON Web Token.
    pub(super) fn read(token: &[u8]) -> Option<Self> {
        let mut parts = token.trim_ascii().split(|it| *it == b'.');
        let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
        serde_json::from_slice(&decode(claims)?).ok()
    }

    /// Returns when the token expires, if it says so.
    pub(super) fn end(&self) -> Option<OffsetDateTime> {
        OffsetDateTime::from_unix_timestamp(self.expires?).ok()
    }

    /// Returns the audience as text.
    pub(super) fn audience(&self) -> String {
        match &self.audience {
            Value::String(one) => one.clone(),
            Value::Array(many) => {
                many.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
            }
            _ => "any server".to_owned(),
        }
    }
}

/// Decodes base64url without padding.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for symbol in text {
        let six = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(six);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from((bits >> held) & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> Vec<u8> {
        format!("e30.{}.c2ln", azure_core::base64::encode_url_safe(claims)).into_bytes()
    }

    #[test]
    fn a_token_has_subject_audience_and_expiry() {
        let claims = r#"{"sub":"system:serviceaccount:shop:worker","aud":["https://a","b"],
            "exp":1700000000,"kubernetes.io":{"namespace":"shop"}}"#;
        let read = Token::read(&token(claims)).unwrap();
        assert_eq!(read.subject, "system:serviceaccount:shop:worker");
        assert_eq!(read.audience(), "https://a, b");
        assert_eq!(read.end().unwrap().unix_timestamp(), 1_700_000_000);
        let read = Token::read(&token(r#"{"aud":"c"}"#)).unwrap();
        assert_eq!((read.audience().as_str(), read.end()), ("c", None));
        assert_eq!(Token::read(&token("{}")).unwrap().audience(), "any server");
    }

    #[test]
    fn a_malformed_token_is_none() {
        for text in ["", "secret", "a.b", "a.!!.c", "..", "e30.e30"] {
            assert_eq!(Token::read(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn every_length_and_symbol_of_base_64_is_read() {
        let all: Vec<u8> = (0..=255).collect();
        for length in [0, 1, 2, 3, 4, 255, 256] {
            let text = azure_core::base64::encode_url_safe(&all[..length]);
            assert_eq!(decode(text.trim_end_matches('=').as_bytes()).unwrap(), &all[..length]);
        }
    }
}

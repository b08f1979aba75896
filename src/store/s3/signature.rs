//! Signs requests by AWS Signature Version 4, with the headers, not the query.
//!
//! The conditions of a write are signed too, so that a proxy that removes one makes the request invalid.
//! The rules are those of "Signature Calculations for the Authorization Header" in the API reference of
//! Amazon S3. Paths here have no character that would be escaped.

use std::fmt::Write;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use ring::{digest, hmac};
use time::OffsetDateTime;

use super::credential::Keys;

/// What a signature is valid for beside the day.
pub(super) struct Scope<'a> {
    pub(super) region: &'a str,
    pub(super) service: &'a str,
}

/// Adds the date, the digest of the body, the token of a session and the signature to the headers of a
/// request. `None` if one of them cannot stand in a header.
pub(super) fn sign(
    method: &Method,
    url: &Url,
    headers: &mut HeaderMap,
    body: &[u8],
    keys: &Keys,
    scope: &Scope<'_>,
    now: OffsetDateTime,
) -> Option<()> {
    let body = hex(digest::digest(&digest::SHA256, body).as_ref());
    let (day, time) = stamps(now);
    headers.insert(HeaderName::from_static("x-amz-content-sha256"), body.parse().ok()?);
    headers.insert(HeaderName::from_static("x-amz-date"), time.parse().ok()?);
    if let Some(token) = &keys.token {
        let mut token: HeaderValue = token.parse().ok()?;
        token.set_sensitive(true);
        headers.insert(HeaderName::from_static("x-amz-security-token"), token);
    }
    let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
    let mut signed: Vec<(&str, &str)> = vec![("host", authority)];
    for (name, value) in headers.iter() {
        signed.push((name.as_str(), value.to_str().ok()?.trim()));
    }
    signed.sort_unstable();
    let names = signed.iter().map(|it| it.0).collect::<Vec<_>>().join(";");
    let mut request = format!("{method}\n{}\n{}\n", url.path(), url.query().unwrap_or_default());
    for (name, value) in &signed {
        let _ = writeln!(request, "{name}:{value}");
    }
    let _ = write!(request, "\n{names}\n{body}");
    let place = format!("{day}/{}/{}/aws4_request", scope.region, scope.service);
    let request = hex(digest::digest(&digest::SHA256, request.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{place}\n{request}");
    let first = format!("AWS4{}", keys.secret);
    let key = [day.as_str(), scope.region, scope.service, "aws4_request"]
        .into_iter()
        .fold(first.into_bytes(), |key, part| mac(&key, part));
    let signature = hex(&mac(&key, &text));
    let value = format!(
        "AWS4-HMAC-SHA256 Credential={}/{place},SignedHeaders={names},Signature={signature}",
        keys.id
    );
    let mut value: HeaderValue = value.parse().ok()?;
    value.set_sensitive(true);
    headers.insert(AUTHORIZATION, value);
    Some(())
}

/// Returns the day and the time of a date in UTC, as signatures have them.
fn stamps(now: OffsetDateTime) -> (String, String) {
    let day = format!("{:04}{:02}{:02}", now.year(), u8::from(now.month()), now.day());
    let time = format!("{day}T{:02}{:02}{:02}Z", now.hour(), now.minute(), now.second());
    (day, time)
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut all, it| {
        let _ = write!(all, "{it:02x}");
        all
    })
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::store::query::query;

    fn signature(
        method: &Method,
        url: &str,
        headers: &[(&'static str, &'static str)],
        body: &str,
    ) -> String {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.insert(*name, HeaderValue::from_static(value));
        }
        let keys = Keys {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            token: None,
        };
        let scope = Scope { region: "us-east-1", service: "s3" };
        let now = datetime!(2013-05-24 00:00 UTC);
        let url = Url::parse(url).unwrap();
        sign(method, &url, &mut all, body.as_bytes(), &keys, &scope, now).unwrap();
        all[AUTHORIZATION].to_str().unwrap().rsplit('=').next().unwrap().to_owned()
    }

    /// The examples of the API reference of Amazon S3.
    #[test]
    fn requests_are_signed_as_in_the_examples_of_the_reference() {
        let bucket = "https://examplebucket.s3.amazonaws.com";
        for (method, path, headers, body, expected) in [
            (
                Method::GET,
                "/test.txt".to_owned(),
                &[("range", "bytes=0-9")][..],
                "",
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                Method::PUT,
                "/test%24file.text".to_owned(),
                &[
                    ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                    ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                ],
                "Welcome to Amazon S3.",
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                Method::GET,
                format!("/?{}", query(&[("lifecycle", "")])),
                &[],
                "",
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                Method::GET,
                format!("/?{}", query(&[("prefix", "J"), ("max-keys", "2")])),
                &[],
                "",
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            assert_eq!(
                signature(&method, &format!("{bucket}{path}"), headers, body),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn the_token_of_a_session_is_signed_and_no_secret_is_shown() {
        let url = Url::parse("https://h/b").unwrap();
        let scope = Scope { region: "us-east-1", service: "s3" };
        let now = datetime!(2013-05-24 00:00 UTC);
        let sent = |token: &str| {
            let token = Some(token.to_owned());
            let keys = Keys { id: "A".to_owned(), secret: "s".to_owned(), token };
            let mut headers = HeaderMap::new();
            sign(&Method::GET, &url, &mut headers, b"", &keys, &scope, now).map(|()| headers)
        };
        let headers = sent("session").unwrap();
        assert_eq!(headers["x-amz-security-token"], "session");
        let names = "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,";
        assert!(headers[AUTHORIZATION].to_str().unwrap().contains(names));
        assert_ne!(sent("another").unwrap()[AUTHORIZATION], headers[AUTHORIZATION]);
        for name in ["x-amz-security-token", "authorization"] {
            assert!(headers[name].is_sensitive(), "{name}");
        }
        assert_eq!(sent("two\nlines"), None);
    }
}

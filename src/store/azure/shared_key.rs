//! Signs requests with an account key, by the rules of Azure's Shared Key (since 2015-02-21). Every
//! request here has a body of known length.

use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use azure_core::http::Request;
use azure_core::http::headers::{AUTHORIZATION, HeaderName};
use url::Url;

/// The headers that are signed by value only, in this order; an absent one is an empty line. `date`
/// is always empty, since `x-ms-date` is sent.
const SIGNED: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// Adds the signature; `x-ms-date` must have been set.
pub(super) fn sign(request: &mut Request, account: &str, key: &Secret) -> azure_core::Result<()> {
    let signature = hmac_sha256(&string_to_sign(request, account), key)?;
    request.insert_header(AUTHORIZATION, format!("SharedKey {account}:{signature}"));
    Ok(())
}

fn string_to_sign(request: &Request, account: &str) -> String {
    let headers = request.headers();
    let mut text = request.method().as_str().to_owned();
    for name in SIGNED {
        text.push('\n');
        let value = headers.get_optional_str(&HeaderName::from_static(name)).unwrap_or_default();
        // An empty body is signed as an empty length.
        if (name, value) != ("content-length", "0") {
            text.push_str(value);
        }
    }
    let mut ours: Vec<(String, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str().to_ascii_lowercase(), value.as_str().trim()))
        .filter(|(name, _)| name.starts_with("x-ms-"))
        .collect();
    ours.sort();
    for (name, value) in ours {
        text.push_str(&format!("\n{name}:{value}"));
    }
    text.push('\n');
    text.push_str(&resource(request.url(), account));
    text
}

fn resource(url: &Url, account: &str) -> String {
    let mut text = format!("/{account}{}", url.path());
    let mut pairs: Vec<(String, String)> = url
        .query_pairs()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.into_owned()))
        .collect();
    pairs.sort();
    for (name, value) in pairs {
        text.push_str(&format!("\n{name}:{value}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use azure_core::http::Method;

    #[test]
    fn the_string_to_sign_follows_the_specification() {
        let url = "https://acme.blob.core.windows.net/locks/team/orders?timeout=2&comp=lease";
        let mut request = Request::new(Url::parse(url).unwrap(), Method::Put);
        request.insert_header("x-ms-version", "2023-11-03");
        request.insert_header("x-ms-date", "Fri, 20 Nov 2026 09:00:00 GMT");
        request.insert_header("x-ms-lease-action", "renew");
        // They are kept in an order that differs from one run to the next.
        for name in ["x-ms-a", "x-ms-b", "x-ms-c", "x-ms-d", "x-ms-e", "x-ms-f"] {
            request.insert_header(name, "1");
        }
        request.insert_header("content-length", "0");
        request.insert_header("if-match", "\"0x1\"");
        assert_eq!(
            string_to_sign(&request, "acme"),
            "PUT\n\n\n\n\n\n\n\n\"0x1\"\n\n\n\n\
             x-ms-a:1\nx-ms-b:1\nx-ms-c:1\n\
             x-ms-d:1\nx-ms-date:Fri, 20 Nov 2026 09:00:00 GMT\nx-ms-e:1\nx-ms-f:1\nx-ms-lease-action:renew\n\
             x-ms-version:2023-11-03\n/acme/locks/team/orders\ncomp:lease\ntimeout:2"
        );
    }
}

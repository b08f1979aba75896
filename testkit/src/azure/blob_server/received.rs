//! A received request: its operation, and its signature.

use std::collections::{BTreeMap, HashMap};

use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use simulator::store::blob_lease::Refusal;

use super::{ACCOUNT, Proof, State};

/// A parsed request.
pub(super) struct Received {
    pub(super) op: String,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) container: String,
    pub(super) blob: String,
    pub(super) headers: HashMap<String, String>,
    pub(super) length: usize,
}

impl Received {
    pub(super) fn new(parts: &hyper::http::request::Parts, length: usize) -> Self {
        let text = |value: &hyper::header::HeaderValue| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        let headers: HashMap<String, String> =
            parts.headers.iter().map(|(name, it)| (name.to_string(), text(it))).collect();
        let query: Vec<(String, String)> =
            url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect();
        let path = parts.uri.path().to_owned();
        let below = path.strip_prefix(&format!("/{ACCOUNT}/")).unwrap_or_default();
        let (container, blob) = below.split_once('/').unwrap_or((below, ""));
        let (container, blob) = (container.to_owned(), blob.to_owned());
        let comp = query.iter().find(|(name, _)| name == "comp").map(|(_, value)| value.as_str());
        let op = match (parts.method.as_str(), comp, blob.is_empty()) {
            ("HEAD", None, false) => "read",
            ("PUT", Some("lease"), false) => {
                headers.get("x-ms-lease-action").map_or("", String::as_str)
            }
            ("PUT", Some("metadata"), false) => "write",
            ("PUT", None, false) => "make",
            ("PUT", None, true) => "make-container",
            ("DELETE", None, false) => "delete",
            ("DELETE", None, true) => "delete-container",
            ("HEAD" | "GET", None, true) => "read-container",
            (method, ..) => method,
        };
        let (op, method) = (op.to_owned(), parts.method.to_string());
        Self { op, method, path, query, container, blob, headers, length }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(super) fn metadata(&self) -> BTreeMap<String, String> {
        let named = self.headers.iter().filter_map(|(name, value)| {
            Some((name.strip_prefix("x-ms-meta-")?.to_owned(), value.clone()))
        });
        named.collect()
    }
}

/// Verifies the credential; that of an account key by computing the signature.
pub(super) fn authorize(state: &State, received: &Received) -> Result<(), Refusal> {
    let given = received.header("authorization").unwrap_or_default();
    match &state.proof {
        Proof::Key(key) => {
            let signature = hmac_sha256(&signed_text(received), &Secret::new(key.clone()));
            let wanted = format!("SharedKey {ACCOUNT}:{}", signature.expect("a signature"));
            if given == wanted { Ok(()) } else { Err(Refusal(403, "AuthenticationFailed")) }
        }
        Proof::Sas(wanted) => {
            let given = received.query.iter().find(|(name, _)| name == "sig");
            let fits = given.is_some_and(|(_, given)| given == wanted);
            if fits { Ok(()) } else { Err(Refusal(403, "AuthenticationFailed")) }
        }
        Proof::Token(wanted) => {
            let fits = given == format!("Bearer {wanted}");
            if fits { Ok(()) } else { Err(Refusal(401, "InvalidAuthenticationInfo")) }
        }
    }
}

fn signed_text(received: &Received) -> String {
    let value = |name: &str| received.header(name).unwrap_or_default();
    let length = Some(value("content-length")).filter(|it| *it != "0").unwrap_or_default();
    let mut text = format!(
        "{}\n\n\n{length}\n\n{}\n\n\n{}\n{}\n\n\n",
        received.method,
        value("content-type"),
        value("if-match"),
        value("if-none-match")
    );
    let mut ours: Vec<_> =
        received.headers.iter().filter(|(name, _)| name.starts_with("x-ms-")).collect();
    ours.sort();
    for (name, value) in ours {
        text += &format!("{name}:{value}\n");
    }
    text += &format!("/{ACCOUNT}{}", received.path);
    let mut query = received.query.clone();
    query.sort();
    for (name, value) in query {
        text += &format!("\n{name}:{value}");
    }
    text
}

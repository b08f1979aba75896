//! A minimal client of an API server, which sends requests as they are and returns the answers.

use std::path::Path;
use std::time::Duration;

use reqwest::{Client, Method, Response};
use serde_json::Value;

/// The Leases of the namespace `team`.
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/team/leases";

/// The client, with its token.
#[derive(Clone)]
pub struct Raw {
    base: String,
    client: Client,
    token: Option<String>,
}

impl Raw {
    /// Creates a client; `authority` is the file of the CA certificate for TLS.
    pub fn new(base: &str, authority: Option<&Path>, token: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder().no_proxy().timeout(Duration::from_secs(60));
        if let Some(file) = authority {
            let pem = std::fs::read(file).expect("the authority's certificate");
            let all = reqwest::Certificate::from_pem_bundle(&pem).expect("certificates");
            client = client.tls_certs_only(all);
        }
        let client = client.build().expect("a client");
        Self { base: base.to_owned(), client, token: Some(token.to_owned()) }
    }

    /// Returns the same client with another token, or none.
    pub fn with_token(&self, token: Option<&str>) -> Self {
        Self { token: token.map(str::to_owned), ..self.clone() }
    }

    /// Sends a request with the content type for its method.
    pub async fn send(&self, method: Method, path: &str, body: Value) -> reqwest::Result<Response> {
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if !body.is_null() {
            request = request.header("content-type", kind).body(body.to_string());
        }
        // The client's connections are of the runtime that opened them: of that of one test, which ends, they
        // would break off under the requests of others.
        crate::shared_runtime().spawn(request.send()).await.expect("a request does not panic")
    }

    /// Sends a request, and returns the status and the body as JSON or text.
    pub async fn ask(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        taken(self.send(method, path, body).await.expect("an answer")).await
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.ask(Method::GET, path, Value::Null).await
    }

    pub async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask(Method::POST, path, body).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask(Method::PATCH, path, body).await
    }

    pub async fn delete(&self, path: &str, options: Value) -> (u16, Value) {
        self.ask(Method::DELETE, path, options).await
    }

    /// Replaces the object with this name in a collection.
    pub async fn put(&self, collection: &str, body: &Value) -> (u16, Value) {
        let name = body["metadata"]["name"].as_str().expect("a name");
        self.ask(Method::PUT, &format!("{collection}/{name}"), body.clone()).await
    }

    /// Begins a watch of a collection.
    pub async fn watch(&self, collection: &str, query: &str) -> Lines {
        let path = format!("{collection}?watch=true&{query}");
        let answer = self.send(Method::GET, &path, Value::Null).await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 200, "{path}");
        Lines { answer, unread: Vec::new() }
    }
}

/// Returns the status and the body of an answer.
async fn taken(answer: Response) -> (u16, Value) {
    let status = answer.status().as_u16();
    let text = answer.text().await.expect("a body");
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// The events of a watch.
pub struct Lines {
    answer: Response,
    unread: Vec<u8>,
}

impl Lines {
    /// Returns the next event, `None` at the end.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.unread.iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("an event"));
            }
            self.unread.extend_from_slice(&self.answer.chunk().await.expect("no broken end")?);
        }
    }
}

/// Returns the resourceVersion of an object.
pub fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.unwrap_or_else(|| panic!("no version: {object}")).parse().expect("a number")
}

//! The HTTP client for health probes and webhooks, and what the clients of the stores and the
//! subcommands share with it.
//!
//! Each request of a probe or webhook has its own connection, so that a service that accepts no more
//! connections does not pass as healthy. There are no retries, redirects or proxies. Errors contain no URL, since it may
//! contain a password. Timeouts are up to the caller.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Request, StatusCode};

use super::exchange::exchange;
use super::resolver::Resolver;
use crate::tls;

/// The name of this client.
pub(super) const USER: &str = concat!("tenure/", env!("CARGO_PKG_VERSION"));

/// An HTTP client; clones share its TLS settings.
#[derive(Clone)]
pub(crate) struct HttpClient {
    /// Builds the requests, and sends none.
    requests: reqwest::Client,
    tls: Arc<rustls::ClientConfig>,
    resolver: Resolver,
}

impl HttpClient {
    /// Creates a client; `tls` says whether any request uses TLS.
    pub(crate) fn new(tls: bool, resolver: Resolver) -> anyhow::Result<Self> {
        let requests = builder(tls::system_client(false)?, resolver.clone()).build()?;
        Ok(Self { requests, tls: Arc::new(tls::system_client(tls)?), resolver })
    }

    /// Builds a GET request.
    pub(crate) fn get(&self, url: &url::Url) -> reqwest::RequestBuilder {
        self.requests.get(url.clone())
    }

    /// Builds a POST request.
    pub(crate) fn post(&self, url: &url::Url) -> reqwest::RequestBuilder {
        self.requests.post(url.clone())
    }

    /// Sends a request; returns the status once the response headers have arrived, or why there is
    /// none.
    pub(crate) async fn send(
        &self,
        request: reqwest::Result<Request>,
    ) -> Result<StatusCode, String> {
        let request = request.map_err(|_| "failed to build the request".to_owned())?;
        exchange(&self.tls, &self.resolver, &request).await
    }
}

/// Returns a builder of a client without retries, redirects and proxies.
pub(crate) fn builder(tls: rustls::ClientConfig, resolver: Resolver) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(Names { resolver, turn: 0 })
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .http1_only()
        .user_agent(USER)
}

/// Resolves the names of a client.
pub(super) struct Names {
    pub(super) resolver: Resolver,
    /// Which of the addresses of a host is tried first.
    pub(super) turn: usize,
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolver, turn) = (self.resolver.clone(), self.turn);
        Box::pin(async move {
            match resolver.resolve(name.as_str(), 0).await {
                Ok(mut found) => {
                    let first = turn % found.len().max(1);
                    found.rotate_left(first);
                    Ok::<Addrs, _>(Box::new(found.into_iter()))
                }
                Err(why) => Err(Box::new(Unresolved(why)) as Box<dyn StdError + Send + Sync>),
            }
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unresolved(Arc<str>);

/// Why a body could not be read.
pub(crate) enum BodyError {
    /// It is longer than it may be.
    TooLong,
    /// The connection broke.
    Broken(reqwest::Error),
}

/// Reads the body of a response, of at most `longest` bytes.
pub(crate) async fn body(
    mut response: reqwest::Response,
    longest: usize,
) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(BodyError::Broken)? {
        if body.len() + chunk.len() > longest {
            return Err(BodyError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Formats why a request failed.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    match cause(error) {
        Cause::Certificate(why) => format!("TLS failed: {why}"),
        // The kind of this one reads "entity not found".
        Cause::Io(io::ErrorKind::NotFound) => "no such file or directory".to_owned(),
        Cause::Io(kind) if error.is_connect() => kind.to_string(),
        Cause::Io(kind) => format!("the connection broke: {kind}"),
        Cause::Unresolved(why) => why,
        Cause::Other if error.is_connect() => "cannot connect".to_owned(),
        Cause::Other => "the connection broke, or the answer is not HTTP".to_owned(),
    }
}

/// The cause of an error.
pub(crate) enum Cause {
    /// The certificate, or another TLS error.
    Certificate(String),
    /// A name that could not be resolved.
    Unresolved(String),
    /// A system error.
    Io(io::ErrorKind),
    /// Anything else.
    Other,
}

/// Finds the innermost cause that is known; the messages of outer errors may contain the URL.
pub(crate) fn cause(error: &(dyn StdError + 'static)) -> Cause {
    let mut found = Cause::Other;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return Cause::Certificate(tls.to_string());
        }
        if let Some(Unresolved(why)) = error.downcast_ref() {
            return Cause::Unresolved(why.to_string());
        }
        if let Some(io) = error.downcast_ref::<io::Error>() {
            found = Cause::Io(io.kind());
            if let Some(inner) = io.get_ref() {
                next = Some(inner);
                continue;
            }
        }
        next = error.source();
    }
    found
}

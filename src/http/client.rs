//! The HTTP client for health probes and webhooks, and what the clients of the stores and the
//! subcommands share with it.
//!
//! Each request of a probe or webhook has its own connection, so that a service that accepts no more
//! connections does not pass as healthy. There are no retries, redirects or proxies. Errors contain no URL, since it may
//! contain a password. Timeouts are up to the caller.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, ClientBuilder, RequestBuilder, StatusCode};

use super::resolver::Resolver;
use crate::tls;

/// Creates the client for probes or webhooks. `tls` says whether any request uses TLS, and `time` is the
/// longest time of a request: the addresses of a host share it, so that one that does not answer leaves
/// time for the next.
pub(crate) fn each_alone(tls: bool, resolver: Resolver, time: Duration) -> anyhow::Result<Client> {
    let builder = builder(tls::system_client(tls)?, resolver);
    Ok(builder.pool_max_idle_per_host(0).connect_timeout(time).build()?)
}

/// Sends a request; returns the status once the head of the answer has arrived, or why there is none. The
/// body is not read, and the connection ends.
pub(crate) async fn status(request: RequestBuilder) -> Result<StatusCode, String> {
    let answer = request.send().await.map_err(|error| reason(&error))?;
    Ok(answer.status())
}

/// Returns a builder of a client without retries, redirects and proxies.
pub(crate) fn builder(tls: rustls::ClientConfig, resolver: Resolver) -> ClientBuilder {
    Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(Names { resolver, turn: 0 })
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .http1_only()
        .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")))
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
        Cause::Other if is_head_too_long(error) => "the head of the answer is too long".to_owned(),
        Cause::Other => "the connection broke, or the answer is not HTTP".to_owned(),
    }
}

/// Returns whether the head of the answer has more bytes or headers than hyper reads.
fn is_head_too_long(error: &(dyn StdError + 'static)) -> bool {
    let is_too_long = error.downcast_ref().is_some_and(hyper::Error::is_parse_too_large);
    is_too_long || error.source().is_some_and(is_head_too_long)
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

/// Says what TLS failed for. That a certificate is one of an authority itself has no words of its own in rustls.
fn of_tls(error: &rustls::Error) -> String {
    let words = error.to_string();
    match words.contains("CaUsedAsEndEntity") {
        true => "the server shows the certificate of an authority (CA:TRUE) as its own: have the authority sign \
                 another one for the server, without CA:TRUE"
            .to_owned(),
        false => words,
    }
}

/// Finds the innermost cause that is known; the messages of outer errors may contain the URL.
pub(crate) fn cause(error: &(dyn StdError + 'static)) -> Cause {
    let mut found = Cause::Other;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return Cause::Certificate(of_tls(tls));
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

//! The HTTP client for what the settings name beside the store: health probes and webhooks.
//!
//! A connection of its own for each request, so that a service that takes no more connections is
//! not taken for well. What it does not do: it retries nothing, follows no redirect, uses no proxy,
//! reads no body, and puts no URL into an error, since a URL may carry a password. Bounds on time
//! are the caller's.

use std::error::Error as StdError;
use std::io;
use std::sync::{Arc, OnceLock};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Request, StatusCode};

use crate::resolver::Resolver;

/// Sends requests; clones share what it has loaded.
#[derive(Clone)]
pub(crate) struct HttpClient(reqwest::Client);

impl HttpClient {
    /// Makes a client; `tls` says whether any request goes over TLS.
    pub(crate) fn new(tls: bool, resolver: Resolver) -> anyhow::Result<Self> {
        Ok(Self(builder(tls_settings(tls)?, resolver).pool_max_idle_per_host(0).build()?))
    }

    /// Begins a GET.
    pub(crate) fn get(&self, url: &url::Url) -> reqwest::RequestBuilder {
        self.0.get(url.clone())
    }

    /// Begins a POST.
    pub(crate) fn post(&self, url: &url::Url) -> reqwest::RequestBuilder {
        self.0.post(url.clone())
    }

    /// Sends a request, and gives the answer's code once its head is here, or says why there is
    /// none.
    pub(crate) async fn send(
        &self,
        request: reqwest::Result<Request>,
    ) -> Result<StatusCode, String> {
        let request = request.map_err(|_| "the request could not be made".to_owned())?;
        let answer = self.0.execute(request).await;
        answer.map(|it| it.status()).map_err(|error| broken(&error))
    }
}

/// Begins a client that retries nothing, follows no redirect and uses no proxy.
pub(crate) fn builder(tls: rustls::ClientConfig, resolver: Resolver) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(Names(resolver))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .http1_only()
        .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")))
}

struct Names(Resolver);

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.0.clone();
        Box::pin(async move {
            match resolver.resolve(name.as_str(), 0).await {
                Ok(found) => Ok::<Addrs, _>(Box::new(found.into_iter())),
                Err(why) => Err(Box::new(Unresolved(why)) as Box<dyn StdError + Send + Sync>),
            }
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unresolved(Arc<str>);

/// TLS with ring, trusting what the system trusts, else what browsers trust: an image from scratch
/// has no certificate authorities of its own. They are loaded once, when first `wanted`.
pub(crate) fn tls_settings(wanted: bool) -> Result<rustls::ClientConfig, rustls::Error> {
    static LOADED: OnceLock<rustls::ClientConfig> = OnceLock::new();
    if !wanted {
        return trusting(rustls::RootCertStore::empty());
    }
    if let Some(loaded) = LOADED.get() {
        return Ok(loaded.clone());
    }
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        tracing::debug!("the system has no certificate authorities: using the built-in ones");
        roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
    }
    let settings = trusting(roots)?;
    Ok(LOADED.get_or_init(|| settings).clone())
}

/// TLS with ring, trusting these alone.
pub(crate) fn trusting(
    roots: rustls::RootCertStore,
) -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// Says why a request got no answer.
fn broken(error: &reqwest::Error) -> String {
    match cause(error) {
        Cause::Certificate(why) => format!("TLS failed: {why}"),
        Cause::Io(kind) if error.is_connect() => kind.to_string(),
        Cause::Io(kind) => format!("the connection broke: {kind}"),
        Cause::Unresolved(why) => why,
        Cause::Other if error.is_connect() => "no connection".to_owned(),
        Cause::Other => "the connection broke, or the answer is no HTTP".to_owned(),
    }
}

/// What is at the bottom of an error.
pub(crate) enum Cause {
    /// The certificate, or another fault of TLS.
    Certificate(String),
    /// A name without an address.
    Unresolved(String),
    /// An error of the system.
    Io(io::ErrorKind),
    /// None of these.
    Other,
}

/// Finds the innermost cause that says something; the texts of outer ones may hold the URL.
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

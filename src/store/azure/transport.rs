//! The HTTP client for every request to Azure, to blobs and for the sign-in. It retries nothing,
//! follows no redirect, reads no proxy from the environment, and puts no URL into an error, since a
//! URL may contain a signature. The caller sets the timeouts.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::Headers;
use azure_core::http::{AsyncRawResponse, Body, HttpClient, Method, Request};
use url::{Host, Url};

use crate::http::client::{self, BodyError, Cause as Fault};
use crate::http::resolver::Resolver;
use crate::lease::{Cause, Failure};

/// From the end of a request to the closing of its connection. Shorter than the 5 s after which
/// Azurite and many middleboxes close theirs, so that a renewal rarely meets a connection that is
/// being closed; longer than the default retry-period, so that a leader keeps its connection.
const IDLE: Duration = Duration::from_secs(4);

/// The longest answer that is read; the expected ones have a few hundred bytes.
const LONGEST_ANSWER: usize = 256 * 1024;

/// Which proxy requests go through.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProxyRoute<'a> {
    /// None: for loopback, and the identity endpoint of a machine.
    Direct,
    /// As `HTTPS_PROXY` and `NO_PROXY` say.
    Proxied {
        /// `HTTPS_PROXY`.
        proxy: Option<&'a str>,
        /// `NO_PROXY`.
        except: Option<&'a str>,
    },
}

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct TransportError {
    /// The message, without a URL.
    pub(super) message: String,
    /// Whether an immediate retry is worthwhile; not if a name or a certificate is wrong.
    pub(super) again: bool,
}

/// Creates a client. `tls` says whether any of its requests use TLS, for which the certificate
/// authorities are loaded. A name that does not resolve takes up one thread of the `resolver`,
/// whatever the number of attempts.
pub(super) fn client(
    route: ProxyRoute<'_>,
    tls: bool,
    resolver: &Resolver,
) -> Result<Arc<dyn HttpClient>, Failure> {
    let mut builder = client::builder(tls_settings(tls)?, resolver.clone())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(2);
    if let ProxyRoute::Proxied { proxy: Some(proxy), except } = route {
        let proxy = reqwest::Proxy::https(proxy)
            .map_err(|_| settings("HTTPS_PROXY is not a proxy URL such as http://proxy:3128"))?;
        let except = format!("localhost,127.0.0.0/8,::1,{}", except.unwrap_or_default());
        builder = builder.proxy(proxy.no_proxy(reqwest::NoProxy::from_string(&except)));
    }
    let client = builder.build().map_err(|_| settings("failed to set up the HTTP client"))?;
    Ok(Arc::new(Client(client)))
}

/// Returns whether a URL refers to this host.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn settings(message: &'static str) -> Failure {
    Failure::new(Cause::Settings, message)
}

fn tls_settings(wanted: bool) -> Result<rustls::ClientConfig, Failure> {
    crate::tls::system_client(wanted).map_err(|_| settings("failed to set up TLS"))
}

#[derive(Debug)]
struct Client(reqwest::Client);

#[async_trait]
impl HttpClient for Client {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let host = request.url().host_str().unwrap_or_default();
        let response = self.0.execute(outgoing(request)?).await.map_err(|e| broken(&e, host))?;
        let status = response.status().as_u16();
        let mut headers = Headers::new();
        for (name, value) in response.headers() {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            headers.insert(name.as_str().to_owned(), value);
        }
        let body = client::body(response, LONGEST_ANSWER).await.map_err(|error| match error {
            BodyError::Broken(error) => broken(&error, host),
            BodyError::TooLong => {
                let message = format!("the answer of {host} is longer than {LONGEST_ANSWER} bytes");
                Error::new(ErrorKind::Io, TransportError { message, again: false })
            }
        })?;
        Ok(AsyncRawResponse::from_bytes(status.into(), headers, body))
    }
}

fn outgoing(request: &Request) -> azure_core::Result<reqwest::Request> {
    let method = match request.method() {
        Method::Delete => reqwest::Method::DELETE,
        Method::Get => reqwest::Method::GET,
        Method::Head => reqwest::Method::HEAD,
        Method::Patch => reqwest::Method::PATCH,
        Method::Post => reqwest::Method::POST,
        Method::Put => reqwest::Method::PUT,
        other => {
            let message = format!("unknown HTTP method {other}");
            return Err(Error::new(ErrorKind::Other, TransportError { message, again: false }));
        }
    };
    let unfit = |what: &str| {
        let message = format!("{what} cannot be sent in an HTTP header");
        Error::new(ErrorKind::Other, TransportError { message, again: false })
    };
    let mut outgoing = reqwest::Request::new(method, request.url().clone());
    for (name, value) in request.headers().iter() {
        let header = reqwest::header::HeaderName::from_bytes(name.as_str().as_bytes())
            .map_err(|_| unfit(name.as_str()))?;
        let value = reqwest::header::HeaderValue::from_str(value.as_str())
            .map_err(|_| unfit(name.as_str()))?;
        outgoing.headers_mut().insert(header, value);
    }
    *outgoing.body_mut() = match request.body() {
        Body::Bytes(bytes) if bytes.is_empty() => None,
        Body::Bytes(bytes) => Some(bytes.clone().into()),
        Body::SeekableStream(stream) => Some(reqwest::Body::wrap_stream(stream.clone())),
    };
    Ok(outgoing)
}

/// Converts the error of a request without an answer. `Connection` means that it was never sent.
fn broken(error: &reqwest::Error, host: &str) -> Error {
    let kind = if error.is_connect() { ErrorKind::Connection } else { ErrorKind::Io };
    let fault = client::cause(error);
    let (message, again) = match fault {
        Fault::Certificate(why) => (format!("TLS with {host} failed: {why}"), false),
        Fault::Io(_) if error.is_dns() => (format!("failed to resolve {host}"), false),
        Fault::Io(kind) if error.is_connect() => {
            (format!("cannot connect to {host}: {kind}"), true)
        }
        Fault::Io(kind) => (format!("the connection to {host} broke: {kind}"), true),
        Fault::Unresolved(why) => (why, false),
        Fault::Other if error.is_connect() => (format!("cannot connect to {host}"), true),
        Fault::Other => (format!("the connection to {host} broke"), true),
    };
    Error::new(kind, TransportError { message, again })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_differs_from_other_hosts() {
        for url in ["http://127.0.0.1:10000/a", "http://localhost/", "http://[::1]:1/"] {
            assert!(is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
        for url in [
            "http://localhost.example.com/",
            "http://10.0.0.1/",
            "https://127.0.0.1.nip.io",
            "mailto:localhost",
        ] {
            assert!(!is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
    }

    #[test]
    fn a_proxy_that_is_none_is_a_fault_of_the_settings() {
        let route = ProxyRoute::Proxied { proxy: Some("::"), except: None };
        assert_eq!(client(route, false, &Resolver::default()).unwrap_err().cause, Cause::Settings);
    }

    #[tokio::test]
    async fn attempts_that_are_abandoned_share_one_lookup_of_a_name() {
        let resolver = Resolver::default();
        let client = client(ProxyRoute::Direct, false, &resolver).unwrap();
        let url = Url::parse("http://localhost:1/").unwrap();
        let request = Request::new(url, Method::Get);
        for _ in 0..5 {
            let attempt = client.execute_request(&request);
            let _ = tokio::time::timeout(std::time::Duration::ZERO, attempt).await;
            assert!(resolver.lookups() <= 1, "each attempt takes a thread");
        }
        assert!(client.execute_request(&request).await.is_err());
        assert_eq!(resolver.lookups(), 0);
    }

    #[tokio::test]
    async fn an_error_names_the_host_and_never_the_query() {
        let client = client(ProxyRoute::Direct, false, &Resolver::default()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let url = Url::parse(&format!("http://127.0.0.1:{port}/c?sig=SECRET")).unwrap();
        let error = client.execute_request(&Request::new(url, Method::Get)).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Connection);
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("cannot connect to 127.0.0.1: connection refused"), "{shown}");
        assert!(!shown.contains("SECRET"), "{shown}");
    }
}

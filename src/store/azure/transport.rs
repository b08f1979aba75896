//! The HTTP client for every request to Azure, to blobs and for the sign-in. It retries nothing,
//! follows no redirect, reads no proxy from the environment, and puts no URL into an error, since a
//! URL may contain a signature. The caller sets the timeouts.

use std::error::Error as StdError;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::Headers;
use azure_core::http::{AsyncRawResponse, Body, HttpClient, Method, Request};

use crate::http::client::{self, BodyError, Cause as Fault};
use crate::http::reconnecting::{Idle, Reconnecting, is_ordinary};
use crate::http::resolver::Resolver;
use crate::lease::{Cause, Failure};

/// Shorter than the 5 s after which Azurite and many middleboxes close theirs, so that a renewal rarely
/// meets a connection that is being closed; longer than the default retry-period, so that a leader
/// keeps its connection.
const IDLE: Idle = Idle { time: Duration::from_secs(4), most: 2 };

/// The longest answer that is read; the expected ones have a few hundred bytes.
const LONGEST_ANSWER: usize = 256 * 1024;

/// The header that each answer of Azure has.
pub(super) const REQUEST_ID: &str = "x-ms-request-id";

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
    /// [`Cause::Network`], or [`Cause::Settings`] for a proxy that refuses.
    pub(super) cause: Cause,
    /// Whether an immediate retry is worthwhile; not if a name or a certificate is wrong.
    pub(super) again: bool,
}

impl TransportError {
    /// Creates the error of a request that another attempt would not send either.
    fn once(message: String) -> Self {
        Self { message, cause: Cause::Network, again: false }
    }
}

/// Creates a client. `tls` says whether any of its requests use TLS, for which the certificate
/// authorities are loaded. A name that does not resolve takes up one thread of the `resolver`,
/// whatever the number of attempts.
pub(super) fn client(
    route: ProxyRoute<'_>,
    tls: bool,
    resolver: &Resolver,
) -> Result<Arc<dyn HttpClient>, Failure> {
    let proxy = match route {
        ProxyRoute::Proxied { proxy: Some(proxy), except } => {
            let proxy = reqwest::Proxy::https(proxy).map_err(|_| {
                settings("HTTPS_PROXY is not a proxy URL such as http://proxy:3128")
            })?;
            let except = format!("localhost,127.0.0.0/8,::1,{}", except.unwrap_or_default());
            Some(proxy.no_proxy(reqwest::NoProxy::from_string(&except)))
        }
        _ => None,
    };
    let client = Reconnecting::new(tls_settings(tls)?, resolver.clone(), IDLE, proxy)
        .map_err(|_| settings("failed to set up the HTTP client"))?;
    Ok(Arc::new(Client(client)))
}

fn settings(message: &'static str) -> Failure {
    Failure::new(Cause::Settings, message)
}

fn tls_settings(wanted: bool) -> Result<rustls::ClientConfig, Failure> {
    crate::tls::system_client(wanted).map_err(|_| settings("failed to set up TLS"))
}

#[derive(Debug)]
struct Client(Reconnecting);

#[async_trait]
impl HttpClient for Client {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let host = request.url().host_str().unwrap_or_default();
        let response = self.0.execute(outgoing(request)?, is_of_azure).await;
        let response = response.map_err(|error| broken(&error, host))?;
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
                Error::new(ErrorKind::Io, TransportError::once(message))
            }
        })?;
        Ok(AsyncRawResponse::from_bytes(status.into(), headers, body))
    }
}

/// Returns whether Azure gives such an answer in its ordinary work. One without an id of its request is
/// from a server in its place.
fn is_of_azure(answer: &reqwest::Response) -> bool {
    is_ordinary(answer.status()) && answer.headers().contains_key(REQUEST_ID)
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
            return Err(Error::new(ErrorKind::Other, TransportError::once(message)));
        }
    };
    let unfit = |what: &str| {
        let message = format!("{what} cannot be sent in an HTTP header");
        Error::new(ErrorKind::Other, TransportError::once(message))
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
    if let Some(why) = of_proxy(error) {
        let message = format!("{why} (the request for {host} did not reach the store)");
        return Error::new(kind, TransportError { message, cause: Cause::Settings, again: false });
    }
    let fault = client::cause(error);
    let (message, again) = match fault {
        Fault::Certificate(why) => (format!("TLS with {host} failed: {why}"), false),
        Fault::Io(kind) if error.is_connect() => {
            (format!("cannot connect to {host}: {kind}"), true)
        }
        Fault::Io(kind) => (format!("the connection to {host} broke: {kind}"), true),
        Fault::Unresolved(why) => (why, false),
        Fault::Other if error.is_connect() => (format!("cannot connect to {host}"), true),
        Fault::Other => (format!("the connection to {host} broke"), true),
    };
    Error::new(kind, TransportError { message, cause: Cause::Network, again })
}

/// Returns what the proxy of `HTTPS_PROXY` did instead of connecting. hyper-util exports its error only as
/// text.
fn of_proxy(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    iter::successors(Some(error), |it| (*it).source()).find_map(|it| {
        let words = it.to_string();
        Some(match words.strip_prefix("tunnel error: ")? {
            "proxy authorization required" => {
                "the proxy demands a sign-in: set its user and password in HTTPS_PROXY, or except the \
                 store in NO_PROXY"
            }
            "unsuccessful" => {
                "the proxy refused to connect to the store: allow the store there, or except it in \
                 NO_PROXY"
            }
            "failed to create underlying connection" => {
                "cannot connect to the proxy: check HTTPS_PROXY"
            }
            _ => "the proxy did not answer as a proxy does: check HTTPS_PROXY",
        })
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;
    use url::Url;

    use super::*;

    /// Longer than any test takes.
    const PATIENCE: Duration = Duration::from_secs(30);

    async fn listen() -> (TcpListener, Url) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        (listener, Url::parse(&url).unwrap())
    }

    /// Accepts a connection, reads until the end of what is expected, answers, and closes it. Returns what
    /// it has read.
    async fn serve(listener: &TcpListener, end: &str, answer: &[u8]) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(end.as_bytes()) {
            assert!(stream.read_buf(&mut received).await.unwrap() > 0, "{received:?}");
        }
        stream.write_all(answer).await.unwrap();
        String::from_utf8(received).unwrap()
    }

    fn transport_error(error: &Error) -> &TransportError {
        error.downcast_ref().expect("the caller decides by it")
    }

    #[test]
    fn what_cannot_be_sent_is_not_tried_again() {
        for (name, value) in [("x-ms-meta a", "b"), ("x-ms-meta-a", "b\n")] {
            let mut request = Request::new("http://h/".parse().unwrap(), Method::Put);
            request.insert_header(name, value);
            let error = outgoing(&request).unwrap_err();
            let TransportError { message, again, .. } = transport_error(&error);
            assert_eq!(
                (message, *again),
                (&format!("{name} cannot be sent in an HTTP header"), false)
            );
        }
    }

    #[tokio::test]
    async fn a_request_is_sent_with_headers_and_body_and_its_answer_is_returned() {
        let (listener, url) = listen().await;
        let client = client(ProxyRoute::Direct, false, &Resolver::default()).unwrap();
        let url = url.join("locks/orders?comp=metadata").unwrap();
        let mut request = Request::new(url, Method::Put);
        request.insert_header("x-ms-version", "2023-11-03");
        request.set_body(b"abc".to_vec());
        let answer = b"HTTP/1.1 201 Created\r\nx-ms-request-id: 7\r\ncontent-length: 2\r\n\r\nok";
        let exchange = async {
            tokio::join!(serve(&listener, "abc", answer), client.execute_request(&request))
        };
        let (received, answer) = timeout(PATIENCE, exchange).await.expect("both are here");
        assert!(received.starts_with("PUT /locks/orders?comp=metadata HTTP/1.1\r\n"), "{received}");
        for header in ["x-ms-version: 2023-11-03", "content-length: 3"] {
            assert!(received.contains(&format!("\r\n{header}\r\n")), "{received}");
        }
        let (status, headers, body) = answer.unwrap().deconstruct();
        assert_eq!(u16::from(status), 201);
        let id = headers.iter().find(|(name, _)| name.as_str() == "x-ms-request-id");
        assert_eq!(id.unwrap().1.as_str(), "7");
        assert_eq!(&*body.collect().await.unwrap(), b"ok");
    }

    #[tokio::test]
    async fn a_connection_that_broke_is_retried_at_once_and_an_answer_that_is_too_long_is_not() {
        let too_long = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {0}\r\n\r\n{1}",
            LONGEST_ANSWER + 1,
            " ".repeat(LONGEST_ANSWER + 1)
        );
        let longest = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {LONGEST_ANSWER}\r\n\r\n{}",
            " ".repeat(LONGEST_ANSWER)
        );
        let cut_off = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok";
        let (listener, url) = listen().await;
        let client = client(ProxyRoute::Direct, false, &Resolver::default()).unwrap();
        let request = Request::new(url, Method::Get);
        for (answer, words, again) in [
            ("", "the connection to 127.0.0.1 broke", true),
            ("220 mail.example.com\r\n", "the connection to 127.0.0.1 broke", true),
            (cut_off, "the connection to 127.0.0.1 broke: unexpected end of file", true),
            (&too_long, "the answer of 127.0.0.1 is longer than 262144 bytes", false),
            (&longest, "", true),
        ] {
            let exchange = async {
                let answer = serve(&listener, "\r\n\r\n", answer.as_bytes());
                tokio::join!(answer, client.execute_request(&request)).1
            };
            match timeout(PATIENCE, exchange).await.expect("the connection is closed") {
                Ok(_) => assert_eq!(words, ""),
                Err(error) => {
                    assert_eq!(error.kind(), &ErrorKind::Io);
                    let TransportError { message, again: retried, .. } = transport_error(&error);
                    assert_eq!((message.as_str(), *retried), (words, again));
                }
            }
        }
    }

    #[tokio::test]
    async fn what_cannot_be_resolved_or_sent_is_not_retried_at_once() {
        let client = client(ProxyRoute::Direct, false, &Resolver::default()).unwrap();
        let request = |host: &str| {
            Request::new(Url::parse(&format!("http://{host}/?sig=SECRET")).unwrap(), Method::Get)
        };
        // No label of a name has more than 63 characters.
        let host = "a".repeat(64);
        let mut unfit = request("127.0.0.1");
        unfit.insert_header("x-ms-meta-team", "a\nb");
        for (request, words) in [
            (request(&host), format!("failed to resolve {host}")),
            (unfit, "x-ms-meta-team cannot be sent in an HTTP header".to_owned()),
        ] {
            let error = client.execute_request(&request).await.unwrap_err();
            let TransportError { message, again, .. } = transport_error(&error);
            assert_eq!((message, *again), (&words, false));
        }
    }

    #[tokio::test]
    async fn a_proxy_is_used_for_other_hosts_alone() {
        let (listener, url) = listen().await;
        let get = |url: &str| Request::new(Url::parse(url).unwrap(), Method::Get);
        let route = ProxyRoute::Proxied { proxy: Some(url.as_str()), except: None };
        let client = client(route, false, &Resolver::default()).unwrap();
        let request = get("https://store.example.com/locks?sig=SECRET");
        for (refused, words) in [
            ("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", "the proxy refused to connect"),
            ("HTTP/1.1 407 Sign in\r\ncontent-length: 0\r\n\r\n", "the proxy demands a sign-in"),
            ("", "the proxy did not answer as a proxy does"),
        ] {
            let exchange = async {
                let proxy = serve(&listener, "\r\n\r\n", refused.as_bytes());
                tokio::join!(proxy, client.execute_request(&request))
            };
            let (received, answer) = timeout(PATIENCE, exchange).await.expect("the proxy is asked");
            let connect = "CONNECT store.example.com:443 HTTP/1.1\r\n";
            assert!(received.starts_with(connect) && !received.contains("SECRET"), "{received}");
            let error = answer.map(drop).unwrap_err();
            let TransportError { message, cause, again } = transport_error(&error);
            assert!(message.starts_with(words), "{message}");
            assert_eq!((*cause, *again), (Cause::Settings, false));
        }
        drop(listener);
        let answer = timeout(PATIENCE, client.execute_request(&request)).await;
        let error = answer.expect("nothing listens there").map(drop).unwrap_err();
        assert!(transport_error(&error).message.starts_with("cannot connect to the proxy"));
        // Nothing listens there, and the proxy would not answer.
        let local = get("https://127.0.0.1:1/");
        let answer = timeout(PATIENCE, client.execute_request(&local)).await;
        let error = answer.expect("no proxy is asked").unwrap_err();
        assert!(transport_error(&error).message.contains("connection refused"), "{error}");
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

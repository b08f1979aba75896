//! Requests of the subcommands to a sidecar's listeners, over TCP, with TLS or without, or over a unix
//! socket, with one connection for each request. No proxies, redirects or retries.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response, StatusCode};
use rustls::ClientConfig;
use url::Url;

use super::document::{Document, Heard};
use super::events::EventParser;
use super::tls::TlsArgs;
use crate::clock;
use crate::config::{Environment, duration};
use crate::http::client::{self, BodyError, Cause};
use crate::http::resolver::Resolver;
use crate::publish::api::is_path;
use crate::tls::{self, ClientTls};

/// The bound on a request that is answered at once.
const SOON: Duration = Duration::from_secs(2);

/// How much longer than the requested wait a long poll may take.
const GRACE: Duration = Duration::from_secs(5);

/// The most bytes of a body or of an event.
const LONGEST: usize = 1 << 20;

const USUAL_URL: &str = "http://127.0.0.1:4040";
const VARIABLE: &str = "TENURE_URL";

/// The status listener to ask.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct UrlArgs {
    /// The sidecar's status listener: HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:/path
    /// [default: TENURE_URL, else http://127.0.0.1:4040]
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<String>,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
}

/// The address of an HTTP listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Tcp(Url),
    Unix(PathBuf),
}

impl Address {
    /// Parses http://HOST:PORT, where http:// may be left out, https://HOST:PORT or unix:/path. A path of the status
    /// listener at the end is dropped, so that a copied URL of `/status` works.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err("names a socket that does not begin with /".into())
            };
        }
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let mut url = Url::parse(&whole).map_err(|error| format!("is not a URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("is none of http://, https:// and unix:".into());
        }
        if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
            return Err("has more in it than host, port and path".into());
        }
        let path = url.path().trim_end_matches('/');
        let last = path.rfind('/').filter(|at| is_path(&path[*at..]));
        let path = path[..last.unwrap_or(path.len())].to_owned();
        url.set_path(&path);
        Ok(Self::Tcp(url))
    }

    /// Returns whether connections use TLS.
    pub(super) fn is_https(&self) -> bool {
        matches!(self, Self::Tcp(url) if url.scheme() == "https")
    }

    /// Returns a GET or POST request for a path. `at` replaces the address that the host resolves
    /// to.
    pub(super) fn request(
        &self,
        method: reqwest::Method,
        path: &str,
        at: Option<SocketAddr>,
        tls: ClientConfig,
    ) -> anyhow::Result<RequestBuilder> {
        let builder = client::builder(tls, Resolver::default()).pool_max_idle_per_host(0);
        let (builder, base) = match (self, at) {
            (Self::Unix(socket), _) => (builder.unix_socket(socket.as_path()), "http://localhost"),
            (Self::Tcp(url), Some(at)) => {
                (builder.resolve(url.host_str().unwrap_or_default(), at), url.as_str())
            }
            (Self::Tcp(url), None) => (builder, url.as_str()),
        };
        let client: Client = builder.build()?;
        Ok(client.request(method, format!("{}{path}", base.trim_end_matches('/'))))
    }
}

/// A sidecar to send requests to.
#[derive(Clone, Debug)]
pub(super) struct Sidecar {
    address: Address,
    /// One of the addresses that its host resolves to, if it is chosen.
    at: Option<SocketAddr>,
    /// The files for https://.
    tls: Option<ClientTls>,
    /// The URL as it was given, for messages.
    url: String,
}

/// Why a request failed, with a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}\n  {remedy}")]
pub(super) struct RequestError {
    problem: String,
    remedy: String,
}

impl RequestError {
    /// Returns what went wrong, on one line.
    pub(super) fn problem(&self) -> &str {
        &self.problem
    }
}

impl Sidecar {
    /// Determines the sidecar: from the flag, else the variable, else the default address.
    pub(super) fn of(args: &UrlArgs, environment: &Environment) -> Result<Self, String> {
        let (url, source) = match (&args.url, environment.get(VARIABLE)) {
            (Some(url), _) => (url.as_str(), "flag --url"),
            (None, Some(url)) => (url, "variable TENURE_URL"),
            (None, None) => (USUAL_URL, "default"),
        };
        let address = Address::parse(url).map_err(|problem| {
            format!(
                "url = {url:?} ({source})\n    {problem}\n    remedy: write http://HOST:PORT, \
                 https://HOST:PORT or unix:/path"
            )
        })?;
        // Without https:// the files are not read: the variables may be meant for other commands.
        let tls = address.is_https().then(|| args.tls.load(environment)).transpose()?;
        Ok(Self { tls, ..Self::at(address, url.to_owned()) })
    }

    /// Returns the sidecar at an address.
    pub(super) fn at(address: Address, url: String) -> Self {
        Self { address, at: None, tls: None, url }
    }

    /// Returns one sidecar for each address that the host currently resolves to.
    pub(super) async fn each(&self) -> Result<Vec<Self>, RequestError> {
        let Address::Tcp(url) = &self.address else {
            return Ok(vec![self.clone()]);
        };
        let (host, port) = (url.host_str(), url.port_or_known_default());
        let (host, port) = (host.unwrap_or_default(), port.unwrap_or_default());
        let scheme = url.scheme();
        let found = tokio::net::lookup_host((host.trim_matches(['[', ']']), port)).await;
        let found = found.map_err(|error| self.unreachable(&error.to_string()))?;
        let at =
            |at: SocketAddr| Self { at: Some(at), url: format!("{scheme}://{at}"), ..self.clone() };
        Ok(found.map(at).collect())
    }

    /// Requests the status.
    pub(super) async fn status(&self) -> Result<Heard, RequestError> {
        let sent = clock::now();
        let raw = self.within(SOON, self.body("/status")).await?;
        let document: Document =
            serde_json::from_str(&raw).map_err(|_| self.stranger("/status"))?;
        Ok(Heard { document, raw, sent })
    }

    /// Resolves when the index of the status differs from `index`, or after `wait`.
    pub(super) async fn changed(&self, index: u64, wait: Duration) -> Result<(), RequestError> {
        let path = format!("/watch?index={index}&wait={}", duration::format(wait));
        self.within(wait + GRACE, self.body(&path)).await.map(drop)
    }

    /// Opens the event stream.
    pub(super) async fn events(&self) -> Result<Events, RequestError> {
        let response = self.within(SOON, self.get("/watch")).await?;
        Ok(Events { response, parser: EventParser::default(), sidecar: self.clone() })
    }

    async fn within<T>(
        &self,
        bound: Duration,
        work: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        tokio::time::timeout(bound, work).await.unwrap_or_else(|_| Err(self.silent(bound)))
    }

    /// Returns the error for a request without an answer within `bound`.
    pub(super) fn silent(&self, bound: Duration) -> RequestError {
        RequestError {
            problem: format!("no answer from {} within {}", self.url, duration::format(bound)),
            remedy: "the process may be stopped, or a network between may drop packets".into(),
        }
    }

    async fn body(&self, path: &str) -> Result<String, RequestError> {
        let response = self.get(path).await?;
        let body = client::body(response, LONGEST).await.map_err(|error| match error {
            BodyError::TooLong => self.stranger(path),
            BodyError::Broken(_) => self.broken(),
        })?;
        String::from_utf8(body).map_err(|_| self.stranger(path))
    }

    /// Requests a path whose status code is the answer: 200 yes, 503 no.
    pub(super) async fn answer(&self, path: &str) -> Result<bool, RequestError> {
        let response = self.within(SOON, self.send(path)).await?;
        match response.status() {
            StatusCode::SERVICE_UNAVAILABLE => Ok(false),
            _ => self.expect_ok(response, path).map(|_| true),
        }
    }

    async fn get(&self, path: &str) -> Result<Response, RequestError> {
        let response = self.send(path).await?;
        self.expect_ok(response, path)
    }

    async fn send(&self, path: &str) -> Result<Response, RequestError> {
        let tls = match &self.tls {
            Some(tls) => ClientConfig::clone(&*tls.config().await),
            None => tls::system_client(false).map_err(|it| self.unreachable(&it.to_string()))?,
        };
        let request = self.address.request(reqwest::Method::GET, path, self.at, tls);
        let request = request.map_err(|error| self.unreachable(&error.to_string()))?;
        request.send().await.map_err(|error| match client::cause(&error) {
            Cause::Certificate(why) => self.insecure(&why),
            _ if error.is_connect() => self.unreachable(&client::reason(&error)),
            _ => self.broken(),
        })
    }

    /// Returns the response, or why its status code is an error.
    fn expect_ok(&self, response: Response, path: &str) -> Result<Response, RequestError> {
        match response.status() {
            StatusCode::OK => Ok(response),
            StatusCode::SERVICE_UNAVAILABLE => Err(RequestError {
                problem: format!("{} has too many connections or event streams", self.url),
                remedy: "end some, or raise --max-connections or --max-connections-per-peer of \
                         `tenure run`"
                    .into(),
            }),
            StatusCode::MISDIRECTED_REQUEST => Err(RequestError {
                problem: format!("{} does not answer requests for this host", self.url),
                remedy: "name the host with --allowed-hosts of `tenure run`, or use its address"
                    .into(),
            }),
            StatusCode::BAD_REQUEST if !self.address.is_https() => Err(RequestError {
                problem: format!("{} answers 400 to {path}", self.url),
                remedy: "does it use TLS? then write https://HOST:PORT, with --ca-file".into(),
            }),
            code => Err(RequestError {
                problem: format!("{} answers {} to {path}", self.url, code.as_u16()),
                remedy: "is it `tenure run` that listens there? its address is its --listen".into(),
            }),
        }
    }

    fn unreachable(&self, why: &str) -> RequestError {
        RequestError {
            problem: format!("nothing answers at {}: {why}", self.url),
            remedy: "is `tenure run` up there? name another address with --url or TENURE_URL"
                .into(),
        }
    }

    /// Returns the error for a connection without a TLS handshake.
    fn insecure(&self, why: &str) -> RequestError {
        let remedy = if why.contains("InvalidContentType") {
            "does it use TLS? if not, write http:// instead of https://"
        } else if why.contains("alert") {
            "where the listener has a --tls-client-ca, it accepts clients with a certificate of that \
             authority: name it with --cert and --key"
        } else {
            "name the authority of its certificate with --ca-file; the certificate must be valid now, \
             and for the host in the URL"
        };
        RequestError { problem: format!("no TLS with {}: {why}", self.url), remedy: remedy.into() }
    }

    fn broken(&self) -> RequestError {
        RequestError {
            problem: format!("{} closed the connection before it had answered", self.url),
            remedy: "has `tenure run` just ended there? its log says why".into(),
        }
    }

    fn stranger(&self, path: &str) -> RequestError {
        RequestError {
            problem: format!("{} answers {path} with something other than a status", self.url),
            remedy: "is it `tenure run` that listens there? its address is its --listen".into(),
        }
    }
}

/// An event stream.
pub(super) struct Events {
    response: Response,
    parser: EventParser,
    sidecar: Sidecar,
}

impl Events {
    /// Returns the data of the next event.
    pub(super) async fn next(&mut self) -> Result<String, RequestError> {
        loop {
            if let Some(data) = self.parser.next() {
                return Ok(data);
            }
            let chunk = self.response.chunk().await;
            let Ok(Some(bytes)) = chunk else {
                return Err(self.sidecar.broken());
            };
            self.parser.take(&bytes);
            if self.parser.held() > LONGEST {
                return Err(self.sidecar.stranger("/watch"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_a_host_or_a_socket() {
        let url = |address: &Address, path: &str| {
            let tls = tls::system_client(false).unwrap();
            let request = address.request(reqwest::Method::GET, path, None, tls).unwrap();
            request.build().unwrap().url().to_string()
        };
        for (text, path, requested) in [
            ("http://a:1", "/status", "http://a:1/status"),
            ("http://a/", "/status", "http://a/status"),
            ("http://[::1]:1/x/", "/watch?wait=1s", "http://[::1]:1/x/watch?wait=1s"),
            ("127.0.0.1:4040", "/status", "http://127.0.0.1:4040/status"),
            ("localhost", "/status", "http://localhost/status"),
            ("a:1/status", "/status", "http://a:1/status"),
            ("http://a/x/leader/", "/watch", "http://a/x/watch"),
            ("http://a/x/leaders", "/watch", "http://a/x/leaders/watch"),
            ("https://a:1/status", "/watch", "https://a:1/watch"),
            ("unix:/run/x", "/status", "http://localhost/status"),
        ] {
            assert_eq!(url(&Address::parse(text).unwrap(), path), requested);
        }
        assert_eq!(Address::parse("unix:/run/x"), Ok(Address::Unix("/run/x".into())));
        for bad in ["", "ftp://a", "unix:x", "http://", "http://a?b", "http://u@a", "a b:1"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_flag_beats_the_variable_and_a_fault_names_its_source() {
        let variable = Environment::of([(VARIABLE, "unix:/variable")]);
        let of = |url: Option<&str>, environment: &Environment| {
            {
                let args = UrlArgs { url: url.map(str::to_owned), ..UrlArgs::default() };
                Sidecar::of(&args, environment)
            }
            .map(|it| it.url)
        };
        assert_eq!(of(Some("unix:/flag"), &variable).unwrap(), "unix:/flag");
        assert_eq!(of(None, &variable).unwrap(), "unix:/variable");
        assert_eq!(of(None, &Environment::of([("", "")])).unwrap(), USUAL_URL);
        let fault = of(None, &Environment::of([(VARIABLE, "ftp://x")])).unwrap_err();
        assert!(fault.contains("TENURE_URL") && fault.contains("ftp://x"), "{fault}");
    }
}

//! The HTTP client of the subcommands: plain HTTP/1.1 to a sidecar over TCP or a unix socket, with
//! one connection for each request. It supports no TLS, proxies, redirects or retries.

use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use url::Url;

use super::document::{Document, Heard};
use crate::clock;
use crate::config::{Environment, duration};

mod events;

pub(super) use events::EventParser;

/// The bound on a request that is answered at once.
const SOON: Duration = Duration::from_secs(2);

/// How much longer than the requested wait a long poll may take.
const GRACE: Duration = Duration::from_secs(5);

/// The most bytes of a body or of an event.
const LONGEST: usize = 1 << 20;

const USUAL_URL: &str = "http://127.0.0.1:4040";
const VARIABLE: &str = "TENURE_URL";

/// Whom to ask.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct UrlArgs {
    /// The sidecar's status listener: http://HOST:PORT or unix:/path [default: TENURE_URL, else
    /// http://127.0.0.1:4040]
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<String>,
}

/// A sidecar to send requests to.
#[derive(Clone, Debug)]
pub(super) struct Sidecar {
    place: Place,
    /// The URL as it was given, for messages.
    url: String,
}

/// The address of an HTTP listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Tcp { host: String, port: u16, authority: String, path: String },
    Unix(PathBuf),
}

/// Why a request failed, with a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}\n  {remedy}")]
pub(super) struct Trouble {
    problem: String,
    remedy: String,
}

impl Trouble {
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
        match place(url) {
            Ok(place) => Ok(Self { place, url: url.to_owned() }),
            Err(problem) => Err(format!(
                "url = {url:?} ({source})\n    {problem}\n    remedy: write http://HOST:PORT or \
                 unix:/path"
            )),
        }
    }

    /// Returns one sidecar for each address that the host currently resolves to.
    pub(super) async fn each(&self) -> Result<Vec<Self>, Trouble> {
        let Place::Tcp { host, port, authority, path } = &self.place else {
            return Ok(vec![self.clone()]);
        };
        let found = tokio::net::lookup_host((host.as_str(), *port)).await;
        let found = found.map_err(|error| self.unreachable(&error))?;
        let at = |address: std::net::SocketAddr| Self {
            place: Place::Tcp {
                host: address.ip().to_string(),
                port: *port,
                authority: authority.clone(),
                path: path.clone(),
            },
            url: format!("http://{address}"),
        };
        Ok(found.map(at).collect())
    }

    /// Requests the status.
    pub(super) async fn status(&self) -> Result<Heard, Trouble> {
        let sent = clock::now();
        let raw = self.within(SOON, self.body("/status")).await?;
        let document: Document =
            serde_json::from_str(&raw).map_err(|_| self.stranger("/status"))?;
        Ok(Heard { document, raw, sent })
    }

    /// Resolves when the index of the status differs from `index`, or after `wait`.
    pub(super) async fn changed(&self, index: u64, wait: Duration) -> Result<(), Trouble> {
        let path = format!("/watch?index={index}&wait={}", duration::format(wait));
        self.within(wait + GRACE, self.body(&path)).await.map(drop)
    }

    /// Opens the event stream.
    pub(super) async fn events(&self) -> Result<Events, Trouble> {
        let (response, driver) = self.within(SOON, self.ask("/watch")).await?;
        Ok(Events {
            body: response.into_body(),
            driver,
            parser: EventParser::default(),
            sidecar: self.clone(),
        })
    }

    async fn within<T>(
        &self,
        bound: Duration,
        work: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        tokio::time::timeout(bound, work).await.unwrap_or_else(|_| Err(self.silent(bound)))
    }

    /// Returns the error for a request without an answer within `bound`.
    pub(super) fn silent(&self, bound: Duration) -> Trouble {
        Trouble {
            problem: format!("no answer from {} within {}", self.url, duration::format(bound)),
            remedy: "the process may be stopped, or a network between may drop packets".into(),
        }
    }

    async fn body(&self, path: &str) -> Result<String, Trouble> {
        let (response, mut driver) = self.ask(path).await?;
        let body = Limited::new(response.into_body(), LONGEST).collect();
        let body = driver.along(body).await.map_err(|_| self.broken())?;
        String::from_utf8(body.to_bytes().into()).map_err(|_| self.stranger(path))
    }

    async fn ask(&self, path: &str) -> Result<(Response<Incoming>, Driver), Trouble> {
        let (mut sender, mut driver, authority, prefix) = match &self.place {
            Place::Tcp { host, port, authority, path } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                let (sender, driver) = self.shake(stream).await?;
                (sender, driver, authority.as_str(), path.as_str())
            }
            Place::Unix(socket) => {
                let (sender, driver) = self.shake(UnixStream::connect(socket).await).await?;
                (sender, driver, "localhost", "")
            }
        };
        let request = Request::get(format!("{prefix}{path}"))
            .header("host", authority)
            .header("user-agent", concat!("tenure/", env!("CARGO_PKG_VERSION")))
            .body(Empty::new())
            .map_err(|_| self.broken())?;
        let answer = driver.along(sender.send_request(request)).await;
        let response = answer.map_err(|_| self.broken())?;
        // Dropping the sender would close the connection, and an event stream with it.
        driver.sender = Some(sender);
        match response.status() {
            StatusCode::OK => Ok((response, driver)),
            StatusCode::SERVICE_UNAVAILABLE => Err(Trouble {
                problem: format!("{} has too many connections or event streams", self.url),
                remedy: "end some, or raise --max-connections of `tenure run`".into(),
            }),
            code => Err(Trouble {
                problem: format!("{} answers {} to {path}", self.url, code.as_u16()),
                remedy: "is it `tenure run` that listens there? its address is its --listen".into(),
            }),
        }
    }

    async fn shake<S>(
        &self,
        stream: std::io::Result<S>,
    ) -> Result<(SendRequest<Empty<Bytes>>, Driver), Trouble>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let stream = stream.map_err(|error| self.unreachable(&error))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|_| self.broken())?;
        let connection = async {
            // A failure shows as a missing or incomplete response.
            let _ = connection.await;
        };
        Ok((sender, Driver { connection: Box::pin(connection), ended: false, sender: None }))
    }

    fn unreachable(&self, error: &std::io::Error) -> Trouble {
        Trouble {
            problem: format!("nothing answers at {}: {error}", self.url),
            remedy: "is `tenure run` up there? name another place with --url or TENURE_URL".into(),
        }
    }

    fn broken(&self) -> Trouble {
        Trouble {
            problem: format!("{} broke off before it had answered", self.url),
            remedy: "has `tenure run` just ended there? its log says why".into(),
        }
    }

    fn stranger(&self, path: &str) -> Trouble {
        Trouble {
            problem: format!("{} answers {path} with something that is no status", self.url),
            remedy: "is it `tenure run` that listens there? its address is its --listen".into(),
        }
    }
}

/// Parses http://HOST:PORT or unix:/path.
pub(super) fn place(url: &str) -> Result<Place, String> {
    if let Some(path) = url.strip_prefix("unix:") {
        return if path.starts_with('/') {
            Ok(Place::Unix(path.into()))
        } else {
            Err("names a socket that does not begin with /".into())
        };
    }
    let parsed = Url::parse(url).map_err(|error| format!("is not a URL: {error}"))?;
    if parsed.scheme() != "http" {
        return Err("is neither http:// nor unix:".into());
    }
    if parsed.query().is_some() || parsed.fragment().is_some() || !parsed.username().is_empty() {
        return Err("has more in it than host, port and path".into());
    }
    let host = parsed.host_str().ok_or("names no host")?;
    let port = parsed.port_or_known_default().ok_or("names no port")?;
    Ok(Place::Tcp {
        // The brackets of an IPv6 address belong to the URL; the resolver does not take them.
        host: host.trim_matches(['[', ']']).to_owned(),
        port,
        authority: format!("{host}:{port}"),
        path: parsed.path().trim_end_matches('/').to_owned(),
    })
}

/// Performs the I/O of one connection, while a request or response on it is awaited.
struct Driver {
    connection: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: bool,
    sender: Option<SendRequest<Empty<Bytes>>>,
}

impl Driver {
    /// Polls the connection along with the future that depends on it.
    async fn along<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = &mut self.connection, if !self.ended => self.ended = true,
            }
        }
    }
}

/// An event stream.
pub(super) struct Events {
    body: Incoming,
    driver: Driver,
    parser: EventParser,
    sidecar: Sidecar,
}

impl Events {
    /// Returns the data of the next event.
    pub(super) async fn next(&mut self) -> Result<String, Trouble> {
        loop {
            if let Some(data) = self.parser.next() {
                return Ok(data);
            }
            let frame = self.driver.along(self.body.frame()).await;
            let Some(Ok(frame)) = frame else {
                return Err(self.sidecar.broken());
            };
            if let Ok(bytes) = frame.into_data() {
                self.parser.take(&bytes);
            }
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
    fn urls_name_a_host_or_a_socket() {
        let tcp = |host: &str, port, authority: &str, path: &str| Place::Tcp {
            host: host.to_owned(),
            port,
            authority: authority.to_owned(),
            path: path.to_owned(),
        };
        assert_eq!(place("http://a:1"), Ok(tcp("a", 1, "a:1", "")));
        assert_eq!(place("http://a/"), Ok(tcp("a", 80, "a:80", "")));
        assert_eq!(place("http://[::1]:1/x/"), Ok(tcp("::1", 1, "[::1]:1", "/x")));
        assert_eq!(place("unix:/run/x"), Ok(Place::Unix("/run/x".into())));
        for bad in ["", "a:1", "https://a", "unix:x", "http://", "http://a?b", "http://u@a"] {
            assert!(place(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_flag_beats_the_variable_and_a_fault_names_its_source() {
        let variable = Environment::of([(VARIABLE, "unix:/variable")]);
        let of = |url: Option<&str>, environment: &Environment| {
            Sidecar::of(&UrlArgs { url: url.map(str::to_owned) }, environment).map(|it| it.url)
        };
        assert_eq!(of(Some("unix:/flag"), &variable).unwrap(), "unix:/flag");
        assert_eq!(of(None, &variable).unwrap(), "unix:/variable");
        assert_eq!(of(None, &Environment::of([("", "")])).unwrap(), USUAL_URL);
        let fault = of(None, &Environment::of([(VARIABLE, "ftp://x")])).unwrap_err();
        assert!(fault.contains("TENURE_URL") && fault.contains("ftp://x"), "{fault}");
    }
}

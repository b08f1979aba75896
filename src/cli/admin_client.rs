//! Requests to the admin listener of a sidecar. A request is never repeated, since one whose answer
//! was lost may have taken effect.

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, StatusCode};
use serde_json::{Map, Value};

use super::client::{Address, Sidecar};
use super::document::Document;
use super::terminal::harmless;
use crate::config::{Environment, admin, duration};
use crate::http::client::{self, Cause};
use crate::tls::system_client;

/// The bound on a request: what the listener grants the driver, and a margin.
const SOON: Duration = Duration::from_secs(8);

/// The most bytes of a response.
const LONGEST: usize = 1 << 20;

const ADDRESS: &str = "TENURE_ADMIN";
const TOKEN_FILE: &str = "TENURE_ADMIN_TOKEN_FILE";

/// The admin listener to call.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct AdminArgs {
    /// The sidecar's admin listener, as its own --admin: unix:/path, 127.0.0.1:PORT or
    /// http://127.0.0.1:PORT [default: TENURE_ADMIN]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// The file that holds the token, where the listener is an address [default:
    /// TENURE_ADMIN_TOKEN_FILE]
    #[arg(long, value_name = "PATH")]
    admin_token_file: Option<PathBuf>,
    /// Do not wait until it is done
    #[arg(long)]
    pub(super) no_wait: bool,
    /// Print the answer, and what came of it, as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// An admin listener.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AdminListener {
    address: Address,
    /// The token, for a listener on loopback.
    token: Option<String>,
    /// The address as it was given, for messages.
    given: String,
}

impl AdminListener {
    /// Determines the listener and the token.
    ///
    /// # Errors
    /// When no address or no token was given, or one of them is invalid, with a remedy.
    pub(super) async fn of(args: &AdminArgs, environment: &Environment) -> Result<Self, String> {
        let (text, source) = match (&args.admin, environment.get(ADDRESS)) {
            (Some(text), _) => (text.as_str(), "flag --admin"),
            (None, Some(text)) => (text, "variable TENURE_ADMIN"),
            (None, None) => {
                return Err("no admin address was given\n  name the admin listener of tenure run \
                            with --admin or TENURE_ADMIN: unix:/path or 127.0.0.1:PORT; it has one \
                            if it was started with --admin"
                    .to_owned());
            }
        };
        let parsed = Address::parse(text).and_then(|it| match it.is_https() {
            true => Err("is https://, and the admin listener is on loopback, without TLS".into()),
            false => Ok(it),
        });
        let address = parsed.map_err(|problem| {
            format!(
                "admin = {text:?} ({source})\n    {problem}\n    remedy: write unix:/path, \
                 127.0.0.1:PORT or http://127.0.0.1:PORT"
            )
        })?;
        let mut it = Self { address, token: None, given: text.to_owned() };
        let Address::Tcp(url) = &it.address else {
            return Ok(it);
        };
        let host = url.host_str().unwrap_or_default();
        let is_loopback = host.trim_matches(['[', ']']).parse().map(|it: IpAddr| it.is_loopback());
        if !is_loopback.unwrap_or_else(|_| host.eq_ignore_ascii_case("localhost")) {
            return Err(format!(
                "{text} is not a loopback address: the token would be sent unencrypted\n  run this \
                 on the host of tenure run, or through a tunnel that ends on loopback"
            ));
        }
        let file = args.admin_token_file.clone();
        let Some(file) = file.or_else(|| environment.get(TOKEN_FILE).map(PathBuf::from)) else {
            return Err(it.status_listener().await.unwrap_or_else(|| {
                format!(
                    "{text} requires a token\n  name the file that holds it with \
                     --admin-token-file or {TOKEN_FILE}"
                )
            }));
        };
        let token = admin::token(&file)
            .map_err(|problem| format!("admin-token-file = {:?}\n    {problem}", file.display()))?;
        it.token = Some(token);
        Ok(it)
    }

    /// Returns the error for an address that is a status listener's; `None` if it is not.
    async fn status_listener(&self) -> Option<String> {
        let sidecar = Sidecar::at(self.address.clone(), self.given.clone());
        sidecar.status().await.ok().map(|_| {
            format!(
                "{} is the status listener of tenure run, which takes no commands\n  name its admin \
                 listener: the address that it was given with --admin",
                self.given
            )
        })
    }

    /// Asks for the status of the instance; `None` if its version does not say it here.
    pub(super) async fn status(&self) -> Result<Option<Document>, String> {
        let answer = self.post("/v1/status", &Value::Object(Map::new())).await?;
        match answer.code {
            StatusCode::OK => serde_json::from_str(&answer.raw)
                .map(Some)
                .map_err(|_| "the answer is something other than a status".to_owned()),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(answer.refusal()),
        }
    }

    /// Posts a body to a path. An error says why it failed and what to do.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Answer, String> {
        let request = system_client(false)
            .map_err(Into::into)
            .and_then(|tls| self.address.request(Method::POST, path, None, tls))
            .map_err(|error| format!("the request cannot be made: {error:#}"))?
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string());
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let broken = "the connection broke before the answer\n  the command may have been carried \
                      out: see tenure status, and the log of tenure run";
        let work = async {
            let response = request.send().await.map_err(|error| {
                if error.is_connect() {
                    unreachable(&self.address, &error)
                } else {
                    broken.to_owned()
                }
            })?;
            let code = response.status();
            let body = client::body(response, LONGEST).await.map_err(|_| broken.to_owned())?;
            Ok((code, String::from_utf8_lossy(&body).trim().to_owned()))
        };
        let answered = tokio::time::timeout(SOON, work).await.unwrap_or_else(|_| {
            Err(format!(
                "no answer within {}\n  the process may be stopped, or its disk may hang; the \
                 command may yet be carried out: see tenure status",
                duration::format(SOON)
            ))
        });
        let (code, raw) = answered?;
        if let Ok(Value::Object(fields)) = serde_json::from_str(&raw) {
            return Ok(Answer { code, fields, raw });
        }
        Err(self.status_listener().await.unwrap_or_else(|| {
            format!(
                "the answer {} is not JSON\n  is it the --admin of tenure run that listens there?",
                code.as_u16()
            )
        }))
    }
}

/// The response to a command.
pub(super) struct Answer {
    pub(super) code: StatusCode,
    pub(super) fields: Map<String, Value>,
    /// The body as it was received.
    pub(super) raw: String,
}

impl Answer {
    /// Returns a field of text.
    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field)?.as_str()
    }

    /// Formats the refusal of a command, with its remedy.
    pub(super) fn refusal(&self) -> String {
        let error = self.text("error").map_or_else(|| self.code.to_string(), harmless);
        match self.remedy().map(harmless) {
            Some(remedy) => format!("{error}\n  {remedy}"),
            None => error,
        }
    }

    /// Returns what to do about a refusal, if anything is known.
    fn remedy(&self) -> Option<&str> {
        self.text("remedy").or(match self.code {
            StatusCode::UNAUTHORIZED => Some("is it the token file of that tenure run?"),
            StatusCode::FORBIDDEN => Some("run this as the user of tenure run, or as root"),
            StatusCode::NOT_FOUND => Some("is that tenure run of another version?"),
            _ => None,
        })
    }

    /// Returns a field of milliseconds.
    pub(super) fn milliseconds(&self, field: &str) -> Option<Duration> {
        self.fields.get(field)?.as_u64().map(Duration::from_millis)
    }
}

/// Formats why there is no connection, with a remedy.
fn unreachable(address: &Address, error: &reqwest::Error) -> String {
    let why = client::reason(error);
    match address {
        Address::Tcp(url) => {
            format!(
                "nothing answers at {url}: {why}\n  is tenure run running there, with this --admin?"
            )
        }
        Address::Unix(socket) => {
            let remedy = socket_remedy(socket, client::cause(error));
            format!("cannot reach unix:{}: {why}\n  {remedy}", socket.display())
        }
    }
}

/// Returns what to do about a socket that cannot be reached, from the file's metadata.
fn socket_remedy(socket: &Path, cause: Cause) -> String {
    match cause {
        Cause::Io(io::ErrorKind::NotFound) => {
            "no such socket: is tenure run running on this host, with this --admin?".to_owned()
        }
        Cause::Io(io::ErrorKind::ConnectionRefused) => {
            "the process that created this socket has ended: start tenure run again".to_owned()
        }
        Cause::Io(io::ErrorKind::PermissionDenied) => match std::fs::symlink_metadata(socket) {
            Ok(found) if found.uid() == 0 => {
                "only root may use this socket: run this as root".to_owned()
            }
            Ok(found) => {
                format!(
                    "only uid {0} and root may use this socket: run this as uid {0}",
                    found.uid()
                )
            }
            Err(_) => format!(
                "its directory is not accessible for uid {}: run this as the user of tenure run",
                rustix::process::geteuid().as_raw()
            ),
        },
        _ => "is it the --admin of tenure run that listens there?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(address: Option<&str>) -> AdminArgs {
        AdminArgs { admin: address.map(str::to_owned), ..AdminArgs::default() }
    }

    #[tokio::test]
    async fn the_address_is_written_as_run_takes_it_or_as_a_url() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "0123456789abcdef\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, mode).unwrap();
        let environment =
            Environment::of([(ADDRESS, "unix:/variable"), (TOKEN_FILE, file.to_str().unwrap())]);
        let of = async |address| AdminListener::of(&args(address), &environment).await;
        for (given, socket) in [(None, "/variable"), (Some("unix:/flag"), "/flag")] {
            let it = of(given).await.unwrap();
            assert_eq!((it.address, it.token), (Address::Unix(socket.into()), None));
        }
        for text in ["127.0.0.1:4041", "http://127.0.0.1:4041", "http://127.0.0.1:4041/"] {
            let it = of(Some(text)).await.unwrap();
            assert_eq!(it.address, Address::parse("http://127.0.0.1:4041").unwrap(), "{text}");
            assert_eq!(it.token.as_deref(), Some("0123456789abcdef"));
        }
        for bad in ["unix:x", "https://127.0.0.1:1", "ftp://x"] {
            assert!(of(Some(bad)).await.unwrap_err().contains("remedy"), "{bad}");
        }
        for beyond in ["10.0.0.1:1", "http://example.org:1", "0.0.0.0:1"] {
            assert!(of(Some(beyond)).await.unwrap_err().contains("loopback"), "{beyond}");
        }
        let nothing = Environment::of([("", "")]);
        let fault = AdminListener::of(&args(None), &nothing).await.unwrap_err();
        assert!(fault.contains("TENURE_ADMIN"), "{fault}");
        let fault = AdminListener::of(&args(Some("127.0.0.1:1")), &nothing).await.unwrap_err();
        assert!(fault.contains("--admin-token-file"), "{fault}");
    }
}

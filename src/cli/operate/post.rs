//! Sends one POST to an admin listener: plain HTTP/1.1 over a unix socket or loopback. It never
//! repeats a request, since one whose answer was lost may have taken effect.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::cli::client::Place;
use crate::config::duration;

/// The bound on a request: what the listener grants the driver, and a margin.
const SOON: Duration = Duration::from_secs(8);

/// The most bytes of a response.
const LONGEST: usize = 64 * 1_024;

/// The response.
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

    /// Returns a field of milliseconds.
    pub(super) fn milliseconds(&self, field: &str) -> Option<Duration> {
        self.fields.get(field)?.as_u64().map(Duration::from_millis)
    }
}

/// Posts a body to a path. An error says why it failed and what to do.
pub(super) async fn post(
    place: &Place,
    token: Option<&str>,
    path: &str,
    body: &Value,
) -> Result<Answer, String> {
    let work = async {
        match place {
            Place::Tcp { host, port, authority, path: prefix } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                let stream = stream.map_err(|error| unreachable_port(authority, &error))?;
                let path = format!("{prefix}{path}");
                send(stream, authority, token, &path, body).await
            }
            Place::Unix(socket) => {
                let stream = UnixStream::connect(socket).await;
                let stream = stream.map_err(|error| unreachable_socket(socket, &error))?;
                send(stream, "localhost", None, path, body).await
            }
        }
    };
    tokio::time::timeout(SOON, work).await.unwrap_or_else(|_| {
        Err(format!(
            "no answer within {}\n  the process may be stopped, or its disk may hang; the call \
             may be done yet: look at tenure status",
            duration::format(SOON)
        ))
    })
}

async fn send<S>(
    stream: S,
    authority: &str,
    token: Option<&str>,
    path: &str,
    body: &Value,
) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let broken = "the connection broke off before the answer\n  the call may be done: look at \
                  tenure status, and at the log of tenure run";
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|_| broken.to_owned())?;
    let mut request = Request::post(path)
        .header("host", authority)
        .header("user-agent", concat!("tenure/", env!("CARGO_PKG_VERSION")))
        .header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request
        .body(Full::new(Bytes::from(body.to_string())))
        .map_err(|error| format!("the call cannot be made: {error}"))?;
    let ask = async {
        let response: Response<_> = sender.send_request(request).await.ok()?;
        let code = response.status();
        let bytes = Limited::new(response.into_body(), LONGEST).collect().await.ok()?.to_bytes();
        Some((code, String::from_utf8_lossy(&bytes).trim().to_owned()))
    };
    let drive = async {
        // A failure shows as a missing or incomplete response.
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    let answered = tokio::select! {
        biased;
        answered = ask => answered,
        () = drive => None,
    };
    let (code, raw) = answered.ok_or_else(|| broken.to_owned())?;
    let Ok(Value::Object(fields)) = serde_json::from_str(&raw) else {
        return Err(format!(
            "{} and no JSON was answered\n  is it the --admin of tenure run that listens there?",
            code.as_u16()
        ));
    };
    Ok(Answer { code, fields, raw })
}

fn unreachable_port(authority: &str, error: &io::Error) -> String {
    let remedy = "is tenure run up there, with this --admin?";
    format!("nothing answers at {authority}: {error}\n  {remedy}")
}

/// Formats why a socket could not be reached, with a remedy from the file's metadata.
fn unreachable_socket(socket: &Path, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => {
            "there is no such socket: is tenure run up here, with this --admin?".to_owned()
        }
        io::ErrorKind::ConnectionRefused => {
            "the process that made this socket is gone: start tenure run again".to_owned()
        }
        io::ErrorKind::PermissionDenied => match std::fs::symlink_metadata(socket) {
            Ok(found) => format!(
                "the socket is for uid {} and root, and you are uid {}: call as that user",
                found.uid(),
                rustix::process::geteuid().as_raw()
            ),
            Err(_) => format!(
                "its directory is closed to you, uid {}: call as the user of tenure run",
                rustix::process::geteuid().as_raw()
            ),
        },
        _ => "is it the --admin of tenure run that listens there?".to_owned(),
    };
    format!("cannot reach unix:{}: {error}\n  {remedy}", socket.display())
}

//! `tenure step-down`, `transfer`, `pause`, `resume` and `drained`: send an operator's command to
//! the admin listener of a running sidecar.
//!
//! They do not wait until a command that has begun is done; `tenure wait` does. They never repeat a
//! request.

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::client::Address;
use super::terminal::{complain, harmless, print};
use crate::admin::{LONGEST_HOLD_OFF, USUAL_HOLD_OFF};
use crate::config::{Environment, admin, duration};
use crate::http::client::{self, Cause};
use crate::status::words::spoken;

/// The bound on a request: what the listener grants the driver, and a margin.
const SOON: Duration = Duration::from_secs(8);

/// The most bytes of a response.
const LONGEST: usize = 64 * 1_024;

const ADDRESS: &str = "TENURE_ADMIN";
const TOKEN_FILE: &str = "TENURE_ADMIN_TOKEN_FILE";

/// Whom to tell.
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
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// For how long the others go first.
#[derive(clap::Args, Clone, Debug)]
pub struct HoldOff {
    /// For how long another goes first: 1ms to 1h; `pause` is for longer
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = hold_off)]
    hold_off: Duration,
}

/// Arguments of `step-down`.
#[derive(clap::Args, Clone, Debug)]
pub struct StepDown {
    #[command(flatten)]
    hold_off: HoldOff,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of `transfer`.
#[derive(clap::Args, Clone, Debug)]
pub struct Transfer {
    /// The identity of the candidate that is to lead
    #[arg(long, value_name = "IDENTITY")]
    to: String,
    #[command(flatten)]
    hold_off: HoldOff,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of `drained`.
#[derive(clap::Args, Clone, Debug)]
pub struct Drained {
    /// The term whose work has ended (TENURE_TERM of the service): a late word of an earlier term
    /// ends no later drain
    #[arg(long, value_name = "N")]
    term: Option<u64>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// A command with its arguments.
#[derive(Clone, Debug)]
pub enum Order {
    /// Step down.
    StepDown(StepDown),
    /// Hand leadership to a named successor.
    Transfer(Transfer),
    /// Leave the election.
    Pause(AdminArgs),
    /// Rejoin the election.
    Resume(AdminArgs),
    /// Report that the service has finished its work.
    Drained(Drained),
}

/// The help of `step-down`.
pub const STEP_DOWN: &str = "\
The leader says passive at once, gives its service up to --drain-timeout to end its work, releases \
the lease, and does not compete for --hold-off, so that another wins. If no other is well, it leads \
again after that.

Examples:
  tenure step-down --admin unix:/run/tenure/admin.sock
  tenure step-down --hold-off 1m && tenure wait --for passive";

/// The help of `transfer`.
pub const TRANSFER: &str = "\
As step-down, and the others let the successor go first for --hold-off, each by its own clock. A \
successor that is dead or unknown costs that time, and nothing else.

Example:
  tenure transfer --to web-2";

/// The help of `pause`.
pub const PAUSE: &str = "\
A leader resigns first: it drains and releases, and another leads. That is unlike Patroni's pause, \
which keeps the leader where it is. A pause ends with `tenure resume`, or with the process.

Examples:
  tenure pause && tenure wait --for passive
  tenure resume";

/// The help of `resume`.
pub const RESUME: &str = "\
Ends a pause. An instance that is not paused, but lets others go first after `step-down`, or for a \
successor that does not come, competes again at once.

Example:
  tenure resume";

/// The help of `drained`.
pub const DRAINED: &str = "\
For the service that is passive now and has ended all that it began as leader: the lease is released \
at once instead of at the end of --drain-timeout. --on-drain and the end of exec's child say the same.

Example:
  tenure drained --term \"$TENURE_TERM\"";

fn hold_off(text: &str) -> Result<Duration, String> {
    let longest = duration::format(LONGEST_HOLD_OFF);
    match duration::parse(text) {
        Ok(it) if it.is_zero() => Err("gives the others no time to go first".to_owned()),
        Ok(it) if it > LONGEST_HOLD_OFF => {
            Err(format!("is longer than {longest}; tenure pause is for longer"))
        }
        Ok(it) => Ok(it),
        Err(error) => {
            Err(format!("{error}; write a duration such as {}", duration::format(USUAL_HOLD_OFF)))
        }
    }
}

impl Order {
    fn admin(&self) -> &AdminArgs {
        match self {
            Self::StepDown(it) => &it.admin,
            Self::Transfer(it) => &it.admin,
            Self::Drained(it) => &it.admin,
            Self::Pause(it) | Self::Resume(it) => it,
        }
    }

    fn path(&self) -> &'static str {
        match self {
            Self::StepDown(_) => "/v1/step-down",
            Self::Transfer(_) => "/v1/transfer",
            Self::Pause(_) => "/v1/pause",
            Self::Resume(_) => "/v1/resume",
            Self::Drained(_) => "/v1/drained",
        }
    }

    fn body(&self) -> Value {
        let written = |it: &HoldOff| duration::format(it.hold_off);
        match self {
            Self::StepDown(it) => json!({ "hold_off": written(&it.hold_off) }),
            Self::Transfer(it) => json!({ "to": it.to, "hold_off": written(&it.hold_off) }),
            Self::Drained(Drained { term: Some(term), .. }) => json!({ "term": term }),
            Self::Pause(_) | Self::Resume(_) | Self::Drained(_) => json!({}),
        }
    }
}

/// Sends the command. Exits with 0 when it is done or begun, 1 when it is not possible or the
/// sidecar cannot be reached, 2 when the arguments are wrong.
pub async fn run(order: Order, environment: &Environment) -> ExitCode {
    let (address, token) = match listener(order.admin(), environment) {
        Ok(listener) => listener,
        Err(fault) => {
            complain(&fault);
            return ExitCode::from(2);
        }
    };
    let answer = match post(&address, token.as_deref(), order.path(), &order.body()).await {
        Ok(answer) => answer,
        Err(trouble) => {
            complain(&trouble);
            return ExitCode::FAILURE;
        }
    };
    if answer.code.is_success() {
        let text =
            if order.admin().json { harmless(&answer.raw) } else { summary(&order, &answer) };
        let _ = print(&format!("{text}\n"));
        return ExitCode::SUCCESS;
    }
    if order.admin().json {
        let _ = print(&format!("{}\n", harmless(&answer.raw)));
    }
    let error = answer.text("error").map_or_else(|| answer.code.to_string(), harmless);
    match remedy(answer.code) {
        Some(remedy) => complain(&format!("{error}\n  {remedy}")),
        None => complain(&error),
    }
    if answer.code == StatusCode::BAD_REQUEST { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// Determines the admin listener and the token.
fn listener(
    args: &AdminArgs,
    environment: &Environment,
) -> Result<(Address, Option<String>), String> {
    let (text, source) = match (&args.admin, environment.get(ADDRESS)) {
        (Some(text), _) => (text.as_str(), "flag --admin"),
        (None, Some(text)) => (text, "variable TENURE_ADMIN"),
        (None, None) => {
            return Err("whom to tell is not known\n  name the admin listener of tenure run with \
                        --admin or TENURE_ADMIN: unix:/path or 127.0.0.1:PORT; it has one if it \
                        was started with --admin"
                .to_owned());
        }
    };
    let url = if text.contains("://") || text.starts_with("unix:") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let address = Address::parse(&url).map_err(|problem| {
        format!(
            "admin = {text:?} ({source})\n    {problem}\n    remedy: write unix:/path, \
             127.0.0.1:PORT or http://127.0.0.1:PORT"
        )
    })?;
    let Address::Tcp(url) = &address else {
        return Ok((address, None));
    };
    let host = url.host_str().unwrap_or_default();
    let is_loopback = host.trim_matches(['[', ']']).parse().map(|it: IpAddr| it.is_loopback());
    if !is_loopback.unwrap_or_else(|_| host.eq_ignore_ascii_case("localhost")) {
        return Err(format!(
            "{text} is beyond loopback, where the token would go in the clear\n  call on the \
             machine of tenure run, or through a tunnel that ends on loopback"
        ));
    }
    let file = args.admin_token_file.clone();
    let Some(file) = file.or_else(|| environment.get(TOKEN_FILE).map(PathBuf::from)) else {
        return Err(format!(
            "{text} wants a token\n  name the file that holds it with --admin-token-file or \
             {TOKEN_FILE}"
        ));
    };
    let token = admin::token(&file)
        .map_err(|problem| format!("admin-token-file = {:?}\n    {problem}", file.display()))?;
    Ok((address, Some(token)))
}

/// The response to a command.
struct Answer {
    code: StatusCode,
    fields: Map<String, Value>,
    /// The body as it was received.
    raw: String,
}

impl Answer {
    /// Returns a field of text.
    fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field)?.as_str()
    }

    /// Returns a field of milliseconds.
    fn milliseconds(&self, field: &str) -> Option<Duration> {
        self.fields.get(field)?.as_u64().map(Duration::from_millis)
    }
}

/// Posts a body to a path. An error says why it failed and what to do. A request is never repeated,
/// since one whose answer was lost may have taken effect.
async fn post(
    address: &Address,
    token: Option<&str>,
    path: &str,
    body: &Value,
) -> Result<Answer, String> {
    let request = address
        .request(Method::POST, path, None)
        .map_err(|error| format!("the request cannot be made: {error:#}"))?
        .header(CONTENT_TYPE, "application/json")
        .body(body.to_string());
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    let broken = "the connection broke before the answer\n  the command may have been carried out: \
                  see tenure status, and the log of tenure run";
    let work = async {
        let response = request.send().await.map_err(|error| {
            if error.is_connect() { unreachable(address, &error) } else { broken.to_owned() }
        })?;
        let code = response.status();
        let body = client::body(response, LONGEST).await.map_err(|_| broken.to_owned())?;
        Ok((code, String::from_utf8_lossy(&body).trim().to_owned()))
    };
    let answered = tokio::time::timeout(SOON, work).await.unwrap_or_else(|_| {
        Err(format!(
            "no answer within {}\n  the process may be stopped, or its disk may hang; the command \
             may yet be carried out: see tenure status",
            duration::format(SOON)
        ))
    });
    let (code, raw) = answered?;
    let Ok(Value::Object(fields)) = serde_json::from_str(&raw) else {
        return Err(format!(
            "the answer {} is not JSON\n  is it the --admin of tenure run that listens there?",
            code.as_u16()
        ));
    };
    Ok(Answer { code, fields, raw })
}

/// Formats why there is no connection, with a remedy.
fn unreachable(address: &Address, error: &reqwest::Error) -> String {
    let why = client::reason(error);
    match address {
        Address::Tcp(url) => {
            format!("nothing answers at {url}: {why}\n  is tenure run up there, with this --admin?")
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
            "there is no such socket: is tenure run up here, with this --admin?".to_owned()
        }
        Cause::Io(io::ErrorKind::ConnectionRefused) => {
            "the process that made this socket is gone: start tenure run again".to_owned()
        }
        Cause::Io(io::ErrorKind::PermissionDenied) => match std::fs::symlink_metadata(socket) {
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
    }
}

fn remedy(code: StatusCode) -> Option<&'static str> {
    match code {
        StatusCode::CONFLICT => Some("tenure status shows who leads, and where to say this"),
        StatusCode::UNAUTHORIZED => Some("is it the token file of that tenure run?"),
        StatusCode::FORBIDDEN => Some("call as the user of tenure run, or as root"),
        StatusCode::NOT_FOUND => Some("is that tenure run of another version?"),
        _ => None,
    }
}

/// Formats what was done and what follows from it.
fn summary(order: &Order, answer: &Answer) -> String {
    let leaving = leaving(answer);
    match order {
        Order::StepDown(it) => format!(
            "{leaving}; this instance lets others go first for {}",
            duration::format(it.hold_off.hold_off)
        ),
        Order::Transfer(it) => format!(
            "{leaving}; the others let {} go first for {}",
            harmless(&it.to),
            duration::format(it.hold_off.hold_off)
        ),
        Order::Pause(_) if answer.code == StatusCode::OK => {
            "paused: takes no part until tenure resume".to_owned()
        }
        Order::Pause(_) => format!("{leaving}; then it takes no part until tenure resume"),
        Order::Resume(_) => "resumed: takes part again".to_owned(),
        Order::Drained(_) => "the drain has ended: the lease is released now".to_owned(),
    }
}

/// Formats how the leader steps down: its state, when the lease is free, and when another leads.
fn leaving(answer: &Answer) -> String {
    let state = harmless(answer.text("state").unwrap_or("passive"));
    let release = match answer.milliseconds("drain_remaining_ms") {
        Some(left) if !left.is_zero() => format!("releases the lease within {}", spoken(left)),
        _ => "releases the lease now".to_owned(),
    };
    let mut text = format!("{state}: passive at once, {release}");
    if let Some(wait) = answer.milliseconds("another_leads_in_ms") {
        text += &format!("; another, if one is well, leads within about {}", spoken(wait));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(address: Option<&str>) -> AdminArgs {
        AdminArgs { admin: address.map(str::to_owned), ..AdminArgs::default() }
    }

    #[test]
    fn the_address_is_written_as_run_takes_it_or_as_a_url() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "0123456789abcdef\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, mode).unwrap();
        let environment =
            Environment::of([(ADDRESS, "unix:/variable"), (TOKEN_FILE, file.to_str().unwrap())]);
        let of = |address| listener(&args(address), &environment);
        assert_eq!(of(None).unwrap(), (Address::Unix("/variable".into()), None));
        assert_eq!(of(Some("unix:/flag")).unwrap(), (Address::Unix("/flag".into()), None));
        for text in ["127.0.0.1:4041", "http://127.0.0.1:4041", "http://127.0.0.1:4041/"] {
            let (address, token) = of(Some(text)).unwrap();
            assert_eq!(address, Address::parse("http://127.0.0.1:4041").unwrap(), "{text}");
            assert_eq!(token.as_deref(), Some("0123456789abcdef"));
        }
        for bad in ["unix:x", "https://127.0.0.1:1", "ftp://x"] {
            assert!(of(Some(bad)).unwrap_err().contains("remedy"), "{bad}");
        }
        for beyond in ["10.0.0.1:1", "http://example.org:1", "0.0.0.0:1"] {
            assert!(of(Some(beyond)).unwrap_err().contains("loopback"), "{beyond}");
        }
        let nothing = Environment::of([("", "")]);
        let fault = listener(&args(None), &nothing).unwrap_err();
        assert!(fault.contains("TENURE_ADMIN"), "{fault}");
        let fault = listener(&args(Some("127.0.0.1:1")), &nothing).unwrap_err();
        assert!(fault.contains("--admin-token-file"), "{fault}");
    }
}

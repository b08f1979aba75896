//! What must be well for us to compete: the probes, and how often and how patiently they ask.
//!
//! What it does not do: it asks nothing. That a host can be resolved or a file is there is what the
//! probes find out.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use url::{Host, Url};

use super::command_line::{self, CommandLine};
use super::duration;
use super::faults::{Problem, without_secrets};

/// The health of the service beside us; without probes it is always well.
#[derive(Clone, Debug)]
pub struct Health {
    /// What is asked; all must be well.
    pub probes: Vec<Probe>,
    /// From the beginning of one question to that of the next, for each probe; default 2 s. Too
    /// long finds a dead service late, too short is work for nothing.
    pub interval: Duration,
    /// Bound on one question; default 1 s, at most `interval`.
    pub timeout: Duration,
    /// After so many failures in a row a leader drains and resigns, a standby stops competing;
    /// default 3, at least 1.
    pub failures: u32,
    /// After so many successes in a row it competes; default 2, at least 1.
    pub successes: u32,
}

/// One question to the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Well while a GET is answered by 2xx.
    Http(Url),
    /// Well while a connection can be made.
    Tcp {
        /// A name or an address, an IPv6 address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// Well while the file is there.
    File {
        /// Which file.
        path: PathBuf,
        /// And was changed so lately.
        max_age: Option<Duration>,
    },
    /// Well while the command exits with 0.
    Exec(CommandLine),
}

impl fmt::Display for Probe {
    /// Names the probe for people: as it was configured, without what may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => f.write_str(&without_secrets(url.as_str())),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::File { path, max_age } => {
                match Url::from_file_path(path) {
                    Ok(url) => write!(f, "file:{}", url.path())?,
                    Err(()) => write!(f, "file:{}", path.display())?,
                }
                max_age.map_or(Ok(()), |it| write!(f, "?max_age={}", duration::format(it)))
            }
            Self::Exec(command) => write!(f, "exec:{command}"),
        }
    }
}

/// What there is, for remedies.
const KINDS: &str = "write http://HOST/PATH, https://HOST/PATH, tcp://HOST:PORT, file:/PATH?max_age=30s or exec:CMD";

/// Reads a probe; `path` is the variable `PATH`.
pub(super) fn probe(text: &str, path: Option<&str>) -> Result<Probe, Problem> {
    if text.trim().is_empty() {
        return Err(Problem::new("has an empty item", KINDS));
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return Err(Problem::new("is not a URL", KINDS));
    };
    match scheme {
        "http" | "https" => web(text).map(Probe::Http),
        "tcp" => tcp(text),
        "file" => file(text, rest),
        "exec" => command_line::parse(rest, path).map(Probe::Exec),
        _ => {
            let remedy = match rest.parse::<u16>() {
                Ok(port) => format!("write tcp://{scheme}:{port}, or http://{scheme}:{port}/PATH"),
                Err(_) => KINDS.to_owned(),
            };
            Err(Problem::new("names no kind of probe", remedy))
        }
    }
}

/// Reads a web address that is asked or posted to: one without user and fragment.
pub(super) fn web(text: &str) -> Result<Url, Problem> {
    const WRITE: &str = "write an address such as http://127.0.0.1:8080/healthz";
    let url = Url::parse(text)
        .map_err(|error| Problem::new(format!("is no web address: {error}"), WRITE))?;
    let has_slashes = text.split_once(':').is_some_and(|(_, rest)| rest.starts_with("//"));
    let problem = if !has_slashes || text.contains('\\') {
        "is no web address with // before its host"
    } else if text.contains(|it: char| it.is_whitespace() || it.is_control()) {
        "has a space or a line's end in it"
    } else if !url.username().is_empty() || url.password().is_some() {
        return Err(Problem::new(
            "has a user or password in it",
            "take it out: a setting is no place for credentials",
        ));
    } else if url.fragment().is_some() {
        "has a fragment, which is never sent"
    } else if url.port() == Some(0) {
        "has the port 0"
    } else {
        return Ok(url);
    };
    Err(Problem::new(problem, WRITE))
}

fn tcp(text: &str) -> Result<Probe, Problem> {
    const WRITE: &str = "write a host and a port, such as tcp://127.0.0.1:5432 or tcp://[::1]:5432";
    let url = Url::parse(text)
        .map_err(|error| Problem::new(format!("is no host with a port: {error}"), WRITE))?;
    let bare = text.strip_prefix("tcp://").is_some_and(|it| !it.contains(['@', '?', '#', '%']));
    if !bare || !matches!(url.path(), "" | "/") {
        return Err(Problem::new("has more or less in it than a host and a port", WRITE));
    }
    let (Some(host), Some(port @ 1..)) = (url.host_str(), url.port()) else {
        return Err(Problem::new("lacks a host or a port", WRITE));
    };
    let host = Host::parse(host)
        .map_err(|error| Problem::new(format!("names no host: {error}"), WRITE))?;
    let host = match host {
        Host::Ipv6(address) => address.to_string(),
        other => other.to_string(),
    };
    Ok(Probe::Tcp { host, port })
}

fn file(text: &str, rest: &str) -> Result<Probe, Problem> {
    const WRITE: &str = "write the file in full, such as file:/run/orders/alive?max_age=30s";
    let local = rest.starts_with('/') && (!rest.starts_with("//") || rest.starts_with("///"));
    let url = Url::parse(text).ok().filter(|_| local);
    let path = url
        .as_ref()
        .and_then(|it| it.to_file_path().ok())
        .filter(|it| !it.as_os_str().as_encoded_bytes().contains(&0) && it.file_name().is_some());
    let (Some(url), Some(path)) = (url, path) else {
        return Err(Problem::new("names no file from the root on", WRITE));
    };
    if url.fragment().is_some() {
        return Err(Problem::new("has a fragment", "write # as %23 if it belongs to the name"));
    }
    let max_age = match url.query() {
        None => None,
        Some(query) => Some(max_age(query)?),
    };
    Ok(Probe::File { path, max_age })
}

fn max_age(query: &str) -> Result<Duration, Problem> {
    let Some(age) = query.strip_prefix("max_age=") else {
        return Err(Problem::new(
            "has something else after its ? than max_age",
            "write ?max_age=30s; or ? as %3F if it belongs to the name",
        ));
    };
    let age = super::values::duration(age).map_err(|it| {
        Problem::new(format!("has a max_age that {}", it.problem), "write ?max_age=30s")
    })?;
    if age.is_zero() {
        return Err(Problem::new(
            "has a max_age of 0s, which every file is past",
            "write ?max_age=30s",
        ));
    }
    Ok(age)
}

/// How many in a row.
pub(super) fn count(text: &str) -> Result<u32, Problem> {
    match text.parse::<u32>() {
        Ok(number @ 1..=1_000) => Ok(number),
        _ => Err(Problem::new("is not a number from 1 to 1000", "write a number such as 3")),
    }
}

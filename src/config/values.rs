//! Parses single values: names, addresses, files, numbers, words.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use url::Host;

use super::duration;
use super::faults::Problem;
use crate::lease::text::LONGEST_NAME;

/// An address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl Listen {
    /// Returns whether other hosts can reach it: a TCP address that is not loopback.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().to_canonical().is_loopback())
    }

    /// Returns whether only one of two addresses can be listened on: they are equal, or one of them
    /// is all addresses of the same port. [`::`](std::net::Ipv6Addr::UNSPECIFIED) is those of IPv4
    /// too.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(one), Self::Tcp(other)) => {
                let covers = |it: &SocketAddr, other: &SocketAddr| {
                    it.ip().is_unspecified() && (it.is_ipv6() || other.is_ipv4())
                };
                one.port() != 0
                    && one.port() == other.port()
                    && (one.ip() == other.ip() || covers(one, other) || covers(other, one))
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A status file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusFile {
    /// Its path.
    pub path: PathBuf,
    /// Its format, by the file name extension.
    pub format: FileFormat,
}

/// The format of a status file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// The status document.
    Json,
    /// Lines that a shell can source.
    Env,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// The most bytes of a unix socket's path.
const LONGEST_SOCKET: usize = 107;

/// The shortest period; a shorter one would keep the process busy with nothing else.
pub(super) const SHORTEST: std::time::Duration = std::time::Duration::from_millis(10);

/// Parses the name of an election: 1–63 of `a-z 0-9 - .`, first and last alphanumeric.
pub(super) fn election(text: &str) -> Result<String, Problem> {
    let alphanumeric = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
    let problem = if text.is_empty() {
        "is empty"
    } else if text.len() > 63 {
        "is longer than 63 characters"
    } else if !text.chars().all(|it| alphanumeric(it) || it == '-' || it == '.') {
        "has characters other than a-z, 0-9, - and ."
    } else if !text.starts_with(alphanumeric) || !text.ends_with(alphanumeric) {
        "begins or ends with - or ."
    } else {
        return Ok(text.to_owned());
    };
    let near: String = text
        .chars()
        .map(|it| it.to_ascii_lowercase())
        .map(|it| if alphanumeric(it) || it == '.' { it } else { '-' })
        .take(63)
        .collect();
    let near = near.trim_matches(['-', '.']);
    let near = if near.is_empty() { "orders" } else { near };
    Err(Problem::new(problem, format!("write a name such as {near}")))
}

/// Parses an identity: 1–128 printable ASCII characters, first and last no space.
pub(super) fn identity(text: &str) -> Result<String, Problem> {
    printable(text)
}

/// Parses the address of a service: 1–128 printable ASCII characters without spaces, an IPv6 address
/// in brackets. Removes brackets around an IPv4 address, so that `[$(POD_IP)]:8080` is right for pods
/// of both families.
pub(super) fn advertise(text: &str) -> Result<String, Problem> {
    if text.contains(' ') {
        return Err(Problem::new("has a space", "write an address such as 10.0.3.7:8080"));
    }
    let text = printable(text)?;
    let start = text.find("://").map_or(0, |at| at + "://".len());
    let end = text[start..].find('/').map_or(text.len(), |at| start + at);
    let (scheme, authority, path) = (&text[..start], &text[start..end], &text[end..]);
    let bracketed = authority.strip_prefix('[').and_then(|it| it.split_once(']'));
    if let Some((host, port)) = bracketed.filter(|(host, _)| host.parse::<Ipv4Addr>().is_ok()) {
        return Ok(format!("{scheme}{host}{port}{path}"));
    }
    // The end of an IPv6 address can look like a port: such a port is the likelier meaning.
    let is_ipv6 = |it: &str| it.parse::<Ipv6Addr>().is_ok();
    let with_port = authority.rsplit_once(':').filter(|(host, _)| is_ipv6(host));
    let mended = match with_port {
        Some((host, port)) => format!("[{host}]:{port}"),
        None if is_ipv6(authority) => format!("[{authority}]"),
        None => return Ok(text),
    };
    Err(Problem::new(
        "is an IPv6 address without brackets, which does not tell its port",
        format!("write {scheme}{mended}{path}"),
    ))
}

fn printable(text: &str) -> Result<String, Problem> {
    let problem = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > LONGEST_NAME {
        format!("is longer than {LONGEST_NAME} characters")
    } else if !text.bytes().all(|it| (b' '..=b'~').contains(&it)) {
        "has characters that are not printable ASCII".to_owned()
    } else if text.trim() != text {
        "begins or ends with a space".to_owned()
    } else {
        return Ok(text.to_owned());
    };
    Err(Problem::new(problem, format!("write 1 to {LONGEST_NAME} printable ASCII characters")))
}

/// Parses the prefix of the blob's name: path segments, none of them empty or ending with a dot.
pub(super) fn blob_prefix(text: &str) -> Result<String, Problem> {
    let remedy = "write segments of a-z, A-Z, 0-9, - _ and . with / between, such as team/prod";
    let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    let trimmed = text.strip_suffix('/').unwrap_or(text);
    let problem = if trimmed.is_empty() {
        "is empty"
    } else if trimmed.len() > 512 {
        "is longer than 512 characters"
    } else if trimmed.split('/').any(|it| it.is_empty() || it.ends_with('.')) {
        "has a segment that is empty or ends with a dot"
    } else if !trimmed.split('/').all(|it| it.chars().all(plain)) {
        "has characters other than letters, digits, - _ . and /"
    } else {
        return Ok(trimmed.to_owned());
    };
    Err(Problem::new(problem, remedy))
}

pub(super) fn duration(text: &str) -> Result<std::time::Duration, Problem> {
    duration::parse(text).map_err(|problem| {
        let lacks_unit = duration::parse(&format!("{text}s")).is_ok();
        let remedy = match lacks_unit {
            true => format!("write {text}s, or {text}ms for milliseconds"),
            false => "write a duration such as 15s, 1m30s or 500ms".to_owned(),
        };
        Problem::new(problem, remedy)
    })
}

/// Parses a period: a duration of at least 10 ms.
pub(super) fn period(text: &str) -> Result<std::time::Duration, Problem> {
    match duration(text)? {
        it if it < SHORTEST => Err(Problem::new("is shorter than 10ms", "write 10ms or more")),
        it => Ok(it),
    }
}

/// Parses the path of a file.
pub(super) fn path(text: &str) -> Result<PathBuf, Problem> {
    let problem = if text.is_empty() {
        "is empty"
    } else if text.contains('\0') {
        "contains a NUL"
    } else {
        return Ok(PathBuf::from(text));
    };
    Err(Problem::new(problem, "write a path such as /etc/tenure/token"))
}

/// Returns whether the host of a URL is loopback.
pub(super) fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

/// Parses a boolean.
pub(super) fn switch(text: &str) -> Result<bool, Problem> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(Problem::new("is not a boolean", "write true or false")),
    }
}

/// Parses a number of connections.
pub(super) fn max_connections(text: &str) -> Result<usize, Problem> {
    match text.parse::<usize>() {
        Ok(number @ 1..=65_535) => Ok(number),
        _ => Err(Problem::new("is not a number from 1 to 65535", "write a number such as 512")),
    }
}

/// Parses a whole number from 0 to 100.
pub(super) fn percent(text: &str) -> Result<u8, Problem> {
    match text.parse::<u8>() {
        Ok(number @ 0..=100) => Ok(number),
        _ => Err(Problem::new("is not a whole number from 0 to 100", "write a number such as 50")),
    }
}

/// Parses the names of hosts, without ports.
pub(super) fn host_names(texts: &[String]) -> Result<Vec<String>, Problem> {
    for text in texts {
        if text.is_empty() {
            return Err(Problem::new("has an empty item", "remove it"));
        }
        if Host::parse(text).is_err() {
            return Err(Problem::new(
                format!("has {text:?}, which is not the name of a host"),
                "write a name such as tenure.internal or an address, without a port",
            ));
        }
    }
    Ok(texts.to_vec())
}

/// The word for no listener.
const OFF: &str = "off";

/// Parses the addresses of the status listener; `off` alone is none.
pub(super) fn listen(texts: &[String]) -> Result<Vec<Listen>, Problem> {
    if texts == [OFF] {
        return Ok(Vec::new());
    }
    if texts.is_empty() {
        return Err(Problem::new("is an empty list", "write off to have no status listener"));
    }
    let mut all: Vec<Listen> = Vec::new();
    for text in texts {
        if text == OFF {
            return Err(Problem::new(
                "has off next to an address",
                "write off alone, or remove it",
            ));
        }
        let one = address(text)?;
        if let Some(other) = all.iter().find(|it| it.overlaps(&one)) {
            let problem = match *other == one {
                true => format!("has {text} twice"),
                false => format!("has both {other} and {text}, of which one includes the other"),
            };
            return Err(Problem::new(problem, "list each address once"));
        }
        all.push(one);
    }
    Ok(all)
}

/// Parses one address of a listener.
pub(super) fn address(text: &str) -> Result<Listen, Problem> {
    if let Some(path) = text.strip_prefix("unix:") {
        let problem = if !path.starts_with('/') {
            "names a socket whose path does not begin with /"
        } else if path.len() > LONGEST_SOCKET {
            "names a socket whose path is longer than the 107 bytes that the system allows"
        } else if path.contains('\0') {
            "contains a NUL"
        } else {
            return Ok(Listen::Unix(PathBuf::from(path)));
        };
        return Err(Problem::new(problem, "write a path such as unix:/run/tenure/status.sock"));
    }
    text.parse::<SocketAddr>().map(Listen::Tcp).map_err(|_| {
        let remedy = if let Some(port) =
            text.strip_prefix(':').filter(|it| it.parse::<u16>().is_ok())
        {
            format!("write [::]:{port} or 0.0.0.0:{port} for all addresses")
        } else if text.parse::<u16>().is_ok() {
            format!("write 127.0.0.1:{text}")
        } else if let Some(port) = text.strip_prefix("localhost:") {
            format!("write 127.0.0.1:{port} or [::1]:{port}")
        } else {
            "write an address with a port, such as 127.0.0.1:4040 or [::1]:4040; unix:/path; or off"
                .to_owned()
        };
        let problem = if text.is_empty() {
            "has an empty item".to_owned()
        } else {
            format!("has {text:?}, which is not an IP address with a port")
        };
        Problem::new(problem, remedy)
    })
}

/// Parses the address of a listener that is no socket.
pub(super) fn tcp_address(text: &str) -> Result<SocketAddr, Problem> {
    match address(text)? {
        Listen::Tcp(address) => Ok(address),
        Listen::Unix(_) => Err(Problem::new(
            "is a unix socket, which HAProxy cannot ask",
            "write an address with a port, such as 0.0.0.0:4042",
        )),
    }
}

/// Parses the status files; the file name extension chooses the format.
pub(super) fn status_files(texts: &[String]) -> Result<Vec<StatusFile>, Problem> {
    let mut all: Vec<StatusFile> = Vec::new();
    for text in texts {
        let path = PathBuf::from(text);
        let format = match path.extension().and_then(|it| it.to_str()) {
            Some("json") => FileFormat::Json,
            Some("env") => FileFormat::Env,
            _ if text.is_empty() => {
                return Err(Problem::new("has an empty item", "remove it"));
            }
            _ => {
                return Err(Problem::new(
                    format!("has {text:?}, whose extension is neither .json nor .env"),
                    "use the extension .json, or .env for a file that a shell can source",
                ));
            }
        };
        if all.iter().any(|it| it.path == path) {
            return Err(Problem::new(format!("has {text} twice"), "list each file once"));
        }
        all.push(StatusFile { path, format });
    }
    Ok(all)
}

/// Parses the format of log lines.
pub(super) fn log_format(text: &str) -> Result<LogFormat, Problem> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(Problem::new("is not a log format", "write text or json")),
    }
}

/// Parses the log filter: a level, and levels of single modules.
///
/// A bare word that is not a level is rejected, though [`Targets`] takes it for a module: it is more
/// likely a misspelt level.
///
/// [`Targets`]: tracing_subscriber::filter::Targets
pub(super) fn log_level(text: &str) -> Result<String, Problem> {
    const REMEDY: &str =
        "write error, warn, info, debug, trace or off; or info,tenure::store=debug";
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    for part in &parts {
        let (target, level) = part.split_once('=').unwrap_or(("tenure", part));
        if !levels.contains(&level.to_ascii_lowercase().as_str()) {
            return Err(Problem::new(format!("has {level:?}, which is not a level"), REMEDY));
        }
        let is_path = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | ':');
        if target.is_empty() || !target.chars().all(is_path) {
            return Err(Problem::new(format!("has {target:?}, which is not a module"), REMEDY));
        }
    }
    Ok(parts.join(","))
}

#[cfg(test)]
mod tests;

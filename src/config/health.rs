//! Settings of the health probes: what they test, how often, and how many failures count. No probe
//! is run here, and no host or file has to exist.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use url::{Host, Url};

use super::command_line::{self, CommandLine};
use super::duration;
use super::faults::{Problem, without_secrets};
use super::values;
use super::withheld::Withheld;

/// The health of the local service; without probes it is always healthy.
#[derive(Clone, Debug)]
pub struct Health {
    /// The probes; all must succeed.
    pub probes: Vec<Probe>,
    /// The time from the start of one run of a probe to the start of the next.
    pub interval: Duration,
    /// The bound on one run; at most `interval`.
    pub timeout: Duration,
    /// After this many failures in a row a leader drains and resigns, and a standby stops
    /// competing.
    pub failures: u32,
    /// After this many successes in a row the instance competes.
    pub successes: u32,
    /// The variables that commands do not inherit.
    pub withheld: Withheld,
}

/// A health probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Succeeds if a GET is answered with 2xx.
    Http(Url),
    /// Succeeds if a connection can be established.
    Tcp {
        /// A name or an address; an IPv6 address has no brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// Succeeds if the file exists.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The largest age of its last modification.
        max_age: Option<Duration>,
    },
    /// Succeeds if the command exits with 0.
    Exec(CommandLine),
}

impl fmt::Display for Probe {
    /// Formats the probe as it was configured, with secrets redacted.
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

/// The forms of a probe, for remedies.
const KINDS: &str = "write http://HOST/PATH, https://HOST/PATH, tcp://HOST:PORT, file:/PATH?max_age=30s or exec:CMD";

/// Parses a probe; `path` is the variable `PATH`.
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
            Err(Problem::new("is not a kind of probe", remedy))
        }
    }
}

/// Parses an HTTP URL for a probe or a webhook: without user and fragment.
pub(super) fn web(text: &str) -> Result<Url, Problem> {
    const WRITE: &str = "write a URL such as http://127.0.0.1:8080/healthz";
    let url =
        Url::parse(text).map_err(|error| Problem::new(format!("is not a URL: {error}"), WRITE))?;
    let rest = text.split_once(':').map_or("", |(_, rest)| rest);
    let two_slashes = rest.starts_with("//") && !rest.starts_with("///");
    let problem = if !two_slashes || text.contains('\\') {
        "is not a URL with two / before its host"
    } else if text.contains(|it: char| it.is_whitespace() || it.is_control()) {
        "contains a space or a line break"
    } else if !url.username().is_empty() || url.password().is_some() {
        return Err(Problem::new(
            "contains a user or password",
            "remove it: settings must not contain credentials",
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
        .map_err(|error| Problem::new(format!("is not a host with a port: {error}"), WRITE))?;
    let bare = text.strip_prefix("tcp://").is_some_and(|it| !it.contains(['@', '?', '#', '%']));
    if !bare || !matches!(url.path(), "" | "/") {
        return Err(Problem::new("is not just a host and a port", WRITE));
    }
    let (Some(host), Some(port @ 1..)) = (url.host_str(), url.port()) else {
        return Err(Problem::new("has no host or no port", WRITE));
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
    const WRITE: &str = "write an absolute path, such as file:/run/orders/alive?max_age=30s";
    let local = rest.starts_with('/') && (!rest.starts_with("//") || rest.starts_with("///"));
    let url = Url::parse(text).ok().filter(|_| local);
    let path = url
        .as_ref()
        .and_then(|it| it.to_file_path().ok())
        .filter(|it| !it.as_os_str().as_encoded_bytes().contains(&0) && it.file_name().is_some());
    let (Some(url), Some(path)) = (url, path) else {
        return Err(Problem::new("is not an absolute path", WRITE));
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
        let (name, value) = query.split_once('=').unwrap_or((query, "30s"));
        return Err(if strsim::damerau_levenshtein(name, "max_age") <= 2 {
            let value = if duration::parse(value).is_ok() { value } else { "30s" };
            Problem::new(
                format!("has the unknown parameter {name:?}"),
                format!("did you mean max_age? Write ?max_age={value}"),
            )
        } else {
            Problem::new(
                "has a query other than max_age",
                "write ?max_age=30s; or ? as %3F if it belongs to the name",
            )
        });
    };
    let age = values::duration(age).map_err(|it| {
        Problem::new(format!("has a max_age that {}", it.problem), "write ?max_age=30s")
    })?;
    if age.is_zero() {
        return Err(Problem::new(
            "has a max_age of 0s, which every file exceeds",
            "write ?max_age=30s",
        ));
    }
    Ok(age)
}

/// Parses a number of results in a row.
pub(super) fn count(text: &str) -> Result<u32, Problem> {
    match text.parse::<u32>() {
        Ok(number @ 1..=1_000) => Ok(number),
        _ => Err(Problem::new("is not a number from 1 to 1000", "write a number such as 3")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_four_kinds_of_probe_are_parsed_and_shown_without_secrets() {
        for (text, shown) in [
            ("http://127.0.0.1:8080/healthz", "http://127.0.0.1:8080/healthz"),
            ("https://orders.test/h?key=hidden", "https://orders.test/h?…"),
            ("tcp://localhost:5432", "tcp://localhost:5432"),
            ("tcp://[::1]:1/", "tcp://[::1]:1"),
            ("file:/run/alive", "file:/run/alive"),
            ("file:///run/a%3Fb?max_age=1m30s", "file:/run/a%3Fb?max_age=1m30s"),
            ("exec:/bin/sh -c hidden", "exec:/bin/sh …"),
        ] {
            let found = probe(text, None).unwrap();
            assert_eq!(found.to_string(), shown);
        }
        assert_eq!(
            probe("tcp://[::1]:2", None),
            Ok(Probe::Tcp { host: "::1".to_owned(), port: 2 }),
            "as it is connected to"
        );
        let age = Some(Duration::from_secs(30));
        assert_eq!(
            probe("file:/a b?max_age=30s", None),
            Ok(Probe::File { path: "/a b".into(), max_age: age })
        );
    }

    #[test]
    fn each_malformed_probe_has_a_remedy() {
        for (text, problem, remedy) in [
            ("", "empty item", "tcp://HOST:PORT"),
            ("localhost", "not a URL", "exec:CMD"),
            ("localhost:80", "not a kind", "tcp://localhost:80"),
            ("htp://x/", "not a kind", "http://HOST/PATH"),
            ("http:", "is not a URL", "http://127.0.0.1"),
            ("http:x/y", "two /", "http://127.0.0.1"),
            ("http:///x", "two /", "http://127.0.0.1"),
            ("http://", "is not a URL", "http://127.0.0.1"),
            ("http://a:99999/", "is not a URL", "http://127.0.0.1"),
            ("http://a:0/", "port 0", "http://127.0.0.1"),
            ("http://a/#b", "fragment", "http://127.0.0.1"),
            ("http://a/b c", "a space", "http://127.0.0.1"),
            ("http://me:hidden@a/", "user or password", "remove it"),
            ("tcp:a:1", "not just", "tcp://127.0.0.1:5432"),
            ("tcp://a", "no port", "tcp://127.0.0.1:5432"),
            ("tcp://:1", "empty host", "tcp://127.0.0.1:5432"),
            ("tcp://a:0", "no port", "tcp://127.0.0.1:5432"),
            ("tcp://a:1/b", "not just", "tcp://127.0.0.1:5432"),
            ("tcp://a:1?b", "not just", "tcp://127.0.0.1:5432"),
            ("tcp://me:hidden@a:1", "not just", "tcp://127.0.0.1:5432"),
            ("tcp://a:99999", "not a host with a port", "tcp://127.0.0.1:5432"),
            ("file:x", "absolute", "file:/run"),
            ("file://x/y", "absolute", "file:/run"),
            ("file:/", "absolute", "file:/run"),
            ("file:/a%00b", "absolute", "file:/run"),
            ("file:/a#b", "fragment", "%23"),
            ("file:/a?age=1s", "than max_age", "%3F"),
            ("file:/a?max_age=1", "max_age that has no unit", "max_age=30s"),
            ("file:/a?max_age=0s", "every file", "max_age=30s"),
            ("exec:", "is empty", "write a program"),
            ("exec:/nonexistent", "does not exist", "install"),
            ("exec:sh 'x", "unclosed", "close it"),
        ] {
            let found = probe(text, None).unwrap_err();
            assert!(found.problem.contains(problem), "{text}: {found:?}");
            assert!(found.remedy.contains(remedy), "{text}: {found:?}");
            assert!(!found.problem.contains("hidden"), "{found:?}");
        }
    }

    #[test]
    fn counts_begin_at_one() {
        assert_eq!((count("1"), count("1000")), (Ok(1), Ok(1_000)));
        for bad in ["0", "-1", "1001", "x", ""] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_of_a_probe_is_read_back(
            host in "[a-z]{1,8}(\\.[a-z]{1,8}){0,2}", port in 1_u16.., name in "[a-zA-Z0-9 \
            _?#%ä.-]{0,8}[a-z]",
            age in proptest::option::of(1_u64..100_000),
        ) {
            let max_age = age.map(Duration::from_millis);
            let file = Probe::File { path: format!("/x/{name}").into(), max_age };
            for it in [file, Probe::Tcp { host, port }, Probe::Tcp { host: "::1".to_owned(), port }] {
                prop_assert_eq!(probe(&it.to_string(), None), Ok(it));
            }
        }

        #[test]
        fn no_text_panics(text in "(http|https|tcp|file|exec|x)?:?/{0,3}.{0,40}") {
            let _ = probe(&text, Some("/nonexistent"));
        }
    }
}

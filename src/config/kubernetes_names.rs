//! Validates names and addresses by Kubernetes' rules, so that a misspelt one is reported before
//! anything starts.

use std::net::{IpAddr, SocketAddr};

use super::faults::Problem;
use crate::lease::PeerUrl;

/// The longest DNS label, and the longest name in the key of a label.
const LABEL: usize = 63;

/// The longest DNS subdomain, which most names of objects are.
const SUBDOMAIN: usize = 253;

/// The label that names the election, besides the one for the role.
const ELECTION: &str = "tenure.dev/election";

fn plain(it: char) -> bool {
    it.is_ascii_lowercase() || it.is_ascii_digit()
}

/// Validates a DNS label (RFC 1123), the form of the names of namespaces and Services.
pub(super) fn label(text: &str) -> Result<String, Problem> {
    name(text, LABEL, "a-z, 0-9 and -", |it| plain(it) || it == '-')
}

/// Validates a DNS subdomain (RFC 1123), the form of the names of Leases and pods.
pub(super) fn subdomain(text: &str) -> Result<String, Problem> {
    name(text, SUBDOMAIN, "a-z, 0-9, - and .", |it| plain(it) || matches!(it, '-' | '.'))
}

fn name(
    text: &str,
    longest: usize,
    all: &str,
    allowed: impl Fn(char) -> bool,
) -> Result<String, Problem> {
    // Each part between dots must be a label.
    let is_whole = |it: &str| it.starts_with(plain) && it.ends_with(plain);
    let problem = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > longest {
        format!("is longer than {longest} characters")
    } else if !text.chars().all(&allowed) {
        format!("has characters other than {all}")
    } else if !text.split('.').all(is_whole) {
        "has a part between dots that does not begin and end with a-z or 0-9".to_owned()
    } else {
        return Ok(text.to_owned());
    };
    let lower = text.chars().map(|it| it.to_ascii_lowercase());
    let near: String = lower.map(|it| if allowed(it) { it } else { '-' }).take(longest).collect();
    let parts = near.split('.').map(|it| it.trim_matches('-')).filter(|it| !it.is_empty());
    let near = parts.collect::<Vec<_>>().join(".");
    let near = if near.is_empty() { "orders" } else { &near };
    Err(Problem::new(problem, format!("write a name such as {near}")))
}

/// Validates the key of a label: `[SUBDOMAIN/]NAME`.
pub(super) fn label_key(text: &str) -> Result<String, Problem> {
    let remedy = "write a key such as tenure.dev/role or example.org/role";
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let alphanumeric = |it: char| it.is_ascii_alphanumeric();
    let allowed = |it: char| alphanumeric(it) || matches!(it, '-' | '_' | '.');
    let problem = if text.is_empty() {
        "is empty"
    } else if prefix.is_some_and(|it| subdomain(it).is_err()) {
        "has a prefix that is not a domain of at most 253 characters"
    } else if name.is_empty() || name.len() > LABEL {
        "has a name that is not 1 to 63 characters long"
    } else if !name.chars().all(allowed) {
        "has characters in its name other than letters, digits, - _ and ."
    } else if !name.starts_with(alphanumeric) || !name.ends_with(alphanumeric) {
        "has a name that begins or ends with - _ or ."
    } else if text == ELECTION {
        "is the label for the name of the election"
    } else {
        return Ok(text.to_owned());
    };
    Err(Problem::new(problem, remedy))
}

/// Parses an address that an `EndpointSlice` may contain; an error says what is wrong with it.
pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    let Ok(address) = text.parse::<IpAddr>().map(|it| it.to_canonical()) else {
        return Err("has no IP address".to_owned());
    };
    if address.is_loopback() || PeerUrl::unfit(address).is_some() {
        return Err("is an address that other pods cannot reach".to_owned());
    }
    Ok(address)
}

/// Returns the host in a service's address: `HOST`, `HOST:PORT`, `[HOST]:PORT`, or a URL.
pub(super) fn host(address: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    if let Ok(socket) = authority.parse::<SocketAddr>() {
        return socket.ip().to_string();
    }
    let bare = authority.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    bare.unwrap_or(authority).to_owned()
}

/// Returns the lines of a manifest that pass a field of the pod to its container.
pub(super) fn downward(variable: &str, field: &str) -> String {
    format!("env: [{{name: {variable}, valueFrom: {{fieldRef: {{fieldPath: {field}}}}}}}]")
}

/// Returns the name of the `EndpointSlice` of a Service and an election. A Service's name contains
/// no dot, so that no two pairs share a name.
#[must_use]
pub(crate) fn slice(service: &str, election: &str) -> String {
    format!("{service}.{election}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_valid_as_in_kubernetes() {
        for good in ["a", "0", "a-b", "a--b", &"x".repeat(63)] {
            assert_eq!(label(good).as_deref(), Ok(good));
            assert_eq!(subdomain(good).as_deref(), Ok(good));
        }
        for good in ["a.b", "a-b.0.c", &"x".repeat(253)] {
            assert_eq!(subdomain(good).as_deref(), Ok(good));
            assert!(label(good).is_err(), "{good}");
        }
        for bad in ["", "-a", "a-", ".a", "a.", "a..b", "a.-b", "a_b", "A", "ä", "a/b", " a"] {
            assert!(subdomain(bad).is_err() && label(bad).is_err(), "{bad}");
        }
        assert!(label(&"x".repeat(64)).is_err() && subdomain(&"x".repeat(254)).is_err());
    }

    #[test]
    fn an_address_must_be_reachable_by_other_pods() {
        for good in ["10.0.0.1", "fd00::1", "2001:db8::1"] {
            assert!(address(good).is_ok(), "{good}");
        }
        assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
        for bad in
            ["", "a", "127.0.0.1", "::1", "0.0.0.0", "::", "169.254.0.1", "fe80::1", "224.0.0.1"]
        {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn the_name_that_a_remedy_names_is_valid(text in ".{0,80}|[a-zA-Z.-]{0,300}") {
            for read in [label, subdomain] {
                if let Err(problem) = read(&text) {
                    let (_, name) = problem.remedy.rsplit_once(' ').unwrap();
                    prop_assert!(read(name).is_ok(), "{}", problem.remedy);
                }
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,80}") {
            let _ = (label_key(&text), address(&text), host(&text));
        }
    }
}

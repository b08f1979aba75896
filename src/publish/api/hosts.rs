//! Which requests are answered, by the host that they name: a web page must not read the status of a
//! listener on loopback through a name of its own that it resolves to loopback (DNS rebinding).

use std::net::{IpAddr, SocketAddr};

use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::http::listener::Listener;

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const DESTINATION: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The hosts that requests to one listener may name.
pub(super) enum Hosts {
    /// Any: the listener is a unix socket, or is meant for other machines and no names are set.
    Any,
    /// These, the names of loopback, and every address: DNS rebinding needs a name.
    Named(Vec<String>),
}

impl Hosts {
    /// Returns the hosts of a listener, given the names of the setting `allowed-hosts`.
    pub(super) fn of(listener: &Listener, allowed: &[String]) -> Self {
        let Listener::Tcp(bound, _) = listener else { return Self::Any };
        let on_loopback = bound.local_addr().is_ok_and(|address| address.ip().is_loopback());
        if on_loopback || !allowed.is_empty() { Self::Named(allowed.to_vec()) } else { Self::Any }
    }

    /// Returns the response to a request that is not answered. One that names no host comes from no
    /// browser. A link to the page may be on another site.
    pub(super) fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        let is = |name: HeaderName, value| headers.get(name).is_some_and(|it| it == value);
        let follows_a_link = || is(MODE, "navigate") && is(DESTINATION, "document");
        if is(SITE, "cross-site") && !follows_a_link() {
            let body = "requests of pages of other sites are not answered\n";
            return Some((StatusCode::FORBIDDEN, body).into_response());
        }
        let host = headers.get(HOST)?;
        let Self::Named(allowed) = self else { return None };
        let host = host.to_str().unwrap_or_default();
        // Most clients name an address and a port, which needs no copy.
        if host.parse::<SocketAddr>().is_ok() {
            return None;
        }
        let host: Option<Authority> = host.parse().ok();
        let name = host.as_ref().map_or("", |it| it.host());
        let is_allowed = needs_no_name(name) || allowed.iter().any(|it| is_same(it, name));
        (!is_allowed).then(|| {
            let body = "this listener does not answer requests for this host; to allow it, name it \
                        with --allowed-hosts\n";
            (StatusCode::MISDIRECTED_REQUEST, body).into_response()
        })
    }
}

/// Returns whether a host is an address or a name of loopback.
fn needs_no_name(host: &str) -> bool {
    let of_loopback = |name: String| name == "localhost" || name.ends_with(".localhost");
    host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        || of_loopback(without_dot(host).to_ascii_lowercase())
}

/// Returns whether two names are the same host; a final dot and the case do not matter.
fn is_same(one: &str, other: &str) -> bool {
    without_dot(one).eq_ignore_ascii_case(without_dot(other))
}

fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn code(hosts: &Hosts, name: &'static str, value: &str) -> Option<u16> {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        hosts.refusal(&headers).map(|it| it.status().as_u16())
    }

    #[test]
    fn loopback_and_named_hosts_are_answered_and_no_other() {
        let hosts = Hosts::Named(vec!["web-1.internal.".to_owned()]);
        for host in [
            "localhost",
            "LocalHost:4040",
            "localhost.:1",
            "127.0.0.1:4040",
            "10.0.0.1:4040",
            "[::1]:4040",
            "orders.localhost",
            "web-1.internal:80",
            "WEB-1.internal.",
        ] {
            assert_eq!(code(&hosts, "host", host), None, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "", "a b"] {
            assert_eq!(code(&hosts, "host", host), Some(421), "{host}");
            assert_eq!(code(&Hosts::Any, "host", host), None, "{host}");
        }
        assert!(hosts.refusal(&HeaderMap::new()).is_none());
    }

    #[test]
    fn pages_of_other_sites_are_not_answered() {
        for hosts in [Hosts::Any, Hosts::Named(Vec::new())] {
            assert_eq!(code(&hosts, "sec-fetch-site", "cross-site"), Some(403));
            let link = [
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "document"),
            ];
            let link = link.into_iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            assert!(hosts.refusal(&link.collect()).is_none(), "a link on another site");
            for site in ["same-origin", "same-site", "none"] {
                assert_eq!(code(&hosts, "sec-fetch-site", site), None, "{site}");
            }
        }
    }
}

//! Authorizes callers: by user id on a unix socket (this process's user or root), by bearer token
//! on loopback. Browsers are always rejected.
//!
//! A web page can make its reader's browser send requests to a loopback address, through a DNS name
//! of the page's own that resolves to it. So `Host` must name loopback, and `Origin`, which a
//! browser adds to each POST, must be absent.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};

use super::token::TokenFile;
use crate::http::listener::Stream;

/// The user id of root.
const ROOT: u32 = 0;

/// How callers are authorized.
#[derive(Clone)]
pub(super) enum Auth {
    /// By the user id that the kernel recorded when the peer connected.
    User {
        /// The effective user id of this process.
        own_uid: u32,
    },
    /// By a token, on a TCP port that browsers can reach too.
    Token {
        /// The file that holds the token.
        file: TokenFile,
        /// The port that the listener is bound to.
        port: u16,
    },
}

/// The peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A process of this host.
    Process {
        /// Its user id when it connected.
        uid: u32,
        /// Its process id, if the kernel reports it.
        pid: Option<i32>,
    },
    /// A TCP address.
    Address(SocketAddr),
    /// A peer whose credentials the system does not report.
    Unknown,
}

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    /// The token is missing or wrong.
    Unauthorized(&'static str),
    /// The request is rejected, whatever its token.
    Forbidden(String),
    /// The token file cannot be read or used.
    Unavailable(String),
}

impl Caller {
    /// Determines the peer of a connection.
    pub(super) fn of(stream: &Stream) -> Self {
        match stream {
            Stream::Tcp(it) => it.peer_addr().map_or(Self::Unknown, Self::Address),
            Stream::Unix(it) => it
                .peer_cred()
                .map_or(Self::Unknown, |peer| Self::Process { uid: peer.uid(), pid: peer.pid() }),
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { uid, pid: Some(pid) } => write!(f, "uid {uid} pid {pid}"),
            Self::Process { uid, pid: None } => write!(f, "uid {uid}"),
            Self::Address(address) => address.fmt(f),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl Auth {
    /// Authorizes a request by its headers and its caller.
    pub(super) async fn authorize(&self, caller: Caller, head: &Parts) -> Result<(), Denial> {
        let headers = &head.headers;
        if headers.contains_key(ORIGIN) {
            let error = "requests with an Origin header, as browsers send, are not allowed";
            return Err(Denial::Forbidden(error.to_owned()));
        }
        match self {
            Self::User { own_uid } => authorize_user(caller, *own_uid),
            Self::Token { file, port } => {
                let named =
                    head.uri.authority().is_none_or(|it| is_own_authority(it.as_str(), *port));
                if !named || !is_own_host(headers, *port) {
                    let error =
                        format!("Host must be 127.0.0.1:{port}, [::1]:{port} or localhost:{port}");
                    return Err(Denial::Forbidden(error));
                }
                let Some(token) = bearer(headers) else {
                    return Err(Denial::Unauthorized(
                        "a bearer token is required; send Authorization: Bearer TOKEN",
                    ));
                };
                match file.is(token).await {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(Denial::Unauthorized("the bearer token is wrong")),
                    // Details of the local file go to the log, not to an unauthorized caller.
                    Err(fault) => Err(Denial::Unavailable(fault)),
                }
            }
        }
    }
}

fn authorize_user(caller: Caller, own_uid: u32) -> Result<(), Denial> {
    match caller {
        Caller::Process { uid, .. } if uid == own_uid || uid == ROOT => Ok(()),
        Caller::Process { uid, .. } => Err(Denial::Forbidden(format!(
            "only {} may use this socket, and the caller is uid {uid}",
            users(own_uid)
        ))),
        _ => Err(Denial::Forbidden(format!("only {} may use this socket", users(own_uid)))),
    }
}

/// Names the users that may use the socket of this user.
fn users(own_uid: u32) -> String {
    if own_uid == ROOT { "root".to_owned() } else { format!("uid {own_uid} and root") }
}

fn is_own_host(headers: &HeaderMap, port: u16) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let first = hosts.next().and_then(|it| it.to_str().ok());
    hosts.next().is_none() && first.is_some_and(|it| is_own_authority(it, port))
}

/// Returns whether an authority is a loopback address or `localhost`, with the given port.
fn is_own_authority(authority: &str, port: u16) -> bool {
    // Without a port, the scheme's default applies.
    let (host, named) = match authority.rsplit_once(':') {
        Some((host, digits)) if !digits.ends_with(']') => (host, digits.parse().ok()),
        _ => (authority, Some(80)),
    };
    let bracketed = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let address = match bracketed {
        Some(it) => it.parse().map(IpAddr::V6),
        None => host.parse().map(IpAddr::V4),
    };
    let loopback =
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|it| it.is_loopback());
    loopback && named == Some(port)
}

/// Returns the token of the `Authorization` header; `None` if there are several such headers.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter().map(HeaderValue::as_bytes);
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use axum::http::Request;

    use super::*;

    fn request_line(headers: &[(&str, &str)]) -> Parts {
        request_to("/v1/pause", headers)
    }

    fn request_to(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let request = Request::post(uri);
        headers
            .iter()
            .fold(request, |it, (name, value)| it.header(*name, *value))
            .body(())
            .unwrap()
            .into_parts()
            .0
    }

    #[tokio::test]
    async fn a_socket_accepts_only_its_user_and_root() {
        let auth = Auth::User { own_uid: 1_000 };
        for (uid, admitted) in [(1_000, true), (0, true), (1_001, false), (65_534, false)] {
            let caller = Caller::Process { uid, pid: Some(7) };
            let answer = auth.authorize(caller, &request_line(&[])).await;
            assert_eq!(answer.is_ok(), admitted, "{uid}: {answer:?}");
        }
        let address = Caller::Address("127.0.0.1:9".parse().unwrap());
        for stranger in [address, Caller::Unknown] {
            assert!(auth.authorize(stranger, &request_line(&[])).await.is_err(), "{stranger}");
        }
        let owner = Caller::Process { uid: 1_000, pid: None };
        let answer = auth.authorize(owner, &request_line(&[("origin", "null")])).await;
        assert!(matches!(answer, Err(Denial::Forbidden(_))), "{answer:?}");
    }

    #[test]
    fn only_loopback_with_the_own_port_is_accepted() {
        for host in
            ["127.0.0.1:4041", "127.1.2.3:4041", "[::1]:4041", "localhost:4041", "LOCALHOST:4041"]
        {
            assert!(is_own_authority(host, 4_041), "{host}");
        }
        for host in [
            "",
            ":4041",
            "127.0.0.1",
            "localhost",
            "127.0.0.1:4040",
            "127.0.0.1:04x1",
            "evil.example:4041",
            "localhost.evil.example:4041",
            "10.0.0.1:4041",
            "[::2]:4041",
            "::1:4041",
            "127.0.0.1.evil.example:4041",
            "user@localhost:4041",
            "0.0.0.0:4041",
        ] {
            assert!(!is_own_authority(host, 4_041), "{host}");
        }
        assert!(
            is_own_authority("localhost", 80)
                && is_own_authority("[::1]", 80)
                && !is_own_authority("[::1]", 81)
        );
    }

    #[tokio::test]
    async fn loopback_requires_the_token_and_an_own_host() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "0123456789abcdef").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let auth = Auth::Token { file: TokenFile::new(&path), port: 4_041 };
        let caller = Caller::Address("127.0.0.1:9".parse().unwrap());
        let host = ("host", "localhost:4041");
        let token = ("authorization", "Bearer 0123456789abcdef");
        assert_eq!(auth.authorize(caller, &request_line(&[host, token])).await, Ok(()));
        let lower = ("authorization", "bearer  0123456789abcdef");
        assert_eq!(auth.authorize(caller, &request_line(&[host, lower])).await, Ok(()));
        for bad in [
            vec![host],
            vec![host, ("authorization", "0123456789abcdef")],
            vec![host, ("authorization", "Basic 0123456789abcdef")],
            vec![host, ("authorization", "Bearer 0123456789abcdee")],
            vec![host, ("authorization", "Bearer")],
            vec![host, token, token],
        ] {
            let answer = auth.authorize(caller, &request_line(&bad)).await;
            assert!(matches!(answer, Err(Denial::Unauthorized(_))), "{bad:?}: {answer:?}");
        }
        for bad in [
            vec![token],
            vec![token, ("host", "evil.example:4041")],
            vec![token, host, ("host", "evil.example:4041")],
            vec![token, host, ("origin", "http://localhost:4041")],
        ] {
            let answer = auth.authorize(caller, &request_line(&bad)).await;
            assert!(matches!(answer, Err(Denial::Forbidden(_))), "{bad:?}: {answer:?}");
        }
        let absolute = request_to("http://evil.example/v1/pause", &[host, token]);
        assert!(matches!(auth.authorize(caller, &absolute).await, Err(Denial::Forbidden(_))));
        std::fs::write(&path, "").unwrap();
        let answer = auth.authorize(caller, &request_line(&[host, token])).await;
        assert!(matches!(answer, Err(Denial::Unavailable(_))), "{answer:?}");
    }
}

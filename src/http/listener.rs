//! Listeners on TCP addresses and unix sockets, with limits on connections and requests. The status
//! listener and the admin listener are built on it.
//!
//! A socket file is replaced only if no process listens on it; any other file is never replaced.

mod connection;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod limits;
mod socket;
mod tls;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

use crate::config::Listen;
use crate::tls::ServerTls;
pub(crate) use connection::{ConnectionService, OwnPlace, Streaming, accept};
pub(crate) use limits::Connections;
pub use socket::SocketFile;
pub use tls::Tls;

/// How long sent bytes may stay unacknowledged before a connection is closed: a subscriber whose
/// machine is gone must not occupy a slot for hours.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// How many connections may wait to be accepted. The kernel drops the SYN of any further one, whose
/// client retries after a second: a burst of clients must not delay a probe.
const BACKLOG: u32 = 4096;

/// A bound listener.
pub enum Listener {
    /// A TCP address, with TLS or without.
    Tcp(TcpListener, Option<Arc<Tls>>),
    /// A unix socket with its file. The file is dropped first: if the listener closed first,
    /// another process could replace the dead socket's file just before it is removed.
    Unix(SocketFile, UnixListener),
}

/// An accepted connection.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// A process on this host, over a unix socket.
    Local,
    /// An address; IPv4 in IPv6 is IPv4, and of IPv6 only the network of 64 bits counts, since one
    /// machine may have all of its addresses.
    Address(IpAddr),
}

impl Peer {
    fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                let network = address.to_bits() >> 64 << 64;
                Ipv6Addr::from_bits(network).into()
            }
            address => address,
        })
    }

    /// Returns whether it is beyond this host.
    pub(crate) fn is_remote(self) -> bool {
        matches!(self, Self::Address(address) if !address.is_loopback())
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("this host"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl Stream {
    /// Returns the other end.
    pub(crate) fn peer(&self) -> Peer {
        match self {
            Self::Unix(_) => Peer::Local,
            Self::Tcp(stream) => {
                stream.peer_addr().map_or(Peer::Local, |address| Peer::of(address.ip()))
            }
        }
    }
}

/// Binds a listener that all users of this host can reach.
///
/// # Errors
/// When the address is in use or may not be bound, with the address in the message.
pub async fn bind(listen: &Listen) -> anyhow::Result<Listener> {
    match listen {
        Listen::Tcp(address) => Ok(bind_tcp(*address, "--listen")?.0),
        Listen::Unix(path) => {
            // Access is controlled by the directory's permissions; the status is no secret on this
            // host.
            let (file, bound) = socket::listen(path, Mode::from_raw_mode(0o666)).await?;
            Ok(Listener::Unix(file, bound))
        }
    }
}

/// Binds the TCP address of a setting; also returns its port.
pub(crate) fn bind_tcp(address: SocketAddr, setting: &str) -> anyhow::Result<(Listener, u16)> {
    let named = || format!("cannot listen on {address}; choose another address with {setting}");
    let bound = listen_on(address).with_context(named)?;
    let port = bound.local_addr().with_context(named)?.port();
    Ok((Listener::Tcp(bound, None), port))
}

/// Listens on an address. If the kernel has no IPv6, `[::]` falls back to all of IPv4, so that one
/// manifest works on all nodes.
fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let of = |it: &SocketAddr| if it.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let (socket, address) = match of(&address) {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && has_no_ipv6(&error) => {
            let all = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            (of(&all)?, all)
        }
        socket => (socket?, address),
    };
    // Connections of the previous process must not keep this one from binding.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn has_no_ipv6(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error())
}

/// Binds a unix socket that only its user can reach, from the first moment on.
///
/// # Errors
/// When the path is in use or may not be bound, with the path in the message.
pub async fn bind_private(path: &Path) -> anyhow::Result<Listener> {
    let (file, bound) = socket::listen(path, Mode::RUSR | Mode::WUSR).await?;
    Ok(Listener::Unix(file, bound))
}

impl Listener {
    /// Returns the address: for TCP as in a URL after `http://`, else `unix:/path`.
    #[must_use]
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(bound, _) => {
                bound.local_addr().map_or_else(|e| e.to_string(), |it| it.to_string())
            }
            Self::Unix(file, _) => format!("unix:{}", file.path.display()),
        }
    }

    /// Requires TLS on a TCP address; a unix socket stays as it is.
    #[must_use]
    pub fn with_tls(self, settings: &ServerTls) -> Self {
        match self {
            Self::Tcp(bound, _) => Self::Tcp(bound, Some(Arc::new(Tls::new(settings.clone())))),
            unix @ Self::Unix(..) => unix,
        }
    }

    /// Returns the TLS of this listener, if it has any.
    #[must_use]
    pub fn tls(&self) -> Option<&Arc<Tls>> {
        match self {
            Self::Tcp(_, tls) => tls.as_ref(),
            Self::Unix(..) => None,
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(bound, _) => {
                let (stream, _) = bound.accept().await?;
                // Small responses must not be delayed (Nagle's algorithm); both options are best
                // effort.
                let _ = stream.set_nodelay(true);
                let millis = UNACKNOWLEDGED.as_millis().try_into().unwrap_or(u32::MAX);
                let _ = sockopt::set_tcp_user_timeout(&stream, millis);
                Ok(Stream::Tcp(stream))
            }
            Self::Unix(_, bound) => Ok(Stream::Unix(bound.accept().await?.0)),
        }
    }
}

//! The probe `tcp://host:port`: succeeds if a connection can be established.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

use super::Outcome;
use crate::http::resolver::Resolver;

/// A probe of this kind.
pub(super) struct Tcp {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) resolver: Resolver,
}

impl Tcp {
    pub(super) async fn probe(&self) -> Outcome {
        let addresses = match self.resolver.resolve(&self.host, self.port).await {
            Ok(addresses) => addresses,
            Err(why) => return Outcome::failure(why.to_string()),
        };
        match connect(&addresses).await {
            Ok(_) => Outcome::success("connected".to_owned()),
            Err(why) => Outcome::failure(why),
        }
    }
}

/// Connects to the first address that accepts a connection; otherwise returns the error of the
/// last.
async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, String> {
    let mut why = "the name resolves to no address".to_owned();
    for address in addresses {
        match TcpStream::connect(address).await {
            // On a port of the ephemeral range, a connection can connect to itself.
            Ok(it) if meets_itself(&it) => {
                why = io::ErrorKind::ConnectionRefused.to_string();
            }
            Ok(it) => return Ok(it),
            Err(error) => why = error.kind().to_string(),
        }
    }
    Err(why)
}

fn meets_itself(stream: &TcpStream) -> bool {
    stream.local_addr().ok() == stream.peer_addr().ok()
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[tokio::test]
    async fn a_self_connection_differs_from_an_accepted_one() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let own = socket.local_addr().unwrap();
        assert!(meets_itself(&socket.connect(own).await.unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let taken = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(!meets_itself(&taken));
    }
}

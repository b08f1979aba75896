//! TLS on the connections of a listener: handshakes that are bounded in number and time, and an
//! answer to clients that speak plain HTTP.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Peer;
use super::limits::{Connections, Slot};
use crate::clock::{self, Moment};
use crate::tls::ServerTls;

/// The time limit of a handshake, as of a request.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How many handshakes there may be at a time: each may take 64 KiB of memory. For a further one,
/// that of the peer that has most is closed, the oldest first.
const HANDSHAKES: usize = 128;

/// The first byte of a client that speaks TLS.
const HANDSHAKE_RECORD: u8 = 22;

/// The most bytes of a plain request that are read before it is answered: the answer to a client
/// whose bytes were not read may be lost.
const PLAIN: usize = 4 * 1024;

const ANSWER: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 58\r\n\
                      Cache-Control: no-store\r\nConnection: close\r\n\r\n\
                      this listener uses TLS: write https:// instead of http://\n";

/// The time between two warnings of one kind; what comes meanwhile is logged at level debug.
const QUIET: Duration = Duration::from_secs(600);

/// TLS on a listener.
pub struct Tls {
    settings: ServerTls,
    handshakes: Connections,
    plain: Seldom,
    failed: Seldom,
}

impl Tls {
    pub(super) fn new(settings: ServerTls) -> Self {
        let handshakes = Connections::new(HANDSHAKES, HANDSHAKES, std::convert::identity);
        Self { settings, handshakes, plain: Seldom::default(), failed: Seldom::default() }
    }

    /// Takes a slot for a handshake; its activity must be given the task.
    pub(super) async fn slot(&self, peer: Peer) -> Option<Slot> {
        self.handshakes.take(peer).await
    }

    /// Performs the handshake; `None` if it fails, which is logged.
    pub(super) async fn handshake(
        &self,
        stream: TcpStream,
        peer: Peer,
        slot: Slot,
    ) -> Option<TlsStream<TcpStream>> {
        let _slot = slot;
        let handshake = timeout(HANDSHAKE, self.accept(stream));
        let error = match handshake.await {
            Ok(Ok(stream)) => return stream,
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        // Clients that leave in the middle, such as port scanners, are no concern of an operator.
        let error_of_tls = error.get_ref().and_then(|it| it.downcast_ref::<rustls::Error>());
        match error_of_tls.filter(|_| self.failed.is_due()) {
            Some(error) => tracing::warn!(
                "the TLS handshake with {peer} failed: {}; further failures within 10 minutes are \
                 logged at level debug",
                reason(error)
            ),
            None => tracing::debug!("the TLS handshake with {peer} failed: {error}"),
        }
        None
    }

    /// Performs the handshake, or answers a plain request; `None` if there is no connection to
    /// serve.
    async fn accept(&self, mut stream: TcpStream) -> io::Result<Option<TlsStream<TcpStream>>> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Ok(None);
        }
        if first == [HANDSHAKE_RECORD] {
            let acceptor = TlsAcceptor::from(self.settings.config());
            return acceptor.accept(stream).await.map(Some);
        }
        if self.plain.is_due() {
            tracing::warn!(
                "a client sent a request without TLS, which this listener requires: write https:// \
                 in its URL, or have it use a loopback address of --listen"
            );
        }
        // Whatever it asks, the answer is the same; unread, it would be lost in a reset.
        let _length = stream.read(&mut vec![0; PLAIN]).await?;
        stream.write_all(ANSWER.as_bytes()).await?;
        stream.shutdown().await?;
        Ok(None)
    }
}

/// Returns why a handshake failed, from the view of this side.
fn reason(error: &rustls::Error) -> String {
    match error {
        rustls::Error::NoCertificatesPresented => {
            "the client presented no certificate, which --tls-client-ca requires".to_owned()
        }
        rustls::Error::InvalidCertificate(why) => {
            format!("the client's certificate was refused: {why}")
        }
        rustls::Error::AlertReceived(alert) => {
            format!("the client refused this listener, most likely its certificate: {alert:?}")
        }
        other => other.to_string(),
    }
}

/// Lets something happen once in [`QUIET`].
#[derive(Default)]
struct Seldom(Mutex<Option<Moment>>);

impl Seldom {
    fn is_due(&self) -> bool {
        let now = clock::now();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| last.elapsed_max(now) >= QUIET);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_the_answer_is_right() {
        let (head, body) = ANSWER.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }
}

//! A standby's connection to the leader's stream.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::HeaderMap;
use reqwest::StatusCode;
use tokio::time::timeout;

use super::event::{EventReader, Read};
use super::subscription::INSTANCE;
use crate::clock::Moment;
use crate::http::client::{self, BodyError};
use crate::http::resolver::Resolver;
use crate::lease::PeerUrl;
use crate::lease::text::excerpt;
use crate::tls::{self, ClientTls, KeyPair};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(1);

/// How long the head of the answer may take, with the connection.
const ANSWER: Duration = Duration::from_secs(2);

/// The most bytes of a refusal that are read, and how many characters of it are shown.
const LONGEST_REFUSAL: usize = 4 * 1024;
const SHOWN: usize = 200;

/// How many steps are read at once, and then one in each [`REFILL`]: a leader that floods its stream
/// must not keep this instance busy.
const BURST: u32 = 32;
const REFILL: Duration = Duration::from_millis(20);

/// Connects to streams.
#[derive(Clone)]
pub(super) struct PeerClient {
    plain: reqwest::Client,
    tls: Option<ClientTls>,
    now: fn() -> Moment,
}

/// An open stream.
pub(super) struct Connection {
    response: reqwest::Response,
    reader: EventReader,
    /// Received, and not read yet.
    rest: Bytes,
    pace: Pace,
}

/// Why a stream ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The leader has ended it.
    Closed,
    /// The connection broke, for this reason.
    Broken(String),
    /// A line or an event was longer than it may be.
    TooLong,
}

impl PeerClient {
    /// Creates a client with the certificate of this instance, if it has one. A leader with TLS is
    /// authenticated by the authorities in the file, whatever its address, else by those of the
    /// system.
    ///
    /// # Errors
    /// When the files cannot be used.
    pub(super) fn new(
        own: Option<&KeyPair>,
        ca_file: Option<&Path>,
        now: fn() -> Moment,
    ) -> anyhow::Result<Self> {
        let plain = build(tls::system_client(false)?)?;
        Ok(Self { plain, tls: load_tls(own, ca_file)?, now })
    }

    /// Opens the stream of the leader with this instance id; returns why it could not be.
    pub(super) async fn connect(
        self,
        url: PeerUrl,
        instance: String,
        headers: HeaderMap,
    ) -> Result<Connection, String> {
        let connecting = async {
            let http = if url.is_tls { self.secured().await? } else { self.plain.clone() };
            let request = http.get(url.to_string()).headers(headers);
            let response = request.send().await.map_err(|error| client::reason(&error))?;
            if response.status() != StatusCode::OK {
                return Err(refusal(response).await);
            }
            let answering = response.headers().get(&INSTANCE);
            if answering.is_none_or(|it| it.as_bytes() != instance.as_bytes()) {
                return Err("another instance answers at its address".to_owned());
            }
            let pace = Pace { left: BURST, since: (self.now)(), now: self.now };
            Ok(Connection { response, reader: EventReader::default(), rest: Bytes::new(), pace })
        };
        let late = || Err(format!("no answer within {} s", ANSWER.as_secs()));
        timeout(ANSWER, connecting).await.unwrap_or_else(|_| late())
    }

    /// Returns a client for https, with the certificates as they are now.
    async fn secured(&self) -> Result<reqwest::Client, String> {
        let Some(tls) = &self.tls else {
            return Err(
                "its address is https, and this instance has neither peer-ca nor TLS".to_owned()
            );
        };
        let config = tls.config().await;
        let config = Arc::unwrap_or_clone(config);
        build(config).map_err(|_| "failed to set up the HTTP client".to_owned())
    }
}

fn build(tls: rustls::ClientConfig) -> reqwest::Result<reqwest::Client> {
    let builder = client::builder(tls, Resolver::default());
    builder.connect_timeout(CONNECT).pool_max_idle_per_host(0).tcp_nodelay(true).build()
}

/// Reads the certificates for https; `None` if there is none to be authenticated by.
fn load_tls(own: Option<&KeyPair>, ca_file: Option<&Path>) -> anyhow::Result<Option<ClientTls>> {
    let loaded = match (own, ca_file) {
        (own, Some(ca_file)) => ClientTls::load_for_any_name(own, ca_file),
        (Some(own), None) => ClientTls::load(Some(own), None),
        (None, None) => return Ok(None),
    };
    loaded.map(Some).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("the TLS files have just changed: {}", faults.join("; "))
    })
}

/// Returns the answer of an instance that streams nothing, in a few words.
async fn refusal(response: reqwest::Response) -> String {
    let status = response.status().as_u16();
    let text = match client::body(response, LONGEST_REFUSAL).await {
        Ok(body) => String::from_utf8_lossy(&body).trim_end().to_owned(),
        Err(BodyError::TooLong | BodyError::Broken(_)) => String::new(),
    };
    format!("{status} {}", excerpt(text.into(), SHOWN)).trim_end().to_owned()
}

impl Connection {
    /// Returns the next event. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Result<Read, End> {
        loop {
            self.pace.step().await;
            let mut rest = &self.rest[..];
            let read = self.reader.read(&mut rest).map_err(|_| End::TooLong)?;
            let taken = self.rest.len() - rest.len();
            let _ = self.rest.split_to(taken);
            if let Some(read) = read {
                return Ok(read);
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.rest = chunk,
                Ok(None) => return Err(End::Closed),
                Err(error) => return Err(End::Broken(client::reason(&error))),
            }
        }
    }
}

/// Limits how many steps are made in a time.
struct Pace {
    left: u32,
    /// Since when no step was added.
    since: Moment,
    now: fn() -> Moment,
}

impl Pace {
    /// Waits until a step may be made. May be dropped and called again.
    async fn step(&mut self) {
        while self.left == 0 {
            self.refill();
            if self.left == 0 {
                tokio::time::sleep(REFILL).await;
            }
        }
        self.refill();
        self.left = self.left.saturating_sub(1);
    }

    fn refill(&mut self) {
        let now = (self.now)();
        let steps = self.since.elapsed_min(now).as_millis() / REFILL.as_millis();
        if steps > 0 {
            let steps = u32::try_from(steps).unwrap_or(BURST);
            self.left = self.left.saturating_add(steps).min(BURST);
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{now, pass};
    use super::*;

    #[tokio::test]
    async fn a_flood_is_read_at_a_bounded_pace() {
        let mut pace = Pace { left: BURST, since: now(), now };
        for _ in 0..BURST {
            pace.step().await;
        }
        assert!(futures::poll!(Box::pin(pace.step())).is_pending(), "the burst is used up");
        pass(3_600);
        for _ in 0..BURST {
            assert!(futures::poll!(Box::pin(pace.step())).is_ready());
        }
        assert!(futures::poll!(Box::pin(pace.step())).is_pending(), "a pause saves up no more");
    }
}

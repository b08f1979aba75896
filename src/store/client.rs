//! The HTTP client of a store, with the TLS settings of its files as they are now: platforms replace
//! certificates. What such a client may say of an error.
//!
//! Files that cannot be read, or a disk that hangs, never stop a request while what was read earlier
//! can be used.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{DATE, HeaderMap};
use rustls::ClientConfig;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::time::timeout;

use super::network::{NetworkError, load_tls};
use crate::clock::{self, Moment};
use crate::config::StoreTls;
use crate::http::client::{self, Cause};
use crate::http::reconnecting::{Idle, Reconnecting};
use crate::http::resolver::Resolver;
use crate::tls::{self, ClientTls};

/// The time between two reads of files. A longer one delays a new certificate or password; a shorter
/// one gains nothing.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// Each connection that died unnoticed costs one request, and renew-deadline has time for one.
const IDLE: Idle = Idle { time: Duration::from_secs(30), most: 1 };

#[derive(Default)]
struct Last {
    /// The client, and the TLS settings that it was made with.
    client: Option<(Option<Arc<ClientConfig>>, Reconnecting)>,
    /// When the files were last read.
    read: Option<Moment>,
}

/// Keeps the client of one store.
pub(super) struct StoreClient {
    pub(super) tls: Option<ClientTls>,
    resolver: Resolver,
    /// How long a request waits for files.
    patience: Duration,
    last: Mutex<Last>,
}

impl StoreClient {
    /// Reads the files of TLS, which blocks; without them, only plain http is possible.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub(super) fn open(tls: Option<&StoreTls>, request_timeout: Duration) -> anyhow::Result<Self> {
        Ok(Self {
            tls: tls.map(load_tls).transpose()?,
            resolver: Resolver::default(),
            patience: request_timeout / 4,
            last: Mutex::default(),
        })
    }

    /// Returns the client, with the files as they are now, or as last read if they cannot be read.
    pub(super) async fn current(&self) -> Result<Reconnecting, &'static str> {
        let known = |it: &Last| it.client.clone();
        let is_recent = |read: Moment| read.elapsed_max(clock::now()) < PERIOD;
        let kept = {
            let last = self.last();
            known(&last).filter(|_| last.read.is_some_and(is_recent))
        };
        if let Some((_, client)) = kept {
            return Ok(client);
        }
        let tls = match &self.tls {
            Some(tls) => match timeout(self.patience, tls.config()).await {
                Ok(config) => Some(config),
                // What was made of the files earlier is used.
                Err(_) => known(&self.last()).and_then(|it| it.0),
            },
            None => None,
        };
        let mut last = self.last();
        last.read = Some(clock::now());
        match &last.client {
            Some((of, client)) if same(of.as_ref(), tls.as_ref()) => Ok(client.clone()),
            _ => {
                let client = self.make(tls.as_deref())?;
                last.client = Some((tls, client.clone()));
                Ok(client)
            }
        }
    }

    fn make(&self, tls: Option<&ClientConfig>) -> Result<Reconnecting, &'static str> {
        const FAILED: &str = "failed to set up the HTTP client";
        let settings = match tls {
            Some(settings) => settings.clone(),
            None => tls::system_client(false).map_err(|_| FAILED)?,
        };
        Reconnecting::new(settings, self.resolver.clone(), IDLE, None).map_err(|_| FAILED)
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether two TLS settings are of the same reading of the files.
fn same(one: Option<&Arc<ClientConfig>>, other: Option<&Arc<ClientConfig>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// A server, for messages.
pub(super) struct Peer<'a> {
    /// Its host and port.
    pub(super) name: &'a str,
    /// The setting that has its address.
    pub(super) setting: &'a str,
    /// The settings of TLS, each followed by a comma.
    pub(super) files: &'a str,
    /// What it is: `etcd`.
    pub(super) kind: &'a str,
}

/// Converts the error of a request without an answer.
pub(super) fn broken(error: &reqwest::Error, peer: &Peer<'_>) -> NetworkError {
    let Peer { name, setting, files, kind } = peer;
    match client::cause(error) {
        Cause::Certificate(why) => NetworkError::Unreachable(format!(
            "TLS with {name} failed: {why}; check {files} and that the server's certificate is valid \
             for the host in {setting}"
        )),
        Cause::Unresolved(why) => NetworkError::Unreachable(format!("{why}: check {setting}")),
        Cause::Io(kind) if error.is_connect() => {
            NetworkError::Disconnected(format!("cannot connect to {name}: {kind}"))
        }
        Cause::Io(kind) => {
            NetworkError::Disconnected(format!("the connection to {name} broke: {kind}"))
        }
        Cause::Other if error.is_connect() => {
            NetworkError::Disconnected(format!("cannot connect to {name}"))
        }
        Cause::Other => NetworkError::Disconnected(format!(
            "the connection to {name} broke, or it is not an HTTP server: where {kind} expects TLS, \
             set {}",
            files.split(',').next().unwrap_or_default()
        )),
    }
}

/// Returns the server's date from its answer.
pub(super) fn date(headers: &HeaderMap) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(headers.get(DATE)?.to_str().ok()?, &Rfc2822).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use reqwest::Method;
    use reqwest::header::HeaderValue;
    use time::macros::datetime;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::tls::testing;

    /// The settings that the present client was made with.
    fn made_with(client: &StoreClient) -> Arc<ClientConfig> {
        client.last().client.as_ref().unwrap().0.clone().unwrap()
    }

    #[tokio::test]
    async fn the_files_are_read_again_after_a_second_and_a_new_client_is_made_if_they_changed() {
        let directory = tempfile::tempdir().unwrap();
        let (_, ca) = testing::write(directory.path(), "one", 2_100);
        let (_, other) = testing::write(directory.path(), "other", 2_100);
        let tls = StoreTls { ca_file: Some(ca.clone()), own: None };
        let client = StoreClient::open(Some(&tls), Duration::from_secs(60)).unwrap();
        client.current().await.unwrap();
        let first = made_with(&client);
        let read = client.last().read.expect("the files were read");
        fs::copy(other, &ca).unwrap();

        // Read a moment ago, however long this test was stopped.
        let later = Moment { boot: read.boot * 2, raw: read.raw * 2, ..read };
        client.last().read = Some(later);
        client.current().await.unwrap();
        assert!(Arc::ptr_eq(&first, &made_with(&client)));

        // Read a second ago by one of the clocks.
        client.last().read = Some(Moment { boot: read.boot - PERIOD, ..later });
        client.current().await.unwrap();
        let second = made_with(&client);
        assert!(!Arc::ptr_eq(&first, &second));

        fs::remove_file(ca).unwrap();
        client.last().read = None;
        client.current().await.expect("what was read earlier is used");
        assert!(Arc::ptr_eq(&second, &made_with(&client)));
    }

    #[test]
    fn a_request_waits_for_files_for_a_quarter_of_its_time() {
        let client = StoreClient::open(None, Duration::from_secs(60)).unwrap();
        assert_eq!(client.patience, Duration::from_secs(15));
    }

    #[test]
    fn tls_settings_are_the_same_if_they_are_of_one_reading() {
        let made = || Arc::new(tls::system_client(false).unwrap());
        let (one, other) = (made(), made());
        assert!(same(Some(&one), Some(&Arc::clone(&one))) && same(None, None));
        for (one, other) in [(Some(&one), Some(&other)), (Some(&one), None), (None, Some(&one))] {
            assert!(!same(one, other));
        }
    }

    /// Returns the error of a request to a server that answers with these bytes, or does not listen.
    async fn error_of(answer: Option<&str>) -> (NetworkError, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let name = listener.local_addr().unwrap().to_string();
        let client = StoreClient::open(None, Duration::from_secs(60)).unwrap();
        let client = client.current().await.unwrap();
        let request =
            client.request(Method::GET, format!("http://{name}/?token=SECRET").parse().unwrap());
        let error = match answer {
            None => {
                drop(listener);
                client.send(request).await
            }
            Some(answer) => {
                let serve = async {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut received = Vec::new();
                    while !received.ends_with(b"\r\n\r\n") {
                        stream.read_buf(&mut received).await.unwrap();
                    }
                    stream.write_all(answer.as_bytes()).await.unwrap();
                };
                tokio::join!(serve, client.send(request)).1
            }
        };
        let peer = Peer {
            name: &name,
            setting: "--store",
            files: "--store-ca-file, --store-cert",
            kind: "etcd",
        };
        (broken(&error.unwrap_err(), &peer), name)
    }

    #[tokio::test]
    async fn a_request_without_an_answer_tells_a_closed_port_from_another_protocol() {
        let (error, name) = error_of(None).await;
        let words = format!("cannot connect to {name}: connection refused");
        assert_eq!(error, NetworkError::Disconnected(words));
        for answer in ["", "220 mail.example.com\r\n"] {
            let (error, name) = error_of(Some(answer)).await;
            let words = format!(
                "the connection to {name} broke, or it is not an HTTP server: where etcd expects \
                 TLS, set --store-ca-file"
            );
            assert_eq!(error, NetworkError::Disconnected(words));
        }
    }

    #[test]
    fn a_date_is_read_in_the_format_of_http_or_not_at_all() {
        let of = |text| {
            let value = HeaderValue::from_static(text);
            date(&HeaderMap::from_iter([(DATE, value)]))
        };
        assert_eq!(of("Sun, 06 Nov 1994 08:49:37 GMT"), Some(datetime!(1994-11-06 08:49:37 UTC)));
        assert_eq!(of("yesterday"), None);
        assert_eq!(date(&HeaderMap::new()), None);
    }
}

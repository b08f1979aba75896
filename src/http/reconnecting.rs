//! The HTTP client of a store, which closes a connection that a server has refused a request over, or that
//! is a minute old, so that the next request resolves the name again.
//!
//! A name may lead elsewhere while the old server still accepts connections: a private endpoint was
//! added, an account failed over, a front end is broken. Such a server answers each request with a
//! refusal, and requests are frequent enough to keep its connection alive for ever.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::{Method, Request, RequestBuilder, Response, StatusCode};
use url::Url;

use super::client;
use super::resolver::Resolver;
use crate::clock::{self, Moment};

/// The age at which a connection is closed. A longer one keeps a leader at an old address for longer;
/// a shorter one costs handshakes.
const LONGEST_AGE: Duration = Duration::from_secs(60);

/// The limits of a client's idle connections.
#[derive(Clone, Copy)]
pub(crate) struct Idle {
    /// From the end of a request to the closing of its connection.
    pub(crate) time: Duration,
    /// How many are kept for each host.
    pub(crate) most: usize,
}

/// The client; clones share its connections.
#[derive(Clone)]
pub(crate) struct Reconnecting(Arc<Shared>);

struct Shared {
    tls: rustls::ClientConfig,
    resolver: Resolver,
    idle: Idle,
    proxy: Option<reqwest::Proxy>,
    present: Mutex<Present>,
}

/// The connections that are in use now: those of one client of reqwest, which closes them when it is
/// dropped and no request needs them.
#[derive(Clone)]
struct Present {
    client: reqwest::Client,
    since: Moment,
    /// How many were closed for a refusal: which of the addresses of a host is tried first.
    turn: usize,
}

impl std::fmt::Debug for Reconnecting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Reconnecting").finish_non_exhaustive()
    }
}

impl Reconnecting {
    /// Creates a client without connections.
    ///
    /// # Errors
    /// Returns an error if reqwest cannot be set up.
    pub(crate) fn new(
        tls: rustls::ClientConfig,
        resolver: Resolver,
        idle: Idle,
        proxy: Option<reqwest::Proxy>,
    ) -> reqwest::Result<Self> {
        let client = build(&tls, &resolver, idle, proxy.as_ref(), 0)?;
        let present = Mutex::new(Present { client, since: clock::now(), turn: 0 });
        Ok(Self(Arc::new(Shared { tls, resolver, idle, proxy, present })))
    }

    /// Builds a request.
    pub(crate) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.lock().client.request(method, url)
    }

    /// Sends a request; returns the answer once its head has arrived.
    pub(crate) async fn send(&self, request: RequestBuilder) -> reqwest::Result<Response> {
        self.execute(request.build()?, |answer| is_ordinary(answer.status())).await
    }

    /// Sends a request; returns the answer once its head has arrived. Its connection is kept only if
    /// the answer is an `ordinary` one.
    pub(crate) async fn execute(
        &self,
        request: Request,
        ordinary: impl Fn(&Response) -> bool,
    ) -> reqwest::Result<Response> {
        let Present { client, turn, .. } = self.present();
        let answer = client.execute(request).await?;
        if !ordinary(&answer) {
            let mut present = self.lock();
            // A request that was sent at the same time may have closed them.
            if present.turn == turn {
                self.replace(&mut present, turn.wrapping_add(1));
            }
        }
        Ok(answer)
    }

    /// Returns the connections for a request; new ones if the present ones are too old.
    fn present(&self) -> Present {
        let mut present = self.lock();
        if present.since.elapsed_max(clock::now()) >= LONGEST_AGE {
            let turn = present.turn;
            self.replace(&mut present, turn);
        }
        present.clone()
    }

    fn replace(&self, present: &mut Present, turn: usize) {
        let Shared { tls, resolver, idle, proxy, .. } = &*self.0;
        // It was possible before.
        if let Ok(client) = build(tls, resolver, *idle, proxy.as_ref(), turn) {
            *present = Present { client, since: clock::now(), turn };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Present> {
        self.0.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn build(
    tls: &rustls::ClientConfig,
    resolver: &Resolver,
    idle: Idle,
    proxy: Option<&reqwest::Proxy>,
    turn: usize,
) -> reqwest::Result<reqwest::Client> {
    let mut builder = client::builder(tls.clone(), resolver.clone())
        .dns_resolver(client::Names { resolver: resolver.clone(), turn })
        .pool_idle_timeout(idle.time)
        .pool_max_idle_per_host(idle.most);
    if let Some(proxy) = proxy {
        builder = builder.proxy(proxy.clone());
    }
    builder.build()
}

/// Returns whether the right server gives such an answer in its ordinary work: the request succeeded, or
/// was compared with what the store has. Any other may come from a server that no longer is the right
/// one, or from a front end that is broken, overloaded, or not the store's.
pub(crate) fn is_ordinary(status: StatusCode) -> bool {
    status.is_success() || matches!(status.as_u16(), 304 | 404 | 409 | 410 | 412 | 422)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::tls;

    const ANSWER: &str = "\r\ncontent-length: 2\r\n\r\nok";

    fn open() -> Reconnecting {
        let idle = Idle { time: Duration::from_secs(30), most: 1 };
        Reconnecting::new(tls::system_client(false).unwrap(), Resolver::default(), idle, None)
            .unwrap()
    }

    /// Reads one request, and answers it with this status.
    async fn answer(stream: &mut TcpStream, status: u16) {
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut received).await.unwrap() > 0, "it was closed");
        }
        let answer = format!("HTTP/1.1 {status} x{ANSWER}");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }

    /// Sends one request, which is answered with this status; returns whether it used the connection, and
    /// the connection that it used.
    async fn uses(
        client: &Reconnecting,
        listener: &TcpListener,
        kept: Option<TcpStream>,
        status: u16,
    ) -> (bool, TcpStream) {
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let serve = async {
            let mut kept = kept;
            loop {
                let Some(open) = &mut kept else {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    answer(&mut stream, status).await;
                    break (false, stream);
                };
                let mut byte = [0];
                // The end of the stream: the client has closed it.
                if open.peek(&mut byte).await.is_ok_and(|it| it > 0) {
                    answer(open, status).await;
                    break (true, kept.expect("it is there"));
                }
                kept = None;
            }
        };
        let ask = async {
            let answer = client.send(client.request(Method::GET, url)).await.unwrap();
            assert_eq!(answer.status().as_u16(), status);
            answer.bytes().await.unwrap();
        };
        tokio::join!(serve, ask).0
    }

    #[tokio::test]
    async fn a_connection_is_kept_after_an_ordinary_answer_and_closed_after_any_other() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = open();
        let (_, mut stream) = uses(&client, &listener, None, 200).await;
        for (status, keeps) in [
            (200, true),
            (201, true),
            (404, true),
            (409, true),
            (410, true),
            (412, true),
            (422, true),
            (302, false),
            (400, false),
            (401, false),
            (403, false),
            (407, false),
            (421, false),
            (429, false),
            (500, false),
            (502, false),
            (503, false),
            (504, false),
        ] {
            let (is_kept, refused_over) = uses(&client, &listener, Some(stream), status).await;
            assert!(is_kept, "before {status}");
            let next = uses(&client, &listener, Some(refused_over), 200).await;
            assert_eq!(next.0, keeps, "{status}");
            stream = next.1;
        }
    }

    #[tokio::test]
    async fn a_connection_is_closed_when_it_is_a_minute_old() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = open();
        let (_, mut stream) = uses(&client, &listener, None, 200).await;
        for (age, keeps) in [(59, true), (60, false)] {
            let (now, age) = (clock::now(), Duration::from_secs(age));
            client.lock().since = Moment { boot: now.boot - age, raw: now.raw - age, ..now };
            let next = uses(&client, &listener, Some(stream), 200).await;
            assert_eq!(next.0, keeps, "{age:?}");
            stream = next.1;
        }
    }

    #[tokio::test]
    async fn refusals_of_requests_that_were_sent_together_close_their_connections_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = open();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let serve = async {
            let (mut one, _) = listener.accept().await.unwrap();
            let (mut other, _) = listener.accept().await.unwrap();
            answer(&mut one, 403).await;
            answer(&mut other, 403).await;
        };
        let ask = || async { client.send(client.request(Method::GET, url.clone())).await.unwrap() };
        tokio::join!(serve, ask(), ask());
        assert_eq!(client.lock().turn, 1);
    }
}

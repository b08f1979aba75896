//! The real status listener, on a free port and on a unix socket, and a client that sends arbitrary
//! bytes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tenure::config::{self, Environment, Flags, Listen, Verb};
use tenure::driver::Control;
use tenure::election::Status;
use tenure::metrics::Metrics;
use tenure::peers::{PeerStream, Peers};
use tenure::publish::api::{App, bind, serve};
use tenure::status::Heartbeat;
use tenure::tls::{ServerFiles, ServerTls};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;

use crate::http::status::{Feed, NONCE, about, now};

/// The timeout of a client, by the paused clock if it is paused.
const PATIENCE: Duration = Duration::from_secs(100);

/// A listener with its inputs; stops when it is dropped.
pub struct Server {
    pub feed: Option<Feed>,
    pub heartbeat: Heartbeat,
    pub address: SocketAddr,
    pub socket: PathBuf,
    _directory: tempfile::TempDir,
    end: Option<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
    /// The connections to peers, and what stands for the driver.
    _beside: JoinSet<()>,
}

impl Server {
    pub async fn start(feed: Feed) -> Self {
        Self::with_places(feed, 512).await
    }

    pub async fn with_places(feed: Feed, max_connections: usize) -> Self {
        Self::start_with(feed, max_connections, None, false).await
    }

    /// Starts it with TLS on its port.
    pub async fn with_tls(feed: Feed, max_connections: usize, files: &ServerFiles) -> Self {
        let tls = ServerTls::load(files).expect("good files");
        Self::start_with(feed, max_connections, Some(&tls), false).await
    }

    /// Starts the listener of a candidate with peers.
    pub async fn with_peers(feed: Feed, max_connections: usize) -> Self {
        Self::start_with(feed, max_connections, None, true).await
    }

    async fn start_with(
        feed: Feed,
        max_connections: usize,
        tls: Option<&ServerTls>,
        has_peers: bool,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let socket = directory.path().join("status.sock");
        let port = Listen::Tcp("127.0.0.1:0".parse().expect("an address"));
        let tcp = bind(&port).await.expect("a free port");
        let tcp = match tls {
            Some(tls) => tcp.with_tls(tls),
            None => tcp,
        };
        let unix = bind(&Listen::Unix(socket.clone())).await.expect("a socket");
        let heartbeat = Heartbeat::default();
        let metrics = Metrics::new(&about(), false);
        let mut beside = JoinSet::new();
        let peers = has_peers.then(|| connect(&feed, &metrics, &mut beside));
        let app = App {
            about: about(),
            published: feed.subscribe(),
            metrics,
            dropped_lines: Box::new(|| 3),
            heartbeat: heartbeat.clone(),
            now,
            max_connections,
            max_connections_per_peer: max_connections,
            allowed_hosts: Vec::new(),
            peers,
            fits: std::convert::identity,
        };
        let address = tcp.address().parse().expect("it prints its address");
        let mut tasks = JoinSet::new();
        let (end, ended) = oneshot::channel();
        tasks.spawn(serve(vec![tcp, unix], app, async {
            ended.await.expect("the server was stopped before");
        }));
        let (feed, end) = (Some(feed), Some(end));
        Self {
            feed,
            heartbeat,
            address,
            socket,
            _directory: directory,
            end,
            tasks,
            _beside: beside,
        }
    }

    /// Publishes a last status and ends the driver, and with it the listener, which is notified
    /// before its connections see the status.
    pub fn end(&mut self, last: Status) {
        self.end.take().expect("it was not stopped before").send(()).expect("it serves yet");
        self.feed.take().expect("the driver is not gone").change(last);
    }

    /// Waits until the listener has ended.
    pub async fn ended(&mut self) {
        let ended = tokio::time::timeout(PATIENCE, self.tasks.join_next()).await;
        ended.expect("it ends").expect("there is one").expect("it does not panic");
    }

    pub fn feed(&self) -> &Feed {
        self.feed.as_ref().expect("the driver is not gone")
    }

    pub async fn connect(&self) -> Client {
        Client::of(TcpStream::connect(self.address).await.expect("it listens"))
    }

    /// Connects with TLS, to the certificate's name `localhost`. Little that is not read is buffered.
    pub async fn connect_tls(&self, settings: Arc<ClientConfig>) -> std::io::Result<Client> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(16 * 1_024)?;
        let stream = socket.connect(self.address).await?;
        let name = "localhost".try_into().expect("a name");
        Ok(Client::of(TlsConnector::from(settings).connect(name, stream).await?))
    }

    pub async fn connect_unix(&self) -> Client {
        Client::of(UnixStream::connect(&self.socket).await.expect("it listens"))
    }

    /// Sends a GET on a new connection.
    pub async fn get(&self, path: &str) -> Answer {
        self.connect().await.ask("GET", path).await
    }

    /// Sends a GET with an Accept header.
    pub async fn get_as(&self, path: &str, accept: &str) -> Answer {
        let mut client = self.connect().await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
        client.send(request).await;
        client.answer("GET").await
    }

    /// Returns the status code of a GET.
    pub async fn code(&self, path: &str) -> u16 {
        self.get(path).await.code
    }
}

/// Connects the candidate to peers, as one with the default settings; a queue stands for its driver.
fn connect(feed: &Feed, metrics: &Metrics, beside: &mut JoinSet<()>) -> PeerStream {
    let given = [
        ("store", "memory:"),
        ("election", "orders"),
        ("peers", "on"),
        ("peer-address", "127.0.0.1:1"),
    ];
    let flags = given.map(|(name, value)| (name, vec![value.to_owned()]));
    let environment = Environment::of::<&str, &str>([]);
    let loaded = config::load(&Flags::from(flags), &environment, Verb::Run);
    let settings = loaded.expect("valid settings").settings;
    let (control, mut inbox) = Control::new();
    let peers = Peers::new(&settings, &about(), &feed.subscribe(), (&control, metrics), now);
    let peers = peers.expect("a client").expect("peers are on");
    let stream = peers.stream();
    beside.spawn(peers.run());
    beside.spawn(async move { while inbox.recv().await.is_some() {} });
    stream
}

/// TCP and unix streams.
trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

pub struct Client {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
}

#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    head: String,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Client {
    fn of(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), unread: Vec::new() }
    }

    /// Sends bytes unchanged. Ignores errors: a closed connection shows when it is read.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// Closes the sending direction.
    pub async fn end(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Sends a request, and leaves the connection open.
    pub async fn ask(&mut self, method: &str, path: &str) -> Answer {
        self.send(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        self.answer(method).await
    }

    /// Reads one answer to a request with `method`.
    pub async fn answer(&mut self, method: &str) -> Answer {
        let head = self.until(b"\r\n\r\n").await.expect("an answer");
        let code =
            head.get(9..12).and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{head}"));
        let mut answer = Answer { code, head, body: String::new() };
        let length = answer.header("content-length").map_or(0, |it| it.parse().expect("a length"));
        if method != "HEAD" {
            while self.unread.len() < length {
                assert!(self.more().await, "the body is cut off: {answer:?}");
            }
            let body = self.unread.drain(..length).collect();
            answer.body = String::from_utf8(body).expect("text");
        }
        answer
    }

    /// Subscribes to the event stream, and reads the head of the answer.
    pub async fn subscribe(&mut self) -> Answer {
        self.ask("GET", "/watch").await
    }

    /// Returns the status document of the next event; `None` at the end.
    pub async fn event(&mut self) -> Option<Value> {
        let text = self.until(b"\n\n").await?;
        let data =
            text.lines().find_map(|line| line.strip_prefix("data: ")).expect("an event's data");
        Some(serde_json::from_str(data).expect("an event is a status document"))
    }

    /// Asks for the leader's stream as a candidate with this identity and these headers that has read the
    /// record, and reads the head of the answer.
    pub async fn follow(&mut self, identity: &str, headers: &str) -> Answer {
        let headers = proven(&format!("{}{headers}", candidate(identity)));
        self.follow_as("GET", &headers).await
    }

    /// Asks for the leader's stream with these headers, and reads the head of the answer.
    pub async fn follow_as(&mut self, method: &str, headers: &str) -> Answer {
        self.send(format!("{method} /peer HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")).await;
        self.answer(method).await
    }

    /// Returns the kind and the data of the next event of a leader's stream; `None` at the end.
    pub async fn peer_event(&mut self) -> Option<(String, Value)> {
        let text = self.until(b"\n\n").await?;
        let kind = text.lines().find_map(|line| line.strip_prefix("event: "));
        let data: String = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        let kind = kind.unwrap_or_else(|| panic!("no event: {text}")).to_owned();
        Some((kind, serde_json::from_str(&data).expect("data are JSON")))
    }

    /// Waits until the event stream has ended, by its last chunk or with the connection.
    pub async fn stream_ended(&mut self) -> bool {
        self.until(b"0\r\n\r\n").await;
        true
    }

    /// Waits until the other side has closed, and keeps what it still sent.
    pub async fn closed(&mut self) -> bool {
        while self.more().await {}
        true
    }

    /// Returns everything received and not yet read.
    pub fn unread(&self) -> String {
        String::from_utf8_lossy(&self.unread).into_owned()
    }

    async fn until(&mut self, end: &[u8]) -> Option<String> {
        loop {
            if let Some(at) = self.unread.windows(end.len()).position(|it| it == end) {
                let taken = self.unread.drain(..at + end.len()).collect();
                return Some(String::from_utf8(taken).expect("text"));
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// Receives more bytes; returns false at the end.
    async fn more(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut bytes)).await;
        let read =
            read.unwrap_or_else(|_| panic!("neither bytes nor an end; unread: {}", self.unread()));
        let length = read.unwrap_or_default();
        self.unread.extend_from_slice(&bytes[..length]);
        length > 0
    }
}

/// Returns what a standby with this identity says of itself in a request for the leader's stream.
pub fn candidate(identity: &str) -> String {
    format!(
        "Tenure-Election: orders\r\nTenure-Identity: {identity}\r\nTenure-Instance: {identity}-1\r\n\
         Tenure-State: standby\r\nTenure-Priority: 50\r\n"
    )
}

/// Adds the proof of a candidate that has read the record.
pub fn proven(headers: &str) -> String {
    let pairs = headers.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.parse::<HeaderName>().ok()?, value.trim().parse::<HeaderValue>().ok()?))
    });
    let said: HeaderMap = pairs.collect();
    format!("{headers}Tenure-Proof: {}\r\n", tenure::peers::prove(NONCE, &said))
}

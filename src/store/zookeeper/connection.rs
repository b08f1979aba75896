//! One connection to a server, which is one session: it begins with the connection, and no connection takes
//! up the session of another.
//!
//! Requests are sent one behind the other and answered in this order; notifications come between. A
//! connection whose future was dropped before all was answered is of no more use, so its owner takes it out
//! of its place for the time of a request. Nothing is sent unasked: what keeps a session alive is sent by
//! its owner.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures::FutureExt;
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::errors::{NO_NODE, ZookeeperError, disconnected, not_taken, not_zookeeper, reported};
use super::wire::{self, NOTIFICATION, Op, Outcome, PING, Reader, Request, SIGN_IN, State};
use crate::config::Address;
use crate::http::resolver::Resolver;
use crate::store::network::NetworkError;
use crate::store::stream::{self, Stream, broken};

/// The longest message that is read: as long as a server sends by default.
const LONGEST_MESSAGE: usize = 1024 * 1024 + 1024;

/// The longest answer to a command of four letters.
const LONGEST_TEXT: u64 = 64 * 1024;

/// How a connection is made.
pub(super) struct Opening<'a> {
    pub(super) server: &'a Address,
    /// How long the session lasts without a request.
    pub(super) length: Duration,
    /// The last transaction that this instance knows of: a server that is behind it does not take the
    /// connection.
    pub(super) seen: i64,
    /// `USER:PASSWORD`.
    pub(super) user: Option<&'a str>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) resolver: &'a Resolver,
}

impl Opening<'_> {
    /// Connects, with TLS if there are settings for it.
    async fn stream(&self) -> Result<Box<dyn Stream>, NetworkError> {
        stream::connect(self.server, self.tls.clone(), self.resolver).await
    }

    /// Asks a command of four letters, which needs no session, on a connection of its own.
    pub(super) async fn command(&self, letters: &str) -> Result<String, ZookeeperError> {
        let mut stream = self.stream().await?;
        let mut answer = Vec::new();
        let asked = async {
            stream.write_all(letters.as_bytes()).await?;
            stream.flush().await?;
            stream.take(LONGEST_TEXT).read_to_end(&mut answer).await
        };
        // Some servers close a connection with TLS without saying so.
        match asked.await {
            Err(error) if answer.is_empty() => Err(broken(&error, &self.server.to_string()).into()),
            _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
        }
    }
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The error, or 0.
    code: i32,
    body: Vec<u8>,
    server: Arc<str>,
}

impl Answer {
    /// Reads the body of a success.
    pub(super) fn read<'a, T>(
        &'a self,
        read: impl FnOnce(&mut Reader<'a>) -> Option<T>,
    ) -> Result<T, ZookeeperError> {
        match self.code {
            0 => read(&mut Reader(&self.body)).ok_or_else(|| not_zookeeper(&self.server)),
            code => Err(reported(code, &self.server)),
        }
    }

    /// Reads the body of a success; `None` if there is no such node.
    pub(super) fn found<'a, T>(
        &'a self,
        read: impl FnOnce(&mut Reader<'a>) -> Option<T>,
    ) -> Result<Option<T>, ZookeeperError> {
        if self.code == NO_NODE { Ok(None) } else { self.read(read).map(Some) }
    }

    /// Checks that it is a success.
    pub(super) fn done(&self) -> Result<(), ZookeeperError> {
        self.read(|_| Some(()))
    }
}

/// A connection that is ready for the next request.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    /// What was received and not looked at yet.
    received: BytesMut,
    /// Host and port.
    server: Arc<str>,
    /// The number of the last request.
    number: i32,
    /// How long the session lasts without a request, as the server said.
    pub(super) length: Duration,
    /// The last transaction that the server has told of.
    pub(super) seen: i64,
    /// The paths of the notifications that have arrived.
    notified: Vec<String>,
    /// Whether a ping has no answer yet.
    is_pinged: bool,
    /// Whether the last answer was received to its end.
    is_in_step: bool,
}

impl Connection {
    /// Connects, begins a session and signs in.
    pub(super) async fn open(opening: &Opening<'_>) -> Result<Self, ZookeeperError> {
        let stream = opening.stream().await?;
        let mut it = Self::new(stream, &opening.server.to_string());
        it.begin(opening).await?;
        Ok(it)
    }

    fn new(stream: Box<dyn Stream>, server: &str) -> Self {
        Self {
            stream,
            received: BytesMut::new(),
            server: server.into(),
            number: 0,
            length: Duration::ZERO,
            seen: 0,
            notified: Vec::new(),
            is_pinged: false,
            is_in_step: true,
        }
    }

    /// Returns a connection with a session, over something else than a network.
    #[cfg(any(test, fuzzing))]
    pub(super) fn over(stream: Box<dyn Stream>) -> Self {
        Self::new(stream, "server")
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    async fn begin(&mut self, opening: &Opening<'_>) -> Result<(), ZookeeperError> {
        let server = Arc::clone(&self.server);
        let explained = |error| match error {
            ZookeeperError::Network(NetworkError::Disconnected(_)) => not_taken(&server),
            other => other,
        };
        self.send(&wire::connect(opening.seen, opening.length)).await.map_err(explained)?;
        let first = self.message().await.map_err(explained)?;
        self.length = Reader(&first).connected().ok_or_else(|| not_zookeeper(&self.server))?;
        if self.length.is_zero() {
            return Err(disconnected(format!("{} began no session", self.server)));
        }
        if let Some(user) = opening.user {
            // Not before: some servers would answer it first. The server closes the connection behind a sign-in that it does not accept.
            self.send(&wire::sign_in(user)).await?;
            self.answer(SIGN_IN).await?.done()?;
        }
        Ok(())
    }

    /// Sends requests one behind the other, and returns the answer to each.
    pub(super) async fn ask<const N: usize>(
        &mut self,
        requests: [Request<'_>; N],
    ) -> Result<[Answer; N], ZookeeperError> {
        self.is_in_step = false;
        let first = self.number + 1;
        let mut messages = Vec::new();
        for request in &requests {
            self.number += 1;
            messages.extend(wire::request(self.number, request));
        }
        self.send(&messages).await?;
        let mut answers = Vec::with_capacity(N);
        for number in first..=self.number {
            answers.push(self.answer(number).await?);
        }
        self.is_in_step = true;
        answers.try_into().map_err(|_| not_zookeeper(&self.server))
    }

    /// Performs all of some operations or none; `Err` with the error of the first that failed, if nothing was
    /// done because the nodes are others than it was thought.
    pub(super) async fn transact(
        &mut self,
        ops: &[Op<'_>],
    ) -> Result<Result<Outcome, i32>, ZookeeperError> {
        let [answer] = self.ask([Request::Transaction(ops)]).await?;
        let outcome = answer.read(Reader::outcome)?;
        let fault = outcome.fault.map(|(_, code)| (code, reported(code, &self.server)));
        match fault {
            None if outcome.parts == ops.len() => Ok(Ok(outcome)),
            None => Err(not_zookeeper(&self.server)),
            Some((code, ZookeeperError::Conflict(_))) => Ok(Err(code)),
            Some((_, error)) => Err(error),
        }
    }

    /// Returns the path of the next notification. May be dropped at any time.
    pub(super) async fn notification(&mut self) -> Result<String, ZookeeperError> {
        loop {
            if !self.notified.is_empty() {
                return Ok(self.notified.remove(0));
            }
            if self.parse()?.is_some() {
                return Err(not_zookeeper(&self.server));
            }
            if self.notified.is_empty() {
                self.fill().await?;
            }
        }
    }

    /// Keeps the session alive, unless the last ping has no answer yet.
    pub(super) async fn ping(&mut self) -> Result<(), ZookeeperError> {
        if std::mem::replace(&mut self.is_pinged, true) {
            return Err(disconnected(format!("{} does not answer", self.server)));
        }
        self.send(&wire::ping()).await
    }

    /// Ends the session, as far as that can be done without waiting.
    pub(super) fn close(mut self) {
        let message = wire::request(self.number + 1, &Request::Close);
        let _ = self.send(&message).now_or_never();
    }

    /// Returns whether the last answer was received to its end, so that another request may follow.
    pub(super) fn is_in_step(&self) -> bool {
        self.is_in_step
    }

    /// Returns whether the connection is still there, as far as is known here.
    pub(super) fn is_alive(&mut self) -> bool {
        loop {
            match self.parse() {
                Ok(None) => (),
                Ok(Some(_)) | Err(_) => return false,
            }
            match self.fill().now_or_never() {
                None => return true,
                Some(Ok(())) => (),
                Some(Err(_)) => return false,
            }
        }
    }

    async fn send(&mut self, messages: &[u8]) -> Result<(), ZookeeperError> {
        Ok(stream::send(&mut *self.stream, messages, &self.server).await?)
    }

    /// Returns the answer with a number, which must be the next.
    async fn answer(&mut self, number: i32) -> Result<Answer, ZookeeperError> {
        loop {
            if let Some((found, seen, answer)) = self.parse()? {
                if found != number {
                    return Err(not_zookeeper(&self.server));
                }
                self.seen = self.seen.max(seen);
                return Ok(answer);
            }
            self.fill().await?;
        }
    }

    /// Takes the next answer from what was received, with its number and the last transaction; keeps
    /// notifications.
    fn parse(&mut self) -> Result<Option<(i32, i64, Answer)>, ZookeeperError> {
        let unfit = || not_zookeeper(&self.server);
        while let Some(message) = take(&mut self.received).ok_or_else(unfit)? {
            let mut reader = Reader(&message);
            let (number, seen, code) = reader.header().ok_or_else(unfit)?;
            match number {
                PING => self.is_pinged = false,
                NOTIFICATION => {
                    self.notified.push(reader.notification().ok_or_else(unfit)?);
                }
                _ => {
                    let server = Arc::clone(&self.server);
                    let answer = Answer { code, body: reader.0.to_vec(), server };
                    return Ok(Some((number, seen, answer)));
                }
            }
        }
        Ok(None)
    }

    /// Returns the next message.
    async fn message(&mut self) -> Result<Vec<u8>, ZookeeperError> {
        loop {
            let taken = take(&mut self.received).ok_or_else(|| not_zookeeper(&self.server))?;
            match taken {
                Some(message) => return Ok(message),
                None => self.fill().await?,
            }
        }
    }

    /// Waits for more. May be dropped at any time.
    async fn fill(&mut self) -> Result<(), ZookeeperError> {
        match self.stream.read_buf(&mut self.received).await {
            Ok(1..) => Ok(()),
            Ok(0) => Err(disconnected(format!("{} closed the connection", self.server))),
            Err(error) => Err(broken(&error, &self.server).into()),
        }
    }
}

/// Takes the next whole message; `None` for a length that none has.
#[allow(clippy::option_option, reason = "no message, and none yet")]
fn take(received: &mut BytesMut) -> Option<Option<Vec<u8>>> {
    let Some(length) = received.first_chunk::<4>() else { return Some(None) };
    let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
    if length > LONGEST_MESSAGE {
        return None;
    }
    if received.len() < 4 + length {
        return Some(None);
    }
    received.advance(4);
    Some(Some(received.split_to(length).to_vec()))
}

/// Reads the state of a node in an answer, if there is one.
pub(super) fn state(answer: &Answer) -> Result<Option<State>, ZookeeperError> {
    answer.found(Reader::state)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use tokio::io::{DuplexStream, duplex};
    use tokio::net::TcpListener;

    use super::*;

    fn answer(number: i32, code: i32, body: &[u8]) -> Vec<u8> {
        let head =
            [&number.to_be_bytes()[..], &9_i64.to_be_bytes(), &code.to_be_bytes(), body].concat();
        [&i32::try_from(head.len()).unwrap().to_be_bytes()[..], &head].concat()
    }

    fn asked(answers: &[Vec<u8>]) -> (Result<[Answer; 2], ZookeeperError>, Connection) {
        let stream = tokio::io::join(Cursor::new(answers.concat()), tokio::io::sink());
        let mut connection = Connection::over(Box::new(stream));
        let requests = [Request::Sync("/a"), Request::Delete("/a")];
        let outcome = connection.ask(requests).now_or_never().expect("all of it is there");
        (outcome, connection)
    }

    #[test]
    fn an_answer_counts_only_when_all_are_there_in_order() {
        let (one, two) = (answer(1, 0, b""), answer(2, -101, b""));
        let (outcome, connection) = asked(&[one.clone(), two.clone()]);
        let [first, second] = outcome.unwrap();
        assert!(connection.is_in_step() && connection.seen == 9);
        assert!(first.done().is_ok());
        assert!(matches!(second.done(), Err(ZookeeperError::Conflict(_))));
        for unfit in [vec![two, one.clone()], vec![one.clone()], vec![one[..9].to_vec()]] {
            let (outcome, connection) = asked(&unfit);
            assert!(outcome.is_err() && !connection.is_in_step(), "{unfit:?}");
        }
    }

    #[test]
    fn pings_are_passed_over_and_notifications_kept_beside_an_answer() {
        let told = [&[0; 8][..], &[0, 0, 0, 2], b"/a"].concat();
        let all = [
            answer(PING, 0, b""),
            answer(1, 0, b""),
            answer(NOTIFICATION, 0, &told),
            answer(2, 0, b""),
        ];
        let (outcome, mut connection) = asked(&all);
        outcome.unwrap();
        assert_eq!(connection.notification().now_or_never().unwrap().unwrap(), "/a");
        assert!(connection.notified.is_empty());
    }

    /// Returns a connection to the other end of this stream.
    fn connected() -> (Connection, DuplexStream) {
        let (ours, theirs) = duplex(2 * LONGEST_MESSAGE);
        (Connection::over(Box::new(ours)), theirs)
    }

    /// Returns all that was received up to now.
    async fn received(stream: &mut DuplexStream) -> Vec<u8> {
        let mut all = BytesMut::new();
        while let Some(read) = stream.read_buf(&mut all).now_or_never() {
            assert!(read.unwrap() > 0, "it is not closed");
        }
        all.to_vec()
    }

    fn notification(path: &[u8]) -> Vec<u8> {
        let length = u32::try_from(path.len()).unwrap().to_be_bytes();
        answer(NOTIFICATION, 0, &[&[0; 8], &length[..], path].concat())
    }

    /// The answer to the first message: a session of this length.
    fn session(millis: i32) -> Vec<u8> {
        let body = [&[0; 4], &millis.to_be_bytes()[..], &[0; 8], &[0, 0, 0, 16], &[0; 16]].concat();
        [&[0, 0, 0, 36], &body[..]].concat()
    }

    #[tokio::test]
    async fn a_session_begins_with_the_last_transaction_that_is_known_and_a_sign_in() {
        let server = Address { host: url::Host::Domain("h".to_owned()), port: 1 };
        let resolver = Resolver::default();
        let opening = |user| Opening {
            server: &server,
            length: Duration::from_secs(15),
            seen: 9,
            user,
            tls: None,
            resolver: &resolver,
        };
        let first = wire::connect(9, Duration::from_secs(15));
        let signed_in = [&first[..], &wire::sign_in("u:secret")].concat();
        for (user, answers, sent, expected) in [
            (None, vec![session(15_000)], &first, Ok(15)),
            (None, vec![session(20_000)], &first, Ok(20)),
            (None, vec![session(0)], &first, Err("began no session")),
            (
                None,
                vec![answer(1, 0, b"")[..9].to_vec()],
                &first,
                Err("without an answer: it has no quorum"),
            ),
            (None, vec![vec![0, 0, 0, 1, 0]], &first, Err("did not answer as ZooKeeper does")),
            (Some("u:secret"), vec![session(15_000), answer(SIGN_IN, 0, b"")], &signed_in, Ok(15)),
            (
                Some("u:secret"),
                vec![session(15_000), answer(SIGN_IN, -115, b"")],
                &signed_in,
                Err("the sign-in failed"),
            ),
            (Some("u:secret"), vec![session(15_000)], &signed_in, Err("closed the connection")),
        ] {
            let (mut connection, mut theirs) = connected();
            theirs.write_all(&answers.concat()).await.unwrap();
            let begun = async {
                // It ends with the answers.
                theirs.shutdown().await.unwrap();
                connection.begin(&opening(user)).await
            };
            match (begun.await, expected) {
                (Ok(()), Ok(seconds)) => assert_eq!(connection.length.as_secs(), seconds),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                other => panic!("{answers:?}: {other:?}"),
            }
            assert_eq!(&received(&mut theirs).await, sent, "{answers:?}");
        }
    }

    #[tokio::test]
    async fn the_answer_to_a_command_ends_with_its_connection_and_none_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap().to_string();
        let (host, port) = server.rsplit_once(':').unwrap();
        let host = url::Host::parse(host).unwrap();
        let server = Address { host, port: port.parse().unwrap() };
        let resolver = Resolver::default();
        let (length, seen) = (Duration::ZERO, 0);
        let opening =
            Opening { server: &server, length, seen, user: None, tls: None, resolver: &resolver };
        for answer in ["imok", ""] {
            let serving = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = [0; 4];
                stream.read_exact(&mut asked).await.unwrap();
                assert_eq!(&asked, b"ruok");
                if answer.is_empty() {
                    // It is reset.
                    stream.set_zero_linger().unwrap();
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
            };
            let (told, ()) = tokio::join!(opening.command("ruok"), serving);
            assert_eq!(told.ok().as_deref(), Some(answer).filter(|it| !it.is_empty()));
        }
    }

    #[tokio::test]
    async fn requests_are_counted_and_sent_together_and_the_last_one_ends_the_session() {
        let (mut connection, mut theirs) = connected();
        theirs.write_all(&[answer(1, 0, b""), answer(2, 0, b"")].concat()).await.unwrap();
        connection.ask([Request::Sync("/a"), Request::Delete("/b")]).await.unwrap();
        let sent =
            [wire::request(1, &Request::Sync("/a")), wire::request(2, &Request::Delete("/b"))];
        assert_eq!(received(&mut theirs).await, sent.concat());
        theirs.write_all(&answer(3, 0, b"")).await.unwrap();
        connection.ask([Request::Sync("/c")]).await.unwrap();
        assert_eq!(received(&mut theirs).await, wire::request(3, &Request::Sync("/c")));
        assert_eq!(connection.seen, 9);
        connection.close();
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, wire::request(4, &Request::Close));
    }

    #[tokio::test]
    async fn notifications_are_waited_for_and_an_answer_among_them_is_none() {
        let (mut connection, mut theirs) = connected();
        assert!(connection.notification().now_or_never().is_none());
        theirs.write_all(&[notification(b"/a"), notification(b"/b")].concat()).await.unwrap();
        assert_eq!(connection.notification().await, Ok("/a".to_owned()));
        assert_eq!(connection.notification().await, Ok("/b".to_owned()));
        let message = notification(b"/c");
        let (begun, rest) = message.split_at(9);
        theirs.write_all(begun).await.unwrap();
        assert!(connection.notification().now_or_never().is_none());
        theirs.write_all(rest).await.unwrap();
        assert_eq!(connection.notification().await, Ok("/c".to_owned()));
        theirs.write_all(&answer(1, 0, b"")).await.unwrap();
        assert!(matches!(connection.notification().await, Err(ZookeeperError::Invalid(_))));
    }

    #[tokio::test]
    async fn a_ping_is_sent_only_once_the_last_one_has_an_answer() {
        let (mut connection, mut theirs) = connected();
        assert_eq!(connection.ping().await, Ok(()));
        assert_eq!(received(&mut theirs).await, wire::ping());
        theirs.write_all(&answer(PING, 0, b"")).await.unwrap();
        assert!(connection.is_alive());
        assert_eq!(connection.ping().await, Ok(()));
        let error = connection.ping().await.unwrap_err();
        assert!(error.to_string().contains("does not answer"), "{error}");
        assert_eq!(received(&mut theirs).await, wire::ping(), "nothing more is sent");
    }

    #[tokio::test]
    async fn a_connection_is_alive_unless_it_is_closed_or_was_sent_what_nobody_asked_for() {
        let all = [answer(PING, 0, b""), notification(b"/a")].concat();
        for (sent, is_alive) in
            [(Vec::new(), true), (all, true), (answer(1, 0, b""), false), (vec![0xff; 4], false)]
        {
            let (mut connection, mut theirs) = connected();
            theirs.write_all(&sent).await.unwrap();
            assert_eq!(connection.is_alive(), is_alive, "{sent:?}");
            drop(theirs);
            assert!(!connection.is_alive());
        }
    }

    #[test]
    fn the_longest_message_is_one_that_a_server_sends_by_default() {
        for (length, is_taken) in [(LONGEST_MESSAGE, true), (LONGEST_MESSAGE + 1, false)] {
            let head = u32::try_from(length).unwrap().to_be_bytes();
            let mut received = BytesMut::from(&[&head[..], &vec![7; length]].concat()[..]);
            let taken = take(&mut received).flatten();
            assert_eq!(taken, is_taken.then(|| vec![7; length]));
        }
    }

    #[test]
    fn only_the_error_for_a_missing_node_says_that_there_is_none() {
        let of = |code, body: &[u8]| Answer { code, body: body.to_vec(), server: "h:1".into() };
        let found = state(&of(0, &[0; 68])).unwrap();
        assert_eq!(found, Some(State::default()));
        assert_eq!(state(&of(NO_NODE, b"")), Ok(None));
        assert!(matches!(state(&of(-102, b"")), Err(ZookeeperError::Denied(_))));
        assert!(matches!(state(&of(0, &[0; 67])), Err(ZookeeperError::Invalid(_))));
    }
}

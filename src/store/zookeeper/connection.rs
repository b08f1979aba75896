//! One connection to a server, which is one session, and no connection takes up the session of another.
//!
//! Requests are sent one behind the other and answered in this order; notifications come between. A
//! connection whose future was dropped before all was answered is of no more use, so its owner takes it out
//! of its place for the time of a request. It is closed, with its session, when it is dropped.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures::FutureExt;
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::errors::{
    BAD_VERSION, NO_NODE, NODE_EXISTS, disconnected, not_taken, not_zookeeper, reported,
};
use super::wire::{self, NOTIFICATION, PING, Reader, Request, SIGN_IN, State};
use crate::config::Address;
use crate::http::resolver::Resolver;
use crate::store::network::NetworkError;
use crate::store::register::RegisterError;
use crate::store::stream::{self, Stream, broken};

/// How long a session lasts without a request, if the server agrees. None is worth more than its connection.
const SESSION: Duration = Duration::from_secs(30);

/// The longest message that is read: as long as a server sends by default.
const LONGEST_MESSAGE: usize = 1024 * 1024 + 1024;

/// The most that is read for one request, with what comes before its answer.
const MOST: usize = 2 * LONGEST_MESSAGE;

/// The longest answer to a command of four letters.
const LONGEST_TEXT: u64 = 64 * 1024;

/// How a connection is made.
pub(super) struct Opening<'a> {
    pub(super) server: &'a Address,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) resolver: &'a Resolver,
}

impl Opening<'_> {
    /// Connects, with TLS if there are settings for it.
    async fn stream(&self) -> Result<Box<dyn Stream>, NetworkError> {
        stream::connect(self.server, self.tls.clone(), self.resolver).await
    }

    /// Asks a command of four letters, which needs no session, on a connection of its own.
    pub(super) async fn command(&self, letters: &str) -> Result<String, RegisterError> {
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
    /// Returns the error that the server reports, but for that of a missing node.
    pub(super) fn fault(&self) -> Option<RegisterError> {
        self.found(|_| Some(())).err()
    }

    /// Reads the answer; `None` if there is no such node.
    pub(super) fn found<'a, T>(
        &'a self,
        read: impl FnOnce(&mut Reader<'a>) -> Option<T>,
    ) -> Result<Option<T>, RegisterError> {
        match self.code {
            0 => read(&mut Reader(&self.body)).map(Some).ok_or_else(|| not_zookeeper(&self.server)),
            NO_NODE => Ok(None),
            code => Err(reported(code, &self.server)),
        }
    }

    /// Reads the answer to a transaction of some parts: the state of the first node that it wrote, or the
    /// first part that failed with its error, if nothing was done because the nodes are others than was
    /// thought.
    pub(super) fn done(&self, parts: usize) -> Result<Result<State, (usize, i32)>, RegisterError> {
        let outcome = self.found(Reader::outcome)?;
        match outcome.map(|it| (it.fault, it)) {
            Some((None, it)) if it.parts == parts => Ok(Ok(it.state)),
            Some((Some(fault @ (_, NO_NODE | NODE_EXISTS | BAD_VERSION)), _)) => Ok(Err(fault)),
            Some((Some((_, code)), _)) => Err(reported(code, &self.server)),
            _ => Err(not_zookeeper(&self.server)),
        }
    }
}

/// A connection that is ready for the next request.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    /// What was received and not looked at yet.
    received: BytesMut,
    /// How much more may be received for this request.
    room: usize,
    /// Host and port.
    server: Arc<str>,
    /// The number of the last request.
    number: i32,
    /// How long the session lasts without a request, as the server said.
    length: Duration,
    /// The last transaction that the server has told of.
    pub(super) seen: i64,
    /// Whether a notification has arrived.
    is_notified: bool,
    /// Whether a ping has no answer yet.
    is_pinged: bool,
    /// Whether the last answer was received to its end.
    is_in_step: bool,
}

impl Drop for Connection {
    /// Ends the session, as far as that can be done without waiting.
    fn drop(&mut self) {
        if self.is_in_step && !self.length.is_zero() {
            let message = wire::request(self.number.wrapping_add(1), &Request::Close);
            let _ = self.send(&message).now_or_never();
        }
    }
}

impl Connection {
    /// Connects. No session has begun yet.
    pub(super) async fn open(opening: &Opening<'_>) -> Result<Self, RegisterError> {
        Ok(Self::over(opening.stream().await?, &opening.server.to_string()))
    }

    /// Returns a connection over this stream, on which nothing was sent.
    pub(super) fn over(stream: Box<dyn Stream>, server: &str) -> Self {
        Self {
            stream,
            received: BytesMut::new(),
            room: MOST,
            server: server.into(),
            number: 0,
            length: Duration::ZERO,
            seen: 0,
            is_notified: false,
            is_pinged: false,
            is_in_step: true,
        }
    }

    /// Names the server.
    pub(super) fn server(&self) -> Arc<str> {
        Arc::clone(&self.server)
    }

    /// Begins a session. A server that has not seen this transaction closes the connection without an
    /// answer, which is [`NetworkError::Disconnected`].
    pub(super) async fn begin(&mut self, seen: i64) -> Result<(), RegisterError> {
        let server = self.server();
        let explained = |error| match error {
            RegisterError::Network(NetworkError::Disconnected(_)) => not_taken(&server),
            other => other,
        };
        self.send(&wire::connect(seen, SESSION)).await.map_err(explained)?;
        let first = self.message().await.map_err(explained)?;
        self.length = Reader(&first).connected().ok_or_else(|| not_zookeeper(&self.server))?;
        if self.length.is_zero() {
            return Err(disconnected(format!("{} began no session", self.server)));
        }
        Ok(())
    }

    /// Signs in as `USER:PASSWORD`. The server closes the connection behind a sign-in that it does not accept.
    pub(super) async fn sign_in(&mut self, user: &str) -> Result<(), RegisterError> {
        // Not together with the beginning of the session: some servers would answer it first.
        self.send(&wire::sign_in(user)).await?;
        self.answer(SIGN_IN).await?.found(|_| Some(())).map(drop)
    }

    /// Sends requests one behind the other, and returns the answer to each.
    pub(super) async fn ask<const N: usize>(
        &mut self,
        requests: [Request<'_>; N],
    ) -> Result<[Answer; N], RegisterError> {
        self.is_in_step = false;
        self.room = MOST;
        let first = self.number.wrapping_add(1);
        let mut messages = Vec::new();
        for request in &requests {
            self.number = self.number.wrapping_add(1);
            messages.extend(wire::request(self.number, request));
        }
        self.send(&messages).await?;
        let mut answers: Vec<Answer> = Vec::with_capacity(N);
        for number in first..=self.number {
            let answered = self.answer(number).await;
            // A server that refuses a session closes it behind the first answer, which says why.
            let refused = || answers.first()?.fault();
            answers.push(answered.map_err(|error| refused().unwrap_or(error))?);
        }
        self.is_in_step = true;
        answers.try_into().map_err(|_| not_zookeeper(&self.server))
    }

    /// Waits for a notification, and keeps the session alive meanwhile.
    pub(super) async fn notified(&mut self) -> Result<(), RegisterError> {
        while !std::mem::take(&mut self.is_notified) {
            self.room = MOST;
            match timeout(self.length / 3, self.pass()).await {
                Ok(passed) => passed?,
                Err(_) if self.is_pinged => {
                    return Err(disconnected(format!("{} does not answer", self.server)));
                }
                Err(_) => {
                    self.is_pinged = true;
                    self.send(&wire::ping()).await?;
                }
            }
        }
        Ok(())
    }

    /// Waits for anything that is no answer to a request. May be dropped at any time.
    async fn pass(&mut self) -> Result<(), RegisterError> {
        match self.parse()? {
            Some(_) => Err(not_zookeeper(&self.server)),
            None if self.is_notified => Ok(()),
            None => self.fill().await,
        }
    }

    /// Returns whether the last answer was received to its end, so that another request may follow.
    pub(super) fn is_in_step(&self) -> bool {
        self.is_in_step
    }

    /// Returns whether the connection is still there, as far as is known here.
    pub(super) fn is_alive(&mut self) -> bool {
        self.room = MOST;
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

    async fn send(&mut self, messages: &[u8]) -> Result<(), RegisterError> {
        Ok(stream::send(&mut *self.stream, messages, &self.server).await?)
    }

    /// Returns the answer with a number, which must be the next.
    async fn answer(&mut self, number: i32) -> Result<Answer, RegisterError> {
        loop {
            if let Some((found, code, body)) = self.parse()? {
                if found != number {
                    return Err(not_zookeeper(&self.server));
                }
                return Ok(Answer { code, body, server: self.server() });
            }
            self.fill().await?;
        }
    }

    /// Takes the next answer from what was received, with its number and its error.
    fn parse(&mut self) -> Result<Option<(i32, i32, Vec<u8>)>, RegisterError> {
        let unfit = || not_zookeeper(&self.server);
        while let Some(message) = take(&mut self.received).ok_or_else(unfit)? {
            let mut reader = Reader(&message);
            let (number, seen, code) = reader.header().ok_or_else(unfit)?;
            match number {
                PING => self.is_pinged = false,
                // Of the only node that is watched.
                NOTIFICATION => self.is_notified = true,
                _ => {
                    self.seen = self.seen.max(seen);
                    return Ok(Some((number, code, reader.0.to_vec())));
                }
            }
        }
        Ok(None)
    }

    /// Returns the next message.
    async fn message(&mut self) -> Result<Vec<u8>, RegisterError> {
        loop {
            let taken = take(&mut self.received).ok_or_else(|| not_zookeeper(&self.server))?;
            match taken {
                Some(message) => return Ok(message),
                None => self.fill().await?,
            }
        }
    }

    /// Waits for more. May be dropped at any time.
    async fn fill(&mut self) -> Result<(), RegisterError> {
        match self.stream.read_buf(&mut self.received).await {
            Ok(read @ 1..) => {
                let rest = self.room.checked_sub(read);
                self.room = rest.ok_or_else(|| not_zookeeper(&self.server))?;
                Ok(())
            }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "the clock of a paused runtime is measured")]

    use std::io::Cursor;

    use tokio::io::{DuplexStream, duplex};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    fn answer(number: i32, code: i32, body: &[u8]) -> Vec<u8> {
        let head =
            [&number.to_be_bytes()[..], &9_i64.to_be_bytes(), &code.to_be_bytes(), body].concat();
        [&i32::try_from(head.len()).unwrap().to_be_bytes()[..], &head].concat()
    }

    fn notification() -> Vec<u8> {
        answer(NOTIFICATION, 0, &[0; 12])
    }

    fn asked(answers: &[Vec<u8>]) -> (Result<[Answer; 2], RegisterError>, Connection) {
        let stream = tokio::io::join(Cursor::new(answers.concat()), tokio::io::sink());
        let mut connection = Connection::over(Box::new(stream), "h:1");
        let requests = [Request::Sync("/a"), Request::Data("/a")];
        let outcome = connection.ask(requests).now_or_never().expect("all of it is there");
        (outcome, connection)
    }

    #[test]
    fn an_answer_counts_only_when_all_are_there_in_order() {
        let (one, two) = (answer(1, 0, b""), answer(2, NO_NODE, b""));
        let (outcome, connection) = asked(&[one.clone(), two.clone()]);
        let [first, second] = outcome.unwrap();
        assert!(connection.is_in_step() && connection.seen == 9);
        assert_eq!(
            (first.found(|_| Some(())), second.found(|_| Some(()))),
            (Ok(Some(())), Ok(None))
        );
        for unfit in [vec![two, one.clone()], vec![one.clone()], vec![one[..9].to_vec()]] {
            let (outcome, connection) = asked(&unfit);
            assert!(outcome.is_err() && !connection.is_in_step(), "{unfit:?}");
        }
        let (outcome, connection) = asked(&[answer(1, -124, b"")]);
        assert!(outcome.unwrap_err().to_string().contains("SASL") && !connection.is_in_step());
        let (outcome, connection) = asked(&[one, answer(2, -102, b"")]);
        let refused = outcome.unwrap()[1].found(|_| Some(()));
        assert!(matches!(refused, Err(RegisterError::Denied(_))) && connection.is_in_step());
    }

    #[test]
    fn pings_are_passed_over_and_notifications_kept_beside_an_answer() {
        let all = [answer(PING, 0, b""), answer(1, 0, b""), notification(), answer(2, 0, b"")];
        let (outcome, mut connection) = asked(&all);
        outcome.unwrap();
        assert_eq!(connection.notified().now_or_never(), Some(Ok(())));
        assert!(!connection.is_notified);
    }

    #[test]
    fn all_that_comes_before_an_answer_is_bounded_in_sum() {
        let large = answer(NOTIFICATION, 0, &vec![0; LONGEST_MESSAGE - 16]);
        for (count, is_taken) in [(1, true), (3, false)] {
            let all = [&vec![large.clone(); count][..], &[answer(1, 0, b""), answer(2, 0, b"")]];
            let (outcome, connection) = asked(&all.concat());
            assert_eq!((outcome.is_ok(), connection.is_in_step()), (is_taken, is_taken), "{count}");
        }
    }

    #[test]
    fn a_transaction_is_done_or_a_part_of_it_found_other_nodes() {
        let part =
            |code: i32| [&[255; 4][..], &[0], &code.to_be_bytes(), &code.to_be_bytes()].concat();
        let end = [255, 255, 255, 255, 1, 255, 255, 255, 255];
        let of = |codes: &[i32]| Answer {
            code: 0,
            body: [&codes.iter().flat_map(|it| part(*it)).collect::<Vec<_>>()[..], &end].concat(),
            server: "h:1".into(),
        };
        for code in [NO_NODE, NODE_EXISTS, BAD_VERSION] {
            assert_eq!(of(&[0, code, -2]).done(3), Ok(Err((1, code))));
        }
        assert!(matches!(of(&[-102, -2]).done(2), Err(RegisterError::Denied(_))));
        let deleted = |count: usize| {
            let part = [0, 0, 0, 2, 0, 0, 0, 0, 0];
            let body = [&part.repeat(count)[..], &end].concat();
            Answer { code: 0, body, server: "h:1".into() }.done(1)
        };
        assert_eq!(deleted(1), Ok(Ok(State::default())));
        for unfit in [0, 2] {
            assert!(matches!(deleted(unfit), Err(RegisterError::Invalid(_))), "{unfit}");
        }
    }

    /// Returns a connection to the other end of this stream.
    fn connected() -> (Connection, DuplexStream) {
        let (ours, theirs) = duplex(2 * LONGEST_MESSAGE);
        (Connection::over(Box::new(ours), "h:1"), theirs)
    }

    /// Returns all that was received up to now.
    async fn received(stream: &mut DuplexStream) -> Vec<u8> {
        let mut all = BytesMut::new();
        while let Some(read) = stream.read_buf(&mut all).now_or_never() {
            assert!(read.unwrap() > 0, "it is not closed");
        }
        all.to_vec()
    }

    /// The answer to the first message: a session of this length.
    fn session(millis: i32) -> Vec<u8> {
        let body = [&[0; 4], &millis.to_be_bytes()[..], &[0; 8], &[0, 0, 0, 16], &[0; 16]].concat();
        [&[0, 0, 0, 36], &body[..]].concat()
    }

    #[tokio::test]
    async fn a_session_begins_with_the_last_transaction_that_is_known_and_a_sign_in() {
        let first = wire::connect(9, SESSION);
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
                connection.begin(9).await?;
                match user {
                    Some(user) => connection.sign_in(user).await,
                    None => Ok(()),
                }
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
        let opening = Opening { server: &server, tls: None, resolver: &resolver };
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
        theirs.write_all(&session(15_000)).await.unwrap();
        connection.begin(0).await.unwrap();
        received(&mut theirs).await;
        theirs.write_all(&[answer(1, 0, b""), answer(2, 0, b"")].concat()).await.unwrap();
        connection.ask([Request::Sync("/a"), Request::State("/b")]).await.unwrap();
        let sent =
            [wire::request(1, &Request::Sync("/a")), wire::request(2, &Request::State("/b"))];
        assert_eq!(received(&mut theirs).await, sent.concat());
        theirs.write_all(&answer(3, 0, b"")).await.unwrap();
        connection.ask([Request::Sync("/c")]).await.unwrap();
        assert_eq!(received(&mut theirs).await, wire::request(3, &Request::Sync("/c")));
        assert_eq!(connection.seen, 9);
        drop(connection);
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, wire::request(4, &Request::Close));
    }

    fn waiting() -> (Connection, DuplexStream) {
        let (mut connection, theirs) = connected();
        connection.length = Duration::from_secs(15);
        (connection, theirs)
    }

    #[tokio::test]
    async fn notifications_are_waited_for_and_an_answer_among_them_is_none() {
        let (mut connection, mut theirs) = waiting();
        let message = notification();
        let (begun, rest) = message.split_at(9);
        theirs.write_all(begun).await.unwrap();
        assert!(connection.notified().now_or_never().is_none());
        theirs.write_all(rest).await.unwrap();
        assert_eq!(connection.notified().await, Ok(()));
        theirs.write_all(&answer(1, 0, b"")).await.unwrap();
        assert!(matches!(connection.notified().await, Err(RegisterError::Invalid(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_kept_alive_by_a_ping_in_each_third_of_its_time() {
        let (mut connection, mut server) = waiting();
        let began = Instant::now();
        let serving = async {
            for seconds in [5, 10, 15] {
                let mut ping = vec![0; wire::ping().len()];
                server.read_exact(&mut ping).await.unwrap();
                assert_eq!((ping, began.elapsed().as_secs()), (wire::ping(), seconds));
                server.write_all(&answer(PING, 0, b"")).await.unwrap();
            }
            server.write_all(&notification()).await.unwrap();
        };
        let (found, ()) = tokio::join!(connection.notified(), serving);
        assert_eq!((found, began.elapsed().as_secs()), (Ok(()), 15));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_no_ping_by_the_next_one_is_given_up() {
        let (mut connection, _server) = waiting();
        let began = Instant::now();
        let error = connection.notified().await.unwrap_err();
        assert!(error.to_string().contains("does not answer"), "{error}");
        assert_eq!(began.elapsed().as_secs(), 10);
    }

    #[tokio::test]
    async fn a_connection_is_alive_unless_it_is_closed_or_was_sent_what_nobody_asked_for() {
        let all = [answer(PING, 0, b""), notification()].concat();
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
}

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
    /// The session.
    session: i64,
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
            session: 0,
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
        let connected = Reader(&first).connected().ok_or_else(|| not_zookeeper(&self.server))?;
        (self.length, self.session) = connected;
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
}

//! One connection to a server, on which one command is sent after the other, or messages of a channel
//! arrive.
//!
//! A connection whose future was dropped before the reply was complete is of no more use, so its owner
//! takes it out of its place for the time of a request.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use rustls::ClientConfig;
use tokio::io::AsyncReadExt;

use super::errors::{not_redis, reported, sentinel};
use super::reply::{self, Reply};
use super::scripts::{Command, command};
use crate::config::{Address, RedisSettings};
use crate::http::resolver::Resolver;
use crate::store::network::NetworkError;
use crate::store::register::RegisterError;
use crate::store::stream::{self, Stream, broken};

/// A user name and a password.
pub(super) struct Login {
    /// `None` for the default user.
    pub(super) user: Option<String>,
    pub(super) password: String,
}

/// What a server says of itself by `INFO`.
#[derive(Default)]
pub(super) struct Info(HashMap<String, String>);

impl Info {
    pub(super) fn of(reply: &Reply) -> Self {
        let lines = reply.text().unwrap_or_default().lines();
        let pairs = lines.filter_map(|it| it.split_once(':'));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Returns whether the server has told anything.
    pub(super) fn is_known(&self) -> bool {
        !self.0.is_empty()
    }

    pub(super) fn is_primary(&self) -> bool {
        self.get("role") == "master"
    }

    fn is_sentinel(&self) -> bool {
        self.get("redis_mode") == "sentinel"
    }

    /// Returns whether both are primaries, and not two ways to one server. Nodes of a cluster share the keys
    /// among them.
    pub(super) fn is_another_primary(&self, other: &Self) -> bool {
        let is_alone = |it: &Self| it.is_primary() && it.get("cluster_enabled") != "1";
        is_alone(self) && is_alone(other) && self.get("run_id") != other.get("run_id")
    }

    /// Returns whether scripts have flags: since version 7 of Redis, which each Valkey claims to be.
    pub(super) fn has_flags(&self) -> bool {
        let major = self.get("redis_version").split('.').next();
        major.and_then(|it| it.parse::<u32>().ok()).is_some_and(|it| it >= 7)
    }
}

/// A connection that is ready for the next command.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    /// What was received and not looked at yet.
    received: Vec<u8>,
    /// Host and port.
    server: String,
    /// What the server said when the connection was made.
    pub(super) info: Info,
    /// Whether the last reply was received to its end.
    is_in_step: bool,
}

impl Connection {
    /// Connects, with TLS if there are settings for it, signs in, and selects the database.
    pub(super) async fn open(
        server: &Address,
        settings: &RedisSettings,
        login: Option<&Login>,
        tls: Option<Arc<ClientConfig>>,
        resolver: &Resolver,
    ) -> Result<Self, RegisterError> {
        let stream = stream::connect(server, tls, resolver).await?;
        let mut it = Self::over(stream, server.to_string());
        if let Some(Login { user, password }) = login {
            let user = user.as_deref();
            let all: Vec<_> = ["AUTH"].into_iter().chain(user).chain([&password[..]]).collect();
            if let Err(error) = it.ask(&command(&all)).await {
                // A Sentinel has users of its own, or none, and says what it is to everybody.
                it.look_around().await?;
                return Err(error);
            }
        }
        it.look_around().await?;
        if settings.database != 0 {
            it.ask(&command(&["SELECT", &settings.database.to_string()])).await?;
        }
        Ok(it)
    }

    /// Asks what the server is. Whoever may not ask may do nothing here, which the next request shows.
    async fn look_around(&mut self) -> Result<(), RegisterError> {
        match self.ask(&command(&["INFO"])).await {
            Ok(reply) => self.info = Info::of(&reply),
            Err(error) if !self.is_in_step => return Err(error),
            Err(_) => {}
        }
        if self.info.is_sentinel() { Err(sentinel(&self.server)) } else { Ok(()) }
    }

    /// Uses what is connected already.
    pub(super) fn over(stream: Box<dyn Stream>, server: String) -> Self {
        Self { stream, received: Vec::new(), server, info: Info::default(), is_in_step: true }
    }

    /// Sends a command; returns its reply.
    pub(super) async fn ask(&mut self, command: &Command) -> Result<Reply, RegisterError> {
        self.is_in_step = false;
        stream::send(&mut *self.stream, &reply::format(command), &self.server).await?;
        let reply = self.receive().await?;
        self.is_in_step = true;
        match reply {
            Reply::Error(words) => Err(reported(&words, &self.server)),
            reply => Ok(reply),
        }
    }

    /// Returns the next message of the channel that was subscribed to. May be dropped at any time.
    pub(super) async fn message(&mut self) -> Result<String, RegisterError> {
        loop {
            let reply = self.receive().await?;
            if let [kind, _channel, payload] = reply.parts()
                && kind.text() == Some("message")
                && let Some(payload) = payload.text()
            {
                return Ok(payload.to_owned());
            }
        }
    }

    /// Returns whether the last reply was received to its end, so that another command may follow.
    pub(super) fn is_in_step(&self) -> bool {
        self.is_in_step
    }

    /// Returns whether the connection is still there, as far as is known here: a server sends nothing
    /// unasked before it closes it.
    pub(super) fn is_alive(&mut self) -> bool {
        self.received.is_empty() && self.fill().now_or_never().is_none()
    }

    /// Returns the next reply. May be dropped at any time.
    async fn receive(&mut self) -> Result<Reply, RegisterError> {
        loop {
            let taken = reply::take(&mut self.received).map_err(|_| not_redis(&self.server))?;
            match taken {
                Some(reply) => return Ok(reply),
                None => self.fill().await?,
            }
        }
    }

    /// Waits for more. May be dropped at any time.
    async fn fill(&mut self) -> Result<(), RegisterError> {
        match self.stream.read_buf(&mut self.received).await {
            Ok(1..) => Ok(()),
            Ok(0) => Err(NetworkError::Disconnected(format!(
                "{} closed the connection, or asks for TLS, or is no Redis server",
                self.server
            ))
            .into()),
            Err(error) => Err(broken(&error, &self.server).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use tokio::io::AsyncWriteExt;

    use super::*;

    fn connection(received: &str) -> Connection {
        let received = Cursor::new(received.as_bytes().to_vec());
        let stream = tokio::io::join(received, tokio::io::sink());
        Connection::over(Box::new(stream), "h:1".to_owned())
    }

    #[test]
    fn a_reply_counts_only_when_it_is_whole() {
        let asked = |received| {
            let mut it = connection(received);
            let outcome = it.ask(&command(&["PING"])).now_or_never().expect("all of it is there");
            (outcome, it.is_in_step())
        };
        assert_eq!(asked("+PONG\r\n"), (Ok(Reply::Text(b"PONG".to_vec())), true));
        let (outcome, is_in_step) = asked("-READONLY no\r\n");
        assert!(matches!(outcome, Err(RegisterError::Network(_))) && is_in_step, "{outcome:?}");
        let (outcome, is_in_step) = asked("*2\r\n:1\r\n");
        assert!(
            matches!(outcome, Err(RegisterError::Network(NetworkError::Disconnected(_))))
                && !is_in_step,
            "{outcome:?}"
        );
        let (outcome, is_in_step) = asked("HTTP/1.1 400 Bad Request\r\n");
        assert!(matches!(outcome, Err(RegisterError::Invalid(_))) && !is_in_step, "{outcome:?}");
    }

    #[test]
    fn a_rest_of_an_earlier_reply_is_no_reply_to_the_next_command() {
        let answered = |received: &str| {
            let (near, mut far) = tokio::io::duplex(1024);
            far.write_all(received.as_bytes()).now_or_never().unwrap().unwrap();
            let mut it = Connection::over(Box::new(near), "h:1".to_owned());
            it.ask(&command(&["PING"])).now_or_never().unwrap().unwrap();
            (it.is_alive(), far)
        };
        assert!(answered("+first\r\n").0);
        assert!(!answered("+first\r\n+second\r\n").0);
    }

    #[test]
    fn messages_are_told_from_what_else_arrives() {
        let mut it = connection(
            "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n",
        );
        assert_eq!(it.message().now_or_never(), Some(Ok("hi".to_owned())));
    }
}

//! One connection to a server, on which one command is sent after the other.
//!
//! A connection whose future was dropped before the answer was complete is of no more use, so its owner
//! takes it out of its place for the time of a command.

use std::sync::Arc;

use futures::FutureExt;
use rustls::ClientConfig;
use tokio::io::AsyncReadExt;
use uuid::Uuid;

use super::bson::Document;
use super::errors::{not_mongodb, reported};
use super::scram::Scram;
use super::wire::{self, Build, Hello, Meaning};
use crate::config::{Address, MongoSettings};
use crate::http::resolver::Resolver;
use crate::store::network::NetworkError;
use crate::store::register::RegisterError;
use crate::store::stream::{self, Stream, broken};

/// The credential for a connection.
#[derive(Clone)]
pub(super) enum Login {
    /// A user and its password.
    Password { user: String, password: String },
    /// The certificate of the connection.
    Certificate,
    /// None.
    Nobody,
}

/// A connection that is ready for the next command.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    /// What was received and not looked at yet.
    received: Vec<u8>,
    /// Host and port.
    server: String,
    /// The number of the last request.
    number: i32,
    /// What the server said of itself when the connection was made.
    pub(super) hello: Hello,
    pub(super) build: Build,
    /// Whether the last answer was received to its end.
    is_in_step: bool,
}

impl Connection {
    /// Connects, with TLS if there are settings for it, and signs in.
    pub(super) async fn open(
        server: &Address,
        settings: &MongoSettings,
        login: &Login,
        tls: Option<Arc<ClientConfig>>,
        resolver: &Resolver,
    ) -> Result<Self, RegisterError> {
        let stream = stream::connect(server, tls, resolver).await?;
        let mut it = Self::over(stream, server.to_string());
        it.greet(&settings.election).await?;
        it.sign_in(login, &settings.auth_source).await?;
        it.build = Build::of(&it.ask(&wire::build_info()).await?);
        Ok(it)
    }

    /// Returns a connection over this stream, which nothing was sent on.
    pub(super) fn over(stream: Box<dyn Stream>, server: String) -> Self {
        Self {
            stream,
            received: Vec::new(),
            server,
            number: 0,
            hello: Hello::default(),
            build: Build::default(),
            is_in_step: true,
        }
    }

    /// Sends a command, and returns its answer.
    pub(super) async fn ask(&mut self, command: &Document) -> Result<Document, RegisterError> {
        let answer = self.exchange(command).await?;
        match wire::error(&answer) {
            None => Ok(answer),
            Some(error) => Err(reported(&error, &self.server)),
        }
    }

    /// Sends a command, and returns its answer, which may report an error.
    pub(super) async fn exchange(&mut self, command: &Document) -> Result<Document, RegisterError> {
        self.is_in_step = false;
        self.number = self.number.wrapping_add(1);
        let message = wire::message(self.number, command);
        stream::send(&mut *self.stream, &message, &self.server).await?;
        loop {
            let parsed = wire::parse(&mut self.received).map_err(|()| not_mongodb(&self.server))?;
            match parsed {
                Some(it) if it.answers == self.number && self.received.is_empty() => {
                    self.is_in_step = true;
                    return Ok(it.body);
                }
                Some(_) => return Err(not_mongodb(&self.server)),
                None => self.fill().await?,
            }
        }
    }

    /// Returns whether the last answer was received to its end, so that another command may follow.
    pub(super) fn is_in_step(&self) -> bool {
        self.is_in_step
    }

    /// Returns whether the connection is still there, as far as is known here: nothing arrives unasked.
    pub(super) fn is_alive(&mut self) -> bool {
        self.fill().now_or_never().is_none()
    }

    /// Names the server.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    async fn greet(&mut self, election: &str) -> Result<(), RegisterError> {
        let mut answer = self.exchange(&wire::hello(wire::HELLO, election)).await?;
        let is_unknown = |it: &Document| {
            wire::error(it).map(|it| wire::meaning(it.code)) == Some(Meaning::UnknownCommand)
        };
        if is_unknown(&answer) {
            answer = self.exchange(&wire::hello(wire::IS_MASTER, election)).await?;
        }
        if let Some(error) = wire::error(&answer) {
            return Err(reported(&error, &self.server));
        }
        self.hello = Hello::of(&answer);
        Ok(())
    }

    async fn sign_in(&mut self, login: &Login, source: &str) -> Result<(), RegisterError> {
        let (user, password) = match login {
            Login::Nobody => return Ok(()),
            Login::Certificate => return self.ask(&wire::authenticate()).await.map(drop),
            Login::Password { user, password } => (user, password),
        };
        let scram = Scram::new(user, password, Uuid::new_v4().simple().to_string());
        let begun = self.ask(&wire::sasl_start(source, &scram.first())).await?;
        let unfit = || not_mongodb(&self.server);
        let proof =
            scram.answer(wire::sasl_payload(&begun).ok_or_else(unfit)?).ok_or_else(unfit)?;
        let ended = self.ask(&wire::sasl_continue(source, &begun, &proof.message)).await?;
        let last = wire::sasl_payload(&ended).unwrap_or_default();
        if !proof.is_of(last) {
            let what = "does not know the password, and is not the server it claims to be";
            return Err(RegisterError::Credential(format!("{} {what}", self.server)));
        }
        // Servers that do not know the option end with an empty message.
        if !ended.is("done") {
            self.ask(&wire::sasl_continue(source, &begun, "")).await?;
        }
        Ok(())
    }

    /// Waits for more. May be dropped at any time.
    async fn fill(&mut self) -> Result<(), RegisterError> {
        self.received.reserve(4 * 1024);
        match self.stream.read_buf(&mut self.received).await {
            Ok(1..) => Ok(()),
            Ok(0) => Err(NetworkError::Disconnected(format!(
                "{} closed the connection, or is no server of MongoDB",
                self.server
            ))
            .into()),
            Err(error) => Err(broken(&error, &self.server).into()),
        }
    }
}

#[cfg(test)]
mod tests;

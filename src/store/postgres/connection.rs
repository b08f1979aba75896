//! One connection to a server or its pooler, on which one message with SQL is sent after the other.
//!
//! Only simple queries are used: a pooler in transaction mode supports them, all statements of one are a
//! transaction, and no part of it is executed before all of it has arrived. A connection whose future was
//! dropped before the answer was complete is of no more use, so its owner takes it out of its place for
//! the time of a request.
//!
//! The messages are those of <https://www.postgresql.org/docs/current/protocol-message-formats.html>.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use futures::FutureExt;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{
    DataRowBody, ErrorFields, Header, Message, NotificationResponseBody,
};
use postgres_protocol::message::frontend;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::errors::{PostgresError, not_postgres, reported};
use crate::config::{Address, PostgresSettings};
use crate::http::resolver::Resolver;
use crate::store::network::NetworkError;
use crate::store::stream::{self, Stream, broken};

/// The longest message that is read. Those here have some hundred bytes.
const LONGEST_MESSAGE: i32 = 1024 * 1024;

/// The channel of all notifications of Tenure in a database.
pub(super) const CHANNEL: &str = "tenure";

/// A user name and a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    /// `None` if there is none for this server.
    pub(super) password: Option<String>,
}

/// The rows that one statement returned, as text.
pub(super) type Rows = Vec<Vec<Option<String>>>;

/// What is known of the server since the start of the connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Greeting {
    /// The version of the server, or of what its pooler says.
    pub(super) version: String,
    /// The process that serves this connection, as it was told; a pooler makes it up.
    process: i32,
    /// Whether the connection is to the server itself.
    pub(super) is_direct: bool,
    /// Whether the server only follows another.
    pub(super) is_standby: bool,
}

/// A connection that is ready for the next message.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    /// What was received and not looked at yet.
    received: BytesMut,
    /// Host and port.
    server: String,
    pub(super) greeting: Greeting,
    /// The notifications of others that have arrived.
    notified: Vec<String>,
    /// Whether the last answer was received to its end.
    is_in_step: bool,
}

/// Returns whether nobody between can read what is sent to a server.
fn is_private(server: &Address, tls: Option<&Arc<ClientConfig>>) -> bool {
    tls.is_some() || server.is_loopback()
}

impl Connection {
    /// Connects, with TLS if there are settings for it, and signs in. Listens to notifications if no
    /// pooler is in between, which would mix them up.
    pub(super) async fn open(
        server: &Address,
        settings: &PostgresSettings,
        login: &Login,
        tls: Option<Arc<ClientConfig>>,
        resolver: &Resolver,
    ) -> Result<Self, PostgresError> {
        let name = server.to_string();
        let mut stream = stream::connect_in_plain_text(server, resolver).await?;
        let is_private = is_private(server, tls.as_ref());
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(stream),
            Some(tls) => {
                asks_for_tls(&mut stream, &name).await?;
                stream::secure(stream, server, tls).await?
            }
        };
        let mut it = Self::new(stream, name);
        it.sign_in(settings, login, is_private).await?;
        it.listen().await?;
        Ok(it)
    }

    fn new(stream: Box<dyn Stream>, server: String) -> Self {
        Self {
            stream,
            received: BytesMut::new(),
            server,
            greeting: Greeting::default(),
            notified: Vec::new(),
            is_in_step: true,
        }
    }

    /// Returns a connection that is signed in, over something else than a network.
    #[cfg(any(test, fuzzing))]
    pub(super) fn over(stream: Box<dyn Stream>) -> Self {
        Self::new(stream, "server".to_owned())
    }

    /// Sends the statements of one transaction, and returns the rows of each.
    ///
    /// A warning makes its outcome unknown: the server gives one when it stops waiting for its standbys,
    /// and then answers like after a commit that they have.
    pub(super) async fn ask(&mut self, statements: &str) -> Result<Vec<Rows>, PostgresError> {
        self.is_in_step = false;
        self.send(|buffer| frontend::query(statements, buffer)).await?;
        let (mut answer, mut rows, mut fault) = (Vec::new(), Vec::new(), None);
        loop {
            match self.receive().await {
                Ok(Message::DataRow(body)) => rows.push(self.row(&body)?),
                Ok(Message::CommandComplete(_)) => answer.push(std::mem::take(&mut rows)),
                Ok(Message::RowDescription(_) | Message::EmptyQueryResponse) => (),
                Ok(Message::ErrorResponse(body)) => {
                    fault = Some(self.reported(body.fields()));
                }
                Ok(Message::NoticeResponse(body)) => {
                    let why = self.reported(body.fields());
                    fault = fault.or(Some(PostgresError::Unavailable(format!("warning: {why}"))));
                }
                Ok(Message::ReadyForQuery(_)) => {
                    self.is_in_step = true;
                    return fault.map_or(Ok(answer), Err);
                }
                Ok(_) => return Err(not_postgres(&self.server)),
                // The server says why it ends a connection.
                Err(error) => return Err(fault.unwrap_or(error)),
            }
        }
    }

    /// Returns the next notification of another connection. May be dropped at any time.
    pub(super) async fn notification(&mut self) -> Result<String, PostgresError> {
        loop {
            if !self.notified.is_empty() {
                return Ok(self.notified.remove(0));
            }
            // Anything but a notification ends the connection: the server is being shut down.
            if self.parse()?.is_some() {
                return Err(not_postgres(&self.server));
            }
            if self.notified.is_empty() {
                self.fill().await?;
            }
        }
    }

    /// Returns whether the last answer was received to its end, so that another request may follow.
    pub(super) fn is_in_step(&self) -> bool {
        self.is_in_step
    }

    /// Returns whether the connection is still there, as far as is known here: whether nothing has
    /// arrived but notifications.
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

    async fn sign_in(
        &mut self,
        settings: &PostgresSettings,
        login: &Login,
        is_private: bool,
    ) -> Result<(), PostgresError> {
        let application = format!("tenure {}", settings.election);
        let parameters = [
            ("user", login.user.as_str()),
            ("database", &settings.database),
            ("client_encoding", "UTF8"),
            ("application_name", &application),
        ];
        self.send(|buffer| frontend::startup_message(parameters, buffer)).await?;
        let mut scram = None;
        loop {
            match self.receive().await? {
                Message::AuthenticationOk | Message::NoticeResponse(_) => (),
                Message::AuthenticationCleartextPassword if is_private => {
                    let password = self.password(login)?.as_bytes();
                    self.send(|buffer| frontend::password_message(password, buffer)).await?;
                }
                Message::AuthenticationCleartextPassword => {
                    return Err(PostgresError::SignIn(format!(
                        "{} asks for the password in plain text, which is not sent without TLS",
                        self.server
                    )));
                }
                Message::AuthenticationMd5Password(body) => {
                    let password = self.password(login)?.as_bytes();
                    let hash = md5_hash(login.user.as_bytes(), password, body.salt());
                    self.send(|buffer| frontend::password_message(hash.as_bytes(), buffer)).await?;
                }
                Message::AuthenticationSasl(body) => {
                    let known = body.mechanisms().any(|it| Ok(it == SCRAM_SHA_256));
                    if !known.map_err(|_| not_postgres(&self.server))? {
                        return Err(self.other_sign_in());
                    }
                    let password = self.password(login)?.as_bytes();
                    let begun = ScramSha256::new(password, ChannelBinding::unsupported());
                    let first = begun.message().to_vec();
                    self.send(|it| frontend::sasl_initial_response(SCRAM_SHA_256, &first, it))
                        .await?;
                    scram = Some(begun);
                }
                Message::AuthenticationSaslContinue(body) => {
                    let begun = scram.as_mut().ok_or_else(|| not_postgres(&self.server))?;
                    begun.update(body.data()).map_err(|_| not_postgres(&self.server))?;
                    let next = begun.message().to_vec();
                    self.send(|it| frontend::sasl_response(&next, it)).await?;
                }
                Message::AuthenticationSaslFinal(body) => {
                    let begun = scram.as_mut().ok_or_else(|| not_postgres(&self.server))?;
                    begun.finish(body.data()).map_err(|_| {
                        let what =
                            "does not know the password, and is not the server it claims to be";
                        PostgresError::SignIn(format!("{} {what}", self.server))
                    })?;
                }
                Message::ParameterStatus(body) => {
                    if let (Ok("server_version"), Ok(version)) = (body.name(), body.value()) {
                        version.clone_into(&mut self.greeting.version);
                    }
                }
                Message::BackendKeyData(body) => self.greeting.process = body.process_id(),
                Message::ErrorResponse(body) => return Err(self.reported(body.fields())),
                Message::ReadyForQuery(_) => return Ok(()),
                Message::AuthenticationGss
                | Message::AuthenticationSspi
                | Message::AuthenticationKerberosV5
                | Message::AuthenticationScmCredential => return Err(self.other_sign_in()),
                _ => return Err(not_postgres(&self.server)),
            }
        }
    }

    fn password<'a>(&self, login: &'a Login) -> Result<&'a str, PostgresError> {
        login.password.as_deref().ok_or_else(|| {
            PostgresError::SignIn(format!(
                "{} asks for a password: set PGPASSWORD, PGPASSWORD_FILE, or PGPASSFILE with a line for \
                 this server",
                self.server
            ))
        })
    }

    fn other_sign_in(&self) -> PostgresError {
        PostgresError::SignIn(format!(
            "{} asks for a sign-in that Tenure does not have: allow scram-sha-256 or cert in pg_hba.conf",
            self.server
        ))
    }

    /// Asks for notifications where no pooler is in between: there the process that serves a request is
    /// not the one that was told at the start.
    async fn listen(&mut self) -> Result<(), PostgresError> {
        let asked = self.ask("SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery()");
        let answer = asked.await?;
        let Some([Some(process), Some(is_standby)]) =
            answer.first().and_then(|rows| rows.first()).map(Vec::as_slice)
        else {
            return Err(not_postgres(&self.server));
        };
        self.greeting.is_direct = *process == self.greeting.process.to_string();
        self.greeting.is_standby = is_standby == "t";
        if self.greeting.is_direct && !self.greeting.is_standby {
            self.ask(&format!("LISTEN {CHANNEL}")).await?;
        }
        Ok(())
    }

    async fn send(
        &mut self,
        message: impl FnOnce(&mut BytesMut) -> io::Result<()>,
    ) -> Result<(), PostgresError> {
        let mut buffer = BytesMut::new();
        message(&mut buffer).map_err(|_| {
            PostgresError::Invalid("a name or a password has a NUL character".to_owned())
        })?;
        Ok(stream::send(&mut *self.stream, &buffer, &self.server).await?)
    }

    /// Returns the next message that is neither a notification nor a parameter that has changed.
    async fn receive(&mut self) -> Result<Message, PostgresError> {
        loop {
            if let Some(message) = self.parse()? {
                return Ok(message);
            }
            self.fill().await?;
        }
    }

    /// Takes the next message from what was received, and keeps notifications.
    fn parse(&mut self) -> Result<Option<Message>, PostgresError> {
        let unfit = || not_postgres(&self.server);
        while let Some(header) = Header::parse(&self.received).map_err(|_| unfit())? {
            if header.len() > LONGEST_MESSAGE {
                return Err(unfit());
            }
            match Message::parse(&mut self.received).map_err(|_| unfit())? {
                None => return Ok(None),
                Some(Message::NotificationResponse(body)) => {
                    self.notified.extend(news(&body, self.greeting.process));
                }
                Some(Message::ParameterStatus(_)) if self.greeting.process != 0 => (),
                message => return Ok(message),
            }
        }
        Ok(None)
    }

    /// Waits for more. May be dropped at any time.
    async fn fill(&mut self) -> Result<(), PostgresError> {
        match self.stream.read_buf(&mut self.received).await {
            Ok(1..) => Ok(()),
            Ok(0) => Err(NetworkError::Disconnected(format!(
                "{} closed the connection, or is no PostgreSQL server",
                self.server
            ))
            .into()),
            Err(error) => Err(broken(&error, &self.server).into()),
        }
    }

    fn row(&self, body: &DataRowBody) -> Result<Vec<Option<String>>, PostgresError> {
        let unfit = || not_postgres(&self.server);
        let mut ranges = body.ranges();
        let mut row = Vec::new();
        while let Some(range) = ranges.next().map_err(|_| unfit())? {
            let text = range.map(|it| {
                let bytes = body.buffer().get(it).ok_or_else(unfit)?;
                str::from_utf8(bytes).map(str::to_owned).map_err(|_| unfit())
            });
            row.push(text.transpose()?);
        }
        Ok(row)
    }

    /// Converts an error, or a warning, that the server reports.
    fn reported(&self, mut fields: ErrorFields<'_>) -> PostgresError {
        let (mut code, mut words) = (String::new(), String::new());
        while let Ok(Some(field)) = fields.next() {
            let value = String::from_utf8_lossy(field.value_bytes());
            match field.type_() {
                b'C' => code = value.into_owned(),
                b'M' => words = value.into_owned(),
                _ => (),
            }
        }
        reported(&code, &words, &self.server)
    }
}

/// Returns the payload of a notification, if it is of another connection.
fn news(body: &NotificationResponseBody, own: i32) -> Option<String> {
    let is_of_others = body.channel().is_ok_and(|it| it == CHANNEL) && body.process_id() != own;
    body.message().ok().filter(|_| is_of_others).map(str::to_owned)
}

/// Asks the server for TLS.
async fn asks_for_tls(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    server: &str,
) -> Result<(), PostgresError> {
    let mut buffer = BytesMut::new();
    frontend::ssl_request(&mut buffer);
    let asked = async {
        stream.write_all(&buffer).await?;
        // One byte alone: what follows in plain text is from somebody in between.
        stream.read_u8().await
    };
    match asked.await.map_err(|error| broken(&error, server))? {
        b'S' => Ok(()),
        b'N' => Err(NetworkError::Unreachable(format!(
            "{server} has no TLS: set ssl = on there, or if the network is trusted, --store-insecure"
        ))
        .into()),
        _ => Err(not_postgres(server)),
    }
}

#[cfg(test)]
mod tests;

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
use postgres_protocol::message::backend::{DataRowBody, ErrorFields, Header, Message};
use postgres_protocol::message::frontend;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::errors::{Report, not_postgres};
use crate::config::{Address, PostgresSettings};
use crate::http::resolver::Resolver;
use crate::store::network::NetworkError;
use crate::store::register::RegisterError;
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

/// The function of PostgreSQL that says that it no longer waits until standbys have a commit. It answers then
/// as after a commit that they have. No other warning tells anything of the outcome.
const WAITS_FOR_STANDBYS: &str = "SyncRepWaitForLSN";

/// The rows that a statement returned, as text.
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
    /// Whether there is no TLS, where TLS would be possible.
    is_plain: bool,
    /// Whether the last answer was received to its end.
    is_in_step: bool,
}

/// Returns whether nobody between can read what is sent to a server.
fn is_private(server: &Address, tls: Option<&Arc<ClientConfig>>) -> bool {
    tls.is_some() || server.is_loopback()
}

impl Connection {
    /// Connects, with TLS if there are settings for it, and signs in.
    pub(super) async fn open(
        server: &Address,
        settings: &PostgresSettings,
        login: &Login,
        tls: Option<Arc<ClientConfig>>,
        resolver: &Resolver,
    ) -> Result<Self, RegisterError> {
        let name = server.to_string();
        let mut stream = stream::connect_in_plain_text(server, resolver).await?;
        let is_private = is_private(server, tls.as_ref());
        let is_plain = tls.is_none();
        let stream = match tls {
            None => stream::bounded(stream),
            Some(tls) => {
                asks_for_tls(&mut stream, &name).await?;
                stream::secure(stream, server, tls).await?
            }
        };
        let mut it = Self { is_plain, ..Self::new(stream, name) };
        it.sign_in(settings, login, is_private).await?;
        it.look_around().await?;
        Ok(it)
    }

    fn new(stream: Box<dyn Stream>, server: String) -> Self {
        Self {
            stream,
            received: BytesMut::new(),
            server,
            greeting: Greeting::default(),
            is_plain: false,
            is_in_step: true,
        }
    }

    /// Returns a connection that is signed in, over something else than a network.
    #[cfg(any(test, fuzzing))]
    pub(super) fn over(stream: Box<dyn Stream>) -> Self {
        Self::new(stream, "server".to_owned())
    }

    /// Sends the statements of one transaction, and returns the rows of the last one.
    ///
    /// Nothing counts before the server is ready for the next request: it says that a statement is complete
    /// before it commits, which may still fail.
    pub(super) async fn ask(&mut self, statements: &str) -> Result<Rows, RegisterError> {
        self.is_in_step = false;
        self.send(|buffer| frontend::query(statements, buffer)).await?;
        let (mut answer, mut rows, mut fault) = (Rows::new(), Rows::new(), None);
        loop {
            match self.receive().await {
                Ok(Message::DataRow(body)) => rows.push(self.row(&body)?),
                Ok(Message::CommandComplete(_)) => answer = std::mem::take(&mut rows),
                Ok(Message::RowDescription(_) | Message::EmptyQueryResponse) => (),
                Ok(Message::ErrorResponse(body)) => {
                    fault = Some(self.reported(body.fields()));
                }
                Ok(Message::NoticeResponse(body)) => {
                    let report = self.report(body.fields());
                    if report.routine == WAITS_FOR_STANDBYS {
                        let why = format!("the commit may be lost in a failover ({})", report.said);
                        fault = fault.or(Some(RegisterError::Unavailable(why)));
                    }
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

    /// Asks for the notifications of all of Tenure in the database.
    pub(super) async fn listen(&mut self) -> Result<(), RegisterError> {
        if !self.greeting.is_direct {
            let message = format!("{} is a pooler, through which nobody can listen", self.server);
            return Err(RegisterError::Invalid(message));
        }
        self.ask(&format!("LISTEN {CHANNEL}")).await.map(drop)
    }

    /// Waits for a notification of an election by another instance than this own one. A connection whose
    /// wait was dropped can go on.
    pub(super) async fn notification(
        &mut self,
        election: &str,
        own: &str,
    ) -> Result<(), RegisterError> {
        loop {
            match self.next().await? {
                Message::NotificationResponse(body)
                    if body.channel().is_ok_and(|it| it == CHANNEL)
                        && body.message().is_ok_and(|it| is_news(it, election, own)) =>
                {
                    return Ok(());
                }
                Message::NotificationResponse(_)
                | Message::ParameterStatus(_)
                | Message::NoticeResponse(_) => (),
                // The server is being shut down.
                _ => return Err(not_postgres(&self.server)),
            }
        }
    }

    /// Returns whether the last answer was received to its end, so that another request may follow.
    pub(super) fn is_in_step(&self) -> bool {
        self.is_in_step
    }

    /// Returns whether the connection is still there, as far as is known here: nothing arrives unasked.
    pub(super) fn is_alive(&mut self) -> bool {
        self.fill().now_or_never().is_none() && self.received.is_empty()
    }

    async fn sign_in(
        &mut self,
        settings: &PostgresSettings,
        login: &Login,
        is_private: bool,
    ) -> Result<(), RegisterError> {
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
                    return Err(RegisterError::Credential(format!(
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
                        RegisterError::Credential(format!("{} {what}", self.server))
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

    fn password<'a>(&self, login: &'a Login) -> Result<&'a str, RegisterError> {
        login.password.as_deref().ok_or_else(|| {
            RegisterError::Credential(format!(
                "{} asks for a password: set PGPASSWORD, PGPASSWORD_FILE, or PGPASSFILE with a line for \
                 this server",
                self.server
            ))
        })
    }

    fn other_sign_in(&self) -> RegisterError {
        RegisterError::Credential(format!(
            "{} asks for a sign-in that Tenure does not have: allow scram-sha-256 or cert in pg_hba.conf",
            self.server
        ))
    }

    /// Finds out whether a pooler is in between, where the process that serves a request is not the one that
    /// was told at the start, and whether the server only follows another.
    async fn look_around(&mut self) -> Result<(), RegisterError> {
        let asked = self.ask("SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery()");
        let rows = asked.await?;
        let Some([Some(process), Some(is_standby)]) = rows.first().map(Vec::as_slice) else {
            return Err(not_postgres(&self.server));
        };
        self.greeting.is_direct = *process == self.greeting.process.to_string();
        self.greeting.is_standby = is_standby == "t";
        Ok(())
    }

    async fn send(
        &mut self,
        message: impl FnOnce(&mut BytesMut) -> io::Result<()>,
    ) -> Result<(), RegisterError> {
        let mut buffer = BytesMut::new();
        message(&mut buffer).map_err(|_| {
            RegisterError::Invalid("a name or a password has a NUL character".to_owned())
        })?;
        Ok(stream::send(&mut *self.stream, &buffer, &self.server).await?)
    }

    /// Returns the next message of an answer: neither a notification nor a parameter that has changed.
    async fn receive(&mut self) -> Result<Message, RegisterError> {
        loop {
            match self.next().await? {
                Message::NotificationResponse(_) => (),
                Message::ParameterStatus(_) if self.greeting.process != 0 => (),
                message => return Ok(message),
            }
        }
    }

    /// Returns the next message. May be dropped at any time.
    async fn next(&mut self) -> Result<Message, RegisterError> {
        loop {
            if let Some(message) = self.parse().map_err(|_| not_postgres(&self.server))? {
                return Ok(message);
            }
            self.fill().await?;
        }
    }

    /// Takes the next message from what was received.
    fn parse(&mut self) -> io::Result<Option<Message>> {
        match Header::parse(&self.received)? {
            Some(header) if header.len() > LONGEST_MESSAGE => {
                Err(io::ErrorKind::InvalidData.into())
            }
            Some(_) => Message::parse(&mut self.received),
            None => Ok(None),
        }
    }

    /// Waits for more. May be dropped at any time.
    async fn fill(&mut self) -> Result<(), RegisterError> {
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

    fn row(&self, body: &DataRowBody) -> Result<Vec<Option<String>>, RegisterError> {
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

    /// Reads an error, or a warning, that the server reports.
    fn report(&self, mut fields: ErrorFields<'_>) -> Report {
        let [mut code, mut words, mut routine] = [const { String::new() }; 3];
        while let Ok(Some(field)) = fields.next() {
            let value = String::from_utf8_lossy(field.value_bytes());
            match field.type_() {
                b'C' => code = value.into_owned(),
                b'M' => words = value.into_owned(),
                b'R' => routine = value.into_owned(),
                _ => (),
            }
        }
        Report::new(code, &words, routine, &self.server)
    }

    fn reported(&self, fields: ErrorFields<'_>) -> RegisterError {
        self.report(fields).error(self.is_plain)
    }
}

/// Returns whether a notification is of this election, and by another instance.
fn is_news(payload: &str, election: &str, own: &str) -> bool {
    payload.split_once(' ').is_some_and(|(of, by)| of == election && by != own)
}

/// Asks the server for TLS.
async fn asks_for_tls(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    server: &str,
) -> Result<(), RegisterError> {
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

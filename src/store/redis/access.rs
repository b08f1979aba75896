//! Access to the servers: a connection that all requests share, and another for the messages of the
//! channel, since RESP2 has no place for both. Each has the credentials and the TLS settings of the files
//! as they were when it was opened.
//!
//! Each request goes to one server. If that does not answer, or is a replica, the next request goes to
//! the next server; nothing is repeated here.

use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

use super::connection::{Connection, Login};
use super::errors::RedisError;
use super::reply::Reply;
use super::scripts::{Command, command};
use crate::config::RedisSettings;
use crate::http::resolver::Resolver;
use crate::store::network::{in_time, load_tls};
use crate::store::next_server::NextServer;
use crate::store::secret::Secret;
use crate::tls::ClientTls;

/// The servers, with a connection to the last of them that answered.
pub(super) struct Access {
    settings: RedisSettings,
    /// The bound on one request, with the connecting before it.
    bound: Duration,
    user: Option<Secret>,
    password: Option<Secret>,
    tls: Option<ClientTls>,
    resolver: Resolver,
    /// The server that the next request goes to.
    next: NextServer,
    connection: Mutex<Option<Connection>>,
    /// The connection that messages arrive on.
    listening: Mutex<Option<Connection>>,
    /// A request was answered, so that it is worthwhile to listen again.
    answered: Notify,
    /// The server does not answer, so that no message of it can be waited for.
    failed: Notify,
}

impl Access {
    /// Reads the files of TLS, which blocks. Sends no request yet.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub(super) fn open(settings: &RedisSettings, bound: Duration) -> anyhow::Result<Self> {
        Ok(Self {
            user: settings.user.as_ref().map(Secret::new),
            password: settings.password.as_ref().map(Secret::new),
            tls: settings.tls.as_ref().map(load_tls).transpose()?,
            next: NextServer::new(settings.servers.len()),
            settings: settings.clone(),
            bound,
            resolver: Resolver::default(),
            connection: Mutex::default(),
            listening: Mutex::default(),
            answered: Notify::new(),
            failed: Notify::new(),
        })
    }

    /// Sends a command; returns its reply. Connects first if there is no connection.
    pub(super) async fn ask(&self, command: &Command) -> Result<Reply, RedisError> {
        let at = self.next.get();
        let asked = async {
            let mut place = self.connection.lock().await;
            // Out of its place, so that it is closed if this future is dropped before its end.
            let mut known = place.take();
            let mut connection = match known.take_if(|it| it.is_alive()) {
                Some(known) => known,
                None => self.connect_to(at).await?,
            };
            let outcome = connection.ask(command).await;
            // After a change of its rights, the user signs in anew, with the credentials as they are then.
            let is_denied = outcome.as_ref().is_err_and(RedisError::is_of_the_user);
            if connection.is_in_step() && !is_denied {
                *place = Some(connection);
                self.answered.notify_one();
            }
            outcome
        };
        let server = &self.settings.servers[at];
        let outcome = in_time(self.bound, server, asked).await;
        if outcome.as_ref().is_err_and(RedisError::is_of_one_server) {
            self.move_on(at).await;
        }
        outcome
    }

    /// Connects to the server of this number alone.
    pub(super) async fn connect_to(&self, at: usize) -> Result<Connection, RedisError> {
        let server = &self.settings.servers[at];
        let tls = match &self.tls {
            Some(tls) => Some(tls.config().await),
            None => None,
        };
        let login = self.login().await?;
        Connection::open(server, &self.settings, login.as_ref(), tls, &self.resolver).await
    }

    /// Returns the next message of a channel, and never without one.
    pub(super) async fn message(&self, channel: &str) -> String {
        loop {
            let mut place = self.listening.lock().await;
            if place.is_none() {
                let opened = timeout(self.bound, self.listen(channel)).await;
                *place = opened.ok().and_then(Result::ok);
            }
            if let Some(connection) = place.as_mut() {
                tokio::select! {
                    told = connection.message() => match told {
                        Ok(payload) => return payload,
                        Err(error) => {
                            tracing::debug!("the connection for notifications ended: {error}");
                        }
                    },
                    () = self.failed.notified() => {}
                }
                *place = None;
            }
            drop(place);
            self.answered.notified().await;
        }
    }

    /// Opens a connection for the messages of a channel.
    async fn listen(&self, channel: &str) -> Result<Connection, RedisError> {
        let mut connection = self.connect_to(self.next.get()).await?;
        match connection.ask(&command(&["SUBSCRIBE", channel])).await {
            Ok(_) => Ok(connection),
            // Nothing arrives on it then; without it, each request would lead to another try.
            Err(error @ RedisError::Denied(_)) => {
                tracing::debug!("there are no notifications: {error}");
                Ok(connection)
            }
            Err(error) => Err(error),
        }
    }

    /// Lets the next request go to another server than this one, if there is another.
    async fn move_on(&self, at: usize) {
        self.failed.notify_one();
        if self.next.move_on(at) {
            *self.connection.lock().await = None;
        }
    }

    async fn login(&self) -> Result<Option<Login>, RedisError> {
        let patience = self.bound / 4;
        let Some(password) = &self.password else { return Ok(None) };
        let password = password.read(patience).await.map_err(RedisError::Files)?;
        let user = match &self.user {
            Some(user) => Some(user.read(patience).await.map_err(RedisError::Files)?),
            None => None,
        };
        Ok(Some(Login { user, password }))
    }
}

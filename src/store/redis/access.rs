//! Access to the servers: a connection that all requests share, with the credentials and the TLS settings of
//! the files as they were when it was opened.
//!
//! Each request goes to one server. If that does not answer, or is a replica, the next request goes to
//! the next server; nothing is repeated here.

use std::time::Duration;

use futures::future::join_all;
use tokio::sync::Mutex;

use super::connection::{Connection, Login};
use super::errors::{is_of_the_user, replica, two_primaries};
use super::reply::Reply;
use super::scripts::{Command, command};
use crate::config::RedisSettings;
use crate::http::resolver::Resolver;
use crate::store::network::{in_time, load_tls};
use crate::store::next_server::NextServer;
use crate::store::register::RegisterError;
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
    pub(super) next: NextServer,
    connection: Mutex<Option<Connection>>,
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
        })
    }

    /// Sends a command to the primary; returns its reply. Connects first if there is no connection. `command`
    /// is told whether scripts have flags there.
    pub(super) async fn ask(
        &self,
        command: impl Fn(bool) -> Command + Send,
    ) -> Result<Reply, RegisterError> {
        let at = self.next.get();
        let asked = async {
            let mut place = self.connection.lock().await;
            // Out of its place, so that it is closed if this future is dropped before its end.
            let mut known = place.take();
            let mut connection = match known.take_if(|it| it.is_alive()) {
                Some(known) => known,
                None => self.connect_to_primary(at).await?,
            };
            let outcome = connection.ask(&command(connection.info.has_flags())).await;
            // After a change of its rights, the user signs in anew, with the credentials as they are then.
            if connection.is_in_step() && !outcome.as_ref().is_err_and(is_of_the_user) {
                *place = Some(connection);
            }
            outcome
        };
        let outcome = in_time(self.bound, &self.settings.servers[at], asked).await;
        if outcome.as_ref().is_err_and(RegisterError::is_of_one_server) && self.next.move_on(at) {
            *self.connection.lock().await = None;
        }
        outcome
    }

    /// Opens another connection, for the messages of a channel: RESP2 has no place for them beside replies.
    pub(super) async fn connect_to_listen(
        &self,
        channel: &str,
    ) -> Result<Connection, RegisterError> {
        let at = self.next.get();
        let connect = async {
            let mut connection = self.connect_to(at).await?;
            connection.ask(&command(&["SUBSCRIBE", channel])).await?;
            Ok(connection)
        };
        in_time(self.bound, &self.settings.servers[at], connect).await
    }

    /// Connects to the server of this number, whichever it is.
    pub(super) async fn connect_to(&self, at: usize) -> Result<Connection, RegisterError> {
        let server = &self.settings.servers[at];
        let connect = async {
            let tls = match &self.tls {
                Some(tls) => Some(tls.config().await),
                None => None,
            };
            let login = self.login().await?;
            Connection::open(server, &self.settings, login.as_ref(), tls, &self.resolver).await
        };
        in_time(self.bound, server, connect).await
    }

    /// Connects to a server, if it is the only primary among all, as far as others answer.
    async fn connect_to_primary(&self, at: usize) -> Result<Connection, RegisterError> {
        let connection = self.connect_to(at).await?;
        let servers = &self.settings.servers;
        let name = |at: usize| servers[at].to_string();
        if !connection.info.is_primary() && connection.info.is_known() {
            return Err(replica(&name(at)));
        }
        let others = (0..servers.len()).filter(|it| *it != at).map(async |other| {
            // Of one that does not answer, nothing can be known.
            let asked = in_time(self.bound / 4, &servers[other], self.connect_to(other)).await;
            Some((other, asked.ok()?.info))
        });
        for (other, info) in join_all(others).await.into_iter().flatten() {
            if connection.info.is_another_primary(&info) {
                return Err(two_primaries(&name(at), &name(other)));
            }
        }
        Ok(connection)
    }

    async fn login(&self) -> Result<Option<Login>, RegisterError> {
        let patience = self.bound / 4;
        let Some(password) = &self.password else { return Ok(None) };
        let password = password.read(patience).await.map_err(RegisterError::no_credential)?;
        let user = match &self.user {
            Some(user) => Some(user.read(patience).await.map_err(RegisterError::no_credential)?),
            None => None,
        };
        Ok(Some(Login { user, password }))
    }
}

//! Access to the servers: the one connection that all requests share, with the credentials and the TLS
//! settings of the files as they were when it was opened.
//!
//! Each request goes to one server. If that does not answer, or takes no writes, the next request goes to
//! the primary that it names, or to the next server; nothing is repeated here.

use std::time::Duration;

use tokio::sync::Mutex;

use super::bson::Document;
use super::connection::{Connection, Login};
use super::errors::{alone, is_of_document, is_of_one_server, other, secondary};
use crate::config::{Address, MongoSettings};
use crate::http::resolver::Resolver;
use crate::store::network::{in_time, load_tls};
use crate::store::next_server::NextServer;
use crate::store::register::RegisterError;
use crate::store::secret::Secret;
use crate::tls::ClientTls;

/// The servers, with one connection to the last of them that answered.
pub(super) struct Access {
    settings: MongoSettings,
    /// The bound on one request, with the connecting before it.
    pub(super) bound: Duration,
    user: Option<(Secret, Secret)>,
    tls: Option<ClientTls>,
    resolver: Resolver,
    /// The server that the next request goes to.
    next: NextServer,
    connection: Mutex<Option<Connection>>,
}

impl Access {
    /// Reads the files of TLS, which blocks. Sends no request yet.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub(super) fn open(settings: &MongoSettings, bound: Duration) -> anyhow::Result<Self> {
        let user = settings.user.as_ref();
        Ok(Self {
            user: user.map(|it| (Secret::new(&it.name), Secret::new(&it.password))),
            tls: settings.tls.as_ref().map(load_tls).transpose()?,
            next: NextServer::new(settings.servers.len()),
            settings: settings.clone(),
            bound,
            resolver: Resolver::default(),
            connection: Mutex::default(),
        })
    }

    /// Sends a command to the primary, and returns its answer. Connects first if there is no connection.
    /// `command` is told whether the server has a replica set.
    pub(super) async fn ask(
        &self,
        command: impl Fn(bool) -> Document + Send,
    ) -> Result<Document, RegisterError> {
        let at = self.next.get();
        let asked = async {
            let mut place = self.connection.lock().await;
            // Out of its place, so that it is closed if this future is dropped before its end.
            let mut known = place.take();
            let mut connection = match known.take_if(|it| it.is_alive()) {
                Some(known) => known,
                None => self.connect(at).await?,
            };
            let outcome = connection.ask(&command(connection.hello.is_replicated())).await;
            // Another one signs in anew, with the credentials as they are by then.
            if connection.is_in_step() && outcome.as_ref().err().is_none_or(is_of_document) {
                *place = Some(connection);
            }
            outcome
        };
        let outcome = self.bounded(at, asked).await;
        if outcome.as_ref().is_err_and(is_of_one_server) {
            self.next.move_on(at);
        }
        outcome
    }

    /// Opens another connection to the server that requests go to.
    pub(super) async fn connect_another(&self) -> Result<Connection, RegisterError> {
        let at = self.next.get();
        let outcome = self.bounded(at, self.connect(at)).await;
        if outcome.as_ref().is_err_and(is_of_one_server) {
            self.next.move_on(at);
        }
        outcome
    }

    /// Connects to the server of this number, whichever it is of its replica set.
    pub(super) async fn connect_to(&self, at: usize) -> Result<Connection, RegisterError> {
        let connect = async {
            let server = &self.settings.servers[at];
            let tls = match &self.tls {
                Some(tls) => Some(tls.config().await),
                None => None,
            };
            let login = self.login().await?;
            Connection::open(server, &self.settings, &login, tls, &self.resolver).await
        };
        self.bounded(at, connect).await
    }

    /// Connects to a server, if that takes writes and keeps its promises.
    async fn connect(&self, at: usize) -> Result<Connection, RegisterError> {
        let connection = self.connect_to(at).await?;
        let (server, hello) = (connection.server(), &connection.hello);
        if !connection.build.is_mongodb && !self.settings.accepts_compatible {
            return Err(other(server, &connection.build.version));
        }
        if !hello.is_replicated() && self.settings.servers.len() > 1 {
            return Err(alone(server));
        }
        if !hello.is_primary {
            let primary = hello.primary.as_deref();
            let named = |it: &Address| Some(it.to_string().as_str()) == primary;
            if let Some(there) = self.settings.servers.iter().position(named) {
                // What follows moves on from another server, or not at all.
                self.next.set(there);
            }
            return Err(secondary(server, primary));
        }
        Ok(connection)
    }

    async fn bounded<T>(
        &self,
        at: usize,
        asked: impl Future<Output = Result<T, RegisterError>>,
    ) -> Result<T, RegisterError> {
        in_time(self.bound, &self.settings.servers[at], asked).await
    }

    async fn login(&self) -> Result<Login, RegisterError> {
        let patience = self.bound / 4;
        let Some((user, password)) = &self.user else {
            let has_certificate = self.settings.tls.as_ref().is_some_and(|it| it.own.is_some());
            return Ok(if has_certificate { Login::Certificate } else { Login::Nobody });
        };
        Ok(Login::Password {
            user: user.read(patience).await.map_err(RegisterError::no_credential)?,
            password: password.read(patience).await.map_err(RegisterError::no_credential)?,
        })
    }
}

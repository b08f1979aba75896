//! Access to the servers: the one connection that all requests share, with the credentials and the TLS
//! settings of the files as they were when it was opened.
//!
//! Each request goes to one server. If that does not answer, or takes no writes, the next request goes
//! to the next server; nothing is repeated here.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, Notify};

use super::connection::{Connection, Login, Rows};
use super::errors::{PostgresError, standby};
use super::password_file;
use crate::config::{Address, PostgresPassword, PostgresSettings};
use crate::files::{SmallFile, reason};
use crate::http::resolver::Resolver;
use crate::store::network::{in_time, load_tls};
use crate::store::next_server::NextServer;
use crate::store::secret::Secret;
use crate::tls::ClientTls;

/// The largest file of passwords that is read.
const LARGEST_FILE: u64 = 1024 * 1024;

/// The source of the password.
enum Password {
    Secret(Secret),
    /// A file with a line for each server, database and user.
    File(SmallFile),
}

/// The servers, with one connection to the last of them that answered.
pub(super) struct Access {
    settings: PostgresSettings,
    /// The bound on one request, with the connecting before it.
    bound: Duration,
    user: Secret,
    password: Option<Password>,
    tls: Option<ClientTls>,
    resolver: Resolver,
    /// The server that the next request goes to.
    next: NextServer,
    connection: Mutex<Option<Connection>>,
    /// A request wants the connection that is being listened on.
    wanted: Notify,
    /// There is a connection to listen on.
    connected: Notify,
}

impl Access {
    /// Reads the files of TLS, which blocks. Sends no request yet.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub(super) fn open(settings: &PostgresSettings, bound: Duration) -> anyhow::Result<Self> {
        let password = settings.password.as_ref().map(|it| match it {
            PostgresPassword::Secret(source) => Password::Secret(Secret::new(source)),
            PostgresPassword::PasswordFile(path) => {
                Password::File(SmallFile::new(path, LARGEST_FILE))
            }
        });
        Ok(Self {
            user: Secret::new(&settings.user),
            password,
            tls: settings.tls.as_ref().map(load_tls).transpose()?,
            next: NextServer::new(settings.servers.len()),
            settings: settings.clone(),
            bound,
            resolver: Resolver::default(),
            connection: Mutex::default(),
            wanted: Notify::new(),
            connected: Notify::new(),
        })
    }

    /// Sends the statements of one transaction; returns the rows of each. Connects first if there is no
    /// connection.
    pub(super) async fn ask(&self, statements: &str) -> Result<Vec<Rows>, PostgresError> {
        let at = self.next.get();
        let asked = async {
            let mut place = self.take().await;
            // Out of its place, so that it is closed if this future is dropped before its end.
            let mut known = place.take();
            let mut connection = match known.take_if(|it| it.is_alive()) {
                Some(known) => known,
                None => self.connect(at).await?,
            };
            let outcome = connection.ask(statements).await;
            if connection.is_in_step() {
                *place = Some(connection);
                self.connected.notify_one();
            }
            outcome
        };
        let server = &self.settings.servers[at];
        let outcome = in_time(self.bound, server, asked).await;
        if outcome.as_ref().is_err_and(PostgresError::is_of_one_server) {
            self.move_on(at).await;
        }
        outcome
    }

    /// Connects to the server of this number alone.
    pub(super) async fn connect_to(&self, at: usize) -> Result<Connection, PostgresError> {
        let server = &self.settings.servers[at];
        let tls = match &self.tls {
            Some(tls) => Some(tls.config().await),
            None => None,
        };
        let login = self.login(server).await?;
        Connection::open(server, &self.settings, &login, tls, &self.resolver).await
    }

    /// Returns the payload of the next notification, and never without one. Lets each request have the
    /// connection first.
    pub(super) async fn notification(&self) -> String {
        loop {
            let mut place = self.connection.lock().await;
            let Some(connection) = place.as_mut() else {
                drop(place);
                self.connected.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = self.wanted.notified() => {}
                told = connection.notification() => match told {
                    Ok(payload) => return payload,
                    Err(error) => {
                        tracing::debug!("the connection for notifications ended: {error}");
                        *place = None;
                    }
                },
            }
        }
    }

    /// Returns the place of the connection, which nobody else uses meanwhile.
    async fn take(&self) -> MutexGuard<'_, Option<Connection>> {
        self.wanted.notify_one();
        self.connection.lock().await
    }

    async fn connect(&self, at: usize) -> Result<Connection, PostgresError> {
        let connection = self.connect_to(at).await?;
        if connection.greeting.is_standby {
            return Err(standby(&self.settings.servers[at].to_string()));
        }
        Ok(connection)
    }

    /// Lets the next request go to another server than this one, if there is another.
    async fn move_on(&self, at: usize) {
        if self.next.move_on(at) {
            *self.take().await = None;
        }
    }

    async fn login(&self, server: &Address) -> Result<Login, PostgresError> {
        let patience = self.bound / 4;
        let user = self.user.read(patience).await.map_err(PostgresError::Files)?;
        let password = match &self.password {
            None => None,
            Some(Password::Secret(secret)) => {
                Some(secret.read(patience).await.map_err(PostgresError::Files)?)
            }
            Some(Password::File(file)) => {
                let path = file.path().display();
                let read = file.read(patience).await.map_err(|error| {
                    PostgresError::Files(format!("failed to read {path}: {}", reason(&error)))
                })?;
                let text = String::from_utf8_lossy(&read);
                password_file::find(&text, server, &self.settings.database, &user)
            }
        };
        Ok(Login { user, password })
    }
}

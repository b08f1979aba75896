//! Access to the servers: the one connection that all requests share, with the credentials and the TLS
//! settings of the files as they were when it was opened.
//!
//! Each request goes to one server. If that does not answer, or takes no writes, the next request goes
//! to the next server; nothing is repeated here.

use std::time::Duration;

use tokio::sync::Mutex;

use super::connection::{Connection, Login, Rows};
use super::errors::standby;
use super::password_file;
use crate::config::{Address, PostgresPassword, PostgresSettings};
use crate::files::{SmallFile, reason};
use crate::http::resolver::Resolver;
use crate::store::network::{in_time, load_tls};
use crate::store::next_server::NextServer;
use crate::store::register::RegisterError;
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
    pub(super) next: NextServer,
    connection: Mutex<Option<Connection>>,
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
        })
    }

    /// Sends the statements of one transaction; returns the rows of the last one. Connects first if there is
    /// no connection.
    pub(super) async fn ask(&self, statements: &str) -> Result<Rows, RegisterError> {
        let at = self.next.get();
        let asked = async {
            let mut place = self.connection.lock().await;
            // Out of its place, so that it is closed if this future is dropped before its end.
            let mut known = place.take();
            let mut connection = match known.take_if(|it| it.is_alive()) {
                Some(known) => known,
                None => self.connect_to_primary(at).await?,
            };
            let outcome = connection.ask(statements).await;
            if connection.is_in_step() {
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

    /// Opens another connection, to listen to notifications, to the server that requests go to.
    pub(super) async fn connect_to_listen(&self) -> Result<Connection, RegisterError> {
        let at = self.next.get();
        let connect = async {
            let mut connection = self.connect_to_primary(at).await?;
            connection.listen().await?;
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
            let login = self.login(server).await?;
            Connection::open(server, &self.settings, &login, tls, &self.resolver).await
        };
        in_time(self.bound, server, connect).await
    }

    async fn connect_to_primary(&self, at: usize) -> Result<Connection, RegisterError> {
        let connection = self.connect_to(at).await?;
        if connection.greeting.is_standby {
            return Err(standby(&self.settings.servers[at].to_string()));
        }
        Ok(connection)
    }

    async fn login(&self, server: &Address) -> Result<Login, RegisterError> {
        let patience = self.bound / 4;
        let user = self.user.read(patience).await.map_err(RegisterError::no_credential)?;
        let password = match &self.password {
            None => None,
            Some(Password::Secret(secret)) => {
                Some(secret.read(patience).await.map_err(RegisterError::no_credential)?)
            }
            Some(Password::File(file)) => {
                let path = file.path().display();
                let read = file.read(patience).await.map_err(|error| {
                    RegisterError::no_credential(format!(
                        "failed to read {path}: {}",
                        reason(&error)
                    ))
                })?;
                let text = String::from_utf8_lossy(&read);
                password_file::find(&text, server, &self.settings.database, &user)
            }
        };
        Ok(Login { user, password })
    }
}

//! Access to the servers by MongoDB's own client, with the credentials and the files of TLS as they are now:
//! when one changes, a new client is made.
//!
//! The client finds the primary among the servers, and retries nothing. Each request is a task with an end of
//! its own, since a request that is dropped leaves the client's pool in disorder; a client with a request that
//! did not end in time is not used again.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::{AuthMechanism, ClientOptions, Credential, ServerAddress, Tls, TlsOptions};
use rustix::fs::MemfdFlags;
use rustls::ClientConfig;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::errors::{alone, failed, other, reported, secondary};
use super::wire::{self, Build, Hello};
use crate::clock::{self, Moment};
use crate::config::{Address, MongoSettings};
use crate::files::{SmallFile, reason};
use crate::store::network::{NetworkError, in_time, load_tls};
use crate::store::register::RegisterError;
use crate::store::secret::Secret;
use crate::tls::{self, ClientTls};

/// The largest file of TLS, in bytes.
const LARGEST: u64 = 1024 * 1024;

/// The time between two reads of files. A longer one delays a new certificate or password; a shorter
/// one gains nothing.
const PERIOD: Duration = Duration::from_secs(1);

/// The database with the commands of the server.
const ADMIN: &str = "admin";

/// The code of a command that a server does not know.
const UNKNOWN_COMMAND: i32 = 59;

/// A user and its password.
type Login = Option<(String, String)>;

/// The servers, with a client for all requests.
pub(super) struct Access {
    settings: MongoSettings,
    /// The bound on one request, with the connecting before it.
    pub(super) bound: Duration,
    user: Option<(Secret, Secret)>,
    tls: Option<ClientTls>,
    /// The client, and when the files were last read.
    known: Mutex<Option<(Arc<Session>, Moment)>>,
}

/// A client, and what the primary said of itself.
pub(super) struct Session {
    client: Client,
    login: Login,
    tls: Option<Arc<ClientConfig>>,
    /// What its files of TLS are read from, whenever it connects.
    _files: Vec<OwnedFd>,
    /// Whether a request did not end in time.
    is_spent: Arc<AtomicBool>,
    bound: Duration,
    /// The servers, for messages.
    servers: String,
    pub(super) hello: Hello,
    pub(super) build: Build,
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
            settings: settings.clone(),
            bound,
            known: Mutex::default(),
        })
    }

    /// Sends a command to the primary, and returns its answer. `command` is told whether the server has a
    /// replica set.
    pub(super) async fn ask(
        &self,
        command: impl FnOnce(bool) -> Document + Send,
    ) -> Result<Document, RegisterError> {
        let asked = async {
            let session = self.current().await?;
            let command = command(session.hello.is_replicated());
            let outcome = session.ask(&self.settings.database, command).await;
            if matches!(outcome, Err(RegisterError::Credential(_) | RegisterError::Denied(_))) {
                // Another one signs in anew, with the credentials as they are by then.
                session.is_spent.store(true, Ordering::Relaxed);
            }
            outcome
        };
        in_time(self.bound, wire::servers(&self.settings), asked).await
    }

    /// Returns the client, with the files as they are now, or as last read if they cannot be read.
    async fn current(&self) -> Result<Arc<Session>, RegisterError> {
        let mut place = self.known.lock().await;
        let known = place.take().filter(|it| !it.0.is_spent.load(Ordering::Relaxed));
        if let Some((session, read)) = &known
            && read.elapsed_max(clock::now()) < PERIOD
        {
            let session = Arc::clone(session);
            *place = known;
            return Ok(session);
        }
        let read = clock::now();
        let session = match (self.files().await, known) {
            (Ok((login, tls)), Some((known, _))) if known.is_of(&login, tls.as_ref()) => known,
            (Err(_), Some((known, _))) => known,
            (Err(error), None) => return Err(error),
            (Ok((login, tls)), _) => {
                Arc::new(self.session(&self.settings.servers, login, tls).await?)
            }
        };
        session.check(&self.settings)?;
        *place = Some((Arc::clone(&session), read));
        Ok(session)
    }

    /// Makes a client of its own, for a request that does not end.
    pub(super) async fn another(&self) -> Result<Session, RegisterError> {
        let made = async {
            let (login, tls) = self.files().await?;
            let session = self.session(&self.settings.servers, login, tls).await?;
            session.check(&self.settings)?;
            Ok(session)
        };
        in_time(self.bound, wire::servers(&self.settings), made).await
    }

    /// Connects to the server of this number, whichever it is of its replica set.
    pub(super) async fn connect_to(&self, at: usize) -> Result<Session, RegisterError> {
        let server = &self.settings.servers[at..=at];
        let connected = async {
            let (login, tls) = self.files().await?;
            self.session(server, login, tls).await
        };
        in_time(self.bound, &server[0], connected).await
    }

    /// Reads the credentials, and the files of TLS if they have changed.
    async fn files(&self) -> Result<(Login, Option<Arc<ClientConfig>>), RegisterError> {
        let patience = self.bound / 4;
        let tls = match &self.tls {
            Some(tls) => Some(tls.config().await),
            None => None,
        };
        let Some((user, password)) = &self.user else { return Ok((None, tls)) };
        let user = user.read(patience).await.map_err(RegisterError::no_credential)?;
        let password = password.read(patience).await.map_err(RegisterError::no_credential)?;
        Ok((Some((user, password)), tls))
    }

    /// Makes a client, and asks the primary, or the only server, who it is.
    async fn session(
        &self,
        servers: &[Address],
        login: Login,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Session, RegisterError> {
        let mut options = self.options(servers, &login);
        let mut files = Vec::new();
        if tls.is_some() {
            options.tls = Some(Tls::Enabled(self.tls_options(&mut files).await?));
        }
        let client = Client::with_options(options)
            .map_err(|error| RegisterError::no_client(error.to_string()))?;
        let mut session = Session {
            client,
            login,
            tls,
            _files: files,
            is_spent: Arc::default(),
            bound: self.bound,
            servers: servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            hello: Hello::default(),
            build: Build::default(),
        };
        let mut hello = session.send(ADMIN, doc! {"hello": 1}).await;
        if hello.as_ref().err().and_then(wire::code) == Some(UNKNOWN_COMMAND) {
            hello = session.send(ADMIN, doc! {"isMaster": 1}).await;
        }
        session.hello = Hello::of(&session.understood(hello)?);
        session.build = Build::of(&session.ask(ADMIN, doc! {"buildInfo": 1}).await?);
        Ok(session)
    }

    fn options(&self, servers: &[Address], login: &Login) -> ClientOptions {
        let address = |it: &Address| ServerAddress::Tcp {
            host: it.host.to_string().trim_matches(['[', ']']).to_owned(),
            port: Some(it.port),
        };
        let credential = match login {
            Some((user, password)) => Some(
                Credential::builder()
                    .username(user.clone())
                    .password(password.clone())
                    .source(self.settings.auth_source.clone())
                    .mechanism(AuthMechanism::ScramSha256)
                    .build(),
            ),
            None if self.settings.tls.as_ref().is_some_and(|it| it.own.is_some()) => {
                Some(Credential::builder().mechanism(AuthMechanism::MongoDbX509).build())
            }
            None => None,
        };
        let mut options = ClientOptions::default();
        options.hosts = servers.iter().map(address).collect();
        options.direct_connection = Some(servers.len() == 1);
        options.app_name = Some(format!("tenure {}", self.settings.election));
        options.credential = credential;
        options.retry_reads = Some(false);
        options.retry_writes = Some(false);
        options.max_adaptive_retries = Some(0);
        options.connect_timeout = Some(self.bound);
        // The rest is for the answer that says so.
        options.server_selection_timeout = Some(self.bound * 3 / 4);
        options
    }

    /// Returns the files of TLS as they are now, in memory: the client reads them again for each server.
    async fn tls_options(&self, files: &mut Vec<OwnedFd>) -> Result<TlsOptions, RegisterError> {
        let given = self.settings.tls.as_ref();
        let authorities = match given.and_then(|it| it.ca_file.as_ref()) {
            Some(path) => self.read(path).await?,
            None => tls::system_authorities(),
        };
        let mut options = TlsOptions::default();
        options.ca_file_path = Some(in_memory(&authorities, files)?);
        if let Some(own) = given.and_then(|it| it.own.as_ref()) {
            let mut both = self.read(&own.cert).await?;
            both.push(b'\n');
            both.extend(self.read(&own.key).await?);
            options.cert_key_file_path = Some(in_memory(&both, files)?);
        }
        Ok(options)
    }

    async fn read(&self, path: &Path) -> Result<Vec<u8>, RegisterError> {
        SmallFile::new(path, LARGEST).read(self.bound / 4).await.map_err(|error| {
            RegisterError::no_client(format!(
                "failed to read {}: {}",
                path.display(),
                reason(&error)
            ))
        })
    }
}

impl Session {
    fn is_of(&self, login: &Login, tls: Option<&Arc<ClientConfig>>) -> bool {
        let is_same = match (&self.tls, tls) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        is_same && self.login == *login
    }

    /// Checks that the server takes writes and keeps its promises.
    fn check(&self, settings: &MongoSettings) -> Result<(), RegisterError> {
        if !self.build.is_mongodb && !settings.accepts_compatible {
            return Err(other(&self.servers, &self.build.version));
        }
        if !self.hello.is_replicated() && settings.servers.len() > 1 {
            return Err(alone(&self.servers));
        }
        if !self.hello.is_primary {
            return Err(secondary(&self.servers, self.hello.primary.as_deref()));
        }
        Ok(())
    }

    /// Names the servers.
    pub(super) fn servers(&self) -> &str {
        &self.servers
    }

    /// Returns the collection, for a change stream.
    pub(super) fn collection(&self, settings: &MongoSettings) -> mongodb::Collection<Document> {
        self.client.database(&settings.database).collection(&settings.collection)
    }

    /// Sends a command, and returns its answer.
    pub(super) async fn ask(
        &self,
        database: &str,
        command: Document,
    ) -> Result<Document, RegisterError> {
        let answer = self.send(database, command).await;
        self.understood(answer)
    }

    async fn send(&self, database: &str, command: Document) -> Result<Document, Unanswered> {
        let database = self.client.database(database);
        let (bound, is_spent) = (self.bound, Arc::clone(&self.is_spent));
        #[allow(
            clippy::disallowed_methods,
            reason = "it ends by itself, after the bound at the latest"
        )]
        let task = tokio::spawn(async move {
            let answer = timeout(bound, database.run_command(command)).await;
            if answer.is_err() {
                is_spent.store(true, Ordering::Relaxed);
            }
            answer
        });
        match task.await {
            Ok(Ok(answer)) => answer.map_err(|error| Unanswered::Failed(Box::new(error))),
            Ok(Err(_)) | Err(_) => Err(Unanswered::Late),
        }
    }

    /// Converts what a command has brought.
    fn understood(&self, answer: Result<Document, Unanswered>) -> Result<Document, RegisterError> {
        match answer {
            Ok(answer) => match wire::error(&answer) {
                None => Ok(answer),
                Some(error) => Err(reported(&error, &self.servers)),
            },
            Err(Unanswered::Failed(error)) => Err(failed(&error, &self.servers)),
            Err(Unanswered::Late) => {
                let why = format!("{} did not answer within {:?}", self.servers, self.bound);
                Err(NetworkError::Timeout(why).into())
            }
        }
    }
}

/// Why a command has no answer.
pub(super) enum Unanswered {
    Failed(Box<mongodb::error::Error>),
    Late,
}

/// Puts a content into memory, and returns the path to it.
fn in_memory(content: &[u8], files: &mut Vec<OwnedFd>) -> Result<PathBuf, RegisterError> {
    let unusable = |why: String| RegisterError::no_client(format!("no file in memory: {why}"));
    let file = rustix::fs::memfd_create("tls", MemfdFlags::CLOEXEC)
        .map_err(|error| unusable(error.to_string()))?;
    let mut file = File::from(file);
    file.write_all(content).map_err(|error| unusable(error.to_string()))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    files.push(file.into());
    Ok(path)
}

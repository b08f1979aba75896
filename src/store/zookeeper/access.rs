//! Access to the servers: one connection that reads and most writes share, and for each grant another,
//! whose session is the lease. The credentials and the TLS settings are those of the files as they were when
//! a connection was opened.
//!
//! Each call goes to one server. If that does not answer, the next connection is made to the next server;
//! nothing is repeated here.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::MutexGuard;

use super::connection::{Answer, Connection, Opening};
use super::errors::{ZookeeperError, disconnected, other_length};
use super::wire::{Acl, Op, Outcome, Request};
use crate::config::{ZookeeperSettings, digest_user};
use crate::http::resolver::Resolver;
use crate::lease::Nonce;
use crate::store::network::{in_time, load_tls};
use crate::store::next_server::NextServer;
use crate::store::secret::Secret;
use crate::tls::ClientTls;

/// The servers, with the connections to them.
pub(super) struct Access {
    settings: ZookeeperSettings,
    /// The bound on the connecting, and on each request.
    bound: Duration,
    user: Option<Secret>,
    tls: Option<ClientTls>,
    resolver: Resolver,
    /// The server that the next connection is made to.
    next: NextServer,
    /// The last transaction that a server has told of.
    seen: AtomicI64,
    shared: tokio::sync::Mutex<Option<Connection>>,
    /// The connection whose session is the lease, with the acquisition that it is for. Nothing is sent on it,
    /// or the lease would last longer.
    lease: Mutex<Option<(Nonce, Connection)>>,
}

impl Access {
    /// Reads the files of TLS, which blocks. Sends no request yet.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub(super) fn open(settings: &ZookeeperSettings, bound: Duration) -> anyhow::Result<Self> {
        Ok(Self {
            user: settings.auth.as_ref().map(Secret::new),
            tls: settings.tls.as_ref().map(load_tls).transpose()?,
            next: NextServer::new(settings.servers.len()),
            settings: settings.clone(),
            bound,
            resolver: Resolver::default(),
            seen: AtomicI64::new(0),
            shared: tokio::sync::Mutex::default(),
            lease: Mutex::default(),
        })
    }

    /// Returns who may use what is created.
    pub(super) fn acl(&self) -> Acl {
        if self.user.is_some() { Acl::Creator } else { Acl::World }
    }

    /// Returns the shared connection, or a new one; nobody else uses it meanwhile.
    pub(super) async fn call(&self) -> Result<Call<'_>, ZookeeperError> {
        let mut place = self.shared.lock().await;
        // Out of its place, so that it is closed if this future is dropped before its end.
        let known = place.take().and_then(|mut it| it.is_alive().then_some(it));
        let mut call = Call { connection: known, place: Some(place), ..self.unconnected() };
        if call.connection.is_none() {
            call.connect(self.settings.lease_duration).await?;
        }
        Ok(call)
    }

    /// Returns a new connection, with a session of this length that begins now.
    pub(super) async fn session(&self, length: Duration) -> Result<Call<'_>, ZookeeperError> {
        let mut call = self.unconnected();
        call.connect(length).await?;
        call.keeps(length)?;
        Ok(call)
    }

    fn unconnected(&self) -> Call<'_> {
        Call {
            access: self,
            at: self.next.get(),
            connection: None,
            is_connecting: false,
            place: None,
        }
    }

    /// Connects to the server of this number alone, and asks for a session of this length.
    pub(super) async fn connect_to(
        &self,
        at: usize,
        length: Duration,
    ) -> Result<Connection, ZookeeperError> {
        let user = match &self.user {
            Some(secret) => Some(self.user(secret).await?),
            None => None,
        };
        let opening = self.opening(at, length, user.as_deref()).await;
        let connected = self.in_time(at, Connection::open(&opening)).await?;
        self.heard(&connected);
        Ok(connected)
    }

    /// Connects to the server whose turn it is, and lets the next connection go to another one if that fails.
    pub(super) async fn connect_next(&self) -> Result<Connection, ZookeeperError> {
        let mut call = self.unconnected();
        call.connect(self.settings.lease_duration).await?;
        call.connection.take().ok_or_else(|| call.gone())
    }

    /// Returns the shortest and the longest session that the server whose turn it is keeps.
    pub(super) async fn lengths(&self) -> Result<(Duration, Duration), ZookeeperError> {
        let mut lengths = [Duration::from_millis(1), Duration::MAX];
        for length in &mut lengths {
            let connected = self.connect_to(self.next.get(), *length).await?;
            *length = connected.length;
            connected.close();
        }
        Ok(lengths.into())
    }

    /// Asks a server for its version and its role.
    pub(super) async fn server(&self, at: usize) -> Result<String, ZookeeperError> {
        let opening = self.opening(at, Duration::ZERO, None).await;
        self.in_time(at, opening.command("srvr")).await
    }

    async fn opening<'a>(
        &'a self,
        at: usize,
        length: Duration,
        user: Option<&'a str>,
    ) -> Opening<'a> {
        let tls = match &self.tls {
            Some(tls) => Some(tls.config().await),
            None => None,
        };
        let seen = self.seen.load(Ordering::Relaxed);
        let server = &self.settings.servers[at];
        Opening { server, length, seen, user, tls, resolver: &self.resolver }
    }

    async fn user(&self, secret: &Secret) -> Result<String, ZookeeperError> {
        let text = secret.read(self.bound / 4).await.map_err(ZookeeperError::Files)?;
        digest_user(&text).map(str::to_owned).ok_or_else(|| {
            ZookeeperError::Files(
                "ZOOKEEPER_AUTH_FILE has no digest:USER:PASSWORD in it".to_owned(),
            )
        })
    }

    /// Bounds a request in time.
    pub(super) async fn in_time<T>(
        &self,
        at: usize,
        asked: impl Future<Output = Result<T, ZookeeperError>>,
    ) -> Result<T, ZookeeperError> {
        in_time(self.bound, &self.settings.servers[at], asked).await
    }

    /// Lets the next connection go to this server.
    pub(super) fn turn_to(&self, at: usize) {
        self.next.set(at);
    }

    /// Remembers the last transaction that a server has told of.
    pub(super) fn heard(&self, connection: &Connection) {
        self.seen.fetch_max(connection.seen, Ordering::Relaxed);
    }

    /// Keeps the connection whose session is the lease, until the next one is; ends the session of the one
    /// before, which is the lease no longer.
    fn keep(&self, nonce: Nonce, connection: Connection) {
        if let Some((_, before)) = self.lease().replace((nonce, connection)) {
            before.close();
        }
    }

    /// Ends the session that was the lease of an acquisition, and no other.
    pub(super) fn let_go(&self, nonce: Nonce) {
        if let Some((_, connection)) = self.lease().take_if(|(known, _)| *known == nonce) {
            connection.close();
        }
    }

    /// Returns whether this instance was last granted the lease by this acquisition.
    pub(super) fn was_granted(&self, nonce: Nonce) -> bool {
        self.lease().as_ref().is_some_and(|(known, _)| *known == nonce)
    }

    fn lease(&self) -> std::sync::MutexGuard<'_, Option<(Nonce, Connection)>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection for the requests of one call. If it is dropped within a request, the connection is closed.
pub(super) struct Call<'a> {
    access: &'a Access,
    at: usize,
    connection: Option<Connection>,
    is_connecting: bool,
    /// Where the connection goes back to.
    place: Option<MutexGuard<'a, Option<Connection>>>,
}

impl Call<'_> {
    async fn connect(&mut self, length: Duration) -> Result<(), ZookeeperError> {
        self.is_connecting = true;
        let connected = self.access.connect_to(self.at, length).await;
        self.is_connecting = false;
        self.connection = Some(self.judged(connected)?);
        Ok(())
    }

    /// Moves on from a server with a fault of its own.
    fn judged<T>(&self, outcome: Result<T, ZookeeperError>) -> Result<T, ZookeeperError> {
        if outcome.as_ref().is_err_and(ZookeeperError::is_of_one_server) {
            self.access.next.move_on(self.at);
        }
        outcome
    }

    /// Checks that the session lasts for this time, no shorter and no longer.
    pub(super) fn keeps(&self, length: Duration) -> Result<(), ZookeeperError> {
        match &self.connection {
            Some(it) if it.length != length => Err(other_length(length, it.length, it.server())),
            _ => Ok(()),
        }
    }

    /// Sends requests one behind the other, and returns the answer to each.
    pub(super) async fn ask<const N: usize>(
        &mut self,
        requests: [Request<'_>; N],
    ) -> Result<[Answer; N], ZookeeperError> {
        let Some(connection) = &mut self.connection else { return Err(self.gone()) };
        let asked = self.access.in_time(self.at, connection.ask(requests)).await;
        self.access.heard(connection);
        self.judged(asked)
    }

    /// Performs all of some operations or none; `Err` if nothing was done because the nodes are others than
    /// it was thought.
    pub(super) async fn transact(
        &mut self,
        ops: &[Op<'_>],
    ) -> Result<Result<Outcome, i32>, ZookeeperError> {
        let Some(connection) = &mut self.connection else { return Err(self.gone()) };
        let asked = self.access.in_time(self.at, connection.transact(ops)).await;
        self.access.heard(connection);
        self.judged(asked)
    }

    /// Ends the call by which the lease was granted: the session of this connection is the lease.
    pub(super) fn keep(mut self, nonce: Nonce) {
        if let Some(connection) = self.connection.take() {
            self.access.keep(nonce, connection);
        }
    }

    /// Ends a call that granted no lease, with its session.
    pub(super) fn close(mut self) {
        if let Some(connection) = self.connection.take_if(|it| it.is_in_step()) {
            connection.close();
        }
    }

    fn gone(&self) -> ZookeeperError {
        let server = &self.access.settings.servers[self.at];
        disconnected(format!("there is no connection to {server}"))
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let connection = self.connection.take();
        let is_asking = connection.as_ref().is_some_and(|it| !it.is_in_step());
        if is_asking || self.is_connecting {
            // The caller's time was over before the server answered.
            self.access.next.move_on(self.at);
        } else if let Some(place) = &mut self.place {
            **place = connection;
        }
    }
}

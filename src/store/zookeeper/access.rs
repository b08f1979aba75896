//! Access to the servers: the one connection that all requests share, and the making of others. The
//! credentials and the TLS settings are those of the files as they were when a connection was opened.
//!
//! Each call goes to one server. If that does not answer, the next call goes to the next server; nothing is
//! repeated here.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::MutexGuard;

use super::connection::{Answer, Connection, Opening};
use super::errors::disconnected;
use super::wire::{Acl, Op, Request, State};
use crate::clock::{self, Moment};
use crate::config::{ZookeeperSettings, digest_user};
use crate::http::resolver::Resolver;
use crate::store::network::{NetworkError, in_time, load_tls};
use crate::store::next_server::NextServer;
use crate::store::register::RegisterError;
use crate::store::secret::Secret;
use crate::tls::ClientTls;

/// The servers, with the connection to one of them.
pub(super) struct Access {
    settings: ZookeeperSettings,
    /// The bound on the connecting, and on each request.
    bound: Duration,
    user: Option<Secret>,
    tls: Option<ClientTls>,
    resolver: Resolver,
    /// The server that the next connection for requests is made to, and that for the next watch.
    next: NextServer,
    next_watch: NextServer,
    history: Mutex<History>,
    shared: tokio::sync::Mutex<Option<Connection>>,
}

/// What this instance has seen of the ensemble. A server that is behind that refuses its connections, so that
/// nothing older is shown: a release that was restored would be taken for one while the holder still leads.
/// If all servers refuse them for a whole lease, the ensemble was restored, and no belief is older.
#[derive(Default)]
struct History {
    /// The last transaction that a server has told of.
    seen: i64,
    /// The first refusal since the last connection.
    refused_since: Option<Moment>,
}

impl History {
    /// Returns what a new connection begins with; nothing, once all were refused for a whole lease.
    fn begin_with(&mut self, lease_duration: Duration, now: Moment) -> i64 {
        if self.refused_since.is_some_and(|it| it.elapsed_min(now) >= lease_duration) {
            tracing::warn!(
                "each server of ZooKeeper has closed all connections for {lease_duration:?}: if the ensemble was \
                 restored, it is behind what this instance has seen, which is forgotten now"
            );
            *self = Self::default();
        }
        self.seen
    }

    fn is_refused(&mut self, now: Moment) {
        if self.seen > 0 {
            self.refused_since.get_or_insert(now);
        }
    }
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
            next_watch: NextServer::new(settings.servers.len()),
            settings: settings.clone(),
            bound,
            resolver: Resolver::default(),
            history: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
        })
    }

    /// Returns who may use what is created.
    pub(super) fn acl(&self) -> Acl {
        if self.user.is_some() { Acl::Creator } else { Acl::World }
    }

    /// Returns the shared connection, or a new one; nobody else uses it meanwhile.
    pub(super) async fn call(&self) -> Result<Call<'_>, RegisterError> {
        let mut place = self.shared.lock().await;
        // Out of its place, so that it is closed if this future is dropped before its end.
        let known = place.take().and_then(|mut it| it.is_alive().then_some(it));
        let at = self.next.get();
        let mut call = Call { access: self, at, connection: known, is_answered: true, place };
        if call.connection.is_none() {
            call.is_answered = false;
            let connected = self.connect_to(at).await;
            call.is_answered = true;
            call.connection = Some(call.judged(connected)?);
        }
        Ok(call)
    }

    /// Connects to the server of this number alone.
    pub(super) async fn connect_to(&self, at: usize) -> Result<Connection, RegisterError> {
        let user = self.user().await?;
        let opening = self.opening(at).await;
        let connect = async {
            let mut connection = Connection::open(&opening).await?;
            let seen = self.history().begin_with(self.settings.lease_duration, clock::now());
            match connection.begin(seen).await {
                Err(error @ RegisterError::Network(NetworkError::Disconnected(_))) => {
                    self.history().is_refused(clock::now());
                    return Err(error);
                }
                begun => begun?,
            }
            if let Some(user) = &user {
                connection.sign_in(user).await?;
            }
            Ok(connection)
        };
        let connected = self.in_time(&opening.server, connect).await?;
        self.heard(connected.seen);
        Ok(connected)
    }

    /// Connects for a watch, each time to the next server.
    pub(super) async fn connect_watch(&self) -> Result<Connection, RegisterError> {
        let at = self.next_watch.get();
        self.next_watch.move_on(at);
        self.connect_to(at).await
    }

    /// Asks a server for its version and its role.
    pub(super) async fn server(&self, at: usize) -> Result<String, RegisterError> {
        let opening = self.opening(at).await;
        self.in_time(&opening.server, opening.command("srvr")).await
    }

    async fn opening(&self, at: usize) -> Opening<'_> {
        let tls = match &self.tls {
            Some(tls) => Some(tls.config().await),
            None => None,
        };
        Opening { server: &self.settings.servers[at], tls, resolver: &self.resolver }
    }

    /// Reads the sign-in, `USER:PASSWORD`, if there is one.
    async fn user(&self) -> Result<Option<String>, RegisterError> {
        let Some(secret) = &self.user else { return Ok(None) };
        let text = secret.read(self.bound / 4).await.map_err(RegisterError::no_credential)?;
        let user = digest_user(&text).map(str::to_owned).ok_or_else(|| {
            RegisterError::no_credential("ZOOKEEPER_AUTH_FILE has no digest:USER:PASSWORD in it")
        });
        user.map(Some)
    }

    /// Bounds a request in time.
    pub(super) async fn in_time<T>(
        &self,
        server: &impl std::fmt::Display,
        asked: impl Future<Output = Result<T, RegisterError>>,
    ) -> Result<T, RegisterError> {
        in_time(self.bound, server, asked).await
    }

    /// Lets the next connection go to this server.
    pub(super) fn turn_to(&self, at: usize) {
        self.next.set(at);
    }

    /// Remembers the last transaction that a server has told of.
    pub(super) fn heard(&self, seen: i64) {
        let mut history = self.history();
        *history = History { seen: history.seen.max(seen), refused_since: None };
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection for the requests of one call. If it is dropped within a request, the connection is closed.
pub(super) struct Call<'a> {
    access: &'a Access,
    at: usize,
    connection: Option<Connection>,
    is_answered: bool,
    /// Where the connection goes back to.
    place: MutexGuard<'a, Option<Connection>>,
}

impl Call<'_> {
    /// Moves on from a server with a fault of its own, and signs in anew after a refusal.
    fn judged<T>(&mut self, outcome: Result<T, RegisterError>) -> Result<T, RegisterError> {
        match &outcome {
            Err(RegisterError::Credential(_) | RegisterError::Denied(_)) => self.connection = None,
            Err(RegisterError::Local(_)) | Ok(_) => (),
            Err(_) => drop(self.access.next.move_on(self.at)),
        }
        outcome
    }

    /// Sends requests one behind the other, and returns the answer to each.
    pub(super) async fn ask<const N: usize>(
        &mut self,
        requests: [Request<'_>; N],
    ) -> Result<[Answer; N], RegisterError> {
        let Some(mut connection) = self.connection.take() else { return Err(self.gone()) };
        self.is_answered = false;
        let server = connection.server();
        let asked = self.access.in_time(&server, connection.ask(requests)).await;
        self.is_answered = true;
        if connection.is_in_step() {
            self.access.heard(connection.seen);
            self.connection = Some(connection);
        }
        let faults = |all: [Answer; N]| match all.iter().find_map(Answer::fault) {
            Some(fault) => Err(fault),
            None => Ok(all),
        };
        self.judged(asked.and_then(faults))
    }

    /// Performs all of some operations or none; see [`Answer::done`].
    pub(super) async fn transact(
        &mut self,
        ops: &[Op<'_>],
    ) -> Result<Result<State, (usize, i32)>, RegisterError> {
        let [answer] = self.ask([Request::Transaction(ops)]).await?;
        let done = answer.done(ops.len());
        self.judged(done)
    }

    fn gone(&self) -> RegisterError {
        let server = &self.access.settings.servers[self.at];
        disconnected(format!("there is no connection to {server}"))
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            // The caller's time was over before the server answered.
            self.access.next.move_on(self.at);
        }
        *self.place = self.connection.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_forgotten_once_all_servers_have_refused_it_for_a_lease() {
        let (lease, start) = (Duration::from_secs(15), clock::now());
        let at = |millis| {
            let past = Duration::from_millis(millis);
            Moment { boot: start.boot + past, raw: start.raw + past, wall: start.wall }
        };
        let mut history = History::default();
        history.is_refused(at(0));
        assert_eq!(history.begin_with(lease, at(60_000)), 0, "there is nothing to forget");
        assert!(history.refused_since.is_none());
        history.seen = 9;
        for (millis, seen) in [(0, 9), (14_999, 9), (15_000, 0), (15_001, 0)] {
            assert_eq!(history.begin_with(lease, at(millis)), seen, "{millis}");
            history.is_refused(at(millis));
        }
    }
}

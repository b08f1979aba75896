//! The admin listener: operators and the local service send commands to this instance through it.
//!
//! It changes no state itself. Each command goes to the driver, which decides whether the present
//! state allows it. Requests from browsers, from other users or without the token are rejected. The
//! connection code is shared with the status listener; the paths are not.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clock::Moment;
use crate::config::Admin;
use crate::driver::Control;
use crate::http::listener::{self, ConnectionService, Connections, Listener, Stream};
use crate::status::{About, Published};
use auth::{Auth, Caller};
pub use call::{LONGEST_HOLD_OFF, USUAL_HOLD_OFF};
use refusals::Refusals;
use token::TokenFile;

mod auth;
mod call;
mod conflict;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod refusals;
mod reply;
mod routes;
mod token;

/// The most connections at a time. When it is reached, a connection that is not in the middle of a
/// response is closed to make room.
const MAX_CONNECTIONS: usize = 8;

/// What the admin listener needs from the rest of the sidecar.
pub struct App {
    /// Sends commands to the driver.
    pub control: Control,
    /// The status that the driver published last.
    pub published: watch::Receiver<Published>,
    /// The facts that do not change; a transfer must not name this identity.
    pub about: About,
    /// The mean time between two reads of a standby, for estimating when another instance leads.
    pub retry_period: Duration,
    /// The clock: [`crate::clock::now`], or that of a test.
    pub now: fn() -> Moment,
}

/// A bound admin listener.
pub struct Bound {
    listener: Listener,
    auth: Auth,
}

impl Bound {
    /// Returns the address in the form that `--admin` of the client commands takes.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.auth {
            Auth::User { .. } => self.listener.address(),
            Auth::Token { .. } => format!("http://{}", self.listener.address()),
        }
    }
}

/// Binds the admin listener.
///
/// # Errors
/// When the address is in use, may not be bound or is not loopback, with the address in the
/// message, and when the token file holds no usable token.
pub async fn bind(admin: &Admin) -> anyhow::Result<Bound> {
    let bound = bind_as(admin).await?;
    tracing::info!(admin = bound.address(), "admin listener");
    Ok(bound)
}

async fn bind_as(admin: &Admin) -> anyhow::Result<Bound> {
    match admin {
        Admin::Unix(path) => {
            let listener = listener::bind_private(path).await.context("the admin listener")?;
            let own_uid = rustix::process::geteuid().as_raw();
            Ok(Bound { listener, auth: Auth::User { own_uid } })
        }
        Admin::Tcp { address, token_file } => {
            if !address.ip().is_loopback() {
                bail!("the admin listener must listen on loopback, but {address} is not loopback");
            }
            let file = TokenFile::new(token_file);
            file.read().await.map_err(|fault| anyhow::anyhow!(fault))?;
            let (listener, port) = listener::bind_tcp(*address, "--admin")?;
            Ok(Bound { listener, auth: Auth::Token { file, port } })
        }
    }
}

/// State shared by all requests.
struct Shared {
    app: App,
    auth: Auth,
    refusals: Refusals,
}

/// State of one connection's requests.
#[derive(Clone)]
struct ConnectionState {
    shared: Arc<Shared>,
    caller: Caller,
}

/// Builds a router for each connection, with the peer's credentials.
struct Routes(Arc<Shared>);

impl ConnectionService for Routes {
    fn router(&self, stream: &Stream) -> Router {
        routes::router(ConnectionState { shared: Arc::clone(&self.0), caller: Caller::of(stream) })
    }

    /// Parameters and bodies are checked after authorization.
    fn refusal(&self, _: &Uri, _: &HeaderMap, _: u64) -> Option<Response> {
        None
    }
}

/// Serves the admin listener until the driver has ended; then closes all connections and removes
/// the socket file.
pub async fn serve(bound: Bound, app: App) {
    let Bound { listener, auth } = bound;
    // So few connections fit into the reserve of file descriptors, whatever the limit.
    let connections = Connections::new(MAX_CONNECTIONS, MAX_CONNECTIONS, std::convert::identity);
    let mut published = app.published.clone();
    let shared = Arc::new(Shared { app, auth, refusals: Refusals::default() });
    let routes = Arc::new(Routes(Arc::clone(&shared)));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { shared.refusals.report().await });
    tasks.spawn(listener::accept(listener, connections.clone(), routes));
    tasks.spawn(connections.sweep());
    while published.changed().await.is_ok() {}
}

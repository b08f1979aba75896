//! The admin listener: what an operator, or the service next to us, wants of this instance.
//!
//! What it does not do: it changes nothing by itself. Each call is handed to the driver, which says
//! whether it can be done in the present state; and it takes no call from a browser, from another
//! user, or without the token. The status listener shares its code for connections, and none of its
//! paths.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use axum::response::Response;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clock::Moment;
use crate::config::Admin;
use crate::daemon::Control;
use crate::listener::{self, Connections, Listener, Site, Stream};
use crate::publish::Published;
pub use call::{LONGEST_HOLD_OFF, USUAL_HOLD_OFF};
use guard::{Caller, Guard};
use token::TokenFile;

mod call;
mod guard;
mod reply;
mod routes;
mod token;

/// Most connections at a time. One in the middle of its answer is not ended for another; all else
/// is.
const MAX_CONNECTIONS: usize = 8;

/// What the admin listener works with.
pub struct App {
    /// The way into the driver.
    pub control: Control,
    /// What the driver published.
    pub published: watch::Receiver<Published>,
    /// Our identity, which no leadership is transferred to.
    pub identity: String,
    /// Mean time between two looks of a standby, for saying when another leads.
    pub retry_period: Duration,
    /// The reader of time: [`crate::clock::now`], or a test's.
    pub now: fn() -> Moment,
}

/// A bound admin listener.
pub struct Bound {
    listener: Listener,
    guard: Guard,
}

impl Bound {
    /// The address, as `--admin` of the verbs takes it.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.guard {
            Guard::User { .. } => self.listener.address(),
            Guard::Token { .. } => format!("http://{}", self.listener.address()),
        }
    }
}

/// Binds the admin listener.
///
/// # Errors
/// When the address is taken or not ours to take, naming it, and when the token's file has no token
/// that can be used.
pub async fn bind(admin: &Admin) -> anyhow::Result<Bound> {
    let bound = bind_as(admin).await?;
    tracing::info!(admin = bound.address(), "admin listener");
    Ok(bound)
}

async fn bind_as(admin: &Admin) -> anyhow::Result<Bound> {
    match admin {
        Admin::Unix(path) => {
            let listener = listener::bind_private(path).await.context("the admin listener")?;
            let ours = rustix::process::geteuid().as_raw();
            Ok(Bound { listener, guard: Guard::User { ours } })
        }
        Admin::Tcp { address, token_file } => {
            if !address.ip().is_loopback() {
                bail!("the admin listener listens on loopback alone, and {address} is not there");
            }
            let file = TokenFile::new(token_file);
            file.read().await.map_err(|fault| anyhow::anyhow!(fault))?;
            let (listener, port) = listener::bind_tcp(*address, "--admin")?;
            Ok(Bound { listener, guard: Guard::Token { file, port } })
        }
    }
}

/// What the calls share.
struct Shared {
    app: App,
    guard: Guard,
}

/// One connection's way to the paths.
#[derive(Clone)]
struct Desk {
    shared: Arc<Shared>,
    caller: Caller,
}

/// The paths, for each caller as itself.
struct Paths(Arc<Shared>);

impl Site for Paths {
    fn router(&self, stream: &Stream) -> Router {
        routes::router(Desk { shared: Arc::clone(&self.0), caller: Caller::of(stream) })
    }

    /// Bodies are measured when it is known who sends them.
    fn refusal(&self, _: u64) -> Option<Response> {
        None
    }
}

/// Serves the admin listener until the driver has ended; then all connections end, and its socket
/// file goes.
pub async fn serve(bound: Bound, app: App) {
    let Bound { listener, guard } = bound;
    // So few connections fit into what is kept for the store.
    let connections = Connections::new(MAX_CONNECTIONS, std::convert::identity);
    let mut published = app.published.clone();
    let paths = Arc::new(Paths(Arc::new(Shared { app, guard })));
    let mut tasks = JoinSet::new();
    tasks.spawn(listener::accept(listener, connections.clone(), paths));
    tasks.spawn(connections.sweep());
    while published.changed().await.is_ok() {}
}

//! `tenure run`: the sidecar, put together from its parts.
//!
//! What it does not do: it decides nothing; it starts, and ends what it started.

use std::process::ExitCode;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::clock;
use crate::config::Settings;
use crate::daemon::{Driver, Publisher, Report};
use crate::election::{Config, Election};
use crate::logs::Logs;
use crate::publish::file::{Acknowledgements, Writer};
use crate::publish::http::{self, App};
use crate::publish::metrics::Metrics;
use crate::publish::{About, Heartbeat, Published};
use crate::store::{self, Candidate};

/// Runs until a signal ends it: 0 after an orderly end, 128 + n at a second signal n.
///
/// # Errors
/// When a listener or a status file cannot be had; nothing competes then.
pub async fn run(settings: Settings, logs: &Logs) -> anyhow::Result<ExitCode> {
    let signals = Signals::listen()?;
    let store = store::open(&settings)?;
    let candidate = Arc::new(Candidate {
        identity: settings.identity.clone(),
        instance: draw_instance(),
        address: settings.advertise.clone(),
    });
    let about = About {
        election: settings.election.clone(),
        identity: candidate.identity.clone(),
        instance: candidate.instance.clone(),
        boot_id: clock::boot_id().unwrap_or_default(),
        store: store.kind(),
    };
    let timings = settings.timings;
    let config = Config {
        candidate,
        rules: store.rules(),
        lease_duration: timings.lease_duration,
        renew_deadline: timings.renew_deadline,
        retry_period: timings.retry_period,
        request_timeout: timings.request_timeout,
        activation_delay: timings.activation_delay,
        observe: settings.observe,
    };
    let election = Election::new(config, clock::now());
    let first = Published { status: election.status(), index: 1, sequence: 1 };
    let (sender, published) = watch::channel(first);
    let (metrics, heartbeat) = (Metrics::new(&about), Heartbeat::default());

    let mut listeners = Vec::new();
    for listen in &settings.listen {
        let listener = http::bind(listen).await?;
        tracing::info!(listening = listener.address(), "status listener");
        listeners.push(listener);
    }
    let mut files = JoinSet::new();
    let acknowledgements = if settings.status_files.is_empty() {
        Acknowledgements::of_no_files()
    } else {
        let (writer, acknowledgements) = Writer::start(
            settings.status_files.clone(),
            about.clone(),
            metrics.clone(),
            published.clone(),
            clock::now,
        )
        .await?;
        files.spawn(writer.run());
        acknowledgements
    };
    tracing::info!(
        election = settings.election,
        identity = settings.identity,
        store = %settings.store,
        version = env!("CARGO_PKG_VERSION"),
        "started"
    );

    let dropped = logs.dropped();
    let app = App {
        about,
        published,
        metrics: metrics.clone(),
        dropped_lines: Box::new(move || dropped.dropped_lines()),
        heartbeat: heartbeat.clone(),
        now: clock::now,
        max_connections: settings.max_connections,
    };
    let driver = Driver {
        election,
        store,
        publisher: Publisher::new(sender, acknowledgements),
        metrics,
        heartbeat,
        report: Report::default(),
        now: clock::now,
    };
    let (resign, resigned) = oneshot::channel();
    let work = async {
        tokio::select! {
            () = driver.run(async { let _ = resigned.await; }) => {}
            () = http::serve(listeners, app, std::future::pending()) => {}
        }
        // The last word of the files; a disk that hangs does not hold up the end.
        let _ = tokio::time::timeout(timings.request_timeout, files.join_next()).await;
    };
    tokio::select! {
        () = work => Ok(ExitCode::SUCCESS),
        code = signals.obey(resign) => Ok(code),
    }
}

/// Draws an instance id, which also sorts by the time of its start.
fn draw_instance() -> String {
    let wall = clock::now().wall;
    let time = uuid::Timestamp::from_unix(uuid::NoContext, wall.as_secs(), wall.subsec_nanos());
    uuid::Uuid::new_v7(time).simple().to_string()
}

/// The signals that end the process.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    _hangup: tokio::signal::unix::Signal,
}

impl Signals {
    /// Takes them over. SIGHUP too, which then does nothing: there is nothing to read again.
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Resigns at the first, and resolves at the second.
    async fn obey(mut self, resign: oneshot::Sender<()>) -> ExitCode {
        let number = self.next().await;
        tracing::info!(signal = number, "resigning; a second signal ends at once");
        let _ = resign.send(());
        ExitCode::from(128 + self.next().await)
    }

    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.terminate.recv() => 15,
            _ = self.interrupt.recv() => 2,
        }
    }
}

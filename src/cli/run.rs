//! `tenure run`: the sidecar, put together from its parts.
//!
//! What it does not do: it decides nothing; it starts, and ends what it started.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::{SettingsArgs, descriptors, terminal};
use crate::clock;
use crate::config::{
    Doubt, Ending, Environment, Listen, Loaded, Settings, StoreSettings, Verb, load,
};
use crate::daemon::{Driver, Publisher, Report};
use crate::election::{Config, Election};
use crate::logs::{self, Logs};
use crate::publish::file::{Acknowledgements, Writer};
use crate::publish::http::{self, App, Listener};
use crate::publish::metrics::Metrics;
use crate::publish::{About, Heartbeat, Published};
use crate::store::{self, Candidate, Rules};

/// How long the status files may take to be written for the first time.
const START: Duration = Duration::from_secs(5);

/// How long the status files may take to be written for the last time.
const LAST_WORD: Duration = Duration::from_millis(250);

/// Runs until a signal ends it: 0 after an orderly end, 1 when it cannot begin, 2 when the settings
/// are wrong, 128 + n at a second signal n.
pub async fn run(args: SettingsArgs, environment: &Environment) -> ExitCode {
    let Loaded { settings, notes, doubts } = match load(&args.flags(), environment, Verb::Run) {
        Ok(loaded) => loaded,
        Err(faults) => {
            terminal::complain(&faults.to_string());
            return ExitCode::from(2);
        }
    };
    let outcome = match logs::start(settings.log_format, &settings.log_level) {
        Ok(logs) => {
            for note in notes {
                tracing::debug!("{note}");
            }
            for Doubt { subject, problem, remedy } in doubts {
                tracing::warn!("{subject}: {problem}; {remedy}");
            }
            sidecar(settings, &logs).await
        }
        Err(error) => Err(error),
    };
    outcome.unwrap_or_else(|error| {
        terminal::complain(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

/// Runs the sidecar until it has resigned, or a second signal ends it.
async fn sidecar(settings: Settings, logs: &Logs) -> anyhow::Result<ExitCode> {
    let signals = Signals::listen()?;
    let (resign, resigned) = oneshot::channel();
    let resigned = async {
        let _ = resigned.await;
    };
    // A signal is obeyed from the start on, whatever the start waits for.
    tokio::select! {
        ended = assemble_and_run(settings, logs, resigned) => ended.map(|()| ExitCode::SUCCESS),
        code = signals.obey(resign) => Ok(code),
    }
}

/// Puts the sidecar together, and runs it until `resigned` has come and its work is done.
async fn assemble_and_run(
    mut settings: Settings,
    logs: &Logs,
    resigned: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    settings.max_connections = descriptors::make_room(settings.max_connections);
    let store = store::open(&settings)?;
    let candidate = Candidate {
        identity: settings.identity.clone(),
        instance: draw_instance(),
        address: settings.advertise.clone(),
    };
    let about = About {
        election: settings.election.clone(),
        identity: candidate.identity.clone(),
        instance: candidate.instance.clone(),
        boot_id: clock::boot_id().unwrap_or_default(),
        store: store.kind(),
    };
    let election = Election::new(terms(&settings, candidate, store.rules()), clock::now());
    let first = Published::first(election.status());
    let (sender, published) = watch::channel(first);
    let (metrics, heartbeat) = (Metrics::new(&about), Heartbeat::default());

    let listeners = listen(&settings.listen).await?;
    let mut files = JoinSet::new();
    let mut acknowledgements = Acknowledgements::of_no_files();
    if !settings.status_files.is_empty() {
        let (names, published) = (settings.status_files.clone(), published.clone());
        let writing = Writer::start(names, about.clone(), metrics.clone(), published, clock::now);
        let (writer, word) = tokio::time::timeout(START, writing)
            .await
            .context("a status file could not be written in time: its disk hangs")??;
        files.spawn(writer.run());
        acknowledgements = word;
    }
    tell_start(&settings, &about);

    let dropped = logs.dropped();
    let app = App {
        about,
        published,
        metrics: metrics.clone(),
        dropped_lines: Box::new(move || dropped.dropped_lines()),
        heartbeat: heartbeat.clone(),
        now: clock::now,
        max_connections: settings.max_connections,
        fits: descriptors::fits,
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
    let (end, ended) = oneshot::channel();
    let drive = async {
        driver.run(resigned).await;
        let _ = end.send(());
    };
    let serve = http::serve(listeners, app, async {
        let _ = ended.await;
    });
    tokio::join!(drive, serve);
    // Passive was said before the release; what may be missing is the last word on the store.
    let _ = tokio::time::timeout(LAST_WORD, files.join_next()).await;
    Ok(())
}

/// What the election is told.
fn terms(settings: &Settings, candidate: Candidate, rules: Rules) -> Config {
    let timings = settings.timings;
    Config {
        candidate: Arc::new(candidate),
        rules,
        lease_duration: timings.lease_duration,
        renew_deadline: timings.renew_deadline,
        retry_period: timings.retry_period,
        request_timeout: timings.request_timeout,
        activation_delay: timings.activation_delay,
        observe: settings.observe,
    }
}

async fn listen(addresses: &[Listen]) -> anyhow::Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for address in addresses {
        let listener = http::bind(address).await?;
        tracing::info!(listening = listener.address(), "status listener");
        listeners.push(listener);
    }
    Ok(listeners)
}

fn tell_start(settings: &Settings, about: &About) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        instance = about.instance,
        "started with {}",
        settings.summary()
    );
    tracing::info!("an end by SIGTERM takes at most {}", Ending::of(settings));
    if matches!(settings.store, StoreSettings::File(_)) {
        tracing::info!(
            "the lease is kept on this host: candidates elsewhere compete on their own; name a \
             store that they share with --store"
        );
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

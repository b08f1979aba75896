//! One sidecar: builds the election, its driver, and everything that reads or controls it from the
//! settings, and runs them to the end. Knows neither signals nor arguments.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use futures::future::OptionFuture;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tracing::field::display;

use crate::admin;
use crate::assembly::Assembly;
use crate::clock;
use crate::config::{Beside, Ending, Listen, Settings, StoreSettings, Timings, duration};
use crate::driver::{Control, Driver, Orders};
use crate::election::Command;
use crate::kube::Kube;
use crate::metrics::Metrics;
use crate::probe::Probes;
use crate::process::descriptors;
use crate::publish::api::{self, App, Listener};
use crate::publish::file::Writer;
use crate::publish::hooks::Hooks;
use crate::publish::route::{self, Events, Reconciler};
use crate::publish::systemd::Systemd;
use crate::status::publish_acks::Acknowledgements;
use crate::status::{About, Published};

/// The timeout of the first write of the status files.
const START: Duration = Duration::from_secs(5);

/// The timeout of the last updates to status files, route and Events.
const LAST_UPDATES: Duration = Duration::from_millis(250);

/// A sidecar that is ready to run: everything that can fail at the start has been done.
pub struct Sidecar {
    driver: Driver,
    listeners: Vec<Listener>,
    app: App,
    /// The publishers that run in tasks of their own.
    tasks: JoinSet<()>,
    probes: Probes,
    hooks: Hooks,
    control: Control,
    admin: Option<(admin::Bound, admin::App)>,
    systemd: Option<Systemd>,
}

impl Sidecar {
    /// Opens the store, binds the listeners and writes the status files for the first time. With
    /// `has_workload` the lease is not released before [`Control::vacated`]. Orders sent before this
    /// returns are carried out once the sidecar runs.
    ///
    /// # Errors
    /// Returns an error if a listener cannot be bound, a status file cannot be written, or the
    /// store's client cannot be built. A store that does not answer is not an error: it is retried
    /// until it does.
    pub async fn prepare(
        mut settings: Settings,
        dropped_lines: Box<dyn Fn() -> usize + Send + Sync>,
        has_workload: bool,
        (control, orders): (Control, Orders),
    ) -> anyhow::Result<Self> {
        settings.max_connections = descriptors::make_room(settings.max_connections);
        let probes = Probes::new(&settings.health, clock::now)?;
        let route = route::board(settings.kubernetes.as_ref(), clock::now());
        let assembly = Assembly::of(&settings, (probes.board(), route.clone()), has_workload)?;
        let (about, published) = (assembly.about.clone(), assembly.published.clone());
        let (metrics, heartbeat) = (assembly.metrics.clone(), assembly.heartbeat.clone());
        let listeners = listen(&settings.listen).await?;
        let admin = match &settings.admin {
            Some(it) => Some(admin::bind(it).await?),
            None => None,
        };
        let mut tasks = JoinSet::new();
        let mut acknowledgements = Acknowledgements::of_nobody();
        if !settings.status_files.is_empty() {
            let (names, published) = (settings.status_files.clone(), published.clone());
            let writing =
                Writer::start(names, about.clone(), metrics.clone(), published, clock::now);
            let (writer, acks) = tokio::time::timeout(START, writing)
                .await
                .context("timed out writing a status file: its disk hangs")??;
            tasks.spawn(writer.run());
            acknowledgements = acks;
        }
        if let Some(beside) = &settings.kubernetes {
            let acks = start_kubernetes_publishers(beside, &settings, &assembly, &mut tasks)?;
            acknowledgements = acknowledgements.and(acks);
        }
        let hooks = Hooks::new(
            settings.hooks.clone(),
            about.clone(),
            metrics.clone(),
            reached_at(&listeners),
            clock::now,
        )?;
        log_start(&settings, &about);

        let app = App {
            about,
            published,
            metrics,
            dropped_lines,
            heartbeat,
            now: clock::now,
            max_connections: settings.max_connections,
            fits: descriptors::fits,
        };
        let driver = assembly.driver(orders, acknowledgements);
        let admin = admin.map(|bound| (bound, operating(&settings, &control, &app.published)));
        Ok(Self { driver, listeners, app, tasks, probes, hooks, control, admin, systemd: None })
    }

    /// Adds notifications to systemd, if it is present.
    #[must_use]
    pub fn notifying(self, systemd: Option<Systemd>) -> Self {
        Self { systemd, ..self }
    }

    /// Returns a handle to send orders to this sidecar.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Returns the published status.
    #[must_use]
    pub fn published(&self) -> watch::Receiver<Published> {
        self.app.published.clone()
    }

    /// Returns the URL of the first status listener.
    #[must_use]
    pub fn url(&self) -> Option<String> {
        reached_at(&self.listeners)
    }

    /// Returns the metrics.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.app.metrics.clone()
    }

    /// Runs until it has resigned, on request, and the publishers have had `LAST_UPDATES` for their
    /// last updates.
    pub async fn run(self) {
        let Self { driver, listeners, app, mut tasks, probes, hooks, control, admin, systemd } =
            self;
        let published = app.published.clone();
        let (end, ended) = oneshot::channel();
        let drive = async {
            driver.run().await;
            let _ = end.send(());
        };
        let notify = OptionFuture::from(systemd.map(|it| {
            let (published, heartbeat) = (app.published.clone(), app.heartbeat.clone());
            it.run(published, heartbeat, app.about.clone(), control.leaving())
        }));
        let serve = api::serve(listeners, app, async {
            let _ = ended.await;
        });
        let probe = probes.run(published.clone(), |probe, well, term| {
            let control = control.clone();
            async move { control.probed(probe, well, term).await }
        });
        let tell = hooks.run(published, |term| {
            let control = control.clone();
            async move {
                // An error means that the drain is already over.
                let _ = control.command(Command::Drained(Some(term))).await;
            }
        });
        let operate = async {
            if let Some((bound, app)) = admin {
                admin::serve(bound, app).await;
            }
        };
        tokio::join!(drive, serve, probe, tell, notify, operate);
        // Passive was published before the release; what may be missing is the last state of the
        // store, and an Event.
        let _ = tokio::time::timeout(LAST_UPDATES, async {
            while tasks.join_next().await.is_some() {}
        })
        .await;
    }
}

/// Starts the publishers to the cluster, route and Events; returns the route's acknowledgements.
fn start_kubernetes_publishers(
    beside: &Beside,
    settings: &Settings,
    assembly: &Assembly,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Acknowledgements> {
    let kube = Kube::open(&beside.access, beside.request_timeout)?;
    let published = || assembly.published.clone();
    let identity = settings.identity.clone();
    if let Some(events) = Events::new((beside, kube.clone()), identity, published(), clock::now) {
        tasks.spawn(events.run());
    }
    let readers = (assembly.about.route.clone(), assembly.metrics.clone());
    let pace = settings.timings.retry_period;
    let Some((reconciler, acks)) =
        Reconciler::new((beside, kube), readers, published(), pace, clock::now)
    else {
        return Ok(Acknowledgements::of_nobody());
    };
    tasks.spawn(reconciler.run());
    Ok(acks)
}

/// Returns the state of the admin listener.
fn operating(
    settings: &Settings,
    control: &Control,
    published: &watch::Receiver<Published>,
) -> admin::App {
    admin::App {
        control: control.clone(),
        published: published.clone(),
        identity: settings.identity.clone(),
        retry_period: settings.timings.retry_period,
        now: clock::now,
    }
}

/// Returns the URL at which commands of hooks reach the first status listener.
fn reached_at(listeners: &[Listener]) -> Option<String> {
    let address = listeners.first()?.address();
    let Ok(mut socket) = address.parse::<SocketAddr>() else {
        return Some(address);
    };
    match socket.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => socket.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => socket.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    Some(format!("http://{socket}"))
}

async fn listen(addresses: &[Listen]) -> anyhow::Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for address in addresses {
        let listener = api::bind(address).await?;
        tracing::info!(listening = listener.address(), "status listener");
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Joins the values of a log field; `None` leaves an empty one out.
fn list(items: impl Iterator<Item = String>) -> Option<String> {
    let items: Vec<String> = items.collect();
    (!items.is_empty()).then(|| items.join(","))
}

/// Logs the settings that distinguish this run, and no secrets.
fn log_start(settings: &Settings, about: &About) {
    let Timings { lease_duration, renew_deadline, retry_period, request_timeout, activation_delay } =
        settings.timings;
    let kubernetes = settings.kubernetes.as_ref();
    let time = |it| display(duration::format(it));
    let listen = list(settings.listen.iter().map(ToString::to_string));
    let status_file = list(settings.status_files.iter().map(|it| it.path.display().to_string()));
    let health = list(settings.health.probes.iter().map(ToString::to_string));
    let hooks = list(settings.hooks.iter().map(|(name, _)| name.to_owned()));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        instance = about.instance,
        election = settings.election,
        identity = settings.identity,
        advertise = settings.advertise,
        store = %settings.store,
        kube_api = kubernetes.map(|it| display(&it.access.api)),
        kube_route = kubernetes.and_then(|it| it.route.as_ref()).map(display),
        lease_duration = time(lease_duration),
        renew_deadline = time(renew_deadline),
        retry_period = time(retry_period),
        request_timeout = time(request_timeout),
        activation_delay = time(activation_delay),
        drain_timeout = time(settings.drain_timeout),
        observe = settings.observe,
        listen,
        status_file,
        admin = settings.admin.as_ref().map(display),
        health,
        hooks,
        "started"
    );
    tracing::info!("shutdown takes at most {}", Ending::of(settings));
    if matches!(settings.store, StoreSettings::File(_)) {
        tracing::info!(
            "the store is local to this host, so candidates on other hosts elect leaders of their \
             own; set --store to a shared store"
        );
    }
}

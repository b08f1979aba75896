//! All that runs beside the election: listeners, status files, route and Events, hooks, probes,
//! systemd.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use futures::future::OptionFuture;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::admin;
use crate::clock;
use crate::config::{KubePublishing, Listen, Settings};
use crate::driver::Control;
use crate::election::Command;
use crate::kube::Kube;
use crate::maintenance::MaintenanceWatch;
use crate::metrics::Metrics;
use crate::peers::{PLACES, Peers};
use crate::probe::Probes;
use crate::process::descriptors;
use crate::publish::agent_check::AgentCheck;
use crate::publish::api::{self, App, Listener};
use crate::publish::file::{Outside, Writer};
use crate::publish::hooks::Hooks;
use crate::publish::route::{Events, Reconciler};
use crate::publish::systemd::Systemd;
use crate::status::publish_acks::PublishAcks;
use crate::status::{About, Heartbeat, Published};
use crate::tls::{ServerFiles, ServerTls};

/// The timeout of the first write of the status files.
const START: Duration = Duration::from_secs(5);

/// The timeout of the last updates to status files, route and Events.
const LAST_UPDATES: Duration = Duration::from_millis(250);

/// The services of one sidecar, ready to run.
pub(super) struct Services {
    listeners: Vec<Listener>,
    tls: Option<ServerTls>,
    app: App,
    /// The publishers that run in tasks of their own.
    publishers: JoinSet<()>,
    probes: Probes,
    hooks: Hooks,
    peers: Option<Peers>,
    control: Control,
    admin: Option<(admin::Bound, admin::App)>,
    pub(super) systemd: Option<Systemd>,
}

impl Services {
    /// Binds the listeners, starts the publishers and writes the status files for the first time;
    /// also returns the acknowledgements of the publishers.
    ///
    /// # Errors
    /// When a listener cannot be bound, a status file cannot be written, or a client cannot be
    /// built.
    pub(super) async fn prepare(
        settings: Settings,
        about: About,
        published: watch::Receiver<Published>,
        (metrics, dropped_lines): (Metrics, Box<dyn Fn() -> usize + Send + Sync>),
        (heartbeat, control): (Heartbeat, Control),
    ) -> anyhow::Result<(Self, PublishAcks)> {
        let probes = Probes::new(&settings.health, clock::now)?;
        let tls = settings.tls.as_ref().map(load_tls).transpose()?;
        let listeners = listen(&settings.listen, tls.as_ref()).await?;
        let admin = match &settings.admin {
            Some(it) => {
                Some((admin::bind(it).await?, operating(&settings, &about, &control, &published)))
            }
            None => None,
        };
        let mut publishers = JoinSet::new();
        start_around(&settings, &published, &control, &mut publishers)?;
        let mut acks = PublishAcks::none();
        if !settings.status_files.is_empty() {
            let (names, published) = (settings.status_files.clone(), published.clone());
            let writing =
                Writer::start(names, about.clone(), metrics.clone(), published, Outside::REAL);
            let (writer, written) = tokio::time::timeout(START, writing)
                .await
                .context("timed out writing a status file: its disk hangs")??;
            publishers.spawn(writer.run());
            acks = written;
        }
        if let Some(beside) = &settings.kubernetes {
            let told = (control.clone(), metrics.clone());
            acks = acks.and(start_kubernetes_publishers(
                beside,
                &settings,
                &published,
                told,
                &mut publishers,
            )?);
        }
        let hooks = Hooks::new(
            settings.hooks.clone(),
            about.clone(),
            metrics.clone(),
            reached_at(&listeners),
            clock::now,
        )?;
        let peers = Peers::new(&settings, &about, &published, (&control, &metrics), clock::now)?;
        let fits = if peers.is_some() { fits_beside_peers } else { descriptors::fits };
        let app = App {
            about,
            published,
            metrics,
            dropped_lines,
            heartbeat,
            now: clock::now,
            max_connections: settings.max_connections,
            max_connections_per_peer: settings.max_connections_per_peer,
            allowed_hosts: settings.allowed_hosts.clone(),
            peers: peers.as_ref().map(Peers::stream),
            fits,
        };
        let systemd = None;
        let it =
            Self { listeners, tls, app, publishers, probes, hooks, peers, control, admin, systemd };
        Ok((it, acks))
    }

    /// Returns the URL of the first status listener.
    pub(super) fn url(&self) -> Option<String> {
        reached_at(&self.listeners)
    }

    /// Runs until the driver has `ended`, and the publishers have had `LAST_UPDATES` for their last
    /// updates.
    pub(super) async fn run(self, ended: oneshot::Receiver<()>) {
        let Self {
            listeners,
            tls,
            app,
            mut publishers,
            probes,
            hooks,
            peers,
            control,
            admin,
            systemd,
        } = self;
        // Ends with this.
        let mut tasks = JoinSet::new();
        tasks.spawn(OptionFuture::from(tls.map(ServerTls::follow)));
        let published = app.published.clone();
        let notify = OptionFuture::from(systemd.map(|it| {
            let (published, heartbeat) = (app.published.clone(), app.heartbeat.clone());
            it.run(published, heartbeat, app.about.clone(), control.leaving())
        }));
        let serve = api::serve(listeners, app, async {
            let _ = ended.await;
        });
        let probe = probes.run(published.clone(), |probe, result, term| {
            let control = control.clone();
            async move { control.probe_finished(probe, result, term).await }
        });
        let run_hooks = hooks.run(published, |term| {
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
        let connect = OptionFuture::from(peers.map(Peers::run));
        tokio::join!(serve, probe, run_hooks, notify, operate, connect);
        // Passive was published before the release; what may be missing is the last state of the
        // store, and an Event.
        let last = async { while publishers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_UPDATES, last).await;
    }
}

/// Starts what answers agent checks and what watches the maintenance of the machine, which end with the
/// driver.
fn start_around(
    settings: &Settings,
    published: &watch::Receiver<Published>,
    control: &Control,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    if let Some(address) = settings.agent_check {
        let agent = AgentCheck::bind(address, published.clone(), clock::now)?;
        tracing::info!(agent_check = agent.address(), "agent-check listener");
        tasks.spawn(agent.serve());
    }
    if let Some(source) = &settings.scheduled_events {
        let watch = MaintenanceWatch::new(source, clock::now)?;
        let control = control.clone();
        tasks.spawn(watch.run(published.clone(), move |announced| {
            let control = control.clone();
            async move { control.maintenance_reported(announced).await }
        }));
    }
    Ok(())
}

/// Starts the publishers to the cluster, route and Events; returns the route's acknowledgements.
fn start_kubernetes_publishers(
    beside: &KubePublishing,
    settings: &Settings,
    published: &watch::Receiver<Published>,
    told: (Control, Metrics),
    publishers: &mut JoinSet<()>,
) -> anyhow::Result<PublishAcks> {
    let kube = Kube::open(&beside.access, beside.request_timeout)?;
    let published = || published.clone();
    let identity = settings.identity.clone();
    if let Some(events) = Events::new((beside, kube.clone()), identity, published(), clock::now) {
        publishers.spawn(events.run());
    }
    let pace = settings.timings.retry_period;
    let Some((reconciler, acks)) =
        Reconciler::new((beside, kube), told, published(), pace, clock::now)
    else {
        return Ok(PublishAcks::none());
    };
    publishers.spawn(reconciler.run());
    Ok(acks)
}

/// Returns the state of the admin listener.
fn operating(
    settings: &Settings,
    about: &About,
    control: &Control,
    published: &watch::Receiver<Published>,
) -> admin::App {
    admin::App {
        control: control.clone(),
        published: published.clone(),
        about: about.clone(),
        retry_period: settings.timings.retry_period,
        now: clock::now,
    }
}

/// Returns the URL at which commands of hooks reach the status listener: without TLS if possible,
/// for which they would need certificates.
fn reached_at(listeners: &[Listener]) -> Option<String> {
    let plain = listeners.iter().find(|it| it.tls().is_none());
    let listener = plain.or(listeners.first())?;
    let address = listener.address();
    let Ok(mut socket) = address.parse::<SocketAddr>() else {
        return Some(address);
    };
    match socket.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => socket.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => socket.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    let scheme = if listener.tls().is_some() { "https" } else { "http" };
    Some(format!("{scheme}://{socket}"))
}

/// Returns how many connections fit into the limit of open files beside those of the peers.
fn fits_beside_peers(connections: usize) -> usize {
    descriptors::fits(connections + PLACES).saturating_sub(PLACES).max(1)
}

/// Reads the files of TLS, which were valid when the settings were read.
fn load_tls(files: &ServerFiles) -> anyhow::Result<ServerTls> {
    ServerTls::load(files).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("the TLS files have just changed: {}", faults.join("; "))
    })
}

/// Binds the addresses; those that other hosts can reach have TLS, if it is configured.
async fn listen(addresses: &[Listen], tls: Option<&ServerTls>) -> anyhow::Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for address in addresses {
        let listener = api::bind(address).await?;
        let listener = match tls.filter(|_| address.is_remote()) {
            Some(tls) => listener.with_tls(tls),
            None => listener,
        };
        let has_tls = listener.tls().map(|_| true);
        tracing::info!(listening = listener.address(), tls = has_tls, "status listener");
        listeners.push(listener);
    }
    Ok(listeners)
}

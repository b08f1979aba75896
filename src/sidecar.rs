//! One sidecar: builds the election, its driver, and everything that reads or controls it from the
//! settings, and runs them to the end. Knows neither signals nor arguments.
//!
//! The driver runs on the thread that calls [`Sidecar::run`], with the store's client and little
//! else. Listeners, page, files, routes, hooks and probes run on another, so that none of them, and
//! no client of theirs, can delay a renewal.

mod runtime;
mod services;

use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tracing::field::display;

use crate::config::{Ending, Settings, StoreSettings, Timings, duration};
use crate::driver::instance::Instance;
use crate::driver::{Control, Driver, Inbox};
use crate::metrics::Metrics;
use crate::peers::PLACES;
use crate::process::descriptors;
use crate::publish::systemd::Systemd;
use crate::status::{About, Published};
use runtime::ServiceRuntime;
use services::Services;

/// A sidecar that is ready to run: everything that can fail at the start has been done.
pub struct Sidecar {
    driver: Driver,
    services: Services,
    runtime: ServiceRuntime,
    control: Control,
    published: watch::Receiver<Published>,
    metrics: Metrics,
}

impl Sidecar {
    /// Opens the store, binds the listeners and writes the status files for the first time. With
    /// `has_workload` the lease is not released before [`Control::workload_exited`]; `wait` bounds the wait
    /// for the first lease. Messages sent before this returns are handled once the sidecar runs.
    ///
    /// # Errors
    /// Returns an error if a listener cannot be bound, a status file cannot be written, or the
    /// store's client cannot be built. A store that does not answer is not an error: it is retried
    /// until it does.
    pub async fn prepare(
        mut settings: Settings,
        dropped_lines: Box<dyn Fn() -> usize + Send + Sync>,
        has_workload: bool,
        wait: Option<Duration>,
        (control, inbox): (Control, Inbox),
    ) -> anyhow::Result<Self> {
        // The connections of peers come on top of those of others.
        let places = if settings.peers.is_some() { PLACES } else { 0 };
        let room = descriptors::make_room(settings.max_connections + places);
        settings.max_connections = room.saturating_sub(places).max(1);
        let instance = Instance::of(&settings, has_workload, wait)?;
        let (about, published) = (instance.about.clone(), instance.published.clone());
        let metrics = instance.metrics.clone();
        let runtime = ServiceRuntime::start()?;
        let prepare = Services::prepare(
            settings.clone(),
            about.clone(),
            published.clone(),
            (metrics.clone(), dropped_lines),
            (instance.heartbeat.clone(), control.clone()),
        );
        let (services, acks) = runtime.run(prepare).await?;
        log_start(&settings, &about);
        let driver = instance.driver(inbox, acks);
        Ok(Self { driver, services, runtime, control, published, metrics })
    }

    /// Adds notifications to systemd, if it is present.
    #[must_use]
    pub fn notifying(mut self, systemd: Option<Systemd>) -> Self {
        self.services.systemd = systemd;
        self
    }

    /// Returns a handle to send messages to this sidecar.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Returns the published status.
    #[must_use]
    pub fn published(&self) -> watch::Receiver<Published> {
        self.published.clone()
    }

    /// Returns the URL of the first status listener.
    #[must_use]
    pub fn url(&self) -> Option<String> {
        self.services.url()
    }

    /// Returns the metrics.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Runs until it has resigned, on request, and the services have ended.
    pub async fn run(self) {
        let Self { driver, services, runtime, .. } = self;
        let (end, ended) = oneshot::channel();
        let drive = async {
            driver.run().await;
            let _ = end.send(());
        };
        // On the heap, not once more in each future around it.
        let serve = Box::pin(services.run(ended));
        tokio::join!(drive, runtime.run(serve));
    }
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
        agent_check = settings.agent_check.map(display),
        tls_cert = settings.tls.as_ref().map(|it| display(it.own.cert.display())),
        status_file,
        admin = settings.admin.as_ref().map(display),
        health,
        scheduled_events = settings.scheduled_events.as_ref().map(display),
        peers = settings.peers.as_ref().map(|it| display(it.url)),
        priority = settings.rank.priority,
        zone = settings.rank.zone,
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

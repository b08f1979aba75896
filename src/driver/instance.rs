//! Builds an election with its store and its driver from the settings, for a sidecar and for a
//! [`crate::Candidate`]. Starts nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock;
use crate::config::{Health, Settings};
use crate::driver::{self, Driver, EventLog, Inbox, Publisher};
use crate::election::{Config, Election, HealthRule};
use crate::lease::{Candidate, Rules};
use crate::metrics::Metrics;
use crate::status::publish_acks::PublishAcks;
use crate::status::{About, Heartbeat, ProbeState, Published, RouteState};
use crate::store;
use crate::timer;

/// The parts, not yet running.
pub(crate) struct Instance {
    pub(crate) about: About,
    pub(crate) election: Election,
    pub(crate) store: Arc<dyn store::LeaseStore>,
    pub(crate) metrics: Metrics,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) published: watch::Receiver<Published>,
    sender: watch::Sender<Published>,
}

impl Instance {
    /// Builds the parts. With `has_workload` the lease is not released before
    /// [`Control::workload_exited`](crate::driver::Control::workload_exited). `wait` bounds the wait for the
    /// first lease.
    ///
    /// # Errors
    /// Returns an error if the store's client cannot be built.
    pub(crate) fn of(
        settings: &Settings,
        has_workload: bool,
        wait: Option<Duration>,
    ) -> anyhow::Result<Self> {
        let store = store::open(settings)?;
        let candidate = Candidate {
            identity: settings.identity.clone(),
            instance: draw_instance(),
            address: settings.advertise.clone(),
            peer: settings.peers.as_ref().map(|it| it.url.to_string()),
        };
        let about = About {
            election: settings.election.clone(),
            identity: candidate.identity.clone(),
            instance: candidate.instance.clone(),
            boot_id: clock::boot_id().unwrap_or_default(),
            store: store.kind(),
            store_url: settings.store.to_string(),
            lease_duration: settings.timings.lease_duration,
        };
        let terms = Config { wait, ..terms(settings, candidate, store.rules(), has_workload) };
        let election = Election::new(terms, clock::now());
        let probes = settings.health.probes.iter().map(|probe| ProbeState::new(probe.to_string()));
        let route = settings.kubernetes.as_ref().and_then(|it| it.route.as_ref());
        let first = Published {
            probes: probes.collect(),
            route: route.map(|route| RouteState::new(route.kind(), clock::now())),
            ..Published::first(election.status())
        };
        let metrics = Metrics::new(&about, first.route.is_some());
        let (sender, published) = watch::channel(first);
        let heartbeat = Heartbeat::default();
        metrics.timings(&settings.timings);
        Ok(Self { about, election, store, metrics, heartbeat, published, sender })
    }

    /// Returns the driver, which takes `inbox`; its publications are acknowledged through
    /// `acks`.
    pub(crate) fn driver(self, inbox: Inbox, acks: PublishAcks) -> Driver {
        Driver {
            about: self.about,
            election: self.election,
            store: self.store,
            publisher: Publisher::new(self.sender, acks),
            metrics: self.metrics,
            inbox,
            heartbeat: self.heartbeat,
            log: EventLog::default(),
            now: clock::now,
            timer: timer::sleep,
            entropy: driver::entropy,
        }
    }
}

/// Returns the configuration of the election.
fn terms(settings: &Settings, candidate: Candidate, rules: Rules, has_workload: bool) -> Config {
    let timings = settings.timings;
    Config {
        candidate: Arc::new(candidate),
        rules,
        lease_duration: timings.lease_duration,
        renew_deadline: timings.renew_deadline,
        retry_period: timings.retry_period,
        request_timeout: timings.request_timeout,
        activation_delay: timings.activation_delay,
        drain_timeout: settings.drain_timeout,
        health: health_rule(&settings.health),
        has_workload,
        wait: None,
        observe: settings.observe,
        priority: settings.rank.priority,
    }
}

/// Returns when the service counts as healthy; `None` without probes.
fn health_rule(health: &Health) -> Option<HealthRule> {
    let Health { probes, failures, successes, .. } = health;
    let rule = HealthRule { probes: probes.len(), failures: *failures, successes: *successes };
    (!probes.is_empty()).then_some(rule)
}

/// Creates an instance id, which sorts by start time.
fn draw_instance() -> String {
    let wall = clock::now().wall;
    let time = uuid::Timestamp::from_unix(uuid::NoContext, wall.as_secs(), wall.subsec_nanos());
    uuid::Uuid::new_v7(time).simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Flags, Verb, load};

    #[test]
    fn the_metrics_are_those_of_the_settings() {
        let flags = [("store", "memory:"), ("lease-duration", "20s")];
        let flags: Flags = flags.map(|(name, value)| (name, vec![value.to_owned()])).into();
        let settings = load(&flags, &Environment::of([("", "")]), Verb::Run).unwrap().settings;
        let instance = Instance::of(&settings, false, None).unwrap();
        let text = instance.metrics.text(&instance.published.borrow(), 0, clock::now());
        let line = text.lines().find(|it| it.contains("setting=\"lease-duration\""));
        assert!(line.is_some_and(|it| it.ends_with(" 20")), "{line:?}");
        assert!(!text.contains("tenure_route_"), "there is no route");
    }
}

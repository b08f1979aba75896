//! Peers: the leader streams what it does with the lease to its standbys, and who the candidates are.
//!
//! A notice schedules; it is never evidence. Without peers, or cut off from them, an election works as it
//! does by its store alone. Nothing here can delay the driver, which awaits none of it.

mod announcer;
mod client;
mod event;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod preemption;
mod proof;
mod registry;
mod report;
mod stream;
mod subscriber;
mod subscription;

use futures::future::OptionFuture;
use tokio::sync::watch;

use crate::clock::Moment;
use crate::config::Settings;
use crate::driver::Control;
use crate::metrics::Metrics;
use crate::status::{About, Published};
use announcer::{Announcement, Announcer, report_candidates};
use client::PeerClient;
use preemption::Preemption;
pub use proof::prove;
pub use registry::PLACES;
use registry::Registry;
use report::Reporter;
pub use stream::PeerStream;
use subscriber::Subscriber;

/// The connections of one instance to its peers, ready to run.
pub struct Peers {
    announcer: Announcer,
    announcements: watch::Receiver<Announcement>,
    preemption: Option<Preemption>,
    subscriber: Subscriber,
    stream: PeerStream,
    control: Control,
    now: fn() -> Moment,
}

impl Peers {
    /// Builds the connections; `None` without peers.
    ///
    /// # Errors
    /// When the client cannot be built.
    pub fn new(
        settings: &Settings,
        about: &About,
        published: &watch::Receiver<Published>,
        (control, metrics): (&Control, &Metrics),
        now: fn() -> Moment,
    ) -> anyhow::Result<Option<Self>> {
        let Some(peers) = &settings.peers else { return Ok(None) };
        let (rank, retry_period) = (settings.rank.clone(), settings.timings.retry_period);
        let (priority, preempt_after) = (rank.priority, rank.preempt_after);
        let reporter = Reporter { about: about.clone(), address: settings.advertise.clone(), rank };
        let registry = Registry::new(metrics.clone(), now);
        let (sender, announcements) = watch::channel(Announcement::default());
        let preemption = preempt_after.map(|after| Preemption {
            priority,
            after,
            retry_period,
            published: published.clone(),
            registry: registry.clone(),
            control: control.clone(),
            now,
        });
        let stream = PeerStream {
            about: about.clone(),
            registry: registry.clone(),
            announcements: announcements.clone(),
            drain_timeout: settings.drain_timeout,
            retry_period,
            now,
        };
        let own_certificate = settings.tls.as_ref().map(|it| &it.own);
        let subscriber = Subscriber {
            reporter: reporter.clone(),
            own: peers.url,
            client: PeerClient::new(own_certificate, peers.ca_file.as_deref(), now)?,
            published: published.clone(),
            control: control.clone(),
            metrics: metrics.clone(),
            retry_period,
            now,
        };
        let published = published.clone();
        let announcer = Announcer { reporter, published, registry, sender, retry_period, now };
        let control = control.clone();
        Ok(Some(Self { announcer, announcements, preemption, subscriber, stream, control, now }))
    }

    /// Returns the stream, for the status listener.
    #[must_use]
    pub fn stream(&self) -> PeerStream {
        self.stream.clone()
    }

    /// Runs until the driver has ended. Subscribers are told of that while the listener still serves
    /// them.
    pub async fn run(self) {
        let Self { announcer, announcements, preemption, subscriber, control, now, .. } = self;
        let preempt = OptionFuture::from(preemption.map(Preemption::run));
        let report = report_candidates(announcements, control, now);
        // Whoever waits in a pause has nothing to do at the end.
        let beside = async { tokio::join!(preempt, report, subscriber.run()) };
        tokio::select! {
            () = announcer.run() => {}
            _ = beside => {}
        }
    }
}

#[cfg(test)]
mod tests;

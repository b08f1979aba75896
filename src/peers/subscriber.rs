//! The subscription of this instance to the leader's stream: finds the leader in the published status,
//! keeps one connection to it, and hands on what it notifies of.
//!
//! A notice is a hint for the election, which alone decides what it is worth. Here it is decided only
//! whom to connect to, when, and how long to listen.

use std::time::Duration;

use futures::future::{BoxFuture, Fuse, FusedFuture, FutureExt};
use tokio::sync::watch;
use tokio::time::sleep;

use super::client::{Connection, End, PeerClient};
use super::event::{Holding, PeerEvent, Read};
use super::report::{Report, Reporter};
use super::stream::GRACE;
use super::subscription;
use crate::clock::Moment;
use crate::driver::{self, Control};
use crate::election::{PeerNotice, Reason};
use crate::lease::{Nonce, PeerUrl};
use crate::metrics::Metrics;
use crate::status::{CandidateEntry, CandidateTable, Published};

/// The pause before the second attempt to connect; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// After a connection of this length, the pauses begin anew.
const STEADY: Duration = Duration::from_secs(5);

/// How often the leader is asked anew, so that it knows that this instance runs: at most.
const RENEWAL: Duration = Duration::from_secs(60);

/// The shortest time between two requests on account of changes of this instance.
const PAUSE_OF_CHANGES: Duration = Duration::from_secs(1);

/// After how many failures in a row a leader that cannot be reached is worth a warning.
const FAILURES_TO_WARN: u32 = 4;

/// The subscription of one instance.
pub(super) struct Subscriber {
    pub(super) reporter: Reporter,
    /// The URL of this instance.
    pub(super) own: PeerUrl,
    pub(super) client: PeerClient,
    pub(super) published: watch::Receiver<Published>,
    pub(super) control: Control,
    pub(super) metrics: Metrics,
    pub(super) retry_period: Duration,
    pub(super) now: fn() -> Moment,
}

/// The leader to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Leader {
    url: PeerUrl,
    identity: String,
    instance: String,
    term: u64,
    nonce: Nonce,
}

/// The driver has ended.
struct Over;

/// Why a connection is no longer listened to.
enum Ended {
    /// The leader has released the lease.
    Released,
    /// The leader has told that it leads no longer, for this reason.
    Over(String),
    /// Another candidate leads by now.
    Outdated,
    /// For this reason.
    Lost(String),
}

type Attempt = Fuse<BoxFuture<'static, (Report, Result<Connection, String>)>>;

impl Subscriber {
    /// Keeps a connection to the leader until the driver has ended.
    pub(super) async fn run(mut self) {
        while self.serve_one_leader().await.is_ok() {}
    }

    /// Stays with the leader that is published, connected to it or about to be, until another is.
    async fn serve_one_leader(&mut self) -> Result<(), Over> {
        let Some(leader) = self.leader() else {
            return self.published.changed().await.map_err(|_| Over);
        };
        let (mut pause, mut failures) = (FIRST_PAUSE, 0);
        while self.is_leader(&leader) {
            let began = (self.now)();
            let attempt = self.attempt(&leader);
            let connected = tokio::select! {
                (report, connected) = attempt => connected.map(|it| (report, it)),
                changed = self.another_leader(&leader) => return changed,
            };
            let mut wait = pause.mul_f32(0.5 + driver::entropy().jitter);
            pause = (2 * pause).min(LONGEST_PAUSE);
            match connected {
                Ok((report, connection)) => {
                    tracing::info!(leader = leader.identity, url = %leader.url, "connected to the leader");
                    match self.follow(&leader, report, connection).await? {
                        Ended::Outdated => return Ok(()),
                        Ended::Released => wait = 2 * self.retry_period,
                        Ended::Over(reason) => {
                            tracing::info!(
                                leader = leader.identity,
                                term = leader.term,
                                reason,
                                "the leader leads no longer"
                            );
                            wait = 2 * self.retry_period;
                        }
                        Ended::Lost(why) => {
                            tracing::info!(
                                leader = leader.identity,
                                why,
                                "lost the leader's stream"
                            );
                        }
                    }
                    failures = 0;
                    if began.elapsed_min((self.now)()) >= STEADY {
                        pause = FIRST_PAUSE;
                    }
                }
                Err(why) => {
                    failures += 1;
                    log_failure(&leader, &why, failures);
                }
            }
            tokio::select! {
                () = sleep(wait) => {}
                changed = self.another_leader(&leader) => return changed,
            }
        }
        Ok(())
    }

    /// Returns the leader to connect to, by the record that was read last.
    fn leader(&self) -> Option<Leader> {
        let published = self.published.borrow();
        let holder = published.status.holder.as_ref()?;
        let candidate = &holder.candidate;
        let url = PeerUrl::parse(candidate.peer.as_deref()?)?;
        // A loopback address is of another host, unless this instance has one too.
        let is_reachable = !url.is_loopback() || self.own.is_loopback();
        let is_other = candidate.instance != self.reporter.about.instance;
        let nonce = holder.nonce?;
        (is_reachable && is_other).then(|| Leader {
            nonce,
            url,
            identity: candidate.identity.clone(),
            instance: candidate.instance.clone(),
            term: holder.term,
        })
    }

    fn is_leader(&self, leader: &Leader) -> bool {
        self.leader().as_ref() == Some(leader)
    }

    /// Returns whether another candidate leads, or this one. A stream outlives the news that nobody does,
    /// which the store may have told first: the leader is about to say who is next in line.
    fn is_replaced(&self, leader: &Leader) -> bool {
        self.published.borrow().status.holder.is_some() && !self.is_leader(leader)
    }

    /// Resolves when the leader is no longer published as such.
    async fn another_leader(&mut self, leader: &Leader) -> Result<(), Over> {
        while self.is_leader(leader) {
            self.published.changed().await.map_err(|_| Over)?;
        }
        Ok(())
    }

    fn report(&self) -> Report {
        self.reporter.report(&self.published.borrow(), (self.now)())
    }

    /// Returns how long until the leader is asked anew, given what it was told when it was `asked`.
    fn until_renewal(&self, reported: &Report, asked: Moment) -> Duration {
        let now = (self.now)();
        if self.report() != *reported {
            return PAUSE_OF_CHANGES.saturating_sub(asked.elapsed_min(now));
        }
        let renewal = RENEWAL.mul_f32(1.0 - driver::entropy().jitter / 4.0);
        // The clock alone ends a hold-off, without a publication.
        match self.published.borrow().status.hold_off {
            Some(it) if reported.holds_off => renewal.min(it.remaining(now)),
            _ => renewal,
        }
    }

    /// Connects with the present report.
    fn attempt(&self, leader: &Leader) -> Attempt {
        let report = self.report();
        let headers = subscription::headers(&self.reporter.about.election, &report, leader.nonce);
        let client = self.client.clone();
        let connecting = client.connect(leader.url, leader.instance.clone(), headers);
        connecting.map(|connected| (report, connected)).boxed().fuse()
    }

    /// Listens to a leader until its stream ends, and tells the election how it has ended.
    async fn follow(
        &mut self,
        leader: &Leader,
        report: Report,
        connection: Connection,
    ) -> Result<Ended, Over> {
        self.metrics.peer_connected();
        let (heard, renewal) = ((self.now)(), self.retry_period);
        let mut listener = Listener { released: false, over: None, renewal, heard, table: None };
        let ended = self.listen(leader, (report, connection), &mut listener).await;
        self.metrics.peer_disconnected();
        if let Ok(Ended::Lost(_) | Ended::Over(_)) = &ended {
            self.control.peer_notified(PeerNotice::Lost).await;
        }
        let leads = self.published.borrow().status.standing.state().is_leading();
        if let Some(table) = listener.table.filter(|_| !leads) {
            self.control.candidates_reported(table.ended(listener.heard)).await;
        }
        ended
    }

    async fn listen(
        &mut self,
        leader: &Leader,
        (mut reported, mut connection): (Report, Connection),
        listener: &mut Listener,
    ) -> Result<Ended, Over> {
        let mut asked = (self.now)();
        let mut renewing: Attempt = Fuse::terminated();
        let mut renewal = Box::pin(sleep(self.until_renewal(&reported, asked)));
        let mut silence = Box::pin(sleep(listener.longest_silence()));
        // The leader ends a stream when it is asked anew, perhaps before its answer is here.
        let mut end: Option<End> = None;
        loop {
            tokio::select! {
                read = connection.next(), if end.is_none() => match read {
                    Ok(read) => {
                        listener.heard = (self.now)();
                        if self.handle(leader, read, listener).await {
                            silence = Box::pin(sleep(listener.longest_silence()));
                        }
                    }
                    Err(found) => end = Some(found),
                },
                (report, connected) = &mut renewing, if !renewing.is_terminated() => {
                    asked = (self.now)();
                    match connected {
                        Ok(new) => {
                            (reported, connection, end) = (report, new, None);
                            renewal = Box::pin(sleep(self.until_renewal(&reported, asked)));
                        }
                        Err(why) => {
                            tracing::debug!(why, "the leader did not answer the request anew");
                            renewal = Box::pin(sleep(LONGEST_PAUSE));
                        }
                    }
                }
                () = &mut renewal, if renewing.is_terminated() => renewing = self.attempt(leader),
                () = &mut silence => return Ok(Ended::Lost("the leader is silent".to_owned())),
                changed = self.published.changed() => {
                    changed.map_err(|_| Over)?;
                    if self.is_replaced(leader) {
                        return Ok(Ended::Outdated);
                    }
                    if self.report() != reported {
                        renewal = Box::pin(sleep(self.until_renewal(&reported, asked)));
                    }
                }
            }
            if let Some(end) = end.as_ref().filter(|_| renewing.is_terminated()) {
                return Ok(listener.ended(end));
            }
        }
    }

    /// Hands on what was read; returns whether it proves that the leader goes on.
    async fn handle(&self, leader: &Leader, read: Read, listener: &mut Listener) -> bool {
        let event = match read {
            Read::Event(event) => event,
            Read::Malformed(kind) => {
                self.metrics.peer_notice(kind, "malformed");
                return false;
            }
        };
        let own = &self.reporter.about.instance;
        let is_own = |heir: &Option<String>| heir.as_ref() == Some(own);
        let ms = Duration::from_millis;
        match event {
            PeerEvent::Holding(Holding { term, sent_ago_ms, lease_ms, next_ms }) => {
                listener.renewal = ms(next_ms).max(self.retry_period);
                let (sent_ago, lease, next) = (ms(sent_ago_ms), ms(lease_ms), ms(next_ms));
                self.control
                    .peer_notified(PeerNotice::Holding { term, sent_ago, lease, next })
                    .await;
                true
            }
            PeerEvent::Draining(it) => {
                let is_heir = is_own(&it.heir);
                tracing::info!(
                    leader = leader.identity,
                    term = it.term,
                    is_heir,
                    "the leader drains"
                );
                self.control.peer_notified(PeerNotice::Draining { term: it.term, is_heir }).await;
                true
            }
            PeerEvent::Released(it) => {
                let is_heir = is_own(&it.heir);
                listener.released |= it.term >= leader.term;
                let identity = &leader.identity;
                tracing::info!(
                    leader = identity,
                    term = it.term,
                    is_heir,
                    "the leader released the lease"
                );
                self.control.peer_notified(PeerNotice::Released { term: it.term, is_heir }).await;
                true
            }
            PeerEvent::Ended(it) => {
                let (term, reason) = (it.term, Reason::parse(&it.reason));
                if term >= leader.term {
                    listener.over = Some(it.reason);
                }
                self.control.peer_notified(PeerNotice::Ended { term, reason }).await;
                true
            }
            PeerEvent::Candidates(candidates) => {
                self.report_table(candidates, listener).await;
                false
            }
            PeerEvent::Stopping => false,
        }
    }

    async fn report_table(&self, candidates: Vec<CandidateEntry>, listener: &mut Listener) {
        let own = &self.reporter.about.instance;
        let is_heir = candidates.iter().any(|it| it.heir && it.instance == *own);
        self.control.peer_notified(PeerNotice::Candidates { is_heir }).await;
        let at = (self.now)();
        let table = CandidateTable { at, is_current: true, candidates: candidates.into() };
        listener.table = Some(table.clone());
        self.control.candidates_reported(table).await;
    }
}

/// What is known from one stream.
struct Listener {
    /// Whether the leader has released the lease.
    released: bool,
    /// Why the leadership is over, if the leader has told so.
    over: Option<String>,
    /// When the next renewal is due, and its answer may come later.
    renewal: Duration,
    /// When something was last read.
    heard: Moment,
    /// The last table.
    table: Option<CandidateTable>,
}

impl Listener {
    /// Returns how long the leader may be silent.
    fn longest_silence(&self) -> Duration {
        2 * self.renewal + GRACE
    }

    fn ended(&self, end: &End) -> Ended {
        match end {
            _ if self.released => Ended::Released,
            End::Closed if self.over.is_some() => {
                Ended::Over(self.over.clone().unwrap_or_default())
            }
            End::Closed => Ended::Lost("the leader has ended it".to_owned()),
            End::Broken(why) => Ended::Lost(why.clone()),
            End::TooLong => Ended::Lost("a line or an event is too long".to_owned()),
        }
    }
}

/// Logs that a leader could not be connected to. One that has just begun, or is about to end, refuses for
/// a moment.
fn log_failure(leader: &Leader, why: &str, failures: u32) {
    let (identity, url) = (&leader.identity, leader.url);
    let causes = if why.starts_with("TLS") {
        "the --peer-ca and --tls-cert of both, and the leader's --tls-client-ca"
    } else {
        "its --peer-address, --listen and firewalls between the candidates"
    };
    if failures == FAILURES_TO_WARN {
        tracing::warn!(
            leader = identity,
            %url,
            "cannot connect to the leader: {why}; handovers take longer until it can be reached: check \
             {causes}"
        );
    } else {
        tracing::debug!(leader = identity, %url, failures, "cannot connect to the leader: {why}");
    }
}

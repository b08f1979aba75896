//! The real driver, on a store in memory and a clock that the test advances.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure::clock::Moment;
use tenure::driver::{Control, Driver, EventLog, Publisher};
use tenure::election::{Config, Election, PeerNotice, State};
use tenure::lease::{
    Bid, Candidate, Cause, Failure, Grant, LeaseId, Nonce, Rules, Snapshot, StoreError, Successor,
    Version,
};
use tenure::metrics::Metrics;
use tenure::status::publish_acks::PublishAcks;
use tenure::status::{
    About, CandidateTable, Heartbeat, Maintenance, Published, RouteReport, RouteState,
};
use tenure::store::memory::Memory;
use tenure::store::{BreakOutcome, Finding, LeaseAdmin, LeaseStore};
use tokio::sync::watch;
use tokio::task::{JoinHandle, LocalSet};

/// Returns the paused clock of tokio as all three clocks of a Moment.
#[allow(clippy::disallowed_methods, reason = "the tests' own clock, which tokio moves")]
fn now() -> Moment {
    thread_local!(static START: tokio::time::Instant = tokio::time::Instant::now());
    let since = START.with(|start| start.elapsed()) + Duration::from_secs(1_000_000);
    Moment { boot: since, raw: since, wall: since }
}

fn candidate(name: &str) -> Candidate {
    Candidate {
        identity: name.to_owned(),
        instance: format!("{name}-1"),
        address: None,
        peer: None,
    }
}

/// A driver that runs as a task of the test.
struct Running {
    published: watch::Receiver<Published>,
    heartbeat: Heartbeat,
    metrics: Metrics,
    control: Control,
    task: JoinHandle<()>,
}

impl Running {
    fn start(name: &str, store: Arc<dyn LeaseAdmin>) -> Self {
        Self::start_with(name, store, PublishAcks::none())
    }

    fn start_with(name: &str, store: Arc<dyn LeaseAdmin>, acks: PublishAcks) -> Self {
        let config = Config {
            candidate: Arc::new(candidate(name)),
            rules: store.rules(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            request_timeout: Duration::from_secs(2),
            activation_delay: Duration::ZERO,
            drain_timeout: Duration::ZERO,
            health: None,
            has_workload: false,
            wait: None,
            observe: false,
            priority: Config::DEFAULT_PRIORITY,
        };
        let election = Election::new(config, now());
        let about = About {
            election: "test".to_owned(),
            identity: name.to_owned(),
            instance: format!("{name}-1"),
            boot_id: String::new(),
            store: store.kind(),
            store_url: "memory:".to_owned(),
            lease_duration: Duration::from_secs(15),
        };
        let first = Published {
            route: Some(RouteState::new("label", now())),
            ..Published::first(election.status())
        };
        let (sender, published) = watch::channel(first);
        let (heartbeat, metrics) = (Heartbeat::default(), Metrics::new(&about, false));
        let (control, inbox) = Control::new();
        let driver = Driver {
            about: about.clone(),
            election,
            store,
            publisher: Publisher::new(sender, acks),
            metrics: metrics.clone(),
            inbox,
            heartbeat: heartbeat.clone(),
            log: EventLog::default(),
            now,
            timer: tenure::timer::sleep,
            entropy: tenure::driver::entropy,
        };
        let task = tokio::task::spawn_local(driver.run());
        Self { published, heartbeat, metrics, control, task }
    }

    fn state(&self) -> State {
        self.published.borrow().status.state(now())
    }

    /// Waits for a state, by the paused clock.
    async fn until(&mut self, state: State) {
        let reached = self.published.wait_for(|it| it.status.state(now()) == state);
        let reached = tokio::time::timeout(Duration::from_secs(120), reached).await;
        reached.unwrap_or_else(|_| panic!("never {state:?}")).unwrap();
    }

    async fn resign(&self) {
        self.control.resign().await;
    }
}

/// A store that hangs while a switch is on.
struct Hanging {
    store: Memory,
    hangs: watch::Receiver<bool>,
}

impl Hanging {
    async fn pass(&self) {
        let mut hangs = self.hangs.clone();
        let _ = hangs.wait_for(|hangs| !hangs).await;
    }
}

#[async_trait]
impl LeaseStore for Hanging {
    fn kind(&self) -> &'static str {
        "hanging"
    }

    fn rules(&self) -> Rules {
        self.store.rules()
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        self.pass().await;
        self.store.read().await
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        self.pass().await;
        self.store.acquire(bid).await
    }

    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        self.pass().await;
        self.store.write_term(bid, floor).await
    }

    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError> {
        self.pass().await;
        self.store.renew(bid).await
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        self.pass().await;
        self.store.release(bid).await
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        self.pass().await;
        self.store.set_successor(bid, successor).await
    }
}

#[async_trait]
impl LeaseAdmin for Hanging {
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError> {
        self.pass().await;
        self.store.break_lease(at_once).await
    }

    async fn examine(&self) -> Vec<Finding> {
        self.store.examine().await
    }

    async fn create(&self, _: u64) -> Result<Vec<String>, StoreError> {
        Err(StoreError::Unknown(Failure::new(Cause::Settings, "not here")))
    }
}

async fn locally<T>(test: impl Future<Output = T>) -> T {
    LocalSet::new().run_until(test).await
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_standby_takes_over_when_it_resigns() {
    locally(async {
        let store = Memory::with_clock(now);
        let mut first = Running::start("a", Arc::new(store.clone()));
        first.until(State::Leader).await;
        let mut second = Running::start("b", Arc::new(store));
        second.until(State::Standby).await;
        let term = first.published.borrow().status.term().unwrap();

        first.resign().await;
        first.until(State::Stopped).await;
        first.task.await.unwrap();
        second.until(State::Leader).await;
        assert!(second.published.borrow().status.term().unwrap() > term);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_learns_of_a_loss_before_its_next_renewal() {
    locally(async {
        let store = Memory::with_clock(now);
        let mut leader = Running::start("a", Arc::new(store.clone()));
        leader.until(State::Leader).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let freed = now();
        store.break_lease(true).await.unwrap();
        leader.until(State::Standby).await;
        assert!(freed.elapsed_max(now()) < Duration::from_millis(10));
        leader.resign().await;
        leader.task.await.unwrap();
    })
    .await;
}

/// Starts a leader, and returns it with the switch that makes its store hang.
async fn leader_of_a_store_that_can_hang() -> (watch::Sender<bool>, Running) {
    let (switch, hangs) = watch::channel(false);
    let store = Hanging { store: Memory::with_clock(now), hangs };
    let mut leader = Running::start("a", Arc::new(store));
    leader.until(State::Leader).await;
    (switch, leader)
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_store_hangs_is_passive_at_its_deadline_and_leads_again_when_it_answers() {
    locally(async {
        let (switch, mut leader) = leader_of_a_store_that_can_hang().await;
        switch.send_replace(true);
        let hung = now();
        leader.until(State::Jeopardy).await;
        let remaining = |it: &Running| it.published.borrow().status.remaining(now());
        assert!(!remaining(&leader).is_zero(), "a failed renewal alone ends nothing");
        leader.until(State::Standby).await;
        let held = hung.elapsed_max(now());
        assert!(held <= Duration::from_secs(10), "active for {held:?} without a renewal");
        switch.send_replace(false);
        leader.until(State::Leader).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hanging_store_delays_shutdown_by_two_request_timeouts_at_most() {
    locally(async {
        let (switch, mut leader) = leader_of_a_store_that_can_hang().await;
        switch.send_replace(true);
        leader.until(State::Jeopardy).await;
        let began = now();
        leader.resign().await;
        leader.until(State::Stopped).await;
        assert!(began.elapsed_max(now()) < Duration::from_millis(1), "passive waits for nothing");
        leader.task.await.unwrap();
        let took = began.elapsed_max(now());
        assert!(took <= Duration::from_millis(4001), "took {took:?}");
        drop(switch);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_not_released_before_the_status_files_are_passive() {
    locally(async {
        let store = Memory::with_clock(now);
        let (acks, published) = PublishAcks::channel();
        let mut leader = Running::start_with("a", Arc::new(store.clone()), published);
        leader.until(State::Leader).await;
        let began = now();
        leader.resign().await;
        leader.until(State::Stopped).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(!store.read().await.unwrap().free, "the files have not said so yet");
        acks.send_replace(u64::MAX);
        leader.task.await.unwrap();
        assert!(store.read().await.unwrap().free);
        assert!(began.elapsed_max(now()) < Duration::from_secs(2), "it waits no longer");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn status_files_that_hang_delay_the_release_by_one_request_timeout_at_most() {
    locally(async {
        let store = Memory::with_clock(now);
        let (_word, published) = PublishAcks::channel();
        let mut leader = Running::start_with("a", Arc::new(store.clone()), published);
        leader.until(State::Leader).await;
        let began = now();
        leader.resign().await;
        leader.task.await.unwrap();
        let took = began.elapsed_max(now());
        assert!(took >= Duration::from_secs(2) && took < Duration::from_millis(2100), "{took:?}");
        assert!(store.read().await.unwrap().free);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_other_tasks_report_is_published() {
    locally(async {
        let mut leader = Running::start("a", Arc::new(Memory::with_clock(now)));
        leader.until(State::Leader).await;
        let table = CandidateTable { at: now(), is_current: true, candidates: [].into() };
        leader.control.candidates_reported(table).await;
        let report = RouteReport { last_error: Some("forbidden".to_owned()), ..Default::default() };
        leader.control.route_reported(report).await;
        let announced = Maintenance {
            event_id: "1".to_owned(),
            kind: "Reboot",
            not_before: None,
            started: true,
            imminent: true,
        };
        leader.control.maintenance_reported(Some(announced)).await;
        leader.until(State::Unhealthy).await;
        let published = leader.published.borrow();
        assert!(published.candidates.is_some() && published.maintenance.is_some());
        let route = published.route.as_ref().expect("there is one");
        assert_eq!(route.report.last_error.as_deref(), Some("forbidden"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_cannot_be_shown_is_not_published() {
    locally(async {
        let store = Memory::with_clock(now);
        let mut leader = Running::start("\u{1b}[2J", Arc::new(store.clone()));
        leader.until(State::Leader).await;
        let mut standby = Running::start("b", Arc::new(store));
        standby.until(State::Standby).await;
        let holder = standby.published.borrow().status.holder.clone().expect("it was seen");
        assert!(!holder.candidate.identity.contains('\u{1b}'), "{holder:?}");
    })
    .await;
}

/// The lines that are logged on this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Collects lines until the guard is dropped.
    fn collect(&self) -> tracing::subscriber::DefaultGuard {
        let to = self.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || to.clone());
        tracing::subscriber::set_default(log.finish())
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn transitions_and_an_outage_of_the_store_are_logged() {
    let lines = Lines::default();
    let _collected = lines.collect();
    locally(async {
        let (switch, mut leader) = leader_of_a_store_that_can_hang().await;
        switch.send_replace(true);
        leader.until(State::Jeopardy).await;
        switch.send_replace(false);
        leader.until(State::Leader).await;
        switch.send_replace(true);
        leader.until(State::Standby).await;
    })
    .await;
    let text = lines.text();
    for part in [
        "from=activating to=leader reason=term-written",
        "store: the store did not answer a renewal within 2s",
        "the store answers again",
        "from=jeopardy to=leader reason=renewed",
        "leadership lost from=jeopardy to=standby reason=lapsed",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_no_candidate_asks_for_is_logged() {
    let lines = Lines::default();
    let _collected = lines.collect();
    locally(async {
        let store = Memory::with_clock(now);
        let bid = Bid {
            lease: LeaseId::from_random(1),
            nonce: Nonce(1),
            candidate: Arc::new(candidate("by hand")),
            lease_duration: Duration::from_secs(24 * 60 * 60),
            seen: store.read().await.unwrap().version,
            written: None,
        };
        store.acquire(&bid).await.unwrap();
        Running::start("a", Arc::new(store)).until(State::Standby).await;
    })
    .await;
    assert!(lines.text().contains("the lease is held for much longer than"), "{}", lines.text());
}

#[tokio::test(start_paused = true)]
async fn the_loop_updates_its_heartbeat_and_counters() {
    locally(async {
        let mut leader = Running::start("a", Arc::new(Memory::with_clock(now)));
        leader.until(State::Leader).await;
        let before = leader.heartbeat.count();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(leader.heartbeat.count() >= before + 5, "at least once a second");
        assert_eq!(leader.state(), State::Leader);
        leader.control.peer_notified(PeerNotice::Lost).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        let text = leader.metrics.text(&leader.published.borrow(), 0, now());
        for (name, labels) in [
            ("tenure_store_requests_total", "op=\"renew\",outcome=\"ok\""),
            ("tenure_transitions_total", "reason=\"term-written\",to=\"leader\""),
            ("tenure_peer_notices_total", "kind=\"lost\",outcome=\"not-standby\""),
        ] {
            let is_counted = |line: &&str| line.starts_with(name) && line.contains(labels);
            let counted = text.lines().find(is_counted);
            assert!(counted.is_some_and(|line| !line.ends_with(" 0")), "{name}: {counted:?}");
        }
    })
    .await;
}

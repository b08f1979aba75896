//! Prometheus metrics: events are counted when they happen, gauges are computed when they are
//! scraped. A stored gauge of something that ends with time would be a flag that must be cleared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};

use time::OffsetDateTime;

use crate::clock::Moment;
use crate::config::Timings;
use crate::election::{Op, Reason, State, Transition};
use crate::lease::Cause;
use crate::status::{About, CandidateTable, Judgement, Published, Role};

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// The upper bounds of request durations, in seconds: a file on this host, a store nearby, a store in
/// another region, a quarter of the default request-timeout, and all of it. Each bound costs one
/// series for each operation.
const BUCKETS: [f64; 5] = [0.005, 0.025, 0.1, 0.5, 2.5];

/// The operations of a candidate in normal operation, by name.
const ROUTINE: [&str; 2] = ["read", "renew"];

/// The transitions whose first occurrence an alert must see: their series exist from the start, those
/// of others once they were seen. An increase from no series to 1 counts as none.
pub const ALERTED_TRANSITIONS: [(State, State, Reason); 3] = [
    (State::Activating, State::Leader, Reason::TermWritten),
    (State::Activating, State::Jeopardy, Reason::TermWritten),
    (State::Leader, State::Jeopardy, Reason::ClockJumped),
];

/// The hooks whose runs are counted.
pub const HOOKS: [&str; 4] = ["on-active", "on-passive", "on-drain", "on-leader-change"];

/// The outcomes of a hook: succeeded, failed, ended by its timeout, or skipped because the state
/// was over.
pub const HOOK_OUTCOMES: [&str; 4] = ["ok", "failed", "timeout", "skipped"];

/// The settings that alerts and dashboards compare other metrics with.
pub const SETTINGS: [&str; 4] =
    ["lease-duration", "renew-deadline", "retry-period", "request-timeout"];

/// The metrics of one election; clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Series>);

struct Series {
    registry: Registry,
    is_leader: IntGauge,
    master_status: IntGauge,
    term: IntGauge,
    valid: Gauge,
    states: IntGaugeVec,
    transitions: IntCounterVec,
    requests: IntCounterVec,
    durations: HistogramVec,
    last_success: Gauge,
    credential_expiry: Gauge,
    failures: IntGauge,
    settings: GaugeVec,
    file_errors: IntCounter,
    dropped_lines: IntCounter,
    healthy: IntGauge,
    peer_connections: IntGauge,
    peer_notices: IntCounterVec,
    candidates: IntGaugeVec,
    /// The states that have a series of candidates, a bit for each of [`State::ALL`].
    candidate_states: AtomicU16,
    hook_runs: IntCounterVec,
    child_restarts: IntCounter,
    /// Only if there is a route, as are the requests.
    route_agrees: Option<IntGauge>,
    route_requests: Option<IntCounterVec>,
}

impl Metrics {
    /// Creates the series, at 0: those of the route only with a route, those of hooks in
    /// [`Self::expect_hook`]. The series of most transitions and of rare outcomes are created once
    /// they were seen, because every instance would have hundreds of them.
    #[must_use]
    pub fn new(about: &About, has_route: bool) -> Self {
        let registrar = Registrar { registry: Registry::new(), about };
        let series = Series {
            is_leader: registrar
                .gauge("tenure_is_leader", "Whether this instance leads, judged when scraped."),
            master_status: registrar.master_status(),
            term: registrar.gauge(
                "tenure_term",
                "The term of this instance while it leads, the fencing token; else 0.",
            ),
            valid: registrar.seconds(
                "tenure_valid_seconds",
                "How long this instance leads without a further renewal.",
            ),
            states: registrar.states(),
            transitions: registrar.transitions(),
            requests: registrar.requests(),
            durations: registrar.durations(),
            last_success: registrar.seconds(
                "tenure_store_last_success_timestamp_seconds",
                "When the store last answered, in unix time; 0 before the first answer.",
            ),
            credential_expiry: registrar.seconds(
                "tenure_store_credential_expiry_timestamp_seconds",
                "When the credential for the store expires, in unix time; 0 if it does not, or is renewed.",
            ),
            failures: registrar.gauge(
                "tenure_store_consecutive_failures",
                "Failed requests to the store since its last answer.",
            ),
            settings: registrar.settings(),
            file_errors: registrar.counter(
                "tenure_status_file_errors_total",
                "Status files that could not be written.",
            ),
            dropped_lines: registrar.counter(
                "tenure_log_lines_dropped_total",
                "Log lines dropped because the log was not read fast enough, or too many came from one place.",
            ),
            healthy: registrar.gauge(
                "tenure_healthy",
                "Whether the last result of every health probe was a success; 1 without probes.",
            ),
            peer_connections: registrar.gauge(
                "tenure_peer_connections",
                "Open connections to peers: of a leader from its standbys, of a standby to its leader.",
            ),
            peer_notices: registrar.peer_notices(),
            candidates: registrar.candidates(),
            candidate_states: AtomicU16::new(0),
            hook_runs: registrar.hook_runs(),
            child_restarts: registrar.counter(
                "tenure_child_restarts_total",
                "Starts of exec's command after the first.",
            ),
            route_agrees: has_route.then(|| registrar.route_agrees()),
            route_requests: has_route.then(|| registrar.route_requests()),
            registry: registrar.registry,
        };
        Self(Arc::new(series))
    }

    /// Sets the timings, as [`SETTINGS`].
    pub fn timings(&self, timings: &Timings) {
        let Timings { lease_duration, renew_deadline, retry_period, request_timeout, .. } = timings;
        let values = [lease_duration, renew_deadline, retry_period, request_timeout];
        for (name, value) in SETTINGS.iter().zip(values) {
            self.0.settings.with_label_values(&[name]).set(value.as_secs_f64());
        }
    }

    /// Counts a transition.
    pub fn transition(&self, transition: &Transition) {
        let Transition { from, to, reason, .. } = transition;
        self.0.transitions.with_label_values(&[from.as_str(), to.as_str(), reason.as_str()]).inc();
    }

    /// Counts a request to the store: `outcome` is `ok` or a [`crate::lease::StoreError::outcome`].
    pub fn request(&self, op: &str, outcome: &str, took: Duration) {
        self.0.requests.with_label_values(&[op, outcome]).inc();
        self.0.durations.with_label_values(&[op]).observe(took.as_secs_f64());
    }

    /// Counts a status file that could not be written.
    pub fn file_error(&self) {
        self.0.file_errors.inc();
    }

    /// Creates the series of a configured hook, one of [`HOOKS`], at 0.
    pub fn expect_hook(&self, hook: &str) {
        for outcome in HOOK_OUTCOMES {
            self.0.hook_runs.with_label_values(&[hook, outcome]);
        }
    }

    /// Counts a run of a hook: one of [`HOOKS`] with one of [`HOOK_OUTCOMES`].
    pub fn hook_run(&self, hook: &str, outcome: &str) {
        self.0.hook_runs.with_label_values(&[hook, outcome]).inc();
    }

    /// Counts a connection to a peer that was opened.
    pub fn peer_connected(&self) {
        self.0.peer_connections.inc();
    }

    /// Counts a connection to a peer that has ended.
    pub fn peer_disconnected(&self) {
        self.0.peer_connections.dec();
    }

    /// Counts a notice of a leader's stream, by its kind and what became of it.
    pub fn peer_notice(&self, kind: &str, outcome: &str) {
        self.0.peer_notices.with_label_values(&[kind, outcome]).inc();
    }

    /// Counts a start of `exec`'s command after the first.
    pub fn child_restart(&self) {
        self.0.child_restarts.inc();
    }

    /// Counts a request for the route: `outcome` is `ok` or the kind of its error.
    pub fn route_request(&self, outcome: &str) {
        if let Some(requests) = &self.0.route_requests {
            requests.with_label_values(&[outcome]).inc();
        }
    }

    /// Sets when the credential for the store expires.
    pub(crate) fn credential_expires(&self, at: Option<OffsetDateTime>) {
        let at = at.map_or(0.0, |it| it.unix_timestamp() as f64);
        self.0.credential_expiry.set(at);
    }

    /// Returns all series as Prometheus text, judged at `now`. `dropped_lines` is the total of
    /// dropped log lines.
    #[must_use]
    pub fn text(&self, published: &Published, dropped_lines: usize, now: Moment) -> String {
        let series = &*self.0;
        let judgement = Judgement::of(&published.status, now);
        let leads = i64::from(judgement.role() == Role::Active);
        series.is_leader.set(leads);
        series.master_status.set(leads);
        series.term.set(i64::try_from(judgement.term.unwrap_or_default()).unwrap_or(i64::MAX));
        series.valid.set(judgement.remaining.as_secs_f64());
        for state in State::ALL {
            let is = i64::from(state == judgement.state);
            series.states.with_label_values(&[state.as_str()]).set(is);
        }
        series.healthy.set(i64::from(published.is_healthy()));
        if let (Some(gauge), Some(it)) = (&series.route_agrees, published.route_agreement(now)) {
            gauge.set(i64::from(it.agrees));
        }
        self.count_candidates(published.candidates.as_ref());
        let store = &published.status.store;
        series.last_success.set(store.last_success.map_or(0.0, |then| then.wall.as_secs_f64()));
        series.failures.set(i64::from(store.failures));
        let dropped_lines = u64::try_from(dropped_lines).unwrap_or(u64::MAX);
        series.dropped_lines.inc_by(dropped_lines.saturating_sub(series.dropped_lines.get()));
        TextEncoder::new()
            .encode_to_string(&series.registry.gather())
            .unwrap_or_else(|error| format!("# the metrics could not be written: {error}\n"))
    }
}

impl Metrics {
    /// Sets the number of candidates in each state; a state has a series once a candidate was in it.
    fn count_candidates(&self, table: Option<&CandidateTable>) {
        let present = table.filter(|it| it.is_current).map_or(&[][..], |it| &it.candidates);
        for (at, state) in State::ALL.iter().map(|it| it.as_str()).enumerate() {
            let count = present.iter().filter(|it| it.connected && it.state == state).count();
            let seen =
                self.0.candidate_states.fetch_or(u16::from(count > 0) << at, Ordering::Relaxed);
            if count > 0 || seen >> at & 1 == 1 {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                self.0.candidates.with_label_values(&[state]).set(count);
            }
        }
    }
}

/// Creates and registers series with the election's labels.
struct Registrar<'a> {
    registry: Registry,
    about: &'a About,
}

impl Registrar<'_> {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help)
            .const_label("election", &self.about.election)
            .const_label("identity", &self.about.identity)
    }

    fn register<T: Collector + Clone + 'static>(&self, made: prometheus::Result<T>) -> T {
        let series = made.expect("names and labels are well-formed");
        self.registry.register(Box::new(series.clone())).expect("each name is registered once");
        series
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.register(IntGauge::with_opts(self.opts(name, help)))
    }

    fn seconds(&self, name: &str, help: &str) -> Gauge {
        self.register(Gauge::with_opts(self.opts(name, help)))
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.register(IntCounter::with_opts(self.opts(name, help)))
    }

    /// Uses client-go's name, so that its dashboards keep working.
    fn master_status(&self) -> IntGauge {
        let opts = self
            .opts("leader_election_master_status", "Whether this instance leads; client-go's name.")
            .const_label("name", &self.about.election);
        let gauge = self.register(IntGauge::with_opts(opts));
        let build = self
            .opts("tenure_build_info", "Always 1; the version is in the label.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        self.register(IntGauge::with_opts(build)).set(1);
        gauge
    }

    fn states(&self) -> IntGaugeVec {
        let opts = self.opts("tenure_state", "1 for the state of this instance, 0 for the others.");
        self.register(IntGaugeVec::new(opts, &["state"]))
    }

    fn settings(&self) -> GaugeVec {
        let opts = self.opts("tenure_setting_seconds", "The timings of this instance's settings.");
        let settings = self.register(GaugeVec::new(opts, &["setting"]));
        for setting in SETTINGS {
            settings.with_label_values(&[setting]);
        }
        settings
    }

    fn transitions(&self) -> IntCounterVec {
        let opts = self.opts("tenure_transitions_total", "Changes of state.");
        let transitions = self.register(IntCounterVec::new(opts, &["from", "to", "reason"]));
        for (from, to, reason) in ALERTED_TRANSITIONS {
            transitions.with_label_values(&[from.as_str(), to.as_str(), reason.as_str()]);
        }
        transitions
    }

    fn requests(&self) -> IntCounterVec {
        let opts = self.opts("tenure_store_requests_total", "Requests to the store, by outcome.");
        let requests = self.register(IntCounterVec::new(opts, &["op", "outcome"]));
        // The causes of definite answers have outcomes of their own.
        let unknown = Cause::ALL.iter().filter(|it| !matches!(it, Cause::Lease | Cause::Record));
        let outcomes: Vec<_> =
            ["refused", "foreign"].into_iter().chain(unknown.map(|it| it.as_str())).collect();
        for op in Op::NAMES {
            requests.with_label_values(&[op, "ok"]);
        }
        for op in ROUTINE {
            for outcome in &outcomes {
                requests.with_label_values(&[op, outcome]);
            }
        }
        requests
    }

    fn peer_notices(&self) -> IntCounterVec {
        let opts = self.opts(
            "tenure_peer_notices_total",
            "Notices of the leader's stream, by kind and what became of them.",
        );
        self.register(IntCounterVec::new(opts, &["kind", "outcome"]))
    }

    fn candidates(&self) -> IntGaugeVec {
        let help = "Candidates by state: the leader, and all that are connected to it.";
        let opts = self.opts("tenure_candidates", help);
        self.register(IntGaugeVec::new(opts, &["state"]))
    }

    fn hook_runs(&self) -> IntCounterVec {
        let opts = self.opts("tenure_hook_runs_total", "Runs of hooks, by outcome.");
        self.register(IntCounterVec::new(opts, &["hook", "outcome"]))
    }

    fn route_agrees(&self) -> IntGauge {
        self.gauge(
            "tenure_route_agrees",
            "Whether the route, as last read, reports the role of this instance and no other pod active.",
        )
    }

    fn route_requests(&self) -> IntCounterVec {
        let opts = self.opts("tenure_route_requests_total", "Requests for the route, by outcome.");
        let requests = self.register(IntCounterVec::new(opts, &["outcome"]));
        requests.with_label_values(&["ok"]);
        requests
    }

    fn durations(&self) -> HistogramVec {
        let name = "tenure_store_request_duration_seconds";
        let opts = HistogramOpts::from(self.opts(name, "How long requests to the store took."))
            .buckets(BUCKETS.to_vec());
        let durations = self.register(HistogramVec::new(opts, &["op"]));
        for op in Op::NAMES {
            durations.with_label_values(&[op]);
        }
        durations
    }
}

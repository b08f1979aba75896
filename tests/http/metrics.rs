//! The metrics, as Prometheus and promtool read them.

use testkit::http::status;

use std::io::Write;
use std::process::{Command, Stdio};

use status::{Feed, about, failing, leading, ms, now, pass, status as of};
use tenure::config::Timings;
use tenure::election::{Op, Reason, Standing, State, Status, TRANSITIONS, Transition};
use tenure::metrics::{ALERTED_TRANSITIONS, HOOK_OUTCOMES, HOOKS, Metrics, SETTINGS};
use tenure::status::{CandidateEntry, CandidateTable};

/// Asserts that `promtool check metrics` reports nothing.
fn lint(text: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("promtool: {error}; install the Debian package prometheus"));
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let complaints = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && complaints.is_empty(),
        "{}",
        String::from_utf8_lossy(&complaints)
    );
}

fn text(metrics: &Metrics, feed: &Feed) -> String {
    metrics.text(&feed.last(), 0, now())
}

/// Returns the value of the only series with this name and all of these labels.
fn value(text: &str, name: &str, labels: &[&str]) -> f64 {
    let is = |line: &&str| {
        line.starts_with(&format!("{name}{{")) && labels.iter().all(|label| line.contains(label))
    };
    let found: Vec<_> = text.lines().filter(is).collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
    found[0].rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn promtool_accepts_a_leader_and_a_standby() {
    let metrics = Metrics::new(&about(), false);
    let feed = Feed::new(Standing::Starting);
    lint(&text(&metrics, &feed));
    metrics.request("renew", "ok", ms(3));
    metrics.request("read", "timeout", ms(2_000));
    feed.change(of(leading(42, ms(10_000))));
    lint(&text(&metrics, &feed));
    feed.change(Status { store: failing(3, "no route"), ..of(Standing::Standby) });
    lint(&text(&metrics, &feed));
}

#[test]
fn routine_series_exist_from_the_start_at_0_with_both_labels() {
    let text = text(&Metrics::new(&about(), false), &Feed::new(Standing::Starting));
    for name in [
        "tenure_is_leader",
        "leader_election_master_status",
        "tenure_term",
        "tenure_valid_seconds",
        "tenure_store_last_success_timestamp_seconds",
        "tenure_store_credential_expiry_timestamp_seconds",
        "tenure_store_consecutive_failures",
        "tenure_status_file_errors_total",
        "tenure_log_lines_dropped_total",
    ] {
        assert!(value(&text, name, &[]).abs() < f64::EPSILON, "{name}");
    }
    value(&text, "leader_election_master_status", &["name=\"orders\""]);
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(value(&text, "tenure_build_info", &[&version]) > 0.5);
    for state in State::ALL {
        let is = value(&text, "tenure_state", &[&format!("state=\"{}\"", state.as_str())]);
        assert_eq!(is > 0.5, state == State::Starting, "{state:?}");
    }
    let routine = ["ok", "refused", "timeout", "network", "auth", "throttled", "unavailable"];
    for name in Op::NAMES {
        let op = format!("op=\"{name}\"");
        let outcomes = if ["read", "renew"].contains(&name) { &routine[..] } else { &["ok"] };
        for outcome in outcomes {
            let labels = [op.as_str(), &format!("outcome=\"{outcome}\"")];
            assert!(value(&text, "tenure_store_requests_total", &labels) < 0.5);
        }
        value(&text, "tenure_store_request_duration_seconds_count", &[&op]);
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.contains("election=\"orders\"") && line.contains("identity=\"us\""), "{line}");
    }
}

/// Returns the number of series.
fn series(text: &str) -> usize {
    text.lines().filter(|it| !it.starts_with('#')).count()
}

#[test]
fn a_fresh_leader_with_every_option_has_at_most_120_series() {
    let (metrics, feed) = (Metrics::new(&about(), true), Feed::new(leading(42, ms(10_000))));
    HOOKS.iter().for_each(|it| metrics.expect_hook(it));
    metrics.route_request("ok");
    for (op, outcome) in [("read", "ok"), ("acquire", "ok"), ("write-term", "ok"), ("renew", "ok")]
    {
        metrics.request(op, outcome, ms(3));
    }
    for (from, to, reason) in [
        (State::Starting, State::Standby, Reason::StoreReached),
        (State::Standby, State::Activating, Reason::Acquired),
        (State::Activating, State::Leader, Reason::TermWritten),
    ] {
        metrics.transition(&Transition { from, to, reason, term: None, leadership: None });
    }
    let text = text(&metrics, &feed);
    assert!(series(&text) <= 120, "{} series:\n{text}", series(&text));
    assert!(value(&text, "leader_election_master_status", &["name=\"orders\""]) > 0.5);
}

fn count(text: &str, (from, to, reason): (State, State, Reason)) -> f64 {
    let labels = [("from", from.as_str()), ("to", to.as_str()), ("reason", reason.as_str())];
    let labels = labels.map(|(name, value)| format!("{name}=\"{value}\""));
    value(text, "tenure_transitions_total", &[&labels[0], &labels[1], &labels[2]])
}

#[test]
fn a_transition_has_a_series_once_it_was_seen_or_from_the_start_if_an_alert_counts_it() {
    let (metrics, feed) = (Metrics::new(&about(), false), Feed::new(Standing::Starting));
    let before = text(&metrics, &feed);
    let series =
        |text: &str| text.lines().filter(|it| it.starts_with("tenure_transitions_total{")).count();
    assert_eq!(series(&before), ALERTED_TRANSITIONS.len());
    for it in ALERTED_TRANSITIONS {
        assert!(count(&before, it) < 0.5, "{it:?}");
    }
    for (from, to, reason) in TRANSITIONS {
        metrics.transition(&Transition { from, to, reason, term: None, leadership: None });
    }
    let after = text(&metrics, &feed);
    assert_eq!(series(&after), TRANSITIONS.len());
    assert!(TRANSITIONS.iter().all(|it| count(&after, *it) > 0.5));
}

#[test]
fn rare_outcomes_have_a_series_once_they_were_seen() {
    let (metrics, feed) = (Metrics::new(&about(), true), Feed::new(Standing::Starting));
    let before = text(&metrics, &feed);
    for rare in ["op=\"acquire\",outcome=\"refused\"", "outcome=\"forbidden\"", "hook="] {
        assert!(!before.contains(rare), "{rare}");
    }
    metrics.request("acquire", "refused", ms(3));
    metrics.route_request("forbidden");
    let after = text(&metrics, &feed);
    let labels = ["op=\"acquire\"", "outcome=\"refused\""];
    assert!(value(&after, "tenure_store_requests_total", &labels) > 0.5);
    assert!(value(&after, "tenure_route_requests_total", &["outcome=\"forbidden\""]) > 0.5);
    metrics.expect_hook("on-drain");
    let with_hook = text(&metrics, &feed);
    for outcome in HOOK_OUTCOMES {
        let labels = ["hook=\"on-drain\"", &format!("outcome=\"{outcome}\"")];
        assert!(value(&with_hook, "tenure_hook_runs_total", &labels) < 0.5);
    }
}

#[test]
fn peers_have_series_once_they_were_seen() {
    let (metrics, feed) = (Metrics::new(&about(), false), Feed::new(Standing::Starting));
    let before = text(&metrics, &feed);
    assert!(value(&before, "tenure_peer_connections", &[]).abs() < f64::EPSILON);
    for rare in ["tenure_peer_notices_total{", "tenure_candidates{"] {
        assert!(!before.contains(rare), "{rare}");
    }
    metrics.peer_connected();
    metrics.peer_notice("released", "applied");
    let entry = |state: &str, connected| CandidateEntry {
        identity: "a".to_owned(),
        instance: "1".to_owned(),
        address: None,
        zone: None,
        priority: 50,
        state: state.to_owned(),
        failing: None,
        connected,
        contact_ms_ago: 0,
        heir: false,
        gone: false,
    };
    let show = |entries: Vec<CandidateEntry>, is_current| {
        let table = CandidateTable { at: now(), is_current, candidates: entries.into() };
        feed.record(|it| it.candidates = Some(table.clone()));
    };
    let all = [("leader", true), ("standby", true), ("standby", true), ("paused", false)];
    show(all.map(|(state, connected)| entry(state, connected)).into(), true);
    let after = text(&metrics, &feed);
    lint(&after);
    assert!(value(&after, "tenure_peer_connections", &[]) > 0.5);
    let labels = ["kind=\"released\"", "outcome=\"applied\""];
    assert!(value(&after, "tenure_peer_notices_total", &labels) > 0.5);
    let count = |text: &str, state: &str| {
        value(text, "tenure_candidates", &[&format!("state=\"{state}\"")])
    };
    assert!(
        (count(&after, "standby") - 2.0).abs() < 0.5 && (count(&after, "leader") - 1.0).abs() < 0.5
    );
    assert!(
        !after.contains("tenure_candidates{election=\"orders\",identity=\"us\",state=\"paused\"}")
    );
    metrics.peer_disconnected();
    show(vec![entry("standby", true)], false);
    let lost = text(&metrics, &feed);
    assert!(count(&lost, "standby").abs() < 0.5, "what was known last is not known now");
}

#[test]
fn the_timings_are_exported() {
    let (metrics, feed) = (Metrics::new(&about(), false), Feed::new(Standing::Starting));
    let of = |text: &str| {
        SETTINGS.map(|it| value(text, "tenure_setting_seconds", &[&format!("setting=\"{it}\"")]))
    };
    assert_eq!(of(&text(&metrics, &feed)), [0.0; 4]);
    metrics.timings(&Timings {
        lease_duration: ms(15_000),
        renew_deadline: ms(10_000),
        retry_period: ms(2_000),
        request_timeout: ms(1_500),
        activation_delay: ms(0),
    });
    assert_eq!(SETTINGS, ["lease-duration", "renew-deadline", "retry-period", "request-timeout"]);
    assert_eq!(of(&text(&metrics, &feed)), [15.0, 10.0, 2.0, 1.5]);
    lint(&text(&metrics, &feed));
}

#[test]
fn values_that_depend_on_time_are_computed_when_scraped() {
    let (metrics, feed) = (Metrics::new(&about(), false), Feed::new(leading(42, ms(10_000))));
    let leads = |text: &str| {
        let value = |name| value(text, name, &[]);
        assert!((value("tenure_is_leader") - value("leader_election_master_status")).abs() < 0.5);
        (value("tenure_is_leader") > 0.5, value("tenure_valid_seconds"), value("tenure_term"))
    };
    pass(ms(4_000));
    assert_eq!(leads(&text(&metrics, &feed)), (true, 6.0, 42.0));
    let last_success =
        value(&text(&metrics, &feed), "tenure_store_last_success_timestamp_seconds", &[]);
    assert!((last_success - 1_795_165_200.0).abs() < 0.001, "unix time: {last_success}");
    pass(ms(6_000));
    let ended = text(&metrics, &feed);
    let (is_leader, valid, _) = leads(&ended);
    assert!(
        !is_leader && valid.abs() < f64::EPSILON,
        "the deadline has passed without a publication"
    );
    assert!(value(&ended, "tenure_state", &["state=\"jeopardy\""]) > 0.5);
    feed.change(Status { store: failing(3, "no route"), ..of(Standing::Standby) });
    let passive = text(&metrics, &feed);
    assert_eq!(leads(&passive), (false, 0.0, 0.0));
    assert!((value(&passive, "tenure_store_consecutive_failures", &[]) - 3.0).abs() < 0.5);
}

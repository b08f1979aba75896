//! Unit tests of the plugin: its command line, its choice of the leader, its table.

use clap::CommandFactory;
use serde_json::{Value, json};

use super::election::grouped;
use super::table::{json, table};
use super::*;
use crate::cli::document::Heard;
use crate::clock::Moment;

const PLAIN: Style = Style { colour: false, signs: false };

fn at(ms: u64) -> Moment {
    let start = Duration::from_secs(1_795_165_200) + Duration::from_millis(ms);
    Moment { boot: start, raw: start, wall: start }
}

fn row(pod: &str, answer: Answer) -> Row {
    let candidate = Candidate {
        namespace: "shop".to_owned(),
        pod: pod.to_owned(),
        election: Some("orders".to_owned()),
        release: None,
        container: "tenure".to_owned(),
        has_container: true,
        program: "/tenure".to_owned(),
        admin: None,
        not_running: None,
    };
    Row { candidate, answer }
}

fn status(pod: &str, more: &str) -> Row {
    let raw = format!(r#"{{"election":"orders","identity":"{pod}","index":1,{more}}}"#);
    let document = serde_json::from_str(&raw).unwrap();
    row(pod, Answer::Status(Box::new(Heard { document, raw, sent: at(0) })))
}

fn leader(pod: &str, term: u64) -> Row {
    let more = r#""state":"leader","role":"active","valid_for_ms":8200"#;
    status(pod, &format!(r#"{more},"term":{term}"#))
}

const STANDBY: &str = r#""state":"standby","role":"passive","valid_for_ms":0,"can_take_over":true"#;

fn standby(pod: &str) -> Row {
    status(pod, STANDBY)
}

fn heir(pod: &str) -> Row {
    let candidates = r#"[{"instance":"1","heir":false},{"instance":"2","heir":true}]"#;
    status(pod, &format!(r#"{STANDBY},"instance":"2","candidates":{candidates}"#))
}

fn silent(pod: &str) -> Row {
    row(pod, Answer::Failed("refused".to_owned()))
}

fn election(rows: Vec<Row>) -> Election {
    let mut elections = grouped(rows);
    assert_eq!(elections.len(), 1);
    elections.pop().unwrap()
}

#[test]
fn one_table_shows_all_candidates_and_a_line_for_each_election() {
    let mut other = leader("x-1", 7);
    other.candidate.election = Some("payments".to_owned());
    let crashed = row("web-3", Answer::NotRunning("the pod is pending".to_owned()));
    let all =
        vec![standby("web-2"), leader("web-1", 42), crashed, silent("web-4"), heir("web-5"), other];
    let elections = grouped(all);
    let text = "\
election  pod    role     state    term  left  note
orders    web-2  passive  standby  -     -     is a standby, ready to take over
orders    web-1  active   leader   42    8.1s  leads
orders    web-3  -        -        -     -     the pod is pending
orders    web-4  unknown  -        -     -     no answer: refused
orders    web-5  passive  standby  -     -     next in line; is a standby, ready to take over
payments  x-1    active   leader   7     8.1s  leads

orders: web-1 (term 42) leads; no valid answer from web-4
payments: x-1 (term 7) leads
";
    assert_eq!(table(&elections, false, at(100), PLAIN), text);
    let everywhere = table(&elections, true, at(100), PLAIN);
    assert!(everywhere.starts_with("namespace  election  pod "), "{everywhere}");
    assert!(everywhere.contains("\nshop/payments: x-1"), "{everywhere}");
    let document: Value = serde_json::from_str(&json(&elections, at(100))).unwrap();
    let orders = &document["elections"][0];
    assert_eq!((&orders["leaders"], &orders["leader"]), (&json!("one"), &json!("web-1")));
    assert_eq!(orders["candidates"][1]["remaining_ms"], 8_100);
    assert_eq!(orders["candidates"][2]["role"], "not-running");
    assert_eq!(orders["candidates"][3]["error"], "refused");
}

#[test]
fn the_sentence_says_who_leads_or_why_nobody_is_known_to() {
    let holder = r#""state":"standby","role":"passive","valid_for_ms":0,"holder":{"identity":"web-9","term":42"#;
    let seen = || status("web-2", &format!("{holder}}}"));
    let stale = || status("web-2", &format!(r#"{holder},"stale":true}}"#));
    let draining = r#""state":"draining","role":"passive","valid_for_ms":0"#;
    let down = || row("web-3", Answer::NotRunning("the pod is pending".to_owned()));
    for (rows, words) in [
        (vec![leader("web-1", 42), standby("web-2")], "web-1 (term 42) leads"),
        (vec![standby("web-2"), down()], "no leader: all candidates that run report passive"),
        (vec![down()], "no leader: no candidate runs"),
        (vec![stale()], "no leader: all candidates that run report passive"),
        (vec![seen()], "no leader among these pods: web-2 reports that web-9 (term 42)"),
        (
            vec![seen(), standby("web-9")],
            "no leader: web-2 reports that web-9 (term 42) has the lease, which reports passive",
        ),
        (vec![seen(), status("web-1", draining)], "no leader: web-1 is draining"),
        (
            vec![seen(), silent("web-9")],
            "unknown leader: no valid answer from web-9; web-2 reports that web-9 (term 42) has the lease",
        ),
        (vec![silent("web-9"), stale()], "unknown leader: no valid answer from web-9"),
        (
            vec![leader("web-1", 41), leader("web-2", 42), silent("web-3")],
            "2 pods report active at the same time: web-1 (term 41), web-2 (term 42); only the highest",
        ),
    ] {
        let summary = election(rows).summary(at(100));
        assert!(summary.starts_with(words), "{words}: {summary}");
    }
}

#[test]
fn an_answer_that_is_no_longer_valid_counts_as_none() {
    let late = election(vec![leader("web-1", 42)]);
    assert!(matches!(late.verdict(at(8_199)), Verdict::One(_)));
    assert!(matches!(late.verdict(at(8_200)), Verdict::Unknown));
    let text = table(&[late], false, at(8_200), PLAIN);
    assert!(text.contains("unknown  leader  42    -     was active, but its answer"), "{text}");
}

#[test]
fn a_successor_is_named_by_pod_or_identity_and_must_be_able_to_lead() {
    let named = status("id-5", r#""state":"standby","role":"passive","valid_for_ms":0"#);
    let mut named = named;
    named.candidate.pod = "web-5".to_owned();
    let cut_off = r#""state":"standby","role":"passive","valid_for_ms":0,"can_take_over":false"#;
    let ill = r#""state":"unhealthy","role":"passive","valid_for_ms":0"#;
    let rows = vec![
        leader("web-1", 42),
        standby("web-2"),
        silent("web-3"),
        status("web-4", cut_off),
        named,
        status("web-6", ill),
    ];
    let election = election(rows);
    let leader = &election.rows[0];
    let of = |to: &str| election.successor(to, leader);
    assert_eq!(of("web-2"), Ok("web-2".to_owned()));
    assert_eq!(of("web-5"), Ok("id-5".to_owned()));
    assert_eq!(of("id-5"), Ok("id-5".to_owned()));
    for (to, words) in [
        ("web-1", "web-1 leads already"),
        ("web-3", "web-3 cannot take over: no answer: refused"),
        ("web-4", "web-4 cannot take over: it is a standby, but cannot take over"),
        ("web-6", "web-6 cannot take over: it is unhealthy"),
        ("web-9", "web-9 is no candidate of orders\n  the other candidates are: web-2, web-3"),
    ] {
        let error = of(to).unwrap_err();
        assert!(error.starts_with(words), "{words}: {error}");
    }
}

#[test]
fn foreign_text_cannot_control_the_terminal() {
    let mut rows = vec![standby("web-1"), row("web-2", Answer::Failed("a\x1b[31mb".to_owned()))];
    rows[0].candidate.pod = "x\x1b[2Jy".to_owned();
    let elections = grouped(rows);
    for text in [table(&elections, false, at(0), PLAIN), json(&elections, at(0))] {
        assert!(!text.contains('\x1b'), "{text}");
    }
}

#[test]
fn the_command_line_of_the_plugin_is_sound() {
    Plugin::command().debug_assert();
}

#[test]
fn the_name_of_the_program_selects_the_plugin() {
    for (program, is) in [
        ("kubectl-tenure", true),
        ("/root/.krew/bin/kubectl-tenure", true),
        ("tenure", false),
        ("/kubectl-tenure/tenure", false),
        ("kubectl-tenure-2", false),
        ("", false),
    ] {
        assert_eq!(is_plugin(OsStr::new(program)), is, "{program}");
    }
}

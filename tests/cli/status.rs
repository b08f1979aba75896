//! `tenure status`: its table and its document, from a sidecar that serves the documented status.

use testkit::processes::{process, sidecar};

use process::{Ran, run_verb};
use serde_json::Value;
use sidecar::Sidecar;

fn status(sidecar: &Sidecar, more: &[&str]) -> Ran {
    let url = sidecar.url();
    let arguments: Vec<_> = ["status", "--url", &url].iter().chain(more).copied().collect();
    run_verb(&arguments, &[])
}

#[test]
fn status_is_a_table_for_people_and_the_document_for_programs() {
    let sidecar = Sidecar::start();
    sidecar.report("active", "leader", Some(42), 60_000);
    let ran = run_verb(&["status", "--url", &sidecar.url()], &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for line in [
        "election   orders\n",
        "leader     web-1 at 10.0.3.7:8080, this instance\n",
        "term       42\n",
        "instance   web-1: leader, active\n",
        "since      2026-11-20 09:00:00 UTC",
        "valid for  59s, unless renewed\n",
        "last error none\n",
    ] {
        assert!(ran.out.contains(line), "{line} in {}", ran.out);
    }
    assert!(!ran.out.contains('\x1b'), "no colour but on a terminal");

    let ran = run_verb(&["status", "--json", "--url", &sidecar.url()], &[]);
    let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(document["term"], 42);
    assert_eq!(document["version"], "0.1.0", "the whole document");

    let url = sidecar.url();
    drop(sidecar);
    let ran = run_verb(&["status", "--url", &url], &[]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("is `tenure run` up there?"), "{}", ran.err);
}

#[test]
fn another_server_on_the_port_is_distinguished_from_a_sidecar() {
    let sidecar = Sidecar::start();
    let ran = run_verb(&["status", "--url", &format!("{}/elsewhere", sidecar.url())], &[]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("answers 404"), "{}", ran.err);
}

/// Three candidates: the leader, which serves them, its heir in another zone, and one that was last
/// heard of a minute ago.
const CANDIDATES: &str = r#"[
    {"identity":"web-1","instance":"01J","role":"active","state":"leader","zone":"a","priority":50,
     "address":"10.0.3.7:8080","connected":true,"contact_ms_ago":0,"heir":false},
    {"identity":"web-2","instance":"02J","role":"passive","state":"standby","zone":"b","priority":50,
     "connected":true,"contact_ms_ago":0,"heir":true},
    {"identity":"web-3","instance":"03J","role":null,"state":"unhealthy","priority":50,
     "failing":"tcp://db:5432: refused","connected":false,"contact_ms_ago":60000,"heir":false}]"#;

#[test]
fn status_shows_every_candidate_in_aligned_columns() {
    let sidecar = Sidecar::start();
    sidecar.report_candidates(CANDIDATES);
    sidecar.report("active", "leader", Some(42), 60_000);
    let ran = status(&sidecar, &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let rows: Vec<_> = ran.out.lines().skip_while(|it| !it.starts_with("candidate ")).collect();
    for (row, words) in [
        (1, "web-1 active leader 42 59s healthy 50 a 10.0.3.7:8080 connected this instance leads"),
        (2, "web-2 passive standby - - healthy 50 b - connected next in line"),
        (3, "web-3 unknown unhealthy - - - 50 - - 1m0s ago tcp://db:5432: refused"),
    ] {
        assert_eq!(rows[row].split_whitespace().collect::<Vec<_>>().join(" "), words);
        for (heading, cell) in [("state", words.split(' ').nth(2).unwrap()), ("priority", "50  ")] {
            let at = rows[0].find(heading).unwrap();
            assert!(rows[row][at..].starts_with(cell), "{}\n{}", rows[0], rows[row]);
        }
    }
    assert!(!ran.out.contains("not known"), "{}", ran.out);
}

#[test]
fn status_without_peers_tells_what_it_cannot_know_and_the_remedy() {
    let sidecar = Sidecar::start();
    let ran = status(&sidecar, &["-o", "table"]);
    assert!(ran.out.contains("\nweb-1      holder   -        42"), "{}", ran.out);
    for words in ["without peers, an instance sees only the lease", "With --peers"] {
        assert!(ran.out.contains(words), "{words} in {}", ran.out);
    }
}

#[test]
fn status_prints_the_same_document_by_both_flags_and_refuses_two() {
    let sidecar = Sidecar::start();
    sidecar.report_candidates(CANDIDATES);
    sidecar.report("passive", "standby", None, 0);
    let by_output = status(&sidecar, &["-o", "json"]);
    assert_eq!(by_output.out, status(&sidecar, &["--json"]).out);
    let document: Value = serde_json::from_str(&by_output.out).unwrap();
    let candidates: Value = serde_json::from_str(CANDIDATES).unwrap();
    assert_eq!(document["candidates"], candidates);
    for wrong in [&["--json", "-o", "table"][..], &["-o", "yaml"]] {
        assert_eq!(status(&sidecar, wrong).code, 2, "{wrong:?}");
    }
}

//! The table of candidates for readers: the status document, `/watch`, the page and the status files,
//! each judged at the time of the question.

use testkit::http::{server, status};

use serde_json::{Value, json};
use server::Server;
use status::{
    Feed, about, candidate, holder, leading, ms, now, pass, renewals, status as of, table,
};
use tenure::config::{FileFormat, StatusFile};
use tenure::election::{Ending, LeaseView, Leaving, Reason, Standing, Status};
use tenure::metrics::Metrics;
use tenure::publish::file::{Outside, Writer};
use tenure::status::{CandidateEntry, CandidateTable, ProbeResult, ProbeState};

/// Returns the table of the leader web-1 with the heir web-2, with this instance, and with web-4, which
/// was connected 5 s ago.
fn line() -> CandidateTable {
    table([
        CandidateEntry {
            address: Some("10.0.3.7:8080".to_owned()),
            zone: Some("a".to_owned()),
            ..candidate("web-1", "leader")
        },
        CandidateEntry { heir: true, priority: 70, ..candidate("web-2", "standby") },
        CandidateEntry {
            failing: Some("tcp://db:1: refused".to_owned()),
            ..candidate("us", "unhealthy")
        },
        CandidateEntry { connected: false, contact_ms_ago: 5_000, ..candidate("web-4", "standby") },
    ])
}

/// Starts a server of a standby that has received the table from the leader web-1.
async fn standby() -> Server {
    let server = Server::start(Feed::new(Standing::Standby)).await;
    they_lead(&server);
    server.feed().report_candidates(line());
    server
}

/// Publishes that the store has just answered, and named web-1 as the holder.
fn they_lead(server: &Server) {
    let status = of(Standing::Standby);
    let lease = LeaseView { renewals: renewals(), ..status.lease.clone() };
    let holder = holder("web-1", None, 42);
    server.feed().change(Status { holder, lease, ..status });
}

async fn candidates(server: &Server) -> Vec<Value> {
    let document = server.get("/status").await.json();
    document["candidates"].as_array().expect("there are peers").clone()
}

/// Returns identity, role, whether connected, and last contact of each candidate.
async fn summary(server: &Server) -> Value {
    let pick =
        |it: &Value| json!([it["identity"], it["role"], it["connected"], it["contact_ms_ago"]]);
    candidates(server).await.iter().map(pick).collect()
}

#[tokio::test]
async fn without_peers_the_document_has_no_candidates_and_before_a_contact_this_instance() {
    let server = Server::start(Feed::new(Standing::Standby)).await;
    assert_eq!(server.get("/status").await.json().get("candidates"), None);
    server.feed().report_candidates(table([]));
    let own = json!({"identity": "us", "instance": "us-1", "role": "passive", "state": "standby",
        "failing": null, "zone": null, "priority": null, "address": null, "connected": false,
        "contact_ms_ago": null, "heir": false, "gone": false, "overdue": false, "renewed_ms_ago": null,
        "lease_ends_within_ms": null});
    assert_eq!(candidates(&server).await, [own]);
}

#[tokio::test]
async fn the_document_has_all_candidates_the_leader_first_then_the_line() {
    let server = standby().await;
    let all = candidates(&server).await;
    assert_eq!(
        all[0],
        json!({"identity": "web-1", "instance": "web-1-1", "role": "active", "state": "leader",
            "failing": null, "zone": "a", "priority": 50, "address": "10.0.3.7:8080",
            "connected": true, "contact_ms_ago": 0, "heir": false, "gone": false, "overdue": false,
            "renewed_ms_ago": 0, "lease_ends_within_ms": 15_000})
    );
    assert_eq!((&all[1]["heir"], &all[1]["priority"]), (&json!(true), &json!(70)));
    pass(ms(412));
    let expected = json!([
        ["web-1", "active", true, 0],
        ["web-2", "passive", true, 0],
        ["us", "passive", true, 0],
        ["web-4", "passive", false, 5_412],
    ]);
    assert_eq!(summary(&server).await, expected, "contacts count until the question");
}

#[tokio::test]
async fn a_candidate_without_contact_for_a_lease_duration_has_no_known_role() {
    let server = standby().await;
    pass(ms(10_000));
    assert_eq!(candidates(&server).await[3]["role"], "passive", "15 s are not over");
    pass(ms(1));
    assert_eq!(candidates(&server).await[3]["role"], Value::Null);

    // The stream ends, having been heard of last 2 s before.
    pass(ms(2_000));
    they_lead(&server);
    let last = server.feed().last().candidates.unwrap();
    let heard = now();
    pass(ms(2_000));
    server.feed().report_candidates(last.ended(heard));
    let expected = json!([
        ["web-1", "active", false, 2_000],
        ["web-2", "passive", false, 2_000],
        ["us", "passive", false, 2_000],
        ["web-4", null, false, 19_001],
    ]);
    assert_eq!(summary(&server).await, expected);
    pass(ms(13_001));
    they_lead(&server);
    let expected = json!([
        ["web-1", null, false, 15_001],
        ["web-2", null, false, 15_001],
        ["us", "passive", false, 15_001],
        ["web-4", null, false, 32_002],
    ]);
    assert_eq!(summary(&server).await, expected, "it knows of itself");
}

#[tokio::test]
async fn a_holder_that_is_overdue_has_no_known_role_and_one_that_has_told_its_end_is_passive() {
    let server = standby().await;
    let picked = async || {
        let it = candidates(&server).await[0].clone();
        let of = |name| it[name].clone();
        json!([
            of("role"),
            of("state"),
            of("overdue"),
            of("renewed_ms_ago"),
            of("lease_ends_within_ms")
        ])
    };
    pass(ms(6_999));
    assert_eq!(picked().await, json!(["active", "leader", false, 6_999, 8_001]));
    pass(ms(1));
    assert_eq!(picked().await, json!([null, "leader", true, 7_000, 8_000]));
    they_lead(&server);
    let mut status = server.feed().last().status;
    let renewals = status.lease.renewals.as_mut().unwrap();
    renewals.leaving = Some(Leaving::Ended(Some(Ending::Told(Reason::Lost))));
    server.feed().change(status);
    assert_eq!(picked().await, json!(["passive", "standby", true, 0, 15_000]));
}

#[tokio::test]
async fn a_candidate_that_was_connected_and_is_gone_is_shown_as_gone() {
    let server = standby().await;
    let mut entries = line().candidates.to_vec();
    entries[3].gone = true;
    server.feed().report_candidates(table(entries));
    let gone = candidates(&server).await[3].clone();
    assert_eq!((&gone["gone"], &gone["role"]), (&json!(true), &Value::Null));
}

#[tokio::test]
async fn only_the_holder_that_the_store_names_is_active() {
    let server = standby().await;
    // Another holds the lease, which the stream of the old leader has not told.
    let next = holder("web-2", None, 43);
    server.feed().change(Status { holder: next, ..of(Standing::Standby) });
    assert_eq!(candidates(&server).await[0]["role"], Value::Null);
    they_lead(&server);
    assert_eq!(candidates(&server).await[0]["role"], "active");
    // The store has not answered for longer than a lease lasts.
    pass(ms(15_001));
    assert_eq!(candidates(&server).await[0]["role"], Value::Null);
    // This instance leads, with the table of the leader before it.
    server.feed().change(Status { holder: holder("us", None, 44), ..of(leading(44, ms(10_000))) });
    let expected = json!([
        ["us", "active", true, 0],
        ["web-1", null, true, 0],
        ["web-2", "passive", true, 0],
        ["web-4", null, false, 20_001],
    ]);
    assert_eq!(summary(&server).await, expected);
    pass(ms(10_000));
    assert_eq!(candidates(&server).await[2]["role"], "passive", "its belief is over");
}

#[tokio::test]
async fn this_instance_is_shown_by_its_own_status() {
    let server = standby().await;
    let own = async || candidates(&server).await[2].clone();
    // The leader's table still has it as unhealthy.
    assert_eq!((&own().await["state"], &own().await["failing"]), (&json!("standby"), &Value::Null));
    let message = "timed out".to_owned();
    let mut probe = ProbeState::new("tcp://db:1".to_owned());
    probe.record(ProbeResult { succeeded: false, message, at: now() });
    server.feed().record(|it| it.probes = vec![probe]);
    assert_eq!(own().await["failing"], Value::Null, "it competes yet");
    server.feed().change(of(Standing::Unhealthy));
    assert_eq!(own().await["failing"], "tcp://db:1: timed out");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_candidates_is_an_event() {
    let server = standby().await;
    let mut client = server.connect().await;
    client.subscribe().await;
    let first = client.event().await.unwrap();
    assert_eq!(first, server.get("/status").await.json());
    server.feed().report_candidates(table([candidate("web-1", "leader")]));
    let next = client.event().await.unwrap();
    assert_eq!(next["candidates"].as_array().unwrap().len(), 2, "the leader and this instance");
}

#[tokio::test]
async fn a_status_file_has_no_candidates() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("status.json");
    let feed = Feed::new(Standing::Standby);
    feed.report_candidates(line());
    let file = StatusFile { path: path.clone(), format: FileFormat::Json };
    let outside = Outside { now, ..Outside::REAL };
    let metrics = Metrics::new(&about(), false);
    let writer = Writer::start(vec![file], about(), metrics, feed.subscribe(), outside).await;
    drop(writer.unwrap());
    let written: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!((&written["state"], written.get("candidates")), (&json!("standby"), None));
}

// --- the page ---

async fn page(server: &Server) -> String {
    server.get_as("/", "text/html").await.body
}

#[tokio::test]
async fn the_page_shows_the_candidates_in_words() {
    let server = standby().await;
    pass(ms(10_001));
    they_lead(&server);
    let body = page(&server).await;
    for words in [
        "<th scope=\"row\">web-1<small>10.0.3.7:8080, zone a</small></th>",
        "<b class=\"on\" data-over=\"unknown\">active</b><span data-over=\"\">, leader</span>",
        "<th scope=\"row\">web-2<small class=\"next\">next in line</small>",
        "<td data-label=\"priority\">70</td>",
        "<th scope=\"row\">us<small>this instance</small></th>",
        "<b data-over=\"unknown\">unknown</b>",
        "<span data-ago=\"15001\">15s</span> ago",
    ] {
        assert!(body.contains(words), "{words} in {body}");
    }
    assert!(!body.contains("not known"), "{body}");
    let ill = "http://[::1]/<b>: refused".to_owned();
    let ill = CandidateEntry { failing: Some(ill), ..candidate("<i>", "\u{1b}unhealthy") };
    server.feed().report_candidates(table([ill]));
    let body = page(&server).await;
    let shown = "<td class=\"warn\" data-label=\"health\">http://[::1]/&lt;b&gt;: refused</td>";
    assert!(body.contains(shown), "{body}");
    assert!(body.contains("<th scope=\"row\">&lt;i&gt;</th>"), "{body}");
    assert!(!body.contains('\u{1b}'), "{body}");
}

#[tokio::test]
async fn the_page_tells_what_it_cannot_know_and_the_remedy() {
    let server = Server::start(Feed::new(Standing::Standby)).await;
    let body = page(&server).await;
    assert!(body.contains("without peers, an instance sees only the lease"), "{body}");
    assert!(body.contains("<code>--peers</code>"), "{body}");
    server.feed().report_candidates(table([]));
    let body = page(&server).await;
    assert!(body.contains("no leader has been contacted") && !body.contains("--peers"), "{body}");
}

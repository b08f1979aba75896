//! The status listener from a client's view: paths, codes, headers, documents, bad requests.

use testkit::http::{server, status};

use server::Server;
use status::{Feed, failing, holder, in_jeopardy, leading, ms, now, pass, renewals, status as of};
use tenure::election::{
    Ending, FailingWrites, LastHolder, LeaseView, Standing, Status, StoreHealth,
};

const LEADER: [&str; 3] = ["/leader", "/active", "/primary"];
const STANDBY: [&str; 3] = ["/standby", "/passive", "/replica"];
const ALL: [&str; 12] = [
    "/leader",
    "/active",
    "/primary",
    "/standby",
    "/passive",
    "/replica",
    "/livez",
    "/readyz",
    "/status",
    "/metrics",
    "/",
    "/watch?index=0",
];

async fn serving(standing: Standing) -> Server {
    Server::start(Feed::new(standing)).await
}

/// Asserts the codes of the paths for leaders and standbys, and of `/readyz`.
async fn answers(server: &Server, leader: u16, standby: u16, ready: u16) {
    for path in LEADER {
        assert_eq!(server.code(path).await, leader, "{path}");
    }
    for path in STANDBY {
        assert_eq!(server.code(path).await, standby, "{path}");
    }
    assert_eq!(server.code("/readyz").await, ready, "/readyz");
    assert_eq!(server.code("/livez").await, 200, "/livez");
    assert_eq!(server.code("/status").await, 200, "/status");
}

#[tokio::test]
async fn each_state_is_answered_by_its_codes() {
    let server = serving(Standing::Starting).await;
    answers(&server, 503, 503, 503).await;
    let states = [
        (Standing::Standby, 503, 200, 200),
        (Standing::Activating, 503, 503, 200),
        (leading(42, ms(10_000)), 200, 503, 200),
        (in_jeopardy(42, ms(10_000)), 200, 503, 200),
        (Standing::Observing, 503, 503, 200),
        (Standing::Stopped, 503, 503, 503),
    ];
    for (standing, leader, standby, ready) in states {
        server.feed().change(of(standing));
        answers(&server, leader, standby, ready).await;
    }
}

#[tokio::test]
async fn an_unreachable_store_does_not_take_a_standby_out_of_service() {
    let server = serving(Standing::Standby).await;
    server.feed().change(Status { store: failing(9, "no route"), ..of(Standing::Standby) });
    answers(&server, 503, 200, 200).await;
}

#[tokio::test]
async fn a_unix_socket_answers_the_same() {
    let server = serving(leading(42, ms(10_000))).await;
    let mut client = server.connect_unix().await;
    let answer = client.ask("GET", "/leader").await;
    assert_eq!((answer.code, answer.header("tenure-term")), (200, Some("42")));
    assert_eq!(client.ask("GET", "/standby").await.code, 503);
    assert_eq!(client.ask("GET", "/status").await.json()["term"], 42);
}

#[tokio::test]
async fn a_socket_file_is_removed_with_its_listener_and_a_live_one_is_not_replaced() {
    use tenure::config::Listen;
    use tenure::publish::api::bind;
    let server = serving(Standing::Standby).await;
    let socket = server.socket.clone();
    let error = bind(&Listen::Unix(socket.clone())).await.err().expect("it is taken");
    assert!(format!("{error:#}").contains(&socket.display().to_string()), "{error:#}");
    assert_eq!(server.connect_unix().await.ask("GET", "/standby").await.code, 200);

    let error = bind(&Listen::Tcp(server.address)).await.err().expect("it is taken");
    assert!(format!("{error:#}").contains(&server.address.to_string()), "{error:#}");
    let directory = tempfile::tempdir().unwrap();
    let (file, dead) = (directory.path().join("file"), directory.path().join("dead"));
    std::fs::write(&file, "precious").unwrap();
    assert!(bind(&Listen::Unix(file.clone())).await.is_err());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    let bound = bind(&Listen::Unix(dead.clone())).await.expect("nobody listens there any more");
    drop(bound);
    assert!(!dead.exists());
}

#[tokio::test]
async fn a_socket_file_replaced_by_another_process_stays_when_the_listener_ends() {
    use tenure::config::Listen;
    use tenure::publish::api::bind;
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("status.sock");
    let first = bind(&Listen::Unix(socket.clone())).await.expect("a socket");
    std::fs::remove_file(&socket).unwrap();
    let second = bind(&Listen::Unix(socket.clone())).await.expect("its file is gone");
    drop(first);
    assert!(socket.exists(), "the second one's file is gone with the first");
    std::os::unix::net::UnixStream::connect(&socket).expect("the second listens");
    drop(second);
    assert!(!socket.exists());
}

#[tokio::test]
async fn head_answers_as_get_does_without_a_body() {
    let server = serving(leading(42, ms(10_000))).await;
    for path in ALL {
        let mut client = server.connect().await;
        let (get, head) = (client.ask("GET", path).await, client.ask("HEAD", path).await);
        assert_eq!(get.code, head.code, "{path}");
        for name in ["cache-control", "content-type", "tenure-term", "tenure-valid-for-ms"] {
            assert_eq!(get.header(name), head.header(name), "{name} of {path}");
        }
        // A body would precede the next answer.
        assert_eq!(client.ask("GET", "/leader").await.code, 200, "after HEAD {path}");
        assert_eq!(client.unread(), "");
    }
}

#[tokio::test]
async fn no_response_may_be_cached() {
    let server = serving(Standing::Standby).await;
    let mut client = server.connect().await;
    for path in ALL.iter().chain(&["/nowhere", "/leader?min_remaining=x", "/watch?index=x"]) {
        let answer = client.ask("GET", path).await;
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
    }
    let answer = client.ask("DELETE", "/leader").await;
    assert_eq!((answer.code, answer.header("cache-control")), (405, Some("no-store")));
    let answer = server.connect().await.subscribe().await;
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn the_term_is_sent_while_leading_only_and_the_time_always() {
    let server = serving(leading(42, ms(10_000))).await;
    server
        .feed()
        .change(Status { holder: holder("them", None, 41), ..of(leading(42, ms(10_000))) });
    pass(ms(1_877));
    let paths = ["/leader", "/active", "/primary", "/standby", "/passive", "/replica", "/status"];
    for path in paths {
        let answer = server.get(path).await;
        assert_eq!(answer.header("tenure-term"), Some("42"), "{path}");
        assert_eq!(answer.header("tenure-valid-for-ms"), Some("8123"), "{path}");
    }
    for standing in [Standing::Standby, Standing::Activating, Standing::Starting, Standing::Stopped]
    {
        server.feed().change(Status { holder: holder("them", None, 43), ..of(standing.clone()) });
        for path in paths {
            let answer = server.get(path).await;
            assert_eq!(answer.header("tenure-term"), None, "{path} in {standing:?}");
            assert_eq!(answer.header("tenure-valid-for-ms"), Some("0"), "{path} in {standing:?}");
        }
    }
}

#[tokio::test]
async fn the_role_becomes_passive_at_the_deadline_without_a_publication() {
    let server = serving(leading(42, ms(10_000))).await;
    pass(ms(9_999));
    assert_eq!(server.code("/leader").await, 200);
    pass(ms(1));
    assert_eq!(server.code("/leader").await, 503);
    let document = server.get("/status").await.json();
    assert_eq!(document["role"], "passive");
    assert_eq!(document["state"], "jeopardy");
    assert_eq!(document["valid_for_ms"], 0);
    assert_eq!(document["valid_until_boottime_ns"], 0);
    assert_eq!(server.code("/standby").await, 503);
    // Less than a millisecond is 0 in the document, so all paths must report passive.
    server.feed().renew(leading(42, std::time::Duration::from_micros(900)));
    assert_eq!(server.code("/leader").await, 503);
    assert_eq!(server.get("/status").await.json()["role"], "passive");
    // A renewal is not a change, but takes effect at once.
    server.feed().renew(leading(42, ms(10_000)));
    assert_eq!(server.code("/leader").await, 200);
}

#[tokio::test]
async fn min_remaining_requires_time_left() {
    let server = serving(leading(42, ms(10_000))).await;
    pass(ms(4_000));
    for path in LEADER {
        for (question, code) in
            [("5s", 200), ("6s", 200), ("6001ms", 503), ("1m30s", 503), ("0s", 200)]
        {
            let answer = server.get(&format!("{path}?min_remaining={question}")).await;
            assert_eq!(answer.code, code, "{path} {question}");
            assert_eq!(answer.header("tenure-valid-for-ms"), Some("6000"));
            let body = if code == 200 { "active\n" } else { "less than min_remaining: 6000 ms\n" };
            assert_eq!(answer.body, body, "{path} {question}");
        }
        for wrong in ["", "5", "s", "-5s", "5s5s", "%ff", "99999999999999999999h", "5%20s"] {
            let answer = server.get(&format!("{path}?min_remaining={wrong}")).await;
            assert_eq!(answer.code, 400, "{wrong:?}");
            assert!(!answer.body.is_empty(), "{wrong:?} is refused without a word");
        }
        let answer = server.get(&format!("{path}?min_remaining=5")).await;
        assert!(answer.body.contains("min_remaining") && answer.body.contains("15s"), "{answer:?}");
    }
    server.feed().change(of(Standing::Standby));
    assert_eq!(server.code("/leader?min_remaining=0s").await, 503);
}

#[tokio::test]
async fn a_parameter_that_a_path_does_not_take_is_named_with_the_one_meant() {
    let server = serving(leading(42, ms(10_000))).await;
    for (path, words) in [
        (
            "/leader?min_remaning=5s",
            "\"min_remaning\": unknown parameter; did you mean min_remaining?",
        ),
        (
            "/primary?min_remaining=1s&x=1",
            "\"x\": unknown parameter; this path takes min_remaining",
        ),
        ("/watch?idx=1&wait=1s", "did you mean index?"),
        ("/watch?wait=1s", "needs the parameter index"),
        ("/leader?%1b%5b31m", r#""\u{1b}[31m": unknown parameter"#),
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.code, 400, "{path}");
        assert!(answer.body.contains(words), "{path}: {answer:?}");
    }
    for path in STANDBY.iter().chain(&["/", "/livez", "/readyz", "/status", "/metrics"]) {
        let answer = server.get(&format!("{path}?pretty")).await;
        assert_eq!(answer.code, 400, "{path}");
        assert!(answer.body.contains("this path takes no parameters"), "{path}: {answer:?}");
    }
    for (path, code) in [("/leader?", 200), ("/nowhere?x=1", 404)] {
        assert_eq!(server.code(path).await, code, "{path}");
    }
}

#[tokio::test]
async fn the_status_document_has_its_fields_and_no_others() {
    let server = serving(Standing::Standby).await;
    let led = Status {
        holder: holder("us", Some("10.0.3.7:8080"), 42),
        lease: LeaseView { renewals: renewals(), is_own: true, ..LeaseView::default() },
        store: failing(2, "no route"),
        ..of(leading(42, ms(10_000)))
    };
    server.feed().change(led);
    pass(ms(412));
    let answer = server.get("/status").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let expected = serde_json::json!({
        "election": "orders", "identity": "us", "instance": "us-1", "state": "leader",
        "role": "active", "term": 42, "valid_for_ms": 9_588,
        "valid_until_boottime_ns": 1_010_000_000_000_u64,
        "boot_id": "5ca1ab1e-0000-4000-8000-000000000000", "since": "2026-11-20T09:00:00Z",
        "index": 2, "holder": {"identity": "us", "address": "10.0.3.7:8080", "term": 42, "seen_ms_ago": 412,
            "overdue": false, "stale": false, "renewed_ms_ago": 412, "lease_ends_within_ms": 14_588,
            "renewals_shown_by": "store", "leaving": null},
        "last_holder": null, "leaderless_ms": null, "lease_held": false,
        "held_without_end": false, "activation": null,
        "can_take_over": false,
        "store": {"kind": "azure", "url": "https://acct.blob.core.windows.net/box/orders", "last_success_ms_ago": 412,
            "failures": 2, "last_error": "no route", "moved_to": null},
        "drain_remaining_ms": null, "protected_for_ms": null, "hold_off_remaining_ms": null, "successor": null,
        "health": null, "maintenance": null, "route": null, "transitions": [], "warnings": [],
        "version": env!("CARGO_PKG_VERSION"),
    });
    assert_eq!(answer.json(), expected);

    server.feed().change(of(Standing::Starting));
    let document = server.get("/status").await.json();
    let nulls = [
        "/successor",
        "/drain_remaining_ms",
        "/protected_for_ms",
        "/hold_off_remaining_ms",
        "/term",
        "/holder",
        "/store/last_success_ms_ago",
        "/store/last_error",
    ];
    for path in nulls {
        assert!(document.pointer(path).is_some_and(serde_json::Value::is_null), "{path}");
    }
    assert_eq!((&document["role"], &document["state"]), (&"passive".into(), &"starting".into()));
    server.feed().change(Status { holder: holder("them", None, 43), ..of(Standing::Standby) });
    let document = server.get("/status").await.json();
    assert_eq!(
        document["holder"],
        serde_json::json!({"identity": "them", "address": null, "term": 43, "seen_ms_ago": 0,
            "overdue": false, "stale": false, "renewed_ms_ago": null, "lease_ends_within_ms": null,
            "renewals_shown_by": "nothing", "leaving": null})
    );
    assert_eq!((&document["term"], &document["index"]), (&serde_json::Value::Null, &4.into()));
}

#[tokio::test]
async fn what_was_seen_of_a_holder_ages_and_stays_when_nobody_leads() {
    let server = serving(Standing::Standby).await;
    server.feed().change(Status { holder: holder("them", None, 43), ..of(Standing::Standby) });
    // The store does not answer for longer than a lease lasts.
    assert_eq!(server.code("/standby").await, 200);
    pass(ms(15_000));
    assert_eq!(server.code("/standby").await, 200);
    pass(ms(1));
    assert_eq!(server.code("/standby").await, 503);
    let seen = server.get("/status").await.json()["holder"].clone();
    assert_eq!((&seen["seen_ms_ago"], &seen["stale"]), (&15_001.into(), &true.into()));

    let (last, ending) = (holder("them", None, 43).unwrap(), Some(Ending::Expired));
    let last_holder = Some(LastHolder { holder: last, until: now(), ending });
    let lease = LeaseView { last_holder, leaderless: Some(now()), ..LeaseView::default() };
    server.feed().change(Status { lease, ..of(Standing::Standby) });
    pass(ms(500));
    let document = server.get("/status").await.json();
    assert_eq!(
        document["last_holder"],
        serde_json::json!({"identity": "them", "term": 43, "until": "2026-11-20T09:00:15.001Z",
            "ms_ago": 500, "reason": "expired"})
    );
    assert_eq!(document["leaderless_ms"], 500);
    assert_eq!(
        (&document["holder"], &document["can_take_over"]),
        (&serde_json::Value::Null, &true.into())
    );
}

#[tokio::test]
async fn a_standby_that_cannot_write_to_the_store_is_not_ready_to_take_over() {
    let server = serving(Standing::Standby).await;
    let unwritable = |since| {
        let failing = failing(1, "read-only");
        let error = failing.last_failure.unwrap();
        let failing_writes = Some(FailingWrites { since, error, of_record: false });
        let store = StoreHealth { failing_writes, ..StoreHealth { last_failure: None, ..failing } };
        Status { store, ..of(Standing::Standby) }
    };
    let began = now();
    for (later, code) in [(15_000, 200), (1, 503)] {
        pass(ms(later));
        // Reads succeed all the same.
        server.feed().change(unwritable(began));
        assert_eq!(server.code("/standby").await, code);
    }
    let document = server.get("/status").await.json();
    assert_eq!(document["can_take_over"], false);
    let page = server.get_as("/", "text/html").await.body;
    assert!(page.contains("cannot take over: read-only"), "{page}");
}

#[tokio::test]
async fn a_loopback_listener_answers_for_loopback_names_only() {
    let server = serving(Standing::Standby).await;
    let request = |host| format!("GET /leader HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for (host, code) in [("localhost:1", 503), ("127.0.0.1", 503), ("evil.example", 421)] {
        let mut client = server.connect().await;
        client.send(request(host)).await;
        assert_eq!(client.answer("GET").await.code, code, "{host}");
        let mut client = server.connect_unix().await;
        client.send(request(host)).await;
        assert_eq!(client.answer("GET").await.code, 503, "{host} by a unix socket");
    }
    let mut client = server.connect().await;
    client.send("GET /leader HTTP/1.0\r\n\r\n").await;
    assert_eq!(client.answer("GET").await.code, 503, "without a host");
    let page = "GET /status HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n";
    let mut client = server.connect().await;
    client.send(page).await;
    assert_eq!(client.answer("GET").await.code, 403);
}

#[tokio::test]
async fn the_root_lists_the_paths_as_text() {
    let server = serving(Standing::Standby).await;
    let answer = server.get("/").await;
    assert!(answer.header("content-type").unwrap().starts_with("text/plain"));
    for path in ["/leader", "/standby", "/livez", "/readyz", "/status", "/watch", "/metrics"] {
        assert!(answer.body.contains(path), "{path}");
    }
    let metrics = server.get("/metrics").await;
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    assert!(metrics.body.contains("tenure_is_leader"));
}

#[tokio::test]
async fn other_paths_are_404_and_other_methods_405() {
    let server = serving(leading(42, ms(10_000))).await;
    for path in
        ["/leaders", "/leader/", "//leader", "/LEADER", "/v1/step-down", "/%00", "/status.json"]
    {
        assert_eq!(server.code(path).await, 404, "{path}");
    }
    for path in ALL {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"] {
            let answer = server.connect().await.ask(method, path).await;
            assert_eq!(answer.code, 405, "{method} {path}");
            let allowed: Vec<_> =
                answer.header("allow").expect(path).split(',').map(str::trim).collect();
            assert!(allowed.len() == 2 && allowed.contains(&"GET") && allowed.contains(&"HEAD"));
        }
    }
    assert_eq!(server.connect().await.ask("POST", "/nowhere").await.code, 404);
}

/// Sends bytes on a new connection, and returns the code of the answer.
async fn code_of(server: &Server, bytes: &str) -> u16 {
    let mut client = server.connect().await;
    client.send(bytes).await;
    client.answer("GET").await.code
}

#[tokio::test]
async fn odd_requests_are_answered_and_close_no_listener() {
    let server = serving(leading(42, ms(10_000))).await;
    let odd = [
        ("GET http://elsewhere/leader HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        ("GET /leader HTTP/1.0\r\n\r\n", 200),
        ("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("CONNECT elsewhere:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("GET /leader?min_remaining=1s&min_remaining=2s HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /leader HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", 200),
    ];
    for (request, code) in odd {
        assert_eq!(code_of(&server, request).await, code, "{request}");
    }
    // A client that closes its sending direction still gets its answer.
    let mut client = server.connect().await;
    client.send("GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    client.end().await;
    assert_eq!(client.answer("GET").await.code, 200);
    // Pipelined requests are answered in order.
    let mut client = server.connect().await;
    client
        .send("GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\nGET /standby HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    assert_eq!((client.answer("GET").await.code, client.answer("GET").await.code), (200, 503));
}

#[tokio::test]
async fn bad_http_is_400() {
    let server = serving(Standing::Standby).await;
    let bad = [
        "nonsense\r\n\r\n",
        "GET /leader\r\n\r\n",
        "GET /leader HTTP/9.9\r\n\r\n",
        "GET /leader HTTP/1.1\r\nno colon\r\n\r\n",
        "GET /lea der HTTP/1.1\r\n\r\n",
        "GET /leader HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\r\n\r\n",
    ];
    for request in bad {
        assert_eq!(code_of(&server, request).await, 400, "{request:?}");
    }
    assert_eq!(server.code("/standby").await, 200);
}

#[tokio::test]
async fn large_requests_are_413_and_431() {
    let server = serving(Standing::Standby).await;
    let body = "x".repeat(100_000);
    let large =
        format!("POST /leader HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{body}");
    assert_eq!(code_of(&server, &large).await, 413);
    let endless = "GET /leader HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(code_of(&server, endless).await, 413);
    let header = format!("GET /leader HTTP/1.1\r\nHost: localhost\r\nBig: {body}\r\n\r\n");
    assert_eq!(code_of(&server, &header).await, 431);
    let headers = "A: b\r\n".repeat(200);
    assert_eq!(code_of(&server, &format!("GET /leader HTTP/1.1\r\n{headers}\r\n")).await, 431);
    let path = format!("GET /{body} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!([414, 431].contains(&code_of(&server, &path).await));
    assert_eq!(server.code("/standby").await, 200);
}

#[tokio::test(start_paused = true)]
async fn livez_distinguishes_a_hang_of_the_election_from_a_pause_of_the_process() {
    let server = serving(Standing::Starting).await;
    // The store is unavailable for an hour, and the driver runs.
    for _ in 0..3_600 {
        server.heartbeat.beat();
        tokio::time::sleep(ms(1_000)).await;
    }
    assert_eq!(server.code("/livez").await, 200);
    // The whole process stands still for an hour, which is not a hang of the driver.
    server.heartbeat.beat();
    tokio::time::sleep(ms(1_500)).await;
    tokio::time::advance(ms(3_600_000)).await;
    assert_eq!(server.code("/livez").await, 200);
    server.heartbeat.beat();
    tokio::time::sleep(ms(1_500)).await;
    // Only the driver stands still, while the listener runs.
    tokio::time::sleep(ms(6_000)).await;
    assert_eq!(server.code("/livez").await, 200);
    tokio::time::sleep(ms(8_000)).await;
    assert_eq!(server.code("/livez").await, 503);
    server.heartbeat.beat();
    tokio::time::sleep(ms(2_000)).await;
    assert_eq!(server.code("/livez").await, 200);
}

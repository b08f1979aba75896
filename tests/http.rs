//! The status listener, as a stranger meets it: paths, codes, headers, documents, bad requests.

#[path = "support/server.rs"]
mod server;
#[path = "support/status.rs"]
mod status;

use server::Server;
use status::{Feed, about, failing, holder, in_jeopardy, leading, ms, pass, status as of};
use tenure::election::{Standing, State, Status};

const LEADER: [&str; 3] = ["/leader", "/active", "/primary"];
const STANDBY: [&str; 3] = ["/standby", "/passive", "/replica"];
const ALL: [&str; 12] = [
    "/leader", "/active", "/primary", "/standby", "/passive", "/replica", "/livez", "/readyz",
    "/status", "/metrics", "/", "/watch?index=0",
];

async fn serving(standing: Standing) -> Server {
    Server::start(Feed::new(standing)).await
}

/// Asserts the codes on the paths for leaders, for standbys, and on `/readyz`.
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
async fn a_store_that_is_away_takes_no_standby_out_of_service() {
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
async fn a_socket_file_goes_with_its_listener_and_a_living_one_is_not_taken() {
    use tenure::config::Listen;
    use tenure::publish::http::bind;
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
async fn head_answers_as_get_does_without_a_body() {
    let server = serving(leading(42, ms(10_000))).await;
    for path in ALL {
        let mut client = server.connect().await;
        let (get, head) = (client.ask("GET", path).await, client.ask("HEAD", path).await);
        assert_eq!(get.code, head.code, "{path}");
        for name in ["cache-control", "content-type", "tenure-term", "tenure-valid-for-ms"] {
            assert_eq!(get.header(name), head.header(name), "{name} of {path}");
        }
        // Had there been a body, it would stand before the next answer.
        assert_eq!(client.ask("GET", "/leader").await.code, 200, "after HEAD {path}");
        assert_eq!(client.unread(), "");
    }
}

#[tokio::test]
async fn no_answer_may_be_stored() {
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
async fn the_term_is_told_only_while_it_is_ours_and_the_time_always() {
    let server = serving(leading(42, ms(10_000))).await;
    server.feed().change(Status { holder: holder("them", None, 41), ..of(leading(42, ms(10_000))) });
    pass(ms(1_877));
    let told = ["/leader", "/active", "/primary", "/standby", "/passive", "/replica", "/status"];
    for path in told {
        let answer = server.get(path).await;
        assert_eq!(answer.header("tenure-term"), Some("42"), "{path}");
        assert_eq!(answer.header("tenure-valid-for-ms"), Some("8123"), "{path}");
    }
    for standing in [Standing::Standby, Standing::Activating, Standing::Starting, Standing::Stopped] {
        server.feed().change(Status { holder: holder("them", None, 43), ..of(standing.clone()) });
        for path in told {
            let answer = server.get(path).await;
            assert_eq!(answer.header("tenure-term"), None, "{path} in {standing:?}");
            assert_eq!(answer.header("tenure-valid-for-ms"), Some("0"), "{path} in {standing:?}");
        }
    }
}

#[tokio::test]
async fn a_belief_ends_between_publications() {
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
    // Less than a millisecond is 0 in the document, so it must be passive in all places.
    server.feed().renew(leading(42, std::time::Duration::from_micros(900)));
    assert_eq!(server.code("/leader").await, 503);
    assert_eq!(server.get("/status").await.json()["role"], "passive");
    // A renewal is no change, and is seen at once.
    server.feed().renew(leading(42, ms(10_000)));
    assert_eq!(server.code("/leader").await, 200);
}

#[tokio::test]
async fn min_remaining_asks_for_time_left() {
    let server = serving(leading(42, ms(10_000))).await;
    pass(ms(4_000));
    for path in LEADER {
        for (asked, code) in [("5s", 200), ("6s", 200), ("6001ms", 503), ("1m30s", 503), ("0s", 200)] {
            let answer = server.get(&format!("{path}?min_remaining={asked}")).await;
            assert_eq!(answer.code, code, "{path} {asked}");
            assert_eq!(answer.header("tenure-valid-for-ms"), Some("6000"));
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

//! `/watch`: event streams and long polls, on the paused clock.

use testkit::http::{server, status};

use std::time::Duration;

use serde_json::Value;
use server::{Client, Server};
use status::{Feed, failing, leading, ms, pass, status as of};
use tenure::election::{Standing, Status};
use tenure::publish::api::MAX_STREAMS;
use tokio::time::{sleep, timeout};

/// Returns the paused clock's time.
#[allow(clippy::disallowed_methods, reason = "the tests' own clock, which tokio moves")]
fn started() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

async fn subscribed(server: &Server) -> Client {
    let mut client = server.connect().await;
    let answer = client.subscribe().await;
    assert_eq!(answer.code, 200);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    client
}

async fn event(client: &mut Client) -> Value {
    client.event().await.expect("the stream goes on")
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_gets_the_state_at_once_and_on_each_change() {
    let server = Server::start(Feed::new(Standing::Starting)).await;
    let mut client = subscribed(&server).await;
    let begun = started();
    let first = event(&mut client).await;
    assert_eq!((&first["state"], &first["index"]), (&"starting".into(), &1.into()));
    assert_eq!(first, server.get("/status").await.json(), "an event is the status document");
    for (standing, state) in [(Standing::Standby, "standby"), (leading(42, ms(10_000)), "leader")] {
        server.feed().change(of(standing));
        assert_eq!(event(&mut client).await["state"], state);
    }
    assert!(begun.elapsed() < ms(5_000), "sent late: {:?}", begun.elapsed());
    // Over a unix socket too.
    let mut other = server.connect_unix().await;
    other.subscribe().await;
    assert_eq!(event(&mut other).await["term"], 42);
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_gets_the_state_every_ten_seconds_and_on_no_renewal() {
    let server = Server::start(Feed::new(leading(42, ms(10_000)))).await;
    let mut client = subscribed(&server).await;
    event(&mut client).await;
    for _ in 0..3 {
        let begun = started();
        let next = event(&mut client);
        tokio::pin!(next);
        // Renewals are not events.
        for _ in 0..4 {
            assert!(timeout(ms(2_000), &mut next).await.is_err(), "after {:?}", begun.elapsed());
            pass(ms(2_000));
            server.feed().renew(leading(42, ms(10_000)));
        }
        next.await;
        let took = begun.elapsed();
        assert!(took > ms(8_500) && took < ms(11_500), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_gets_a_deadline_that_passes_without_a_publication() {
    let server = Server::start(Feed::new(leading(42, ms(10_000)))).await;
    let mut client = subscribed(&server).await;
    assert_eq!(event(&mut client).await["role"], "active");
    let begun = started();
    pass(ms(10_000));
    let document = event(&mut client).await;
    assert_eq!((&document["role"], &document["state"]), (&"passive".into(), &"jeopardy".into()));
    assert!(begun.elapsed() < ms(2_500), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_last_state_is_sent_and_the_stream_ends_with_the_driver() {
    let mut server = Server::start(Feed::new(leading(42, ms(10_000)))).await;
    let mut client = subscribed(&server).await;
    event(&mut client).await;
    server.feed().change(of(Standing::Stopped));
    server.feed = None;
    assert_eq!(event(&mut client).await["state"], "stopped");
    assert!(client.stream_ended().await);
    assert_eq!(client.ask("GET", "/leader").await.code, 503, "and the connection goes on");
    assert_eq!(server.code("/leader").await, 503);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_after_ten_minutes_and_can_be_opened_again() {
    let server = Server::start(Feed::new(Standing::Standby)).await;
    let mut client = subscribed(&server).await;
    let begun = started();
    while begun.elapsed() < ms(585_000) {
        assert_eq!(event(&mut client).await["state"], "standby");
    }
    timeout(ms(100_000), client.stream_ended()).await.expect("it ends");
    let took = begun.elapsed();
    assert!(took > ms(598_000) && took < ms(603_000), "{took:?}");
    assert_eq!(client.subscribe().await.code, 200, "on the same connection");
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_waits_for_five_minutes_at_most() {
    let server = Server::start(Feed::new(Standing::Standby)).await;
    let mut client = server.connect().await;
    for wait in ["6m", "100h"] {
        let begun = started();
        client
            .send(format!("GET /watch?index=1&wait={wait} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            .await;
        // The wait exceeds the timeout of the test client, so sleep first.
        sleep(ms(290_000)).await;
        assert_eq!(client.unread(), "");
        assert_eq!(client.answer("GET").await.code, 200, "{wait}");
        let took = begun.elapsed();
        assert!(took > ms(298_000) && took < ms(305_000), "{wait}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_never_reads_does_not_delay_shutdown() {
    let mut server = Server::start(Feed::new(Standing::Standby)).await;
    let mut deaf = server.connect_unix().await;
    deaf.send("GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let mut other = subscribed(&server).await;
    event(&mut other).await;
    let words = "no route ".repeat(2_000);
    for _ in 0..100 {
        server.feed().change(Status { store: failing(1, &words), ..of(Standing::Standby) });
        event(&mut other).await;
    }
    let begun = started();
    server.end(of(Standing::Stopped));
    server.ended().await;
    // It has a short time to read, and no more.
    let took = begun.elapsed();
    assert!(took >= ms(200) && took < ms(500), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_waits_for_the_index_to_pass() {
    let server = Server::start(Feed::new(Standing::Starting)).await;
    server.feed().change(of(Standing::Standby));
    // Returns at once if the index is lower, or higher because the sidecar has restarted.
    for index in ["0", "1", "3", "18446744073709551615"] {
        let begun = started();
        let answer = server.get(&format!("/watch?index={index}&wait=30s")).await;
        assert_eq!((answer.code, &answer.json()["index"]), (200, &2.into()), "{index}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert!(begun.elapsed() < ms(5_000), "{index}: {:?}", begun.elapsed());
    }
    // An equal index waits for a change; renewals do not count.
    let mut client = server.connect().await;
    let request = client.ask("GET", "/watch?index=2&wait=1m");
    tokio::pin!(request);
    assert!(timeout(ms(10_000), &mut request).await.is_err());
    server.feed().renew(Standing::Standby);
    assert!(timeout(ms(10_000), &mut request).await.is_err());
    server.feed().change(Status { store: failing(1, "no route"), ..of(Standing::Standby) });
    let begun = started();
    let document = request.await.json();
    assert_eq!(
        (&document["index"], &document["store"]["last_error"]),
        (&3.into(), &"no route".into())
    );
    assert!(begun.elapsed() < ms(5_000));
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_after_the_deadline_gets_the_change_at_once() {
    let server = Server::start(Feed::new(leading(42, ms(10_000)))).await;
    let before = server.get("/status").await.json();
    assert_eq!((&before["role"], &before["index"]), (&"active".into(), &1.into()));
    pass(ms(10_000));
    let begun = started();
    let document = server.get("/watch?index=1&wait=1m").await.json();
    assert_eq!((&document["role"], &document["index"]), (&"passive".into(), &2.into()));
    assert!(begun.elapsed() < ms(5_000), "{:?}", begun.elapsed());
    // It is reported once: a client that has seen it waits.
    let again = timeout(ms(20_000), server.get("/watch?index=2&wait=1m")).await;
    assert!(again.is_err(), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_without_a_change_ends_with_the_present_document() {
    let server = Server::start(Feed::new(Standing::Standby)).await;
    for (path, least, most) in [
        ("/watch?index=1&wait=5s", 4_000, 8_000),
        ("/watch?wait=5s&index=1", 4_000, 8_000),
        ("/watch?index=1&wait=0s", 0, 3_000),
        ("/watch?index=1", 1_000, 30_000),
    ] {
        let begun = started();
        let mut client = server.connect().await;
        let request = client.ask("GET", path);
        let answer = timeout(Duration::from_secs(60), request).await.expect(path);
        assert_eq!((answer.code, &answer.json()["index"]), (200, &1.into()), "{path}");
        let took = begun.elapsed();
        assert!(took >= ms(least) && took <= ms(most), "{path}: {took:?}");
    }
}

#[tokio::test]
async fn a_malformed_long_poll_is_400_with_the_reason() {
    let server = Server::start(Feed::new(Standing::Standby)).await;
    let wrong = [
        ("index=x", "index"),
        ("index=", "index"),
        ("index=-1", "index"),
        ("index=1.5", "index"),
        ("index=18446744073709551616", "index"),
        ("index=1&wait=5", "wait"),
        ("index=0&wait=soon", "wait"),
        ("index=1&wait=", "wait"),
    ];
    for (query, word) in wrong {
        let answer = server.get(&format!("/watch?{query}")).await;
        assert_eq!(answer.code, 400, "{query}");
        assert!(answer.body.contains(word), "{query}: {}", answer.body);
    }
}

#[tokio::test]
async fn the_streams_are_limited_and_a_freed_slot_is_reused() {
    let server = Server::start(Feed::new(Standing::Standby)).await;
    let mut clients = Vec::new();
    assert_eq!(MAX_STREAMS, 128);
    for _ in 0..MAX_STREAMS / 2 {
        clients.push(subscribed(&server).await);
    }
    let mut late = server.connect().await;
    assert_eq!(late.subscribe().await.code, 503, "one peer gets half of them");
    for _ in 0..MAX_STREAMS / 2 {
        let mut client = server.connect_unix().await;
        assert_eq!(client.subscribe().await.code, 200);
        clients.insert(0, client);
    }
    assert_eq!(server.code("/watch?index=1").await, 503, "a long poll waits as long");
    // Other requests are not affected, and neither is a HEAD request, which does not stream.
    assert_eq!(server.code("/standby").await, 200);
    clients.pop();
    let again = async {
        while late.subscribe().await.code != 200 {
            server.feed().change(of(Standing::Standby));
            sleep(ms(10)).await;
        }
    };
    timeout(Duration::from_secs(10), again).await.expect("the place is taken again");
    // A long poll that its client abandons frees its place too.
    clients.pop();
    let mut poll = server.connect().await;
    poll.send("GET /watch?index=100000&wait=5m HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    drop(poll);
    let again = async {
        while server.connect().await.subscribe().await.code != 200 {
            sleep(ms(10)).await;
        }
    };
    timeout(Duration::from_secs(10), again).await.expect("the place is taken again");
}

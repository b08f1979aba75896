//! The limits of the status listener: many connections, slow ones, and ones that never read.

use testkit::http::{server, status};

use server::{Client, Server};
use status::{Feed, failing, leading, ms, status as of};
use tenure::election::{Standing, Status};
use tokio::time::{sleep, timeout};

/// Returns the paused clock's time.
#[allow(clippy::disallowed_methods, reason = "the tests' own clock, which tokio moves")]
fn started() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

async fn with_places(places: usize) -> Server {
    Server::with_places(Feed::new(leading(42, ms(10_000))), places).await
}

/// Opens a connection that has sent one request and is now idle.
async fn idle(server: &Server) -> Client {
    let mut client = server.connect().await;
    assert_eq!(client.ask("GET", "/leader").await.code, 200);
    client
}

#[tokio::test]
async fn the_connection_that_was_idle_for_longest_makes_room() {
    let server = with_places(3).await;
    let (mut first, mut second, mut third) =
        (idle(&server).await, idle(&server).await, idle(&server).await);
    // The oldest connection is not the one to be closed, since it has sent another request.
    assert_eq!(first.ask("GET", "/leader").await.code, 200);
    let mut fourth = idle(&server).await;
    assert!(second.closed().await);
    assert_eq!(first.ask("GET", "/leader").await.code, 200);
    let mut fifth = server.connect_unix().await;
    assert_eq!(fifth.ask("GET", "/leader").await.code, 200, "both listeners share the places");
    assert!(third.closed().await);
    for client in [&mut first, &mut fourth, &mut fifth] {
        assert_eq!(client.ask("GET", "/leader").await.code, 200);
    }
}

#[tokio::test]
async fn a_connection_of_the_peer_that_has_most_makes_room() {
    let server = with_places(3).await;
    let mut single = server.connect_unix().await;
    assert_eq!(single.ask("GET", "/leader").await.code, 200);
    let mut many = [idle(&server).await, idle(&server).await];
    idle(&server).await;
    assert!(many[0].closed().await);
    assert_eq!(single.ask("GET", "/leader").await.code, 200, "though idle for longest");
}

/// This many requests at once.
fn pipelined(requests: usize) -> String {
    "GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(requests)
}

#[tokio::test(start_paused = true)]
async fn fault_37_requests_sent_without_waiting_take_a_tenth_of_a_second_each_from_the_ninth() {
    let server = with_places(3).await;
    let mut client = server.connect().await;
    for _ in 0..2 {
        let began = started();
        client.send(pipelined(11)).await;
        for number in 1..=11_u32 {
            assert_eq!(client.answer("GET").await.code, 200);
            let expected = ms(100) * number.saturating_sub(8);
            let took = began.elapsed();
            assert!(took >= expected && took < expected + ms(50), "{number}: {took:?}");
        }
        // Once it has waited, it is like any other.
        sleep(ms(1)).await;
    }
}

#[tokio::test]
async fn fault_37_clients_that_do_not_wait_for_answers_make_room_for_another_peer() {
    let server = with_places(3).await;
    let mut greedy = Vec::new();
    for _ in 0..3 {
        let mut client = server.connect().await;
        client.send(pipelined(300)).await;
        for _ in 0..8 {
            assert_eq!(client.answer("GET").await.code, 200);
        }
        greedy.push(client);
    }
    let mut other = server.connect_unix().await;
    assert_eq!(other.ask("GET", "/leader").await.code, 200);
    assert_eq!(greedy[2].answer("GET").await.code, 200, "one makes room, the others go on");
}

#[tokio::test]
async fn connections_without_a_request_make_room_for_one_with_a_request() {
    let server = with_places(3).await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(server.connect().await);
    }
    idle(&server).await;
    assert!(silent[0].closed().await);
}

#[tokio::test(start_paused = true)]
async fn busy_connections_are_not_closed() {
    let server = with_places(3).await;
    let mut subscriber = server.connect().await;
    subscriber.subscribe().await;
    subscriber.event().await.expect("the present");
    // Of two streams one peer gets one.
    let mut poll = server.connect_unix().await;
    poll.send("GET /watch?index=1&wait=5m HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    sleep(ms(1_000)).await;
    let mut third = idle(&server).await;
    for _ in 0..5 {
        let mut next = idle(&server).await;
        assert!(third.closed().await, "the only idle one makes room");
        assert_eq!(next.ask("GET", "/leader").await.code, 200);
        third = next;
    }
    server.feed().change(of(Standing::Standby));
    // The paused clock advances while bytes are on their way, so the periodic event of the earlier
    // status may come first.
    let mut event = subscriber.event().await.expect("it is still served");
    for _ in 0..10 {
        if event["state"] == "standby" {
            break;
        }
        event = subscriber.event().await.expect("it is still served");
    }
    assert_eq!(event["state"], "standby");
    assert_eq!(poll.answer("GET").await.code, 200);
}

#[tokio::test]
async fn a_stream_that_has_ended_leaves_an_idle_connection() {
    let server = with_places(2).await;
    // A HEAD of a stream does not stream.
    let mut client = server.connect().await;
    assert_eq!(client.ask("HEAD", "/watch").await.code, 200);
    let mut second = idle(&server).await;
    idle(&server).await;
    assert!(client.closed().await, "it was idle for longest");
    assert_eq!(second.ask("GET", "/leader").await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_complete_in_five_seconds_is_closed() {
    let server = with_places(512).await;
    let mut idle = idle(&server).await;
    for path in ["/leader", "/watch"] {
        for unix in [false, true] {
            let mut client =
                if unix { server.connect_unix().await } else { server.connect().await };
            // The second request of a connection has the same time limit as the first.
            assert_eq!(client.ask("HEAD", path).await.code, 200);
            sleep(ms(20_000)).await;
            let begun = started();
            client.send("GET /leader HTTP/1.1\r\n").await;
            let drip = async {
                loop {
                    sleep(ms(1_000)).await;
                    client.send("A: b\r\n").await;
                    if timeout(ms(1), client.closed()).await.is_ok() {
                        return;
                    }
                }
            };
            timeout(ms(60_000), drip).await.expect("it is closed");
            let took = begun.elapsed();
            assert!(took > ms(3_500) && took < ms(8_000), "after {path}: {took:?}");
        }
    }
    sleep(ms(3_600_000)).await;
    assert_eq!(idle.ask("GET", "/leader").await.code, 200, "idle for an hour, and not slow");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_begins_behind_another_is_bounded_too() {
    let server = with_places(512).await;
    let whole = "GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut slow = server.connect().await;
    slow.send(&format!("{whole}{whole}GET /lea")).await;
    let begun = started();
    assert_eq!((slow.answer("GET").await.code, slow.answer("GET").await.code), (200, 200));
    timeout(ms(60_000), slow.closed()).await.expect("it is closed");
    assert!(begun.elapsed() < ms(8_000), "{:?}", begun.elapsed());

    // Pipelined requests, and one that arrives in two parts, leave idle connections.
    let mut pair = server.connect().await;
    pair.send(&format!("{whole}{whole}")).await;
    assert_eq!((pair.answer("GET").await.code, pair.answer("GET").await.code), (200, 200));
    let mut pieces = server.connect().await;
    pieces.send(whole.strip_suffix("\n").expect("it ends so")).await;
    sleep(ms(1_000)).await;
    pieces.send("\n").await;
    assert_eq!(pieces.answer("GET").await.code, 200);
    sleep(ms(60_000)).await;
    assert_eq!(pair.ask("GET", "/leader").await.code, 200);
    assert_eq!(pieces.ask("GET", "/leader").await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn slow_requests_take_no_slots_permanently() {
    let server = with_places(4).await;
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut client = server.connect().await;
        client.send("GET /lea").await;
        slow.push(client);
        sleep(ms(10)).await;
    }
    sleep(ms(10_000)).await;
    idle(&server).await;
}

#[tokio::test]
async fn an_incomplete_request_makes_room_if_no_connection_is_idle() {
    let server = with_places(3).await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut client = idle(&server).await;
        client.send("GET /lea").await;
        slow.push(client);
    }
    // Long before their five seconds are over.
    idle(&server).await;
    assert!(slow[0].closed().await, "the one that was answered longest ago makes room");
    slow[2].send("der HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(slow[2].answer("GET").await.code, 200);
}

#[tokio::test]
async fn incomplete_requests_do_not_evict_a_new_connection() {
    let server = with_places(3).await;
    let mut slow = Vec::new();
    for _ in 0..2 {
        let mut client = idle(&server).await;
        client.send("GET /lea").await;
        slow.push(client);
    }
    let mut fresh = idle(&server).await;
    for _ in 0..2 {
        let mut client = server.connect().await;
        client.send("GET /lea").await;
        slow.push(client);
    }
    for client in &mut slow[..2] {
        assert!(client.closed().await);
    }
    assert_eq!(fresh.ask("GET", "/leader").await.code, 200);
}

#[tokio::test]
async fn a_request_with_a_body_is_the_last_of_its_connection() {
    let server = with_places(512).await;
    let mut client = server.connect().await;
    // If the body were parsed as the next request, there would be a second answer.
    let body = "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let head = format!("GET /leader HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}", body.len());
    client.send(format!("{head}\r\n\r\n{body}{body}")).await;
    let answer = client.answer("GET").await;
    assert_eq!((answer.code, answer.header("connection")), (200, Some("close")));
    assert!(client.closed().await);
    assert_eq!(client.unread(), "");
    // Without a body the connection stays open.
    let mut client = idle(&server).await;
    assert_eq!(client.ask("GET", "/leader").await.header("connection"), None);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_delays_no_other_request() {
    let server = with_places(512).await;
    let mut client = server.connect().await;
    client.send("POST /leader HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n").await;
    let begun = started();
    assert_eq!(client.answer("POST").await.code, 405);
    assert!(client.closed().await);
    assert!(begun.elapsed() < ms(7_000), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_never_reads_is_dropped_and_delays_no_other() {
    let server = with_places(512).await;
    let mut deaf = server.connect_unix().await;
    deaf.send("GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let mut other = server.connect().await;
    other.subscribe().await;
    other.event().await.expect("the present");
    let words = "no route ".repeat(2_000);
    for _ in 0..100 {
        server.feed().change(Status { store: failing(1, &words), ..of(leading(42, ms(10_000))) });
        other.event().await.expect("the other receives each change");
    }
    let mut probe = idle(&server).await;
    for _ in 0..30 {
        sleep(ms(1_000)).await;
        assert_eq!(probe.ask("GET", "/leader").await.code, 200);
    }
    // What was sent before can be read, then the connection ends. A stream that continues would
    // never end, so there is a timeout.
    timeout(ms(60_000), deaf.closed()).await.expect("it was dropped");
    assert!(deaf.unread().len() > 10_000);
    other.event().await.expect("the other is served yet");
}

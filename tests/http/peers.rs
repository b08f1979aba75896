//! `/peer`: the leader's stream for its standbys, and its bounds.

use testkit::http::{server, status};

use std::time::Duration;

use serde_json::{Value, json};
use server::{Client, Server, candidate, proven};
use status::{Feed, leading, ms, now, pass, status as of};
use tenure::election::{Reason, Standing, State, Status, Transition};
use tenure::status::Past;
use tokio::time::timeout;

/// The bound on what happens without waiting for anything, on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// The places of peers.
const PLACES: usize = 64;

async fn leader(max_connections: usize) -> Server {
    Server::with_peers(Feed::new(leading(42, ms(10_000))), max_connections).await
}

/// Follows a leader that has begun to announce itself.
async fn follow(server: &Server, identity: &str) -> Client {
    follow_with(server, identity, "").await
}

async fn follow_with(server: &Server, identity: &str, headers: &str) -> Client {
    let followed = async {
        loop {
            let mut client = server.connect().await;
            let answer = client.follow(identity, headers).await;
            if answer.code == 200 {
                assert_eq!(answer.header("content-type"), Some("text/event-stream"));
                assert_eq!(answer.header("tenure-instance"), Some("us-1"));
                assert_eq!(answer.header("connection"), Some("close"));
                return client;
            }
            assert_eq!(answer.code, 503, "{answer:?}");
            tokio::time::sleep(ms(10)).await;
        }
    };
    timeout(BOUND, followed).await.expect("it is followed")
}

async fn event(client: &mut Client) -> (String, Value) {
    client.peer_event().await.expect("the stream goes on")
}

/// Returns the data of the next event of this kind; others may come before.
async fn event_of(client: &mut Client, kind: &str) -> Value {
    loop {
        let (found, data) = event(client).await;
        if found == kind {
            return data;
        }
    }
}

/// Waits until the stream shows these candidates as connected, by identity and state.
async fn shows(client: &mut Client, expected: &[(&str, &str)]) -> Value {
    loop {
        let table = event_of(client, "candidates").await;
        let connected = table.as_array().unwrap().iter().filter(|it| it["connected"] == true);
        let shown: Vec<_> = connected
            .map(|it| (it["identity"].as_str().unwrap(), it["state"].as_str().unwrap()))
            .collect();
        if shown == expected {
            return table;
        }
    }
}

/// Returns the status of a standby whose leadership in term 42 ended for this reason.
fn over(server: &Server, reason: Reason, released: bool) -> Status {
    let (from, to) = (State::Leader, State::Standby);
    let transition = Transition { from, to, reason, term: Some(42), leadership: None };
    server.feed().remember(vec![Past { at: now(), transition }]);
    Status { released_term: released.then_some(42), ..of(Standing::Standby) }
}

#[tokio::test]
async fn a_standby_is_told_of_each_renewal_and_of_all_candidates() {
    let server = leader(512).await;
    let mut client = follow(&server, "b").await;
    let (kind, data) = event(&mut client).await;
    assert_eq!(kind, "holding");
    let expected = json!({"term": 42, "sent_ago_ms": 0, "lease_ms": 15_000, "next_ms": 2_000});
    assert_eq!(data, expected);
    let table = shows(&mut client, &[("us", "leader"), ("b", "standby")]).await;
    assert_eq!((&table[0]["heir"], &table[1]["heir"]), (&false.into(), &true.into()));
    pass(ms(2_000));
    server.feed().renew(leading(42, ms(10_000)));
    let data = event_of(&mut client, "holding").await;
    assert_eq!(data["sent_ago_ms"], 0);
    let mut other = follow_with(&server, "c", "Tenure-Zone: west\r\n").await;
    let everyone = [("us", "leader"), ("b", "standby"), ("c", "standby")];
    let table = shows(&mut client, &everyone).await;
    assert_eq!(table[2]["zone"], "west");
    shows(&mut other, &everyone).await;
    drop(other);
    shows(&mut client, &[("us", "leader"), ("b", "standby")]).await;
}

#[tokio::test]
async fn a_handover_is_told_to_the_release() {
    let server = leader(512).await;
    let mut client = follow(&server, "b").await;
    shows(&mut client, &[("us", "leader"), ("b", "standby")]).await;
    let length = ms(9_000);
    let Standing::Leader { belief, .. } = leading(42, ms(10_000)) else { unreachable!() };
    let draining = Standing::Draining { term: 42, belief, began: now(), length };
    server.feed().change(of(draining));
    let data = event_of(&mut client, "draining").await;
    assert_eq!((&data["term"], &data["heir"]), (&42.into(), &"b-1".into()), "{data}");
    // Nothing is told of a release that is not confirmed.
    server.feed().change(over(&server, Reason::Drained, false));
    server.feed().change(over(&server, Reason::Drained, true));
    let data = loop {
        let (kind, data) = event(&mut client).await;
        if kind == "released" {
            break data;
        }
        assert!(["holding", "candidates"].contains(&kind.as_str()), "{kind}: {data}");
    };
    assert_eq!(data, json!({"term": 42, "heir": "b-1"}));
    assert!(client.stream_ended().await);
    assert!(client.closed().await);
}

#[tokio::test]
async fn the_release_is_delivered_before_the_listener_ends() {
    let mut server = leader(512).await;
    let mut client = follow(&server, "b").await;
    shows(&mut client, &[("us", "leader"), ("b", "standby")]).await;
    let last = over(&server, Reason::Resigned, true);
    server.end(Status { standing: Standing::Stopped, ..last });
    assert_eq!(event_of(&mut client, "released").await["heir"], "b-1");
    assert_eq!(event(&mut client).await.0, "stopping");
    server.ended().await;
}

#[tokio::test]
async fn a_leadership_that_is_lost_is_told_with_its_reason_and_without_a_release() {
    let server = leader(512).await;
    let mut client = follow(&server, "b").await;
    server.feed().change(over(&server, Reason::Lost, false));
    let mut last = None;
    while let Some((kind, data)) = client.peer_event().await {
        assert!(["holding", "candidates", "ended"].contains(&kind.as_str()), "{kind}");
        last = Some((kind, data));
    }
    assert_eq!(last, Some(("ended".to_owned(), json!({"term": 42, "reason": "lost"}))));
    let answer = server.connect().await.follow("b", "").await;
    assert_eq!(answer.code, 503);
    assert!(answer.body.contains("does not lead"), "{}", answer.body);
}

#[tokio::test]
async fn who_is_no_candidate_is_refused_with_the_reason() {
    let server = leader(512).await;
    drop(follow(&server, "b").await);
    let follow = async |identity: &str, headers: &str| {
        let answer = server.connect().await.follow(identity, headers).await;
        (answer.code, answer.body)
    };
    let (code, body) = follow("b", "Tenure-Zone: \r\n").await;
    assert!(code == 400 && body.contains("Tenure-Zone"), "{code} {body}");
    let mut client = server.connect().await;
    let answer = client.ask("GET", "/peer").await;
    assert!(answer.code == 400 && answer.body.contains("Tenure-State"), "{answer:?}");
    let mut client = server.connect().await;
    let foreign = candidate("b").replace("orders", "other");
    let answer = client.follow_as("GET", &foreign).await;
    assert!(answer.code == 409 && answer.body.contains("orders"), "{answer:?}");
    let off = Server::start(Feed::new(leading(42, ms(10_000)))).await;
    let answer = off.connect().await.follow("b", "").await;
    assert!(answer.code == 404 && answer.body.contains("--peers"), "{answer:?}");
}

/// Whoever reaches the listener may ask; it takes the record to be next in line, or to take a place.
#[tokio::test]
async fn who_has_not_read_the_record_is_no_candidate_and_takes_no_place_of_one() {
    let server = leader(512).await;
    let mut client = follow(&server, "b").await;
    let ghost = candidate("ghost").replace("Priority: 50", "Priority: 100");
    let stolen = proven(&candidate("b"));
    let proof = stolen.lines().last().unwrap();
    for (method, headers) in [
        ("GET", ghost.clone()),
        ("HEAD", ghost.clone()),
        ("GET", format!("{ghost}Tenure-Proof: AAAA\r\n")),
        // The proof of another candidate, and of another state of the same one.
        ("GET", format!("{ghost}{proof}\r\n")),
        ("GET", stolen.replace("Priority: 50", "Priority: 100")),
        ("GET", stolen.replace("State: standby", "State: unhealthy")),
        ("GET", format!("{stolen}Tenure-Holds-Off: yes\r\n")),
        // Another candidate's name and instance.
        ("GET", candidate("b")),
    ] {
        let answer = server.connect().await.follow_as(method, &headers).await;
        assert_eq!(answer.code, 403, "{headers}: {answer:?}");
        let told = answer.body.contains("Tenure-Proof") || method == "HEAD";
        assert!(told && !answer.body.contains("feed"), "{answer:?}");
    }
    let _c = follow(&server, "c").await;
    let table = shows(&mut client, &[("us", "leader"), ("b", "standby"), ("c", "standby")]).await;
    assert_eq!(table[1]["heir"], true, "{table}");
    let page = server.get("/status").await.body;
    assert!(!page.contains("feed"), "no answer has the nonce: {page}");
}

#[tokio::test]
async fn peers_have_places_of_their_own_beside_all_other_connections() {
    // No more connections than would be taken by the peers, were they to count.
    let server = leader(8).await;
    let mut all = Vec::new();
    for number in 0..PLACES {
        all.push(follow(&server, &format!("c{number}")).await);
    }
    let mut others = Vec::new();
    for _ in 0..8 {
        let mut client = server.connect().await;
        assert_eq!(client.ask("GET", "/leader").await.code, 200);
        others.push(client);
    }
    let answer = server.connect().await.follow("one-too-many", "").await;
    assert_eq!(answer.code, 503);
    assert!(answer.body.contains("64"), "{}", answer.body);
    pass(ms(2_000));
    server.feed().renew(leading(42, ms(10_000)));
    for client in &mut all {
        // The first one is of the request.
        event_of(client, "holding").await;
        event_of(client, "holding").await;
    }
    // One that is connected may ask anew.
    let again = follow(&server, "c0").await;
    while all[0].peer_event().await.is_some() {}
    drop((again, all));
}

#[tokio::test]
async fn a_head_request_connects_nobody() {
    let server = leader(512).await;
    let mut client = follow(&server, "b").await;
    let mut head = server.connect().await;
    assert_eq!(head.follow_as("HEAD", &proven(&candidate("x"))).await.code, 200);
    assert_eq!(head.ask("GET", "/leader").await.code, 200, "and the connection goes on");
    let _c = follow(&server, "c").await;
    shows(&mut client, &[("us", "leader"), ("b", "standby"), ("c", "standby")]).await;
}

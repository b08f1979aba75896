//! Tests of the queue against a server that answers by a script, and of what is of interest.

#![allow(clippy::disallowed_methods, reason = "the clock of a paused runtime is measured")]

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::Instant;

use super::super::tests::{Records, Reply, Server, children, exists, missing, open, shows, text};
use super::super::wire;
use super::*;
use crate::clock;
use crate::lease::fuzzing::bid;
use crate::store::LeaseStore;

fn created(place: &str) -> Reply {
    Reply::Body(text(&format!("/tenure/orders/queue/{place}")))
}

/// Returns what a watch tells, which is there at once or after a pause.
async fn watched(store: &Zookeeper) -> Option<Nonce> {
    timeout(Duration::from_secs(30), store.watch()).await.expect("the script ends the watch")
}

/// The answers to the first in line, behind the names of those in it.
fn first_in_line(data: &[u8], is_held: bool) -> [Reply; 3] {
    [exists(), missing(), shows(data, is_held)]
}

#[tokio::test]
async fn each_state_is_news_once_and_the_next_one_gives_the_front_another_turn() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { held, freed, .. } = Records::new(&store);
    server.says([shows(&held, true), shows(&held, false), shows(&freed, false)]);
    let mut call = store.access.call().await.unwrap();
    let mut watching = Watching { passes: true, has_passed: true, ..Watching::default() };
    for held_by in [Some(bid().nonce), None, None] {
        let seen = store.see(&mut call).await.unwrap();
        assert!(watching.take(&seen), "{seen:?}");
        assert_eq!((watching.passes, watching.has_passed), (false, false));
        (watching.passes, watching.has_passed) = (true, true);
        assert!(!watching.take(&seen), "{seen:?}");
        assert_eq!((watching.passes, watching.has_passed), (true, true));
        assert_eq!(watching.held_by(), held_by);
    }
}

#[tokio::test]
async fn each_place_in_line_waits_for_the_one_before_it() {
    let server = Server::start().await;
    let store = open(&server);
    let mut connection = store.access.connect_next().await.unwrap();
    let mut watching = Watching { place: Some("place-05".to_owned()), ..Watching::default() };
    for (names, before, is_followed) in [
        (&["place-05"][..], None, false),
        (&["place-06", "place-05"][..], None, true),
        (&["place-03", "place-05", "place-04"][..], Some("place-04"), false),
        (&["place-03", "place-07", "place-05", "place-06"][..], Some("place-03"), true),
        (&["zzz", "another", "place-05"][..], None, false),
    ] {
        server.says([children(names)]);
        let found = store.line_up(&mut connection, &mut watching).await.unwrap().unwrap();
        let path = before.map(|it| format!("/tenure/orders/queue/{it}"));
        assert_eq!((found.before, found.is_followed), (path, is_followed), "{names:?}");
    }
    server.asked();
    // Somebody deleted it, and it takes another one.
    server.says([children(&["place-06"]), created("place-08"), children(&["place-08"])]);
    for has_place in [false, true] {
        let found = store.line_up(&mut connection, &mut watching).await.unwrap().unwrap();
        assert_eq!((found.before, found.is_followed), (None, false));
        assert_eq!(watching.place.is_some(), has_place);
    }
    assert_eq!(server.asked(), ["children queue", "create queue/place-", "children queue"]);
    watching.place = None;
    server.says([missing()]);
    let found = store.line_up(&mut connection, &mut watching).await.unwrap();
    assert!(found.is_none(), "there is no queue yet");
}

#[tokio::test]
async fn the_first_in_line_watches_the_record_and_the_lease() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { held, freed, .. } = Records::new(&store);
    let both = ["watch record", "watch record/lease", "data record"];
    server.says([created("place-1"), children(&["place-1"])]);
    server.says(first_in_line(&freed, false));
    assert_eq!(watched(&store).await, None, "the present state");
    let begun = ["session of 15000 ms", "create queue/place-", "children queue"];
    assert_eq!(server.asked(), [begun, both].concat());
    server.says([children(&["place-1"])]);
    server.says(first_in_line(&freed, false));
    server.says([Reply::Notified, children(&["place-1"])]);
    server.says(first_in_line(&held, true));
    assert_eq!(watched(&store).await, Some(bid().nonce));
    let again = [&["children queue"][..], &both].concat();
    assert_eq!(server.asked(), [again.clone(), again].concat(), "in the same session");
}

#[tokio::test]
async fn the_first_in_line_goes_to_its_end_once_if_it_leaves_the_lease_free() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { held, freed, .. } = Records::new(&store);
    server.says([created("place-1"), children(&["place-1", "place-2"])]);
    server.says(first_in_line(&freed, false));
    assert_eq!(watched(&store).await, None);
    server.asked();
    let began = clock::now();
    server.says([children(&["place-1", "place-2"])]);
    server.says(first_in_line(&freed, false));
    // It leaves, and is behind the other.
    server.says([Reply::Body(Vec::new()), created("place-3"), children(&["place-2", "place-3"])]);
    server.says([exists(), shows(&freed, false), Reply::Notified]);
    // It is the first again, and stays so.
    server.says([children(&["place-3", "place-4"])]);
    server.says(first_in_line(&freed, false));
    server.says([Reply::Notified, children(&["place-3", "place-4"])]);
    server.says(first_in_line(&held, true));
    assert_eq!(watched(&store).await, Some(bid().nonce));
    assert!(began.elapsed_max(clock::now()) >= TURN);
    let first = ["children queue", "watch record", "watch record/lease", "data record"];
    let left = ["delete queue/place-1", "create queue/place-", "children queue"];
    let behind = ["watch queue/place-2", "data record"];
    let expected = [&first[..], &left, &behind, &first, &first].concat();
    assert_eq!(server.asked(), expected);
}

#[tokio::test]
async fn only_the_first_of_several_has_a_turn_and_only_once() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { freed, .. } = Records::new(&store);
    let mut connection = store.access.connect_next().await.unwrap();
    let mut watching = Watching { place: Some("place-2".to_owned()), ..Watching::default() };
    for (names, is_due) in [
        (&["place-2"][..], false),
        (&["place-2", "place-3"][..], true),
        (&["place-1", "place-2", "place-3"][..], false),
    ] {
        server.says([children(names)]);
        match names[0] {
            "place-2" => server.says(first_in_line(&freed, false)),
            _ => server.says([exists(), shows(&freed, false)]),
        }
        let (_, found) = store.prepare(&mut connection, &mut watching).await.unwrap().unwrap();
        assert_eq!(found, is_due, "{names:?}");
    }
    watching.passes = true;
    server.says([Reply::Body(Vec::new()), created("place-4"), children(&["place-4"])]);
    server.says(first_in_line(&freed, false));
    store.prepare(&mut connection, &mut watching).await.unwrap().unwrap();
    assert_eq!((watching.passes, watching.has_passed), (false, true));

    let held = Some((bid().nonce, false));
    for (is_due, holder, has_passed, has_turn) in [
        (true, None, false, true),
        (false, None, false, false),
        (true, held, false, false),
        (true, None, true, false),
    ] {
        let news = Some((holder, Version("".into())));
        let watching = Watching { news, has_passed, ..Watching::default() };
        assert_eq!(watching.has_turn(is_due), has_turn, "{is_due} {holder:?} {has_passed}");
    }
}

#[tokio::test]
async fn a_place_whose_predecessor_is_gone_by_then_looks_again() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { freed, .. } = Records::new(&store);
    server.says([created("place-2"), children(&["place-1", "place-2"])]);
    server.says([missing(), shows(&freed, false), children(&["place-2"])]);
    server.says(first_in_line(&freed, false));
    assert_eq!(watched(&store).await, None);
    let asked = server.asked();
    let before = ["children queue", "watch queue/place-1", "data record"];
    assert_eq!(asked[2..6], [&before[..], &["children queue"]].concat());
}

#[tokio::test]
async fn a_leader_waits_in_no_line() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { held, .. } = Records::new(&store);
    server.says([created("place-1"), children(&["place-1"])]);
    server.says(first_in_line(&held, true));
    assert_eq!(watched(&store).await, Some(bid().nonce));
    server.says([missing(), Reply::Done(1)]);
    assert!(store.acquire(&bid()).await.is_ok());
    server.asked();
    server.says([Reply::Body(Vec::new())]);
    server.says(first_in_line(&held, true));
    server.says([Reply::Notified]);
    server.says(first_in_line(&held, false));
    assert_eq!(watched(&store).await, None);
    let both = ["watch record", "watch record/lease", "data record"];
    assert_eq!(server.asked(), [&["delete queue/place-1"][..], &both, &both].concat());
}

#[tokio::test]
async fn an_error_in_a_watch_is_followed_by_another_session_with_another_place() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { held, .. } = Records::new(&store);
    let denied = || Reply::Error(-102);
    let queued = || [created("place-1"), children(&["place-1"])];
    let began = clock::now();
    for answers in [
        [denied(), missing(), shows(&held, true)],
        [exists(), denied(), shows(&held, true)],
        [exists(), missing(), denied()],
        first_in_line(&held, true),
    ] {
        server.says(queued());
        server.says(answers);
    }
    assert_eq!(watched(&store).await, Some(bid().nonce));
    let least = Duration::from_millis(125 + 250 + 500);
    assert!(began.elapsed_max(clock::now()) >= least, "it pauses longer each time");
    assert_eq!(server.seen(), 9, "no server that is behind the last one");
    let asked = server.asked();
    let count = |line: &str| asked.iter().filter(|it| *it == line).count();
    assert_eq!((count("session of 15000 ms"), count("create queue/place-")), (4, 4), "{asked:?}");
}

fn waiting() -> (Watching, DuplexStream) {
    let (ours, theirs) = duplex(1024);
    let mut connection = Connection::over(Box::new(ours));
    connection.length = Duration::from_secs(15);
    (Watching { connection: Some(connection), ..Watching::default() }, theirs)
}

/// An answer without a body: to a ping, or a notification of nothing in particular.
fn answer(number: i32) -> Vec<u8> {
    let length: u8 = if number == wire::PING { 16 } else { 28 };
    let mut message = vec![0, 0, 0, length];
    message.extend(number.to_be_bytes());
    message.resize(4 + usize::from(length), 0);
    message
}

#[tokio::test(start_paused = true)]
async fn a_session_is_kept_alive_by_a_ping_in_each_third_of_its_time() {
    let (mut watching, mut server) = waiting();
    let began = Instant::now();
    let serving = async {
        for seconds in [5, 10, 15] {
            let mut ping = vec![0; wire::ping().len()];
            server.read_exact(&mut ping).await.unwrap();
            assert_eq!((ping, began.elapsed().as_secs()), (wire::ping(), seconds));
            server.write_all(&answer(wire::PING)).await.unwrap();
        }
        server.write_all(&answer(wire::NOTIFICATION)).await.unwrap();
    };
    let (found, ()) = tokio::join!(notified(&mut watching, None), serving);
    assert_eq!((found, began.elapsed().as_secs()), (Ok(true), 15));
    assert!(watching.connection.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_no_ping_by_the_next_one_is_given_up() {
    let (mut watching, _server) = waiting();
    let began = Instant::now();
    let found = notified(&mut watching, None).await;
    assert!(matches!(found, Err(ZookeeperError::Network(_))), "{found:?}");
    assert_eq!((began.elapsed().as_secs(), watching.connection.is_none()), (10, true));
    assert_eq!(notified(&mut watching, None).await, Ok(true), "there is nothing to wait for");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_over_is_no_notification() {
    let (mut watching, mut server) = waiting();
    let began = Instant::now();
    assert_eq!(notified(&mut watching, Some(TURN)).await, Ok(false));
    let passed = began.elapsed();
    assert!(passed >= TURN && passed <= TURN + Duration::from_millis(1), "{passed:?}");
    server.write_all(&answer(wire::NOTIFICATION)).await.unwrap();
    assert_eq!(notified(&mut watching, Some(TURN)).await, Ok(true));
}

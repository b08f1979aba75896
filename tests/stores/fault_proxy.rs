//! The fault proxy itself: what it forwards is unchanged, and each fault has its documented effect.

use testkit::azure::blob_server;
use testkit::faults::fault_proxy;
use testkit::stores::bids;

use std::io::{self, ErrorKind};
use std::time::Duration;

use bids::{A, B, bid, open, outcome, soon};
use blob_server::BlobServer;
use fault_proxy::{Call, Door, Fault, FaultProxy, Then};
use tenure::store::azure::Azure;
use tenure::store::{LeaseAdmin, LeaseStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Returns a store behind a proxy, where A has the lease and has written its term.
async fn leading() -> (BlobServer, FaultProxy, Azure) {
    let server = BlobServer::start().await;
    let proxy = FaultProxy::before(&server.endpoint);
    let mut settings = server.settings("locks", "orders");
    settings.endpoint = proxy.endpoint(&server.endpoint).parse().unwrap();
    let store = open(settings);
    soon(store.create(1)).await.expect("made");
    soon(store.acquire(&bid(A))).await.expect("the lease");
    soon(store.write_term(&bid(A), 1)).await.expect("the term");
    server.take_log();
    (server, proxy, store)
}

fn ops(server: &BlobServer) -> Vec<String> {
    server.take_log().into_iter().map(|it| it.op).collect()
}

/// Waits until the server has received all of these requests, in this order.
async fn received(server: &BlobServer, wanted: &[&str]) {
    let mut seen = Vec::new();
    let all = async {
        while seen.len() < wanted.len() {
            seen.extend(ops(server));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(all).await;
    assert_eq!(seen, wanted);
}

/// Sends a request over a plain connection, and reads until the end.
async fn bare(proxy: &FaultProxy) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(proxy.address).await?;
    stream.write_all(b"HEAD /devstoreaccount1/locks/orders HTTP/1.1\r\nhost: x\r\n\r\n").await?;
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await?;
    Ok(answer)
}

/// Returns whether a request over a plain connection has no answer after a while.
async fn is_silent(proxy: &FaultProxy) -> bool {
    tokio::time::timeout(Duration::from_millis(200), bare(proxy)).await.is_err()
}

#[tokio::test]
async fn requests_are_classified_and_connections_are_reused() {
    let (_server, proxy, store) = leading().await;
    proxy.take_log();
    soon(store.renew(&bid(A))).await.expect("renewed");
    assert_eq!(outcome(&soon(store.acquire(&bid(B))).await), "refused");
    soon(store.write_term(&bid(A), 1)).await.expect("held");
    soon(store.release(&bid(A))).await.expect("released");
    let log = proxy.take_log();
    let calls: Vec<_> = log.iter().map(|it| (it.call, it.status)).collect();
    let wanted =
        [(Call::Renew, 200), (Call::Acquire, 409), (Call::Look, 200), (Call::Release, 200)];
    assert_eq!(calls, wanted);
    assert_eq!(log[0].lease.as_deref(), Some(&*bid(A).lease.to_wire()));
    assert_eq!(log[1].lease.as_deref(), Some(&*bid(B).lease.to_wire()));
    assert!(log.iter().all(|it| it.connection == log[0].connection), "{log:?}");
}

#[tokio::test]
async fn a_fault_applies_to_its_kind_and_count_only() {
    let (server, proxy, store) = leading().await;
    proxy.next(Call::Renew, [Fault::DropBefore(Then::Close)]);
    soon(store.read()).await.expect("another kind");
    assert_eq!(outcome(&soon(store.renew(&bid(A))).await), "broken");
    assert_eq!(proxy.pending(), 0);
    soon(store.renew(&bid(A))).await.expect("the next one");
    proxy.always(Call::Renew, Fault::DropAfter(Then::Close));
    for _ in 0..2 {
        assert_eq!(outcome(&soon(store.renew(&bid(A))).await), "broken");
    }
    proxy.heal();
    soon(store.renew(&bid(A))).await.expect("healed");
    assert_eq!(ops(&server), ["read", "renew", "renew", "renew", "renew"], "one was lost before");
}

#[tokio::test]
async fn a_lost_answer_is_a_timeout_a_close_or_a_reset() {
    let (_server, proxy, _store) = leading().await;
    proxy.next(Call::Look, [Then::Close, Then::Reset].map(Fault::DropBefore));
    assert_eq!(bare(&proxy).await.unwrap(), b"", "an end");
    assert_eq!(bare(&proxy).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    proxy.always(Call::Any, Fault::DropBefore(Then::Silence));
    assert!(is_silent(&proxy).await);
}

#[tokio::test]
async fn a_cancelled_request_still_reaches_the_store_after_later_ones() {
    let (server, proxy, store) = leading().await;
    let late = Duration::from_millis(300);
    proxy.next(Call::Renew, [Fault::Delay { request: late, answer: Duration::ZERO }]);
    let given_up = tokio::time::timeout(Duration::from_millis(50), store.renew(&bid(A))).await;
    assert!(given_up.is_err());
    soon(store.read()).await.expect("a read");
    received(&server, &["read", "renew"]).await;
}

#[tokio::test]
async fn an_answer_alone_can_be_delayed() {
    let (server, proxy, store) = leading().await;
    let answer = Duration::from_millis(300);
    proxy.next(Call::Renew, [Fault::Delay { request: Duration::ZERO, answer }]);
    let sent = tenure::clock::now();
    soon(store.renew(&bid(A))).await.expect("it comes at last");
    assert!(sent.elapsed_max(tenure::clock::now()) >= answer);
    assert_eq!(ops(&server), ["renew"]);
}

#[tokio::test]
async fn duplicates_and_replays_reach_the_store_again() {
    let (server, proxy, store) = leading().await;
    proxy.next(Call::Renew, [Fault::Duplicate { after: Duration::from_millis(50) }]);
    soon(store.renew(&bid(A))).await.expect("the first's answer");
    received(&server, &["renew", "renew"]).await;
    soon(store.release(&bid(A))).await.expect("released");
    let replayed = tokio::task::spawn_blocking(move || proxy.replay(Call::Renew)).await.unwrap();
    assert_eq!(replayed, 409);
}

#[tokio::test]
async fn an_answer_can_trickle_or_be_garbage() {
    let (server, proxy, store) = leading().await;
    proxy.next(Call::Renew, [Fault::Trickle(Duration::from_millis(1))]);
    soon(store.renew(&bid(A))).await.expect("whole in the end");
    proxy.next(Call::Renew, [Fault::Garbage(b"\0\x01SSH-2.0\r\n".into())]);
    assert_ne!(outcome(&soon(store.renew(&bid(A))).await), "granted");
    assert_eq!(ops(&server), ["renew"], "the store never saw the second");
}

#[tokio::test]
async fn connections_are_refused_or_ignored_and_served_again_on_the_same_port() {
    let (_server, proxy, store) = leading().await;
    let mut open = TcpStream::connect(proxy.address).await.unwrap();
    soon(store.renew(&bid(A))).await.expect("served");
    proxy.door(Door::Shut);
    let broken = soon(open.read(&mut [0; 1])).await.unwrap_err();
    assert_eq!(broken.kind(), ErrorKind::ConnectionReset);
    assert_eq!(bare(&proxy).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    proxy.door(Door::Deaf);
    assert!(is_silent(&proxy).await);
    proxy.heal();
    soon(store.renew(&bid(A))).await.expect("served again");
}

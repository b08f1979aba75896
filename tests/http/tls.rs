//! The status listener with TLS: which clients it answers, and that slow or plain ones harm no other.

use testkit::faults::tls_front::Authority;
use testkit::http::mounted::{FAR, Mounted};
use testkit::http::{server, status};

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use server::{Client, Server};
use status::{Feed, failing, leading, ms, status as of};
use tenure::election::Status;
use tenure::tls::ClientTls;
use tokio::time::{sleep, timeout};

/// The bound of what takes a moment.
const BOUND: Duration = Duration::from_secs(60);

struct Ground {
    authority: Authority,
    mounted: Mounted,
    server: Server,
}

impl Ground {
    /// Starts a listener for so many connections.
    async fn new(asks_clients: bool, places: usize) -> Self {
        let authority = Authority::new("ours");
        let mounted = Mounted::new(&authority, FAR);
        let feed = Feed::new(leading(42, ms(10_000)));
        let server = Server::with_tls(feed, places, &mounted.server(asks_clients)).await;
        Self { authority, mounted, server }
    }

    /// Connects without a certificate.
    async fn connect(&self) -> Client {
        self.server.connect_tls(self.trusting().await).await.expect("it is accepted")
    }

    /// Returns the settings of a client that trusts the authority and has no certificate.
    async fn trusting(&self) -> Arc<ClientConfig> {
        settings(None, &self.mounted).await
    }
}

/// Returns the settings of a client with a certificate, for a listener with another.
async fn settings(own: Option<&Mounted>, listener: &Mounted) -> Arc<ClientConfig> {
    let own = own.map(Mounted::own);
    let tls = ClientTls::load(own.as_ref(), Some(&listener.path("ca.crt")));
    tls.expect("good files").config().await
}

#[tokio::test]
async fn requests_and_streams_are_served_over_tls_and_on_the_socket_without() {
    let ground = Ground::new(false, 512).await;
    let mut client = ground.connect().await;
    for _ in 0..2 {
        assert_eq!(client.ask("GET", "/leader").await.code, 200);
    }
    assert_eq!(client.subscribe().await.code, 200);
    assert_eq!(client.event().await.expect("the present")["state"], "leader");
    let mut local = ground.server.connect_unix().await;
    assert_eq!(local.ask("GET", "/leader").await.code, 200);
}

#[tokio::test]
async fn a_client_refuses_a_listener_of_another_authority_or_name() {
    let ground = Ground::new(false, 512).await;
    let other = Mounted::new(&Authority::new("other"), FAR);
    let refused = ground.server.connect_tls(settings(None, &other).await).await;
    let refused = refused.err().expect("it trusts another authority").to_string();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    let (certificate, key) = ground.authority.sign_pem("elsewhere.test", FAR);
    let mut elsewhere = Mounted::new(&ground.authority, FAR);
    elsewhere.put([&certificate, &key, &ground.authority.certificate]);
    let feed = Feed::new(leading(42, ms(10_000)));
    let server = Server::with_tls(feed, 512, &elsewhere.server(false)).await;
    let refused = server.connect_tls(ground.trusting().await).await;
    let refused = refused.err().expect("it is for another name").to_string();
    assert!(refused.contains("not valid for name"), "{refused}");
    // A peer is reached by its address, and counts by its authority alone.
    let ca = ground.mounted.path("ca.crt");
    let any_name = ClientTls::load_for_any_name(None, &ca).expect("good files").config().await;
    let mut client = server.connect_tls(Arc::clone(&any_name)).await.expect("it is accepted");
    assert_eq!(client.ask("GET", "/leader").await.code, 200);
    let strange = Mounted::new(&Authority::new("ours"), FAR);
    let feed = Feed::new(leading(42, ms(10_000)));
    let server = Server::with_tls(feed, 512, &strange.server(false)).await;
    let refused = server.connect_tls(any_name).await;
    let refused = refused.err().expect("an authority of the same name is another").to_string();
    assert!(refused.contains("invalid peer certificate"), "{refused}");
}

#[tokio::test]
async fn with_a_client_authority_only_its_certificates_are_answered() {
    let ground = Ground::new(true, 512).await;
    let of_another = Mounted::new(&Authority::new("other"), FAR);
    let expired = Mounted::new(&ground.authority, 2_001);
    for (own, what) in [
        (None, "no certificate"),
        (Some(&of_another), "that of another authority"),
        (Some(&expired), "an expired one"),
    ] {
        // In TLS 1.3 the client has finished its handshake before it is refused.
        let connected = ground.server.connect_tls(settings(own, &ground.mounted).await).await;
        let Ok(mut client) = connected else { continue };
        client.send("GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        assert!(client.closed().await && client.unread().is_empty(), "{what} was answered");
    }
    let own = Mounted::new(&ground.authority, FAR);
    let good = settings(Some(&own), &ground.mounted).await;
    let mut client = ground.server.connect_tls(good).await.expect("it is accepted");
    assert_eq!(client.ask("GET", "/leader").await.code, 200);
    let mut local = ground.server.connect_unix().await;
    assert_eq!(local.ask("GET", "/leader").await.code, 200, "which has no TLS");
}

#[tokio::test]
async fn a_plain_request_is_told_to_use_https() {
    let ground = Ground::new(false, 512).await;
    let mut plain = ground.server.connect().await;
    let answer = plain.ask("GET", "/leader").await;
    assert_eq!(answer.code, 400);
    assert!(answer.body.contains("https://"), "{answer:?}");
    assert!(plain.closed().await);
    assert_eq!(ground.connect().await.ask("GET", "/leader").await.code, 200);
}

#[tokio::test]
async fn handshakes_that_do_not_go_on_are_closed_and_delay_no_other() {
    let ground = Ground::new(false, 512).await;
    let mut slow = Vec::new();
    for number in 0..40 {
        let mut client = ground.server.connect().await;
        // Some send nothing, some the begin of a hello.
        if number % 2 == 0 {
            client.send([22, 3, 1, 2, 0, 1, 0]).await;
        }
        slow.push(client);
    }
    let answer = async { ground.connect().await.ask("GET", "/leader").await.code };
    assert_eq!(timeout(BOUND, answer).await, Ok(200));
    for (number, client) in slow.iter_mut().enumerate() {
        timeout(BOUND, client.closed()).await.unwrap_or_else(|_| panic!("{number} is open yet"));
    }
}

#[tokio::test]
async fn only_so_many_handshakes_are_in_progress() {
    let ground = Ground::new(false, 512).await;
    // A slow machine may take longer than the time limit of a handshake to open them all.
    for _ in 0..10 {
        let began = tenure::clock::now();
        let mut first = ground.server.connect().await;
        let mut slow = Vec::new();
        for _ in 0..140 {
            slow.push(ground.server.connect().await);
        }
        assert_eq!(ground.connect().await.ask("GET", "/leader").await.code, 200);
        assert!(first.closed().await, "the oldest makes room");
        // By its time limit it is closed after five seconds, and no sooner.
        if began.elapsed_max(tenure::clock::now()) < ms(4_900) {
            return;
        }
    }
    panic!("none of them made room");
}

#[tokio::test]
async fn connections_with_tls_share_the_places_of_the_others() {
    let ground = Ground::new(false, 3).await;
    let mut all = Vec::new();
    for _ in 0..3 {
        let mut client = ground.connect().await;
        assert_eq!(client.ask("GET", "/leader").await.code, 200);
        all.push(client);
    }
    let mut next = ground.server.connect_unix().await;
    assert_eq!(next.ask("GET", "/leader").await.code, 200);
    assert!(all[0].closed().await, "the one that was idle for longest makes room");
    assert_eq!(all[2].ask("GET", "/leader").await.code, 200);
}

#[tokio::test]
async fn a_subscriber_that_never_reads_is_dropped() {
    let ground = Ground::new(false, 512).await;
    let mut deaf = ground.connect().await;
    deaf.subscribe().await;
    let mut other = ground.server.connect_unix().await;
    other.subscribe().await;
    other.event().await.expect("the present");
    // The handshake is over, which the paused clock might end too early.
    tokio::time::pause();
    // More than what the buffers of both sides hold.
    let words = "no route ".repeat(5_000);
    for _ in 0..2_000 {
        let store = failing(1, &words);
        ground.server.feed().change(Status { store, ..of(leading(42, ms(10_000))) });
        other.event().await.expect("the other receives each change");
    }
    sleep(ms(30_000)).await;
    // What was sent before can be read, then the connection ends. A stream that continues would
    // never end, so there is a timeout.
    timeout(BOUND, deaf.closed()).await.expect("it was dropped");
    assert!(deaf.unread().len() > 10_000);
}

#[tokio::test]
async fn a_listener_of_http_1_refuses_clients_that_speak_http_2_alone() {
    let ground = Ground::new(false, 512).await;
    let mut settings = ClientConfig::clone(&*ground.trusting().await);
    settings.alpn_protocols = vec![b"h2".to_vec()];
    let refused = ground.server.connect_tls(Arc::new(settings)).await;
    assert_eq!(refused.err().map(|it| it.kind()), Some(ErrorKind::InvalidData));
}

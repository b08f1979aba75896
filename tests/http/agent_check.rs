//! The listener for HAProxy's agent checks, on a clock that the test sets.

use testkit::http::status;

use std::net::SocketAddr;
use std::time::Duration;

use status::{Feed, in_jeopardy, leading, ms, now, pass, status as of};
use tenure::election::{Belief, Standing};
use tenure::publish::agent_check::AgentCheck;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(60);

/// A listener with its input; stops when it is dropped.
struct Agent {
    feed: Feed,
    address: SocketAddr,
    tasks: JoinSet<()>,
}

impl Agent {
    fn start(standing: Standing) -> Self {
        let feed = Feed::new(standing);
        let any = "127.0.0.1:0".parse().unwrap();
        let agent = AgentCheck::bind(any, feed.subscribe(), now).expect("a free port");
        let address = agent.address().parse().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(agent.serve());
        Self { feed, address, tasks }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it listens")
    }

    /// Returns all that is answered until the connection is closed.
    async fn ask(&self) -> String {
        rest(self.connect().await).await
    }
}

async fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut text)).await;
    read.expect("the connection is closed").expect("and not reset");
    text
}

fn draining() -> Standing {
    let belief = Belief { sent: now(), length: ms(10_000), suspended: false };
    Standing::Draining { term: 42, belief, began: now(), length: ms(5_000) }
}

#[tokio::test]
async fn each_state_is_answered_in_haproxys_words() {
    let agent = Agent::start(Standing::Starting);
    assert_eq!(agent.ask().await, "up maint\n");
    for (standing, line) in [
        (Standing::Standby, "up maint\n"),
        (Standing::Activating, "up maint\n"),
        (leading(42, ms(10_000)), "up ready\n"),
        (in_jeopardy(42, ms(10_000)), "up ready\n"),
        (draining(), "up drain\n"),
        (Standing::Paused, "up maint\n"),
        (Standing::Unhealthy, "up maint\n"),
        (Standing::Observing, "up maint\n"),
        (Standing::Stopped, "up maint\n"),
    ] {
        let words = format!("{standing:?}");
        agent.feed.change(of(standing));
        assert_eq!(agent.ask().await, line, "{words}");
    }
}

#[tokio::test]
async fn the_answer_is_judged_by_the_deadline_when_it_is_asked_for() {
    let agent = Agent::start(leading(42, ms(10_000)));
    pass(ms(9_999));
    assert_eq!(agent.ask().await, "up ready\n");
    pass(ms(1));
    assert_eq!(agent.ask().await, "up maint\n", "the deadline has passed without a publication");
    agent.feed.renew(leading(42, ms(10_000)));
    assert_eq!(agent.ask().await, "up ready\n");
}

#[tokio::test]
async fn a_client_that_sends_something_or_nothing_at_all_is_answered_the_same() {
    let agent = Agent::start(leading(42, ms(10_000)));
    let mut client = agent.connect().await;
    client.write_all(b"backend leader\n").await.unwrap();
    assert_eq!(rest(client).await, "up ready\n");
    // Clients that never close keep nobody from an answer.
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(agent.connect().await);
    }
    assert_eq!(agent.ask().await, "up ready\n");
    for client in silent {
        assert_eq!(rest(client).await, "up ready\n");
    }
}

#[tokio::test]
async fn it_ends_with_the_driver_and_the_address_is_free_again() {
    let mut agent = Agent::start(Standing::Standby);
    let taken = AgentCheck::bind(agent.address, agent.feed.subscribe(), now);
    let error = format!("{:#}", taken.err().expect("it is taken"));
    assert!(
        error.contains(&agent.address.to_string()) && error.contains("--agent-check"),
        "{error}"
    );
    drop(std::mem::replace(&mut agent.feed, Feed::new(Standing::Stopped)));
    let ended = tokio::time::timeout(PATIENCE, agent.tasks.join_next()).await;
    ended.expect("it ends").expect("there is one").expect("it does not panic");
    assert!(TcpStream::connect(agent.address).await.is_err());
}

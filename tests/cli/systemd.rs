//! systemd notification: the test receives the messages of real processes, and of the publisher
//! alone.

use testkit::http::status;
use testkit::processes::process;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

use process::Process;
use rustix::process::Signal;
use status::{Feed, about, failing, holder, in_jeopardy, leading, ms, status as of};
use tenure::clock;
use tenure::config::Environment;
use tenure::election::{Belief, Standing};
use tenure::publish::systemd::Systemd;
use tenure::status::Heartbeat;
use tokio::sync::oneshot;

/// The timeout for a real process, on a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// systemd's end of the socket.
struct Listener {
    socket: UnixDatagram,
    received: Vec<String>,
}

impl Listener {
    fn at(path: &Path) -> Self {
        Self::of(UnixDatagram::bind(path).unwrap())
    }

    fn of(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        Self { socket, received: Vec::new() }
    }

    /// Receives the lines that have arrived.
    fn listen(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            let text = std::str::from_utf8(&buffer[..length]).unwrap();
            self.received.extend(text.lines().map(str::to_owned));
        }
    }

    fn count(&self, line: &str) -> usize {
        self.received.iter().filter(|it| *it == line).count()
    }

    /// Waits for a line that satisfies `fits`, and returns its index.
    fn wait_for(&mut self, what: &str, fits: impl Fn(&str) -> bool) -> usize {
        let start = clock::now();
        loop {
            self.listen();
            if let Some(place) = self.received.iter().position(|it| fits(it)) {
                return place;
            }
            let waited = start.elapsed_min(clock::now());
            assert!(waited < BOUND, "{what} did not come, but {:#?}", self.received);
        }
    }

    fn wait_for_line(&mut self, line: &str) -> usize {
        self.wait_for(line, |it| it == line)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn systemd_is_notified_of_ready_each_change_and_stopping() {
    let home = tempfile::tempdir().unwrap();
    let store = format!("file://{}/store", home.path().display());
    let settings = ["--store", &store, "--election", "orders"];
    let (near, far) = (home.path().join("near"), home.path().join("far"));

    let mut first = Listener::at(&near);
    let one = &[("NOTIFY_SOCKET", text(&near))];
    let mut leader = Process::run("orders-1", &settings, one);
    let ready = first.wait_for_line("READY=1");
    let leads = first
        .wait_for("its leading", |it| it.starts_with("STATUS=active: leader of orders in term "));
    assert!(ready < leads, "{:#?}", first.received);
    let term = leader.status().unwrap()["term"].as_u64().unwrap();
    assert_eq!(first.received[leads], format!("STATUS=active: leader of orders in term {term}"));

    let mut second = Listener::at(&far);
    let two = &[("NOTIFY_SOCKET", text(&far))];
    let _standby = Process::run("orders-2", &settings, two);
    second.wait_for_line(&format!(
        "STATUS=passive: standby of orders; orders-1 leads in term {term}"
    ));

    assert_eq!(first.count("STOPPING=1"), 0);
    leader.signal(Signal::TERM);
    assert!(leader.wait(BOUND).success());
    let stopping = first.wait_for_line("STOPPING=1");
    first.listen();
    let last = first.received.last().unwrap();
    assert_eq!(last, "STATUS=passive: stopped; has left orders");
    assert!(leads < stopping, "{:#?}", first.received);
    assert_eq!((first.count("READY=1"), first.count("STOPPING=1")), (1, 1));
    second.wait_for("the next leader", |it| {
        it.starts_with("STATUS=active: leader of orders in term ")
    });
    second.listen();
    assert!(!second.received.iter().any(|it| it == "WATCHDOG=1"), "nobody asked for a watchdog");
}

#[test]
fn a_store_that_is_down_does_not_keep_the_unit_from_starting() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("notify");
    let mut listener = Listener::at(&path);
    // A port that is not in use.
    let port = testkit::ports::free_port();
    let endpoint = format!("http://127.0.0.1:{port}/devstoreaccount1");
    let settings = ["--store", "azure://devstoreaccount1/locks", "--azure-endpoint", &endpoint];
    let variables = &[("NOTIFY_SOCKET", text(&path))];
    let candidate = Process::run("orders-1", &settings, variables);
    listener.wait_for_line("READY=1");
    listener.wait_for("the store's error", |it| {
        it.starts_with("STATUS=passive: the store of default has not been reached yet; store: ")
    });
    assert_eq!(candidate.get("/readyz").unwrap().0, 503);
}

#[test]
fn hooks_and_probes_cannot_notify_systemd() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("notify");
    let mut listener = Listener::at(&path);
    let says = format!("sh -c 'env > {0}/$0.new; mv {0}/$0.new {0}/$0'", home.path().display());
    let (hook, probe) = (format!("{says} hook"), format!("exec:{says} probe"));
    let settings = ["--store", "memory:", "--on-active", &hook, "--health", &probe];
    let variables = &[("NOTIFY_SOCKET", text(&path)), ("WATCHDOG_USEC", "60000000")];
    let _candidate = Process::run("us", &settings, variables);
    listener.wait_for("its leading", |it| it.starts_with("STATUS=active: leader"));
    let start = clock::now();
    for name in ["probe", "hook"] {
        let message = loop {
            if let Ok(message) = std::fs::read_to_string(home.path().join(name)) {
                break message;
            }
            listener.listen();
            assert!(start.elapsed_min(clock::now()) < BOUND, "the {name} was not run");
        };
        assert!(message.contains("PATH="), "{message}");
        for variable in ["NOTIFY_SOCKET", "WATCHDOG_USEC"] {
            assert!(!message.contains(variable), "the {name} inherited {variable}");
        }
    }
}

#[test]
fn an_abstract_socket_is_supported() {
    let name = format!("tenure-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let mut listener = Listener::of(UnixDatagram::bind_addr(&address).unwrap());
    let at = format!("@{name}");
    let variables = &[("NOTIFY_SOCKET", at.as_str())];
    let _candidate = Process::run("us", &["--store", "memory:"], variables);
    listener.wait_for_line("READY=1");
}

#[test]
fn a_candidate_leads_without_a_listener_at_the_socket() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gone");
    let variables = &[("NOTIFY_SOCKET", text(&path)), ("WATCHDOG_USEC", "200000")];
    let candidate = Process::run("us", &["--store", "memory:"], variables);
    process::until(BOUND, "it leads", || candidate.is_leader().then_some(()));
    // The messages are delivered once the socket exists.
    let mut listener = Listener::at(&path);
    listener.wait_for_line("READY=1");
    listener.wait_for("its leading", |it| it.starts_with("STATUS=active: leader of default"));
}

#[test]
fn the_systemd_watchdog_is_fed_while_the_process_runs_and_not_while_it_is_stopped() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("notify");
    let mut listener = Listener::at(&path);
    let variables = &[("NOTIFY_SOCKET", text(&path)), ("WATCHDOG_USEC", "3000000")];
    let candidate = Process::run("us", &["--store", "memory:"], variables);
    listener.wait_for_line("WATCHDOG=1");
    listener.received.clear();
    let before = clock::now();
    listener.wait_for_line("WATCHDOG=1");
    assert!(before.elapsed_min(clock::now()) < Duration::from_secs(20), "it is fed in time");
    candidate.signal(Signal::STOP);
    process::until(BOUND, "it is stopped", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", candidate.id())).unwrap();
        stat.rsplit_once(") ")?.1.starts_with('T').then_some(())
    });
    listener.listen();
    listener.received.clear();
    std::thread::sleep(Duration::from_secs(3));
    listener.listen();
    assert_eq!(listener.received, Vec::<String>::new());
    candidate.signal(Signal::CONT);
    listener.wait_for_line("WATCHDOG=1");
}

#[test]
fn the_systemd_watchdog_of_another_process_is_not_fed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("notify");
    let mut listener = Listener::at(&path);
    let variables =
        &[("NOTIFY_SOCKET", text(&path)), ("WATCHDOG_USEC", "200000"), ("WATCHDOG_PID", "1")];
    let mut candidate = Process::run("us", &["--store", "memory:"], variables);
    process::until(BOUND, "it leads", || candidate.is_leader().then_some(()));
    candidate.signal(Signal::TERM);
    candidate.wait(BOUND);
    listener.wait_for_line("STOPPING=1");
    assert_eq!(listener.count("WATCHDOG=1"), 0);
}

/// The publisher alone, with the test in place of the driver.
struct Alone {
    feed: Option<Feed>,
    heartbeat: Heartbeat,
    listener: Listener,
    stop: Option<oneshot::Sender<()>>,
    tasks: tokio::task::JoinSet<()>,
    _home: tempfile::TempDir,
}

impl Alone {
    fn start(watchdog: &str, before: impl FnOnce(&Path)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("notify");
        let listener = Listener::at(&path);
        listener.socket.set_nonblocking(true).unwrap();
        before(&path);
        let environment =
            Environment::of([("NOTIFY_SOCKET", text(&path)), ("WATCHDOG_USEC", watchdog)]);
        let systemd = Systemd::from(&environment).unwrap();
        let (feed, heartbeat) = (Feed::new(Standing::Starting), Heartbeat::default());
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(systemd.run(feed.subscribe(), heartbeat.clone(), about(), stopped));
        Self { feed: Some(feed), heartbeat, listener, stop: Some(stop), tasks, _home: home }
    }

    fn feed(&self) -> &Feed {
        self.feed.as_ref().unwrap()
    }

    /// Returns the lines that arrive within a time of the paused clock.
    async fn receive(&mut self, time: Duration) -> Vec<String> {
        tokio::time::sleep(time).await;
        self.listener.listen();
        std::mem::take(&mut self.listener.received)
    }
}

#[tokio::test(start_paused = true)]
async fn the_systemd_watchdog_is_not_fed_while_the_loop_hangs() {
    let mut alone = Alone::start("10000000", |_| ());
    let fed = |lines: &[String]| lines.iter().filter(|it| *it == "WATCHDOG=1").count();
    assert_eq!(fed(&alone.receive(ms(9_000)).await), 0, "a loop that never turned");
    for turn in 0..10 {
        alone.heartbeat.beat();
        assert_eq!(fed(&alone.receive(ms(5_000)).await), 1, "turn {turn}");
    }
    alone.receive(ms(5_000)).await;
    for term in 1..20 {
        alone.feed().change(of(leading(term, ms(10_000))));
        let received = alone.receive(ms(2_500)).await;
        assert_eq!(received.len(), 1, "{received:?}");
        assert_eq!(fed(&received), 0, "in term {term} the loop hangs");
    }
    alone.heartbeat.beat();
    assert_eq!(fed(&alone.receive(ms(5_000)).await), 1, "it turns again");
}

#[tokio::test(start_paused = true)]
async fn systemd_is_notified_of_each_change_once_and_of_no_renewal() {
    let mut alone = Alone::start("", |_| ());
    let received = alone.receive(ms(5_000)).await;
    let starting = "STATUS=passive: the store of orders has not been reached yet";
    assert_eq!(received, ["READY=1", starting]);

    let mut status = of(Standing::Standby);
    alone.feed().change(status.clone());
    let received = alone.receive(ms(5_000)).await;
    assert_eq!(received, ["STATUS=passive: standby of orders; no leader known"]);
    status.holder = holder("them\nMAINPID=1\u{7}", None, 41);
    // The publisher uses the real clock.
    status.store.last_success = Some(clock::now());
    alone.feed().change(status.clone());
    let received = alone.receive(ms(5_000)).await;
    assert_eq!(
        received,
        ["STATUS=passive: standby of orders; them MAINPID=1  holds the lease in term 41"]
    );
    status.store = failing(1, &"no answer\n".repeat(100));
    alone.feed().change(status);
    let received = alone.receive(ms(5_000)).await;
    assert_eq!(received.len(), 1, "one line: {received:?}");
    assert!(received[0].contains("; store: no answer no answer "), "{received:?}");
    assert!(received[0].len() < 320, "{}", received[0].len());

    // These leaders renew at the real time, too.
    let lasting = |standing| match standing {
        Standing::Leader { term, mut belief, jeopardy } => {
            belief.sent = clock::now();
            Standing::Leader { term, belief, jeopardy }
        }
        other => other,
    };
    alone.feed().change(of(lasting(leading(42, ms(3_600_000)))));
    let received = alone.receive(ms(5_000)).await;
    assert_eq!(received, ["STATUS=active: leader of orders in term 42"]);
    for _ in 0..5 {
        alone.feed().renew(lasting(leading(42, ms(3_600_000))));
        assert_eq!(alone.receive(ms(2_000)).await, Vec::<String>::new());
    }
    alone.feed().change(of(lasting(in_jeopardy(42, ms(3_600_000)))));
    let received = alone.receive(ms(5_000)).await;
    assert_eq!(received, ["STATUS=active: leader of orders in term 42, but renewals fail"]);
    alone.feed().change(of(lasting(in_jeopardy(42, ms(0)))));
    let received = alone.receive(ms(5_000)).await;
    let but = "but reports passive until a renewal succeeds";
    assert_eq!(received, [format!("STATUS=passive: leader of orders in term 42, {but}")]);

    alone.stop.take().unwrap().send(()).unwrap();
    assert_eq!(alone.receive(ms(5_000)).await, ["STOPPING=1"]);
    alone.feed().change(of(Standing::Stopped));
    alone.feed = None;
    assert!(alone.tasks.join_next().await.unwrap().is_ok());
    let received = alone.receive(ms(0)).await;
    assert_eq!(received, ["STATUS=passive: stopped; has left orders"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_during_shutdown_keeps_its_timeout_despite_that_of_the_unit() {
    let mut alone = Alone::start("", |_| ());
    let draining = |term| {
        let began = clock::now();
        let belief = Belief { sent: began, length: ms(10_000), suspended: false };
        of(Standing::Draining { term, belief, began, length: ms(300_000) })
    };
    alone.receive(ms(1_000)).await;
    alone.feed().change(draining(42));
    let words = "draining; holds the lease of orders in term 42";
    assert_eq!(alone.receive(ms(5_000)).await, [format!("STATUS=passive: {words}")]);

    alone.stop.take().unwrap().send(()).unwrap();
    let received = alone.receive(ms(5_000)).await;
    let [stopping, extension] = &received[..] else { panic!("{received:?}") };
    assert_eq!(stopping, "STOPPING=1");
    let micros: u64 = extension.strip_prefix("EXTEND_TIMEOUT_USEC=").unwrap().parse().unwrap();
    assert!((250_000_000..=310_000_000).contains(&micros), "{micros}");
    alone.feed().renew(draining(42).standing);
    assert_eq!(alone.receive(ms(5_000)).await, Vec::<String>::new(), "once is enough");
}

#[tokio::test(start_paused = true)]
async fn a_full_socket_gets_the_newest_state_later() {
    let mut sent = 0;
    let mut alone = Alone::start("200000000", |path| {
        // Several senders, because a single one may have filled its own buffer instead of the
        // queue.
        let mut others = Vec::new();
        loop {
            let other = UnixDatagram::unbound().unwrap();
            other.set_nonblocking(true).unwrap();
            let before = sent;
            while other.send_to(b"OTHER=1", path).is_ok() {
                sent += 1;
            }
            others.push(other);
            if sent == before {
                break;
            }
        }
    });
    alone.heartbeat.beat();
    tokio::time::sleep(ms(30_000)).await;
    alone.feed().change(of(Standing::Standby));
    tokio::time::sleep(ms(30_000)).await;
    alone.listener.listen();
    let received = std::mem::take(&mut alone.listener.received);
    assert!(
        sent > 0 && received.iter().all(|it| it == "OTHER=1"),
        "it was full: {:?}",
        received.last()
    );
    let words = "STATUS=passive: standby of orders; no leader known";
    assert_eq!(alone.receive(ms(2_000)).await, ["READY=1", words, "WATCHDOG=1"]);
}

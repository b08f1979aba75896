//! Health probes of each kind, with real servers, files and commands.

use testkit::http::status;
use testkit::processes::{process, service};

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use process::until_gone;
use service::Service;
use status::{Feed, leading, ms};
use tenure::clock;
use tenure::config::{CommandLine, Health, Probe, Withheld};
use tenure::election::Standing;
use tenure::probe::Probes;
use tenure::status::ProbeResult;
use tokio::sync::mpsc;

const BOUND: Duration = Duration::from_secs(20);

fn health(probes: Vec<Probe>) -> Health {
    Health {
        probes,
        interval: ms(20),
        timeout: ms(400),
        failures: 3,
        successes: 2,
        withheld: Withheld::default(),
    }
}

fn http(url: &str) -> Probe {
    Probe::Http(url.parse().unwrap())
}

fn shell(script: &str) -> Probe {
    let arguments = vec!["-c".to_owned(), script.to_owned()];
    Probe::Exec(CommandLine { program: PathBuf::from("/bin/sh"), arguments })
}

/// Runs a probe until its result satisfies `until`, and returns that result.
async fn result_of(settings: &Health, mut until: impl FnMut(&ProbeResult) -> bool) -> ProbeResult {
    let feed = Feed::new(Standing::Standby);
    let probes = Probes::new(settings, clock::now).unwrap();
    let (results, mut reported) = mpsc::unbounded_channel();
    let asking = probes.run(feed.subscribe(), |_, result, _| {
        let _ = results.send(result);
        async {}
    });
    let waiting = async {
        loop {
            let result = reported.recv().await.expect("the probe runs");
            if until(&result) {
                return result;
            }
        }
    };
    let either = async {
        tokio::select! {
            () = asking => panic!("it stopped probing"),
            result = waiting => result,
        }
    };
    tokio::time::timeout(BOUND, either).await.expect("it is reported in time")
}

/// Returns the first result of a probe.
async fn first(probe: Probe) -> (bool, String) {
    let result = result_of(&health(vec![probe]), |_| true).await;
    (result.succeeded, result.message)
}

fn numbers_aside(words: &str) -> String {
    words.chars().map(|it| if it.is_ascii_digit() { '0' } else { it }).collect()
}

#[tokio::test]
async fn an_http_probe_is_healthy_on_any_2xx_and_reports_its_duration() {
    let service = Service::start();
    let (well, words) = first(http(&service.url("/healthz"))).await;
    assert!(well && words.starts_with("200 OK in "), "{words}");
    assert!(words.ends_with(" ms"), "{words}");
    service.answer("204 No Content");
    assert!(first(http(&service.url("/"))).await.0);
    let request = &service.requests()[0];
    assert_eq!(request.line, "GET /healthz HTTP/1.1");
    assert!(request.header("user-agent").unwrap().starts_with("tenure/"));
}

#[tokio::test]
async fn an_http_probe_fails_on_another_code_and_follows_no_redirect() {
    let service = Service::start();
    service.answer("503 Service Unavailable");
    let result = first(http(&service.url("/"))).await;
    assert_eq!(result, (false, "503 Service Unavailable".to_owned()));
    let well = Service::start();
    service.answer(&format!("302 Found\r\nLocation: {}", well.url("/")));
    let result = first(http(&service.url("/"))).await;
    assert_eq!(result, (false, "302 Found; redirects are not followed".to_owned()));
    assert!(well.requests().is_empty());
}

#[tokio::test]
async fn credentials_of_the_url_are_sent_and_never_shown() {
    let service = Service::start();
    let url = format!("http://me:secret@{}/", service.address);
    assert!(first(http(&url)).await.0);
    assert!(service.requests()[0].header("authorization").unwrap().starts_with("Basic "));
    drop(service);
    let (_, words) = first(http(&url)).await;
    assert_eq!(words, "connection refused");
}

#[tokio::test]
async fn a_probe_without_an_answer_fails_at_its_timeout() {
    let service = Service::start();
    service.delay(BOUND);
    let silent = "no answer within 400ms".to_owned();
    assert_eq!(first(http(&service.url("/"))).await, (false, silent.clone()));
    assert_eq!(first(shell("sleep 30")).await, (false, silent));
}

#[tokio::test]
async fn a_response_that_is_not_http_fails_the_probe() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let speak = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"220 mail\r\n").await;
        }
    };
    let (well, words) = tokio::select! {
        result = first(http(&url)) => result,
        () = speak => unreachable!(),
    };
    assert!(!well && words.contains("the connection broke"), "{words}");
}

#[tokio::test]
async fn a_tcp_probe_is_healthy_if_a_connection_is_accepted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let probe = Probe::Tcp { host: "localhost".to_owned(), port };
    let (well, words) = first(probe.clone()).await;
    assert!(well, "{words}");
    assert_eq!(numbers_aside(words.trim_end_matches(" ms")).trim_end_matches('0'), "connected in ");
    drop(listener);
    assert_eq!(first(probe).await, (false, "connection refused".to_owned()));
}

#[tokio::test]
async fn a_host_without_an_address_is_reported() {
    let message = "failed to resolve nowhere.invalid".to_owned();
    let settings = Health {
        timeout: BOUND,
        ..health(vec![Probe::Tcp { host: "nowhere.invalid".to_owned(), port: 1 }])
    };
    assert_eq!(result_of(&settings, |_| true).await.message, message);
    let settings = Health { timeout: BOUND, ..health(vec![http("http://nowhere.invalid/")]) };
    assert_eq!(result_of(&settings, |_| true).await.message, message);
}

#[tokio::test]
async fn a_file_probe_is_healthy_while_the_file_exists_and_is_fresh() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("alive");
    let probe = Probe::File { path: path.clone(), max_age: None };
    assert_eq!(first(probe.clone()).await, (false, "no such file".to_owned()));
    std::fs::write(&path, "").unwrap();
    assert_eq!(first(probe).await, (true, "exists".to_owned()));
    let probe = Probe::File { path: path.clone(), max_age: Some(Duration::from_secs(30)) };
    assert!(first(probe.clone()).await.0);
    let written = std::time::SystemTime::now() - Duration::from_secs(90);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    let (well, words) = first(probe).await;
    assert!(!well && words.contains("ago, over max_age 30s"), "{words}");
}

#[tokio::test]
async fn a_command_probe_is_healthy_on_exit_code_0_and_else_reports_its_first_line() {
    let (well, words) = first(shell("exit 0")).await;
    assert!(well && words.starts_with("exit code 0 in "), "{words}");
    let (well, words) = first(shell("echo up; echo no database >&2; echo more >&2; exit 2")).await;
    assert_eq!((well, words.as_str()), (false, "exit code 2: no database"));
    let (_, words) = first(shell("kill -9 $$")).await;
    assert_eq!(words, "killed by signal 9");
    let nothing = CommandLine { program: PathBuf::from("/nowhere"), arguments: Vec::new() };
    let (_, words) = first(Probe::Exec(nothing)).await;
    assert!(words.starts_with("failed to start: No such file"), "{words}");
}

#[tokio::test]
async fn a_command_that_hangs_is_killed_with_its_process_group() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ids");
    let script = format!("trap '' TERM; sleep 100 & echo $! $$ > {}; wait", file.display());
    let (well, words) = first(shell(&script)).await;
    assert_eq!((well, words.as_str()), (false, "no answer within 400ms"));
    let ids = std::fs::read_to_string(&file).unwrap();
    for id in ids.split_whitespace() {
        until_gone(id).await;
    }
}

#[tokio::test]
async fn a_probe_that_is_dropped_kills_its_command() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("id");
    let script = format!("echo $$ > {}; exec sleep 100", file.display());
    let feed = Feed::new(Standing::Standby);
    let settings = Health { timeout: BOUND, ..health(vec![shell(&script)]) };
    let probes = Probes::new(&settings, clock::now).unwrap();
    let begun = async {
        loop {
            match std::fs::read_to_string(&file) {
                Ok(id) if id.ends_with('\n') => return id.trim().to_owned(),
                _ => tokio::time::sleep(ms(5)).await,
            }
        }
    };
    let id = tokio::select! {
        () = probes.run(feed.subscribe(), |_, _, _| async {}) => panic!("it stopped probing"),
        id = begun => id,
    };
    until_gone(&id).await;
}

#[tokio::test]
async fn each_probe_result_has_the_term_in_which_the_probe_began() {
    let service = Service::start();
    service.delay(ms(150));
    let feed = Feed::new(leading(7, BOUND));
    let settings = Health { timeout: BOUND, ..health(vec![http(&service.url("/"))]) };
    let probes = Probes::new(&settings, clock::now).unwrap();
    let reported = RefCell::new(Vec::new());
    let asking = probes.run(feed.subscribe(), |probe, result, term| {
        reported.borrow_mut().push((probe, result.succeeded, term));
        std::future::ready(())
    });
    let change = async {
        while service.requests().is_empty() {
            tokio::time::sleep(ms(5)).await;
        }
        feed.renew(leading(8, BOUND));
        while reported.borrow().len() < 2 {
            tokio::time::sleep(ms(5)).await;
        }
    };
    let either = async {
        tokio::select! {
            () = asking => panic!("it stopped probing"),
            () = change => (),
        }
    };
    tokio::time::timeout(BOUND, either).await.expect("two answers");
    assert_eq!(reported.borrow()[..2], [(0, true, Some(7)), (0, true, Some(8))]);
}

#[tokio::test]
async fn a_slow_service_is_probed_once_at_a_time_and_delays_no_other_probe() {
    let (slow, quick) = (Service::start(), Service::start());
    slow.delay(ms(300));
    let settings =
        Health { timeout: ms(200), ..health(vec![http(&slow.url("/")), http(&quick.url("/"))]) };
    let feed = Feed::new(Standing::Standby);
    let probes = Probes::new(&settings, clock::now).unwrap();
    let asking = probes.run(feed.subscribe(), |_, _, _| async {});
    let enough = async {
        while slow.requests().len() < 3 {
            tokio::time::sleep(ms(5)).await;
        }
    };
    let either = async {
        tokio::select! {
            () = asking => panic!("it stopped probing"),
            () = enough => (),
        }
    };
    tokio::time::timeout(BOUND, either).await.expect("it goes on asking");
    let (slow, quick) = (slow.requests().len(), quick.requests().len());
    assert!(quick > 3 * slow, "{quick} probes against {slow}");
}

#[tokio::test]
async fn probing_stops_when_the_driver_has_ended() {
    let service = Service::start();
    let feed = Feed::new(Standing::Standby);
    let probes = Probes::new(&health(vec![http(&service.url("/"))]), clock::now).unwrap();
    let published = feed.subscribe();
    drop(feed);
    let asking = probes.run(published, |_, _, _| async {});
    tokio::time::timeout(BOUND, asking).await.expect("it ends");
}

#[tokio::test]
async fn a_service_that_recovers_is_healthy_again() {
    let service = Service::start();
    let address = service.address;
    let settings = health(vec![http(&service.url("/"))]);
    let mut service = Some(service);
    let mut turns = Vec::new();
    let last = result_of(&settings, |result| {
        if turns.last() != Some(&result.succeeded) {
            turns.push(result.succeeded);
            service = if result.succeeded { None } else { Some(Service::start_at(address)) };
        }
        turns.len() == 3
    })
    .await;
    assert!(last.succeeded && turns == [true, false, true], "{turns:?}");
}

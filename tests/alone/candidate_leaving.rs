//! Handover by a candidate inside a service: the work is drained or dropped, and the lease is
//! released right after that. And the errors of invalid settings.

use testkit::tasks;

use std::process::Command;
use std::time::Duration;

use tasks::{Election, PATIENCE, WorkLog, forever, leads, since, soon};
use tenure::candidate::{Ended, Leadership, State};
use tenure::{Candidate, StartError, clock};

/// A drain-timeout that outlasts the test.
const LONG: Duration = Duration::from_secs(300);

/// Waits until the lease is free.
async fn is_free(election: &Election) {
    let free = async {
        while !election.is_free().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, free).await.expect("the lease is given back");
}

/// A work that takes this long to end after the drain began.
async fn ends_after(log: WorkLog, leadership: Leadership, length: Duration) -> &'static str {
    let _guard = log.begin("a", leadership.term());
    leadership.draining().await;
    assert!(!leadership.holds(clock::now()));
    tokio::time::sleep(length).await;
    "ended"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_when_the_last_task_has_ended() {
    let election = Election::new();
    let candidate = election.lasting("a").drain_timeout(LONG).start().unwrap();
    let term = leads(&candidate).await;
    let next = election.lasting("b").start().unwrap();
    let other = election.work_until_resigned("b", next.clone());
    let work = |length| {
        let log = election.log.clone();
        candidate.run_while_leader(move |it| ends_after(log, it, length))
    };
    let stepping = async {
        soon("both work", || (election.log.all().len() == 2).then_some(())).await;
        assert!(candidate.step_down(LONG).await);
        assert_eq!(candidate.status().state(clock::now()), State::Draining);
        assert_eq!(candidate.status().term(), Some(term));
        assert!(!candidate.is_leader(clock::now()));
    };
    let (quick, slow, ()) =
        tokio::join!(work(Duration::ZERO), work(Duration::from_secs(1)), stepping);
    assert_eq!((quick, slow), (Ok("ended"), Ok("ended")));
    election.log.until("the other works", |it| it.who == "b").await;
    election.log.assert_one_at_a_time();
    other.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_at_once_if_the_tasks_of_the_term_have_ended() {
    for _ in 0..30 {
        let election = Election::new();
        let candidate = election.lasting("a").drain_timeout(LONG).start().unwrap();
        // The work ends as soon as the drain begins.
        let work = candidate.run_while_leader(|it| async move { it.draining().await });
        let stepping = async {
            leads(&candidate).await;
            assert!(candidate.step_down(LONG).await);
        };
        assert_eq!(tokio::join!(work, stepping).0, Ok(()));
        is_free(&election).await;
    }
    let election = Election::new();
    let candidate = election.lasting("a").drain_timeout(LONG).start().unwrap();
    assert_eq!(candidate.run_while_leader(|_| async {}).await, Ok(()));
    assert!(candidate.step_down(LONG).await);
    is_free(&election).await;
}

#[tokio::test]
async fn without_tasks_a_drain_lasts_its_timeout_or_until_drained_is_called() {
    let election = Election::new();
    let drain = Duration::from_secs(1);
    let candidate = election.lasting("a").drain_timeout(drain).start().unwrap();
    leads(&candidate).await;
    let began = clock::now();
    assert!(candidate.step_down(LONG).await);
    is_free(&election).await;
    assert!(since(began) >= drain, "{:?}", since(began));
    assert!(!candidate.drained().await, "nothing is drained now");
    candidate.resign().await;

    let candidate = election.lasting("b").drain_timeout(LONG).start().unwrap();
    leads(&candidate).await;
    assert!(candidate.step_down(LONG).await);
    assert!(candidate.drained().await);
    is_free(&election).await;
}

#[tokio::test]
async fn a_task_that_does_not_end_is_dropped_at_the_end_of_the_drain() {
    let election = Election::new();
    let drain = Duration::from_millis(700);
    // If a work cannot be ended in time, the election waits two request-timeouts more.
    let patient = election.lasting("a").request_timeout(PATIENCE * 2);
    let candidate = patient.drain_timeout(drain).start().unwrap();
    leads(&candidate).await;
    let next = election.lasting("b").start().unwrap();
    let work = candidate.run_while_leader(|it| forever(election.log.clone(), "a".to_owned(), it));
    let stepping = async {
        let term = election.log.until("it works", |it| it.who == "a").await.term;
        let began = clock::now();
        assert!(candidate.step_down(Duration::from_secs(60)).await);
        (term, began)
    };
    let both = async { tokio::join!(work, stepping) };
    let (ended, (term, began)) = tokio::time::timeout(PATIENCE, both).await.expect("dropped");
    assert!(since(began) >= drain, "{:?}", since(began));
    assert_eq!(ended, Err(Ended::Lost { term }));
    assert!(leads(&next).await > term);
}

#[tokio::test]
async fn resign_returns_when_the_lease_is_released_even_inside_a_task() {
    let election = Election::new();
    let candidate = election.lasting("a").start().unwrap();
    leads(&candidate).await;
    candidate.resign().await;
    assert!(election.is_free().await);
    assert_eq!(candidate.run_while_leader(|_| async {}).await, Err(Ended::Resigned));
    assert_eq!(candidate.status().state(clock::now()), State::Stopped);
    assert!(!candidate.step_down(Duration::ZERO).await && !candidate.drained().await);
    candidate.resign().await;

    let candidate = election.lasting("b").start().unwrap();
    let within = candidate.clone();
    let ended = candidate.run_while_leader(|_| async move { within.resign().await }).await;
    assert!(matches!(ended, Err(Ended::Lost { .. })), "{ended:?}");
    is_free(&election).await;

    let leader = election.lasting("c").start().unwrap();
    leads(&leader).await;
    let standby = election.lasting("d").start().unwrap();
    let (waiting, ()) = tokio::join!(standby.run_while_leader(|_| async {}), standby.resign());
    assert_eq!(waiting, Err(Ended::Resigned));
    assert!(leader.is_leader(clock::now()), "the resignation of another has no effect");
}

#[tokio::test]
async fn resign_returns_if_a_task_is_not_polled_and_does_not_release_the_lease() {
    let election = Election::new();
    let candidate = election.hasty("a").start().unwrap();
    let term = leads(&candidate).await;
    let mut work = Box::pin(
        candidate.run_while_leader(|it| forever(election.log.clone(), "a".to_owned(), it)),
    );
    assert!(futures::poll!(work.as_mut()).is_pending());
    assert!(election.log.running().is_some());
    let next = election.hasty("b").start().unwrap();
    let last_grant = clock::now();
    tokio::time::timeout(PATIENCE, candidate.resign()).await.expect("it ends");
    // It leads only after the lease has expired; the last grant was before `last_grant`.
    assert!(leads(&next).await > term);
    assert!(since(last_grant) >= Duration::from_secs(1), "{:?}", since(last_grant));
    assert_eq!(work.await, Err(Ended::Lost { term }));
}

#[tokio::test]
async fn the_drop_of_the_last_clone_resigns() {
    let election = Election::new();
    let candidate = election.lasting("a").start().unwrap();
    let clone = candidate.clone();
    leads(&candidate).await;
    let mut changes = candidate.changes();
    drop(candidate);
    let more = tokio::time::timeout(Duration::from_millis(300), async {
        while changes.next().await.unwrap().state(clock::now()) != State::Stopped {}
    });
    assert!(more.await.is_err(), "a clone is left");
    assert!(clone.is_leader(clock::now()));
    drop(clone);
    is_free(&election).await;
    while changes.next().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_panics_or_is_cancelled_has_ended() {
    let election = Election::new();
    let candidate = election.lasting("a").drain_timeout(LONG).start().unwrap();
    for in_closure in [true, false] {
        let running = candidate.clone();
        let task = tokio::spawn(async move {
            let work = |_| {
                assert!(!in_closure, "as the test wants");
                async { panic!("as the test wants") }
            };
            let _: Result<(), Ended> = running.run_while_leader(work).await;
        });
        assert!(task.await.unwrap_err().is_panic());
    }
    let running = candidate.clone();
    let task = election.work_until_resigned("a", running);
    election.log.until("it works", |_| true).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(candidate.is_leader(clock::now()));
    assert!(candidate.step_down(LONG).await);
    is_free(&election).await;
}

#[tokio::test]
async fn all_invalid_settings_are_reported_at_once_with_their_remedies() {
    let error = Candidate::builder("no spaces", "nfs://nowhere")
        .identity("")
        .retry_period(Duration::from_secs(60))
        .setting("leese-duration", "1s")
        .setting("health", "tcp://localhost:1")
        .setting("observe", "perhaps")
        .start()
        .unwrap_err();
    let StartError::Settings(faults) = &error else { panic!("{error:?}") };
    let mut named: Vec<_> = faults.0.iter().map(|it| it.setting.as_str()).collect();
    named.sort_unstable();
    named.dedup();
    let wrong =
        ["election", "health", "identity", "leese-duration", "observe", "renew-deadline", "store"];
    assert_eq!(named, wrong, "{error}");
    let text = error.to_string();
    for words in [
        "\"nfs://nowhere\" (set by the program)",
        "leese-duration (set by",
        "did you mean lease-duration?",
        "sidecar",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert!(!text.contains("flag"), "{text}");
}

/// Runs itself again in an environment that would be invalid for a sidecar.
#[tokio::test]
async fn variables_of_a_sidecar_are_not_read() {
    const INSIDE: &str = "CANDIDATE_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        let candidate = Candidate::builder("orders", "memory:").start().unwrap();
        leads(&candidate).await;
        let status = candidate.status();
        assert_eq!(status.leader().map(|(who, _)| who), Some("of-the-pod"));
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "candidate_leaving::variables_of_a_sidecar_are_not_read"])
        .env(INSIDE, "1")
        .env("POD_NAME", "of-the-pod")
        .env("TENURE_IDENTITY", "of-the-sidecar")
        .env("TENURE_LEASE_DURATION", "nonsense")
        .env("TENURE_STORE", "nonsense")
        .env("TENURE_CONFIG", "/nonexistent")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

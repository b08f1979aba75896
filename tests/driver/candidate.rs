//! Candidates inside a service: one leads at a time, among other embedded candidates and sidecars,
//! and no work of a leader continues in the term of another.

use testkit::faults::fault_proxy;
use testkit::processes::{cluster, process};
use testkit::tasks;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use cluster::Cluster;
use fault_proxy::Door;
use rustix::process::Signal;
use tasks::{Election, PATIENCE, WorkLog, forever, leads, soon};
use tenure::Candidate;
use tenure::candidate::{Ended, State};
use tenure::clock;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_candidate_works_at_a_time_and_the_next_takes_over_after_a_resign_or_drop() {
    let election = Election::new();
    let names = ["a", "b", "c", "d"];
    let mut candidates = names.map(|who| Some(election.lasting(who).start().unwrap()));
    let tasks: Vec<_> = names
        .iter()
        .zip(&candidates)
        .map(|(who, it)| election.work_until_resigned(who, it.clone().unwrap()))
        .collect();
    let mut done = Vec::new();
    for turn in 0..3 {
        let work = election.log.until("the next works", |it| !done.contains(&it.who)).await;
        let index = names.iter().position(|who| **who == work.who).unwrap();
        let candidate = candidates[index].take().unwrap();
        assert!(candidate.is_leader(clock::now()) && candidate.status().term() == Some(work.term));
        let leaders: Vec<_> =
            candidates.iter().flatten().map(|it| it.is_leader(clock::now())).collect();
        assert!(!leaders.contains(&true), "{} leads: {leaders:?}", work.who);
        match turn {
            0 => candidate.resign().await,
            1 => assert!(candidate.step_down(Duration::from_secs(3_600)).await),
            _ => {
                // The task owns the last clone.
                tasks[index].abort();
                drop(candidate);
            }
        }
        done.push(work.who);
    }
    let last = election.log.until("the last works", |it| !done.contains(&it.who)).await;
    assert_eq!(election.log.all().len(), 4, "{:?}", election.log.all());
    assert!(last.term > 0);
    election.log.assert_one_at_a_time();
}

#[tokio::test]
async fn a_candidate_competes_with_sidecars_for_one_election() {
    let election = Election::new();
    let start = |name: &str| {
        let arguments = ["--store", &election.url(), "--election", "orders"];
        let short =
            ["--lease-duration", "600s", "--renew-deadline", "500s", "--retry-period", "200ms"];
        process::Process::run(name, &[&arguments[..], &short].concat(), &[])
    };
    let mut sidecar = start("sidecar");
    let led = || sidecar.is_leader().then(|| sidecar.status()?["term"].as_u64()).flatten();
    let first = soon("the sidecar leads", led).await;

    let candidate = election.lasting("inside").advertise("10.0.0.7:80").start().unwrap();
    let known = || candidate.status().leader().map(|(who, term)| (who.to_owned(), term));
    assert_eq!(soon("it knows", known).await, ("sidecar".to_owned(), first));
    assert!(!candidate.is_leader(clock::now()));
    assert_eq!(candidate.status().state(clock::now()), State::Standby);
    sidecar.signal(Signal::TERM);
    sidecar.wait(PATIENCE);
    let second = leads(&candidate).await;

    let other = start("other");
    let holder = || {
        let holder = other.status()?["holder"].clone();
        let known = (holder["identity"] == "inside").then(|| holder["term"].as_u64());
        assert!(known.is_none() || holder["address"] == "10.0.0.7:80", "{holder}");
        known.flatten()
    };
    assert_eq!(soon("the other knows", holder).await, second);
    assert!(!other.is_leader());
    candidate.resign().await;
    assert!(!candidate.is_leader(clock::now()));
    let led = || other.is_leader().then(|| other.status()?["term"].as_u64()).flatten();
    let third = soon("the other leads", led).await;
    assert!(first < second && second < third, "{first} {second} {third}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_of_a_candidate_that_is_cut_off_is_dropped_before_another_works() {
    let election = Election::new();
    let (url, link) = election.second_way();
    let cut = election.by_way_of(&url, "cut").start().unwrap();
    leads(&cut).await;
    let well = election.hasty("well").start().unwrap();
    let next = election.work_until_resigned("well", well.clone());
    let work = cut.run_while_leader(|it| forever(election.log.clone(), "cut".to_owned(), it));
    let cutting = async {
        let work = election.log.until("it works", |it| it.who == "cut").await;
        std::fs::remove_file(&link).unwrap();
        work.term
    };
    let both = async { tokio::join!(work, cutting) };
    let (ended, term) = tokio::time::timeout(PATIENCE, both).await.expect("it is dropped");
    assert_eq!(ended, Err(Ended::Lost { term }));
    election.log.until("the other works", |it| it.who == "well").await;
    assert!(!cut.is_leader(clock::now()) && well.is_leader(clock::now()));
    assert!(cut.status().store_error().is_some());
    election.log.assert_one_at_a_time();

    // It is still a candidate, and leads again when the path is restored.
    std::os::unix::fs::symlink(election.root(), &link).unwrap();
    next.abort();
    well.resign().await;
    assert!(leads(&cut).await > term);
}

#[test]
fn on_blobs_too_work_of_a_candidate_that_is_cut_off_is_dropped_before_another_works() {
    let mut cluster = Cluster::behind_proxies("candidates");
    cluster.add_proxy();
    let candidate = |who: &str, endpoint: &str| {
        Candidate::builder("candidates", "azure://devstoreaccount1/elections")
            .identity(who)
            .setting("azure-endpoint", endpoint)
            .setting("azure-insecure-http", "true")
            .renew_deadline(Duration::from_secs(4))
            .retry_period(Duration::from_millis(500))
            .request_timeout(Duration::from_secs(1))
    };
    let proxied = cluster.proxies[0].endpoint(cluster.endpoint());
    let log = WorkLog::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cut = candidate("cut", &proxied).start().unwrap();
        leads(&cut).await;
        let well = candidate("well", cluster.endpoint().as_str()).start().unwrap();
        let work = cut.run_while_leader(|it| forever(log.clone(), "cut".to_owned(), it));
        let cutting = async {
            log.until("it works", |it| it.who == "cut").await;
            cluster.proxies[0].door(Door::Shut);
        };
        let next = async {
            let work = |it| forever(log.clone(), "well".to_owned(), it);
            let next = well.run_while_leader(work);
            let _ = tokio::time::timeout(PATIENCE * 2, next).await;
        };
        let both = async {
            assert!(matches!(tokio::join!(work, cutting).0, Err(Ended::Lost { .. })));
            log.until("the other works", |it| it.who == "well").await;
        };
        tokio::select! {
            () = next => panic!("it leads on"),
            () = both => {}
        }
        log.assert_one_at_a_time();
        well.resign().await;
    });
}

#[tokio::test]
async fn after_a_freeze_a_task_is_not_polled_again() {
    let election = Election::new();
    let candidate = election.hasty("a").start().unwrap();
    let polls = Arc::new(AtomicU32::new(0));
    let polled = Arc::clone(&polls);
    // A task that wakes itself before it returns is polled before the runtime checks any timer.
    let frozen = tokio::spawn(async move {
        let work = |_| {
            std::future::poll_fn(|context| {
                polled.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1_500));
                context.waker().wake_by_ref();
                Poll::<()>::Pending
            })
        };
        candidate.run_while_leader(work).await
    });
    let ended = frozen.await.unwrap();
    assert!(matches!(ended, Err(Ended::Lost { .. })), "{ended:?}");
    assert_eq!(polls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_task_that_ends_returns_its_value_and_the_candidate_keeps_leading() {
    let election = Election::new();
    let candidate = election.lasting("a").start().unwrap();
    let first = candidate.run_while_leader(|it| async move { it.term() }).await.unwrap();
    let second = candidate
        .run_while_leader(|it| async move {
            assert!(it.holds(clock::now()) && it.remaining(clock::now()) > Duration::from_secs(9));
            it.term()
        })
        .await;
    assert_eq!(second, Ok(first));
    assert_eq!(leads(&candidate).await, first);
}

#[tokio::test]
async fn changes_begin_with_the_present_state_and_omit_renewals() {
    let election = Election::new();
    let candidate = election.lasting("a").retry_period(Duration::from_millis(50)).start().unwrap();
    let mut changes = candidate.changes();
    assert_eq!(changes.next().await.unwrap().state(clock::now()), State::Starting);
    while changes.next().await.unwrap().state(clock::now()) != State::Leader {}
    let more = tokio::time::timeout(Duration::from_millis(500), changes.next()).await;
    assert!(more.is_err(), "{more:?}");
    let (_, seen) = tokio::join!(candidate.resign(), async {
        let mut seen = Vec::new();
        while let Some(status) = changes.next().await {
            seen.push(status.state(clock::now()));
        }
        seen
    });
    assert_eq!(seen.last(), Some(&State::Stopped), "{seen:?}");
}

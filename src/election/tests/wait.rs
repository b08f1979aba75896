//! The bound of the wait for the first lease, where observers count the time and where the store does.

use super::*;
use crate::election::{PeerNotice, Wait};
use crate::lease::Claim;

/// The duration of the observed lease, longer than that of the candidate.
const ITS_LEASE: u64 = 20_000;

/// Answers a read.
type Read = fn() -> Result<Answer, StoreError>;

fn waiting(wait: u64) -> Bench {
    Bench::new(Config { wait: Some(ms(wait)), ..config() })
}

/// A read of a lease that is claimed, after this renewal.
fn claimed(renewal: u64) -> Result<Answer, StoreError> {
    Ok(Answer::Snapshot(Snapshot { claim: Some(claim(renewal)), ..held() }))
}

fn claim(renewal: u64) -> Claim {
    Claim { spec: Version(renewal.to_string().into()), lease_duration: ms(ITS_LEASE) }
}

/// A read of a lease that is held, and whose time the store counts.
fn held() -> Snapshot {
    let version = Version("held".into());
    Snapshot { free: false, record: record(Some(7)), version, claim: None, ends_in: None }
}

fn over(bench: &Bench) -> Option<bool> {
    match bench.election.status().wait {
        Some(Wait::Over { conflict }) => Some(conflict),
        _ => None,
    }
}

/// Answers reads with the claim until the wait is over or the candidate bids; returns how long that took.
fn outwait(bench: &mut Bench, mut read: impl FnMut(u64) -> Result<Answer, StoreError>) -> u64 {
    let mut waited = 0;
    while waited < 10 * ITS_LEASE && over(bench).is_none() {
        match &bench.request {
            Some(it) if it.op.name() == "read" => bench.answer(read(waited)),
            Some(_) => break,
            None => {
                bench.pass(1);
                waited += 1;
            }
        }
    }
    waited
}

#[test]
fn a_wait_of_zero_takes_a_free_lease() {
    let mut bench = waiting(0);
    bench.answer(Ok(free(Some(7))));
    bench.expect("acquire");
    bench.answer(Ok(grant(Some(7))));
    bench.answer(Ok(Answer::Term(8)));
    assert_eq!((bench.state(), bench.election.status().wait), (State::Leader, None));
}

#[test]
fn a_claim_that_is_never_renewed_runs_out_for_each_wait() {
    for wait in [0, 5_000, ITS_LEASE - 1] {
        let mut bench = waiting(wait);
        bench.answer(claimed(1));
        let waited = outwait(&mut bench, |_| claimed(1));
        assert_eq!(over(&bench), None, "{wait}");
        bench.expect("acquire");
        let soon = ITS_LEASE..=ITS_LEASE + RETRY / 8 + 1;
        assert!(soon.contains(&waited), "{waited}: once the claim has run out");
        bench.answer(Ok(grant(Some(7))));
        bench.answer(Ok(Answer::Term(8)));
        assert_eq!((bench.state(), bench.election.status().wait), (State::Leader, None));
    }
}

/// What shows that the claim is not to run out unchanged.
#[test]
fn once_the_time_is_over_any_change_of_the_claim_ends_the_wait() {
    let released = || Ok(free(Some(7)));
    let changes: [(&str, Read); 3] = [
        ("renewed, taken or broken", || claimed(2)),
        ("released", released),
        ("counted", || Ok(Answer::Snapshot(held()))),
    ];
    for wait in [0, 5_000] {
        for (change, read) in changes {
            for at in [wait + 1, ITS_LEASE - 1, ITS_LEASE + RETRY] {
                let mut bench = waiting(wait);
                bench.answer(claimed(1));
                outwait(&mut bench, |waited| if waited < at { claimed(1) } else { read() });
                if at <= ITS_LEASE {
                    assert_eq!(over(&bench), Some(true), "{wait}, {change} at {at}");
                    bench.pass(10 * ITS_LEASE);
                    assert!(bench.request.is_none_or(|it| it.op.name() == "read"), "no bid");
                }
            }
        }
    }
}

#[test]
fn before_the_time_is_over_every_way_to_the_lease_is_open() {
    let mut bench = waiting(5_000);
    bench.answer(claimed(1));
    outwait(&mut bench, |waited| match waited {
        0..2_500 => claimed(1),
        _ => Ok(free(Some(7))),
    });
    assert_eq!(over(&bench), None);
    bench.expect("acquire");
}

#[test]
fn a_reported_renewal_ends_the_wait_at_once() {
    let mut bench = waiting(0);
    bench.answer(claimed(1));
    bench.pass(100);
    bench.event(Input::Changed(Change::Renewal(claim(1))));
    assert_eq!(over(&bench), None);
    bench.event(Input::Changed(Change::Renewal(claim(2))));
    assert_eq!(over(&bench), Some(true));
}

#[test]
fn a_bid_that_is_refused_ends_the_wait_if_its_time_is_over() {
    for (wait, expected) in [(0, Some(true)), (5_000, None)] {
        let mut bench = waiting(wait);
        bench.answer(Ok(free(Some(7))));
        bench.answer(refused());
        assert_eq!(over(&bench), expected, "{wait}");
    }
    let mut bench = waiting(0);
    bench.answer(claimed(1));
    outwait(&mut bench, |_| claimed(1));
    bench.expect("acquire");
    bench.answer(refused());
    assert_eq!(over(&bench), Some(true));
}

#[test]
fn a_bid_in_progress_is_waited_for_and_its_unknown_outcome_is_no_conflict() {
    let mut bench = waiting(1_000);
    bench.answer(Ok(free(Some(7))));
    bench.expect("acquire");
    bench.pass(1_500);
    assert_eq!(over(&bench), None);
    for _ in 0..40 {
        if over(&bench).is_some() {
            break;
        }
        if bench.request.is_some() {
            bench.answer(unknown());
        }
        bench.pass(1_000);
    }
    assert_eq!(over(&bench), Some(false));
}

#[test]
fn a_lease_that_the_store_counts_and_a_store_that_fails_end_the_wait_with_its_time() {
    for (wait, read, conflict) in [
        (0, Ok(Answer::Snapshot(held())), true),
        (0, unknown(), false),
        (3_000, Ok(Answer::Snapshot(held())), true),
        (3_000, unknown(), false),
    ] {
        let mut bench = waiting(wait);
        bench.answer(read.clone());
        let waited = outwait(&mut bench, |_| read.clone());
        assert_eq!((over(&bench), waited), (Some(conflict), wait), "{read:?}");
    }
    let mut unanswered = waiting(3_000);
    unanswered.pass(2_999);
    assert_eq!(over(&unanswered), None);
    unanswered.pass(1);
    assert_eq!(over(&unanswered), Some(false));
}

#[test]
fn a_store_that_fails_when_the_claim_has_run_out_ends_the_wait() {
    let mut bench = waiting(0);
    bench.answer(claimed(1));
    let waited = outwait(&mut bench, |waited| match waited {
        3_000..9_000 => unknown(),
        ..15_000 => claimed(1),
        _ => unknown(),
    });
    assert_eq!(over(&bench), Some(false));
    assert!((ITS_LEASE..=ITS_LEASE + RETRY).contains(&waited), "{waited}");
}

#[test]
fn a_candidate_that_may_not_bid_waits_for_no_claim() {
    for (paused_at, wait) in [(0, 0), (0, 5_000), (7_000, 5_000)] {
        let mut bench = waiting(wait);
        bench.answer(claimed(1));
        let mut waited = 0;
        while over(&bench).is_none() && waited < ITS_LEASE {
            if waited == paused_at {
                bench.command(Command::Pause).unwrap();
            }
            bench.pass(1);
            waited += 1;
            if bench.request.is_some() {
                bench.answer(claimed(1));
            }
        }
        assert!(over(&bench).is_some(), "{paused_at}, {wait}");
        assert!(waited <= paused_at.max(wait) + 1, "{waited}");
    }
}

#[test]
fn a_leader_that_notifies_puts_off_no_read_that_may_show_its_renewal() {
    for wait in [0, 5_000] {
        let mut bench = waiting(wait);
        bench.answer(claimed(1));
        let lease = (ms(50), ms(LEASE), ms(RETRY));
        let holding =
            || PeerNotice::Holding { term: 7, sent_ago: lease.0, lease: lease.1, next: lease.2 };
        bench.event(Input::Peer(holding()));
        bench.pass(wait);
        bench.event(Input::Peer(holding()));
        for _ in 0..3 {
            let waited = bench.next("read");
            assert!(waited <= 2 * RETRY, "{waited}");
            bench.answer(claimed(1));
            bench.event(Input::Peer(holding()));
        }
        bench.next("read");
        bench.answer(claimed(2));
        assert_eq!(over(&bench), Some(true));
    }
}

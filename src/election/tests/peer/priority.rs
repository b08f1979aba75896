//! The priority without peers: a candidate of low priority bids later.

use super::*;
use crate::lease::Successor;

fn of_priority(priority: u8) -> Config {
    Config { priority, ..config() }
}

/// Returns how many milliseconds pass from the first read that shows the lease free to the bid.
fn until_bid(bench: &mut Bench) -> u64 {
    for waited in 0..100_000 {
        match bench.request.as_ref().map(|it| it.op.name()) {
            Some("acquire") => return waited,
            Some(_) => bench.answer(Ok(free(Some(8)))),
            None => {
                bench.sleep(1);
                bench.tick();
            }
        }
    }
    panic!("no bid");
}

#[test]
fn a_candidate_of_low_priority_bids_later_by_up_to_a_retry_period() {
    for (priority, wait) in [
        (0, RETRY),
        (10, RETRY * 4 / 5),
        (25, RETRY / 2),
        (49, RETRY / 50),
        (50, 0),
        (51, 0),
        (100, 0),
    ] {
        let mut bench = Bench::standby_with(of_priority(priority));
        assert_eq!(bench.next("read"), RETRY, "it reads a lease that is held as others do");
        let waited = until_bid(&mut bench);
        assert!((wait..wait + 4).contains(&waited), "{waited} with priority {priority}");
    }
}

#[test]
fn that_wait_begins_anew_when_another_has_held_the_lease() {
    let mut bench = Bench::standby_with(of_priority(0));
    bench.next("read");
    bench.answer(Ok(free(Some(8))));
    bench.next("read");
    bench.answer(Ok(held(Some(9))));
    bench.next("read");
    assert!(until_bid(&mut bench) >= RETRY);
}

#[test]
fn the_slower_clock_counts_that_wait() {
    let mut bench = Bench::new(of_priority(0));
    bench.answer(Ok(free(Some(8))));
    bench.now.boot += ms(RETRY);
    bench.tick();
    bench.expect("read");
    bench.answer(Ok(free(Some(8))));
    assert!(bench.request.is_none());
}

#[test]
fn a_clock_that_goes_back_starts_that_wait_anew_and_no_more() {
    let mut bench = Bench::new(of_priority(0));
    bench.answer(Ok(free(Some(8))));
    bench.now.boot -= ms(3_600_000);
    let waited = until_bid(&mut bench);
    assert!((RETRY..RETRY + 4).contains(&waited), "{waited}");
}

#[test]
fn that_wait_begins_anew_after_a_leadership() {
    let mut bench = Bench::new(of_priority(0));
    until_bid(&mut bench);
    bench.answer(Ok(grant(Some(8))));
    bench.answer(Ok(Answer::Term(9)));
    bench.next("renew");
    bench.answer(refused());
    bench.next("read");
    assert!(until_bid(&mut bench) >= RETRY);
}

#[test]
fn the_next_in_line_does_not_wait_whatever_its_priority() {
    let mut bench = Bench::standby_with(of_priority(0));
    bench.notify(holding(8));
    bench.notify(released(8, true));
    bench.answer(Ok(free(Some(8))));
    bench.expect("acquire");

    let mut bench = Bench::standby_with(of_priority(0));
    let successor = Some(Successor { identity: "us".into(), hold_off: ms(8_000) });
    let Answer::Snapshot(snapshot) = free(Some(8)) else { unreachable!() };
    let record = Record { successor, ..snapshot.record };
    bench.next("read");
    bench.answer(Ok(Answer::Snapshot(Snapshot { record, ..snapshot })));
    bench.expect("acquire");
}

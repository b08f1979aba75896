//! Notices of the leader's stream: when a standby reads, and that it bids for nothing else than what it
//! has read as free.

use super::*;
use crate::election::{PeerNotice, PeerOutcome};

mod bounds;
mod loss;
mod priority;
mod release;

/// The time between two reads of a notified standby.
const SLOW: u64 = 30_000;

/// The longest jitter of that.
const SPREAD: u64 = RETRY / 4;

fn holding(term: u64) -> PeerNotice {
    PeerNotice::Holding { term, sent_ago: ms(50), lease: ms(LEASE), next: ms(RETRY) }
}

fn released(term: u64, is_heir: bool) -> PeerNotice {
    PeerNotice::Released { term, is_heir }
}

impl Bench {
    /// Creates a standby that has read that term 8 holds the lease.
    fn standby() -> Self {
        Self::standby_with(config())
    }

    fn standby_with(config: Config) -> Self {
        let mut bench = Self::new(config);
        bench.answer(Ok(held(Some(8))));
        assert!(bench.request.is_none());
        bench
    }

    /// Creates a standby that the leader of term 8 notifies.
    fn notified() -> Self {
        let mut bench = Self::standby();
        assert_eq!(bench.notify(holding(8)), PeerOutcome::Applied);
        bench
    }

    /// Hands in a notice, and returns what it has changed.
    pub(super) fn notify(&mut self, notice: PeerNotice) -> PeerOutcome {
        let counted = notice.kind();
        self.event(Input::Peer(notice));
        match self.notices.last() {
            Some(Notice::Peer { kind, outcome }) if *kind == counted => *outcome,
            other => panic!("a notice that is not counted: {other:?}"),
        }
    }

    /// Lets time pass in which the leader of `term` sends its notices, until the next read; returns how
    /// many milliseconds that took.
    fn next_while_notified(&mut self, term: u64) -> u64 {
        for waited in 0..200_000 {
            if self.request.is_some() {
                self.expect("read");
                return waited;
            }
            if waited % RETRY == 0 {
                self.notify(holding(term));
            }
            self.sleep(1);
            self.tick();
        }
        panic!("no read in 200 s");
    }

    /// Answers each read alike for so many milliseconds; returns when the reads were sent. Fails if
    /// anything else is requested.
    fn reads_within(&mut self, millis: u64, answer: &Answer) -> Vec<u64> {
        let mut sent = Vec::new();
        for at in 0..millis {
            if self.request.is_some() {
                self.expect("read");
                sent.push(at);
                self.answer(Ok(answer.clone()));
            }
            self.sleep(1);
            self.tick();
        }
        sent
    }
}

#[test]
fn holding_moves_the_next_read_to_the_slow_period() {
    for jitter in [0.0, 0.5, 1.0] {
        let mut bench = Bench::standby();
        bench.jitter = jitter;
        for _ in 0..3 {
            let waited = bench.next_while_notified(8);
            assert!((SLOW..=SLOW + SPREAD).contains(&waited), "{waited} with jitter {jitter}");
            bench.answer(Ok(held(Some(8))));
        }
    }
}

#[test]
fn the_slow_period_is_fifteen_retry_periods_up_to_30_s() {
    let mut bench = Bench::standby_with(Config { retry_period: ms(1_000), ..config() });
    bench.jitter = 0.0;
    assert_eq!(bench.next_while_notified(8), 15_000);
    let mut bench = Bench::standby_with(Config { retry_period: ms(4_000), ..config() });
    bench.jitter = 0.0;
    assert_eq!(bench.next_while_notified(8), SLOW);
}

#[test]
fn holding_of_an_older_term_is_ignored() {
    let mut bench = Bench::standby();
    assert_eq!(bench.notify(holding(7)), PeerOutcome::OldTerm);
    assert_eq!(bench.next("read"), RETRY);
}

#[test]
fn a_stream_of_a_leader_that_the_store_shows_to_be_over_slows_no_read() {
    let mut bench = Bench::notified();
    bench.next_while_notified(8);
    bench.answer(Ok(held(Some(9))));
    assert_eq!(bench.notify(holding(8)), PeerOutcome::OldTerm);
    assert_eq!(bench.next("read"), RETRY);
}

#[test]
fn a_lease_that_was_read_as_free_is_read_again_as_without_notices() {
    let mut bench = Bench::leader();
    bench.command(Command::StepDown { hold_off: ms(60_000) }).unwrap();
    bench.publish_acked();
    bench.answer(Ok(Answer::Done));
    bench.next("read");
    bench.answer(Ok(free(Some(8))));
    assert!(bench.request.is_none(), "it holds off");
    bench.notify(holding(9));
    assert_eq!(bench.next("read"), RETRY);
    bench.answer(Ok(free(Some(8))));
    bench.notify(holding(9));
    assert_eq!(bench.next("read"), RETRY);
}

#[test]
fn a_failed_read_is_tried_again_as_without_notices() {
    let mut bench = Bench::notified();
    bench.jitter = 1.0;
    bench.next_while_notified(8);
    for wait in [RETRY / 4, RETRY / 2, RETRY] {
        bench.answer(unknown());
        assert_eq!(bench.next_while_notified(8), wait);
    }
}

#[test]
fn a_candidate_that_backs_off_is_not_woken_by_notices() {
    let mut bench = Bench::bidding();
    bench.answer(foreign());
    bench.expect("release");
    bench.answer(Ok(Answer::Done));
    bench.notify(holding(8));
    bench.notify(released(8, true));
    bench.notify(holding(9));
    bench.notify(PeerNotice::Lost);
    assert!(bench.next("read") >= LEASE / 2);
}

#[test]
fn a_candidate_that_holds_the_lease_or_has_resigned_ignores_notices() {
    let notices = [holding(9), released(9, true), PeerNotice::Candidates { is_heir: true }];
    let mut resigned = Bench::notified();
    resigned.resign();
    for mut bench in [Bench::leader(), Bench::activating_with(config()), resigned] {
        bench.sleep(1_000);
        let before = (bench.state(), bench.request.as_ref().map(|it| it.id));
        let remaining = bench.remaining();
        for notice in &notices {
            assert_eq!(bench.notify(notice.clone()), PeerOutcome::NotStandby);
        }
        assert_eq!(bench.notify(PeerNotice::Lost), PeerOutcome::NotStandby);
        assert_eq!((bench.state(), bench.request.as_ref().map(|it| it.id)), before);
        assert_eq!(bench.remaining(), remaining);
        assert_eq!(bench.election.status().contact_due, None);
    }
}

#[test]
fn r6_a_notice_after_the_deadline_finds_the_leadership_over() {
    let mut bench = Bench::leader();
    bench.sleep(DEADLINE);
    assert_eq!(bench.notify(holding(9)), PeerOutcome::Applied);
    assert_eq!((bench.state(), bench.reason()), (State::Standby, Some(Reason::Lapsed)));
    assert!(bench.request.is_none(), "a lapsed lease is not renewed");
}

#[test]
fn notices_before_a_leadership_have_no_effect_after_it() {
    let mut bench = Bench::notified();
    bench.notify(released(8, true));
    bench.answer(Ok(free(Some(8))));
    bench.answer(Ok(grant(Some(8))));
    bench.answer(Ok(Answer::Term(9)));
    assert!(bench.leads());
    bench.next("renew");
    bench.answer(refused());
    assert_eq!(bench.reason(), Some(Reason::Lost));
    assert_eq!(bench.next("read"), RETRY);

    // The lease has run out, and the stream of its leader is there until the grant.
    let mut bench = Bench::notified();
    bench.next_while_notified(8);
    bench.answer(Ok(free(Some(8))));
    bench.answer(Ok(grant(Some(8))));
    bench.answer(Ok(Answer::Term(9)));
    bench.next("renew");
    bench.answer(refused());
    assert_eq!(bench.next("read"), RETRY, "not when that stream would have been silent");
}

#[test]
fn a_candidate_that_does_not_compete_reads_as_others_do_and_bids_for_nothing() {
    let observer = Bench::standby_with(Config { observe: true, ..config() });
    let mut paused = Bench::standby();
    paused.command(Command::Pause).unwrap();
    let health = Some(HealthRule { probes: 1, failures: 3, successes: 2 });
    let unhealthy = Bench::standby_with(Config { health, ..config() });
    for mut bench in [observer, paused, unhealthy] {
        assert!(bench.next_while_notified(8) >= SLOW);
        bench.answer(Ok(held(Some(8))));
        bench.notify(released(8, true));
        let waited = bench.next("read");
        assert!(waited >= RETRY / 4, "it is no heir, and reads after {waited} ms");
        bench.answer(Ok(free(Some(8))));
        assert!(bench.request.is_none());
        bench.notify(holding(8));
        bench.notify(PeerNotice::Lost);
        let reads = bench.reads_within(2 * LEASE, &free(Some(8)));
        assert!(reads.len() > 10 && reads.iter().all(|at| at % RETRY == 0), "{reads:?}");
    }
}

#[test]
fn the_status_says_for_how_long_the_store_is_not_read() {
    let due = |bench: &Bench| bench.election.status().contact_due;
    let mut bench = Bench::standby();
    assert_eq!(due(&bench), None);
    bench.jitter = 1.0;
    bench.notify(holding(8));
    assert_eq!(due(&bench), Some(ms(SLOW + SPREAD)));
    assert_eq!(bench.next_while_notified(8), SLOW + SPREAD);
    bench.answer(unknown());
    assert_eq!(due(&bench), Some(ms(SLOW + SPREAD)), "the store has not answered since");
    bench.next_while_notified(8);
    bench.answer(Ok(held(Some(8))));
    assert_eq!(due(&bench), Some(ms(SLOW + SPREAD)));
    bench.pass(3_000);
    bench.notify(PeerNotice::Lost);
    assert_eq!(due(&bench), Some(ms(3_000)), "from then on it is read as without notices");
    bench.answer(unknown());
    assert_eq!(due(&bench), Some(ms(3_000)));
    bench.next("read");
    bench.answer(Ok(held(Some(8))));
    assert_eq!(due(&bench), None);

    // A release counts like a loss, by the faster clock.
    let mut bench = Bench::notified();
    bench.now.boot += ms(3_000);
    bench.notify(released(8, false));
    assert_eq!(due(&bench), Some(ms(3_000)));

    // A record of another program is an answer of the store.
    let mut bench = Bench::notified();
    bench.next_while_notified(8);
    bench.answer(foreign());
    assert_eq!(due(&bench), None);

    // Once a read is put off for the whole period, no notice puts it off further.
    let mut bench = Bench::standby();
    for jitter in [0.0, 1.0] {
        bench.jitter = jitter;
        bench.notify(holding(8));
        assert_eq!(due(&bench), Some(ms(SLOW)));
    }
}

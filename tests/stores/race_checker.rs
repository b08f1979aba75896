//! The checker of races on histories that are linearizable, and on some that are not.

use std::sync::Arc;
use std::time::Duration;

use tenure::lease::{
    Bid, Candidate, Cause, Claim, LeaseId, Nonce, Record, Snapshot, Successor, Version,
};
use tenure::store::BreakOutcome;
use testkit::races::checker::check;
use testkit::races::history::{Answer, Asked, Call, History, Instant, Outcome};
use testkit::races::model::Model;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn version(name: &str) -> Version {
    Version(name.into())
}

/// A bid for 15 s.
fn bid(number: u128, seen: &str) -> Bid {
    Bid {
        lease: LeaseId::from_random(number),
        nonce: Nonce(number),
        candidate: Arc::new(Candidate {
            identity: "a".to_owned(),
            instance: format!("client-{number}"),
            address: None,
            peer: None,
        }),
        lease_duration: s(15),
        seen: version(seen),
        written: None,
    }
}

fn record(term: u64, bid: &Bid) -> Record {
    Record {
        term: Some(term),
        holder: Some(bid.candidate.clone()),
        nonce: Some(bid.nonce),
        successor: None,
    }
}

fn snapshot(free: bool, record: Record, name: &str, ends_in: Option<Duration>) -> Answer {
    Answer::Snapshot(Snapshot { free, record, version: version(name), claim: None, ends_in })
}

/// A history that is being written down.
struct Tale {
    model: Model,
    calls: Vec<Call>,
    time: Duration,
}

fn tale(model: Model) -> Tale {
    Tale { model, calls: Vec::new(), time: s(1000) }
}

impl Tale {
    /// The time of the calls that follow.
    fn at(mut self, seconds: u64) -> Self {
        self.time = s(1000 + seconds);
        self
    }

    /// A call that is made and answered at these instants.
    fn spans(
        mut self,
        (made, answered): (u64, u64),
        asked: Asked,
        bid: Option<&Bid>,
        outcome: Outcome,
    ) -> Self {
        let instant = |order| Instant { order, time: self.time };
        self.calls.push(Call {
            client: 0,
            asked,
            bid: bid.cloned(),
            invoked: instant(made),
            returned: instant(answered),
            outcome,
            after: None,
        });
        self
    }

    /// A call after all others.
    fn call(self, asked: Asked, bid: Option<&Bid>, answer: Answer) -> Self {
        let made = 1 + self.calls.iter().map(|it| it.returned.order).max().unwrap_or(0);
        self.spans((made, made + 1), asked, bid, Outcome::Answered(answer))
    }

    fn granted(self, bid: &Bid, found: Record) -> Self {
        self.call(Asked::Acquire, Some(bid), Answer::Granted(Some(found)))
    }

    fn term(self, bid: &Bid, term: u64) -> Self {
        self.call(Asked::WriteTerm { floor: 1 }, Some(bid), Answer::Term(term))
    }

    fn reads(self, answer: Answer) -> Self {
        self.call(Asked::Read, None, answer)
    }

    fn is_right(&self) -> bool {
        check(&self.model, &History(self.calls.clone())).is_ok()
    }

    #[track_caller]
    fn right(self) {
        let checked = check(&self.model, &History(self.calls.clone()));
        assert!(checked.is_ok(), "{}{}", History(self.calls), checked.unwrap_err());
    }

    #[track_caller]
    fn wrong(self) {
        assert!(!self.is_right(), "{}", History(self.calls));
    }
}

/// A read of an unused file, and the bid of A for it.
fn first() -> (Tale, Bid) {
    (tale(Model::FILE).reads(snapshot(true, Record::default(), "0", None)), bid(1, "0"))
}

/// A leads with the term 1, whose write is version 2.
fn leading() -> (Tale, Bid) {
    let (tale, a) = first();
    (tale.granted(&a, Record::default()).term(&a, 1), a)
}

#[test]
fn calls_one_after_the_other_are_as_the_lock_performs_them() {
    let (tale, a) = leading();
    let b = Successor { identity: "b".to_owned(), hold_off: s(1) };
    let named = Record { successor: Some(b.clone()), ..record(1, &a) };
    tale.reads(snapshot(false, record(1, &a), "2", Some(s(15))))
        .term(&a, 1)
        .call(Asked::SetSuccessor(b), Some(&a), Answer::Done)
        .call(Asked::Renew, Some(&a), Answer::Done)
        .call(Asked::Release, Some(&a), Answer::Done)
        .call(Asked::Renew, Some(&a), Answer::Refused)
        .reads(snapshot(true, named.clone(), "4", None))
        .granted(&bid(2, "4"), named)
        .term(&bid(2, "4"), 2)
        .right();
}

#[test]
fn a_held_lease_is_granted_to_no_other_bid() {
    let (tale, _) = leading();
    let tale = tale.reads(snapshot(false, record(1, &bid(1, "0")), "2", Some(s(15))));
    tale.granted(&bid(2, "2"), record(1, &bid(1, "0"))).wrong();
}

#[test]
fn of_two_bids_at_once_one_is_granted() {
    for (second, right) in
        [(Answer::Refused, true), (Answer::Granted(Some(Record::default())), false)]
    {
        let (tale, a) = first();
        let granted = Outcome::Answered(Answer::Granted(Some(Record::default())));
        let tale = tale.spans((3, 6), Asked::Acquire, Some(&a), granted);
        let second = Outcome::Answered(second);
        let tale = tale.spans((4, 5), Asked::Acquire, Some(&bid(2, "0")), second);
        assert_eq!(tale.is_right(), right);
    }
}

#[test]
fn only_a_read_that_overlaps_a_write_may_miss_it() {
    let unwritten = || Outcome::Answered(snapshot(false, Record::default(), "1", Some(s(15))));
    let (tale, _) = leading();
    tale.spans((6, 8), Asked::Read, None, unwritten()).right();
    let (tale, _) = leading();
    tale.spans((7, 8), Asked::Read, None, unwritten()).wrong();
}

#[test]
fn a_bid_for_an_outdated_version_is_refused() {
    let freed = || {
        let (tale, a) = leading();
        (tale.call(Asked::Release, Some(&a), Answer::Done), a)
    };
    let (tale, a) = freed();
    tale.granted(&bid(2, "0"), record(1, &a)).wrong();
    let (tale, _) = freed();
    tale.call(Asked::Acquire, Some(&bid(2, "0")), Answer::Refused).right();
    let (tale, a) = freed();
    tale.reads(snapshot(true, record(1, &a), "0", None)).wrong();
}

#[test]
fn the_found_record_is_the_one_that_stands_and_the_next_term_is_above_it() {
    let freed = || {
        let (tale, a) = leading();
        let tale = tale.call(Asked::Release, Some(&a), Answer::Done);
        (tale.reads(snapshot(true, record(1, &a), "3", None)), record(1, &a))
    };
    let (tale, _) = freed();
    tale.granted(&bid(2, "3"), Record::default()).wrong();
    for (term, right) in [(1, false), (2, true), (3, false)] {
        let (tale, found) = freed();
        assert_eq!(tale.granted(&bid(2, "3"), found).term(&bid(2, "3"), term).is_right(), right);
    }
}

#[test]
fn an_open_call_takes_effect_later_or_never_but_once_and_not_before_it_was_made() {
    let seen = |tale: Tale, term| {
        let found = if term == 0 { Record::default() } else { record(term, &bid(1, "0")) };
        let name = if term == 0 { "1" } else { "2" };
        tale.reads(snapshot(false, found, name, Some(s(15))))
    };
    let open = |tale: Tale, a: &Bid, made| {
        let unknown = Outcome::Open { until: None };
        tale.spans((made, made + 1), Asked::WriteTerm { floor: 1 }, Some(a), unknown)
    };
    let granted = || {
        let (tale, a) = first();
        (tale.granted(&a, Record::default()), a)
    };
    for (reads, right) in [([0, 0], true), ([0, 1], true), ([1, 1], true), ([1, 0], false)] {
        let (tale, a) = granted();
        let tale = reads.into_iter().fold(open(tale, &a, 5), seen);
        assert_eq!(tale.is_right(), right, "{reads:?}");
    }
    let (tale, a) = granted();
    open(seen(tale, 1), &a, 9).wrong();
}

#[test]
fn an_open_call_has_no_effect_after_its_end_and_one_that_had_no_effect_never_has() {
    for (outcome, right) in [
        (Outcome::Open { until: Some(20) }, true),
        (Outcome::Open { until: Some(8) }, false),
        (Outcome::HadNoEffect(Cause::Network, "not sent".to_owned()), false),
    ] {
        let (tale, a) = first();
        let tale = tale
            .granted(&a, Record::default())
            .spans((5, 6), Asked::WriteTerm { floor: 1 }, Some(&a), outcome)
            .spans((7, 8), Asked::Renew, Some(&a), Outcome::Answered(Answer::Done))
            .spans(
                (9, 10),
                Asked::Read,
                None,
                Outcome::Answered(snapshot(false, Record::default(), "1", Some(s(15)))),
            );
        assert!(tale.is_right());
        let tale = tale.spans(
            (11, 12),
            Asked::Read,
            None,
            Outcome::Answered(snapshot(false, record(1, &a), "2", Some(s(15)))),
        );
        assert_eq!(tale.is_right(), right);
    }
}

/// An open call that a later call shows took effect by then, and its time counts from then at the latest.
#[test]
fn the_effect_of_an_open_call_is_before_the_calls_that_show_it() {
    let (a, b) = (bid(1, "1"), bid(2, "1"));
    let record = || Record { term: Some(7), ..Record::default() };
    let reads = |tale: Tale, free| tale.reads(snapshot(free, record(), "1", None));
    let unused = || reads(tale(Model { first_term: Some(7), ..Model::AZURE }), true);
    let unknown = || Outcome::Unknown(Cause::Timeout, "no answer".to_owned());
    let acquired = || unused().spans((3, 4), Asked::Acquire, Some(&a), unknown());
    let refused = |tale: Tale| tale.call(Asked::Acquire, Some(&b), Answer::Refused);
    refused(acquired().at(100)).right();
    refused(reads(acquired(), false).at(14)).right();
    refused(reads(acquired(), false).at(15)).wrong();

    let breaks = Asked::Break { at_once: true };
    let over = Answer::Broken(BreakOutcome::Held { record: record(), free_in: s(1) });
    let broken = unused()
        .call(Asked::Acquire, Some(&a), Answer::Granted(None))
        .spans((9, 10), breaks, None, unknown())
        .call(Asked::Break { at_once: false }, None, over);
    reads(broken, true).right();
}

#[test]
fn a_lease_ends_after_its_duration_and_neither_earlier_nor_later() {
    for (seconds, free, right) in
        [(14, true, false), (14, false, true), (15, true, true), (15, false, false)]
    {
        let (tale, a) = leading();
        let ends_in = Some(s(15 - seconds));
        let tale = tale.at(seconds).reads(snapshot(free, record(1, &a), "2", ends_in));
        assert_eq!(tale.is_right(), right, "{seconds} s, {free}");
    }
    let (tale, a) = leading();
    tale.reads(snapshot(false, record(1, &a), "2", Some(s(14)))).wrong();
    let (tale, a) = leading();
    tale.at(5).call(Asked::Renew, Some(&a), Answer::Done).at(19).term(&a, 1).right();
    let (tale, a) = leading();
    tale.at(15).term(&a, 1).wrong();
}

/// A lease is acquired while the clock advances by 10 s, so it ends in a window of 10 s.
#[test]
fn what_a_call_tells_of_the_end_of_a_lease_binds_the_next_ones() {
    let acquired = || {
        let (mut tale, a) = first();
        tale = tale.granted(&a, Record::default());
        tale.calls[1].returned.time += s(10);
        tale
    };
    let held = |ends_in| snapshot(false, Record::default(), "1", Some(s(ends_in)));
    let over = || snapshot(true, Record::default(), "1", Some(s(0)));
    acquired().at(20).reads(over()).right();
    acquired().at(20).reads(held(3)).right();
    acquired().at(20).reads(held(6)).wrong();
    acquired().at(20).reads(over()).at(21).reads(over()).right();
    acquired().at(20).reads(over()).at(20).reads(held(3)).wrong();
    acquired().at(20).reads(held(3)).at(22).reads(held(1)).right();
    acquired().at(20).reads(held(3)).at(22).reads(held(2)).wrong();
    acquired().at(20).reads(held(3)).at(22).reads(over()).wrong();
}

#[test]
fn a_lease_that_is_broken_runs_out_or_is_free_at_once() {
    let broken = |at_once, left| {
        let (tale, a) = leading();
        let free_in = s(left);
        let held = BreakOutcome::Held { record: record(1, &a), free_in };
        (tale.at(5).call(Asked::Break { at_once }, None, Answer::Broken(held)), a)
    };
    let (tale, a) = broken(false, 10);
    tale.call(Asked::Renew, Some(&a), Answer::Refused)
        .reads(snapshot(false, record(1, &a), "3", Some(s(10))))
        .at(15)
        .granted(&bid(2, "3"), record(1, &a))
        .right();
    let (tale, a) = broken(false, 10);
    tale.call(Asked::Renew, Some(&a), Answer::Done).wrong();
    let (tale, a) = broken(false, 10);
    tale.reads(snapshot(true, record(1, &a), "3", None)).wrong();
    broken(false, 15).0.wrong();
    let (tale, a) = broken(true, 0);
    tale.reads(snapshot(true, record(1, &a), "3", None)).right();
    let (tale, _) = broken(true, 0);
    tale.reads(snapshot(true, Record::default(), "3", None)).wrong();
    broken(true, 10).0.wrong();
}

#[test]
fn a_call_that_was_alone_is_decided() {
    let unknown = || Outcome::Unknown(Cause::Unavailable, "busy".to_owned());
    let (tale, a) = leading();
    tale.spans((7, 8), Asked::Renew, Some(&a), unknown()).wrong();
    let (tale, a) = leading();
    let nothing = Outcome::HadNoEffect(Cause::Unavailable, "locked".to_owned());
    tale.spans((7, 8), Asked::Renew, Some(&a), nothing).wrong();
    let (tale, a) = leading();
    let read = snapshot(false, record(1, &a), "2", Some(s(15)));
    let tale = tale.spans((7, 10), Asked::Renew, Some(&a), unknown());
    tale.spans((8, 9), Asked::Read, None, Outcome::Answered(read)).right();
    let (tale, a) = leading();
    let tale = tale.spans((7, 8), Asked::Read, None, Outcome::Open { until: None });
    tale.spans((9, 10), Asked::Renew, Some(&a), unknown()).right();
    let (tale, a) = leading();
    let network = Outcome::Unknown(Cause::Network, "the connection broke".to_owned());
    tale.spans((7, 8), Asked::Renew, Some(&a), network).right();
}

/// A Lease: A holds it with the term 1 and the claim `claim`, seen at 1000 s.
fn observed(claim: &str) -> (Tale, Bid) {
    let a = bid(1, "missing");
    let missing = snapshot(true, Record::default(), "missing", None);
    let tale = tale(Model::KUBERNETES).reads(missing);
    let tale = tale.granted(&a, Record::default()).term(&a, 1);
    (shown(tale, &a, "2", claim), a)
}

fn shown(tale: Tale, holder: &Bid, name: &str, claim: &str) -> Tale {
    let Answer::Snapshot(read) = snapshot(false, record(1, holder), name, Some(s(15))) else {
        unreachable!()
    };
    let claim = Some(Claim { spec: version(claim), lease_duration: s(15) });
    tale.reads(Answer::Snapshot(Snapshot { claim, ..read }))
}

#[test]
fn an_observed_lease_is_taken_only_after_its_whole_duration() {
    let (tale, a) = observed("x");
    tale.at(14).granted(&bid(2, "2"), record(1, &a)).wrong();
    let (tale, a) = observed("x");
    tale.at(15).granted(&bid(2, "2"), record(1, &a)).right();
    let (tale, a) = observed("x");
    let tale = tale.at(5).call(Asked::Renew, Some(&a), Answer::Done);
    tale.at(15).granted(&bid(2, "2"), record(1, &a)).wrong();
    let (tale, _) = observed("x");
    tale.at(15).call(Asked::Acquire, Some(&bid(2, "2")), Answer::Refused).wrong();
    // A call of the holder long after tells nothing of how long observers have waited.
    let (tale, a) = observed("x");
    tale.at(100).term(&a, 1).granted(&bid(2, "2"), record(1, &a)).right();
}

#[test]
fn a_renewal_and_nothing_else_changes_the_claim_of_observers() {
    for (claim, right) in [("x", false), ("y", true)] {
        let (tale, a) = observed("x");
        let tale = tale.call(Asked::Renew, Some(&a), Answer::Done);
        assert_eq!(shown(tale, &a, "3", claim).is_right(), right);
    }
    for (claim, right) in [("x", true), ("y", false)] {
        let (tale, a) = observed("x");
        assert_eq!(shown(tale, &a, "2", claim).is_right(), right);
    }
}

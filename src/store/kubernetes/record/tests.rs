use proptest::prelude::*;

use super::*;
use crate::lease::LeaseId;

const PLACE: &str = "shop/orders";

fn at(micros: u64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_000 + micros)
}

fn bid(nonce: u128) -> Bid {
    Bid {
        lease: LeaseId::from_random(nonce),
        nonce: Nonce(nonce),
        candidate: Arc::new(Candidate {
            identity: "orders-1".to_owned(),
            instance: "01J".to_owned(),
            address: Some("10.0.3.7:8080".to_owned()),
            peer: Some("http://10.0.3.7:4040/peer".to_owned()),
        }),
        lease_duration: Duration::from_secs(15),
        seen: Version(MISSING.into()),
        written: None,
    }
}

fn held() -> Lease {
    taken_anew("shop", "orders", &bid(1), at(0))
}

fn spec(lease: &Lease) -> Version {
    snapshot(lease, PLACE).unwrap().claim.unwrap().spec
}

fn annotate(lease: &mut Lease, name: &str, value: &str) {
    lease.metadata.annotations.insert(name.to_owned(), value.to_owned());
}

#[test]
fn a_created_lease_equals_one_of_client_go() {
    let lease = serde_json::to_value(held()).unwrap();
    let expected = serde_json::json!({
        "metadata": {
            "name": "orders", "namespace": "shop",
            "annotations": {"tenure.dev/claim": "00000000000000000000000000000001"},
        },
        "spec": {
            "holderIdentity": "orders-1_01J",
            "leaseDurationSeconds": 15,
            "acquireTime": "2023-11-14T22:13:20.000000Z",
            "renewTime": "2023-11-14T22:13:20.000000Z",
            "leaseTransitions": 0,
        },
    });
    assert_eq!(lease, expected);
}

#[test]
fn transitions_count_the_acquisitions_and_stop_at_their_largest() {
    let mut lease = held();
    for (before, after) in [(Some(0), 1), (None, 1), (Some(i32::MAX), i32::MAX)] {
        lease.spec.lease_transitions = before;
        take(&mut lease, &bid(2), at(1));
        assert_eq!(lease.spec.lease_transitions, Some(after));
    }
}

#[test]
fn a_renewal_changes_what_all_observers_count_even_when_the_clock_does_not_move() {
    let (mut lease, bid) = (held(), bid(1));
    // client-go compares whole seconds only.
    let seconds = |lease: &Lease| {
        read_time(lease.spec.renew_time.as_deref().unwrap()).unwrap().unix_timestamp()
    };
    for now in [0, 0, 5_000_000, 5_000_001, 5_999_999, 9_100_000, 9_900_000, 4_000_000, 0] {
        let (before, renewed) = (spec(&lease), seconds(&lease));
        renew(&mut lease, &bid, at(now));
        assert_ne!(spec(&lease), before, "{now}");
        assert!(seconds(&lease) > renewed, "{now}: {renewed}");
    }
    renew(&mut lease, &bid, at(60_000_001));
    assert_eq!(lease.spec.renew_time, Some(micro_time(at(60_000_001))), "the clock is ahead again");
    assert_eq!(lease.spec.acquire_time, held().spec.acquire_time);
    renew(&mut lease, &Bid { lease_duration: Duration::from_secs(20), ..bid }, at(70_000_000));
    assert_eq!(lease_duration(&lease), Some(Duration::from_secs(20)), "as configured by now");
}

#[test]
fn renewals_of_one_state_at_one_time_differ_and_an_acquisition_and_a_release_forget_them() {
    let renewed = |_| {
        let mut lease = held();
        renew(&mut lease, &bid(1), at(1));
        lease
    };
    let [mut one, other] = [0, 1].map(renewed);
    assert_eq!(one.spec, other.spec);
    assert_ne!(spec(&one), spec(&other), "the store may have lost one of them");
    assert!(!shows(&one, &other), "an answer shows which was written");
    let mut freed = other.clone();
    take(&mut one, &bid(2), at(2));
    free(&mut freed, at(2));
    for lease in [one, freed] {
        assert_eq!(lease.metadata.annotations.get(RENEWAL), None);
    }
}

#[test]
fn changes_outside_the_spec_do_not_restart_the_wait() {
    let (mut lease, before) = (held(), spec(&held()));
    let version = version(&lease);
    write_term(&mut lease, &bid(1), 7);
    set_successor(&mut lease, &Successor { identity: "b".to_owned(), hold_off: Duration::ZERO });
    annotate(&mut lease, "team", "blue");
    lease.metadata.resource_version = "8".to_owned();
    assert_eq!(spec(&lease), before);
    assert_ne!(super::version(&lease), version);
}

#[test]
fn a_recreated_lease_differs_whatever_its_version() {
    let (mut one, mut other) = (held(), held());
    (one.metadata.uid, other.metadata.uid) = ("a".to_owned(), "b".to_owned());
    assert_ne!(version(&one), version(&other));
    assert_ne!(news(&one), news(&other));
}

#[test]
fn a_lease_is_own_by_holder_and_claim_together() {
    let mut lease = held();
    assert!(is_of(&lease, &bid(1)));
    assert!(!is_of(&lease, &bid(2)), "another acquisition of the same instance");
    lease.spec.holder_identity = Some("client-go_1".to_owned());
    assert!(!is_of(&lease, &bid(1)), "client-go leaves the annotations alone");
    assert!(!is_to_end(&lease, &bid(1)));
}

#[test]
fn a_holder_without_a_duration_is_refused_with_the_command_that_frees_it() {
    let mut shortest = held();
    shortest.spec.lease_duration_seconds = Some(1);
    assert_eq!(lease_duration(&shortest), Some(Duration::from_secs(1)));
    for seconds in [None, Some(0), Some(-1)] {
        let mut lease = held();
        lease.spec.lease_duration_seconds = seconds;
        let failure = snapshot(&lease, PLACE).unwrap_err();
        assert_eq!(failure.cause, Cause::Record);
        assert!(failure.message.contains("kubectl patch lease orders -n shop"), "{failure}");
        lease.spec.holder_identity = None;
        assert!(snapshot(&lease, PLACE).unwrap().free, "there is nothing to wait for");
    }
}

#[test]
fn other_fields_may_be_missing_as_for_client_go() {
    let mut lease = Lease::default();
    lease.spec.holder_identity = Some("x".to_owned());
    lease.spec.lease_duration_seconds = Some(15);
    let seen = snapshot(&lease, PLACE).unwrap();
    assert!(!seen.free);
    assert_eq!(seen.claim.unwrap().lease_duration, Duration::from_secs(15));
    assert_eq!(next_term(&lease, None, 0), Some(1));
    lease.spec.holder_identity = Some(String::new());
    assert!(snapshot(&lease, PLACE).unwrap().free);
}

#[test]
fn a_record_that_the_holder_did_not_write_is_its_term_alone() {
    let mut lease = held();
    write_term(&mut lease, &bid(1), 7);
    let ours = snapshot(&lease, PLACE).unwrap().record;
    assert_eq!(ours.holder.as_deref(), Some(&*bid(1).candidate));
    assert_eq!((ours.term, ours.nonce), (Some(7), Some(Nonce(1))));
    let mut broken = lease.clone();
    mark_broken(&mut broken, at(1));
    assert_eq!(snapshot(&broken, PLACE).unwrap().record, ours, "breaking keeps the record");
    let mut freed = lease.clone();
    free(&mut freed, at(1));
    assert_eq!(snapshot(&freed, PLACE).unwrap().record, ours);
    let mut again = freed.clone();
    take(&mut again, &bid(2), at(2));
    let alone = Record { term: Some(7), ..Record::default() };
    assert_eq!(snapshot(&again, PLACE).unwrap().record, alone);
    lease.spec.holder_identity = Some("client-go_1".to_owned());
    assert_eq!(snapshot(&lease, PLACE).unwrap().record, alone);
}

#[test]
fn a_broken_lease_makes_all_wait_and_its_holder_may_release_it() {
    let mut lease = held();
    mark_broken(&mut lease, at(1));
    assert_ne!(spec(&lease), spec(&held()));
    assert_eq!(lease_duration(&lease), lease_duration(&held()));
    assert!(!is_of(&lease, &bid(1)));
    assert!(is_to_end(&lease, &bid(1)) && !is_to_end(&lease, &bid(2)));
    free(&mut lease, at(2));
    assert!(!is_to_end(&lease, &bid(1)));
    assert!(!lease.metadata.annotations.contains_key(CLAIM));
    let spec = &lease.spec;
    assert_eq!(spec.lease_duration_seconds, Some(1), "as client-go releases");
    let released = Some(micro_time(at(2)));
    assert_eq!((&spec.acquire_time, &spec.renew_time), (&released, &released));
}

#[test]
fn terms_grow_above_the_record_and_client_go_and_stay_exact_in_json() {
    let mut lease = held();
    lease.spec.lease_transitions = Some(41);
    assert_eq!(next_term(&lease, Some(7), 0), Some(42));
    assert_eq!(next_term(&lease, Some(99), 0), Some(100));
    assert_eq!(next_term(&lease, Some(99), 1_000), Some(1_000));
    assert_eq!(next_term(&lease, Some(TERM_LIMIT - 3), 0), Some(TERM_LIMIT - 2));
    assert_eq!(next_term(&lease, Some(TERM_LIMIT - 2), 0), None);
    assert_eq!(next_term(&lease, Some(u64::MAX), 0), None);
    lease.spec.lease_transitions = None;
    assert_eq!(next_term(&lease, None, 0), Some(1));
    lease.spec.lease_transitions = Some(-1);
    assert_eq!(next_term(&lease, None, 0), Some(1), "no count of transitions");
    write_term(&mut lease, &bid(1), TERM_LIMIT - 2);
    assert_eq!(read(&lease, PLACE).unwrap().term, Some(TERM_LIMIT - 2), "what is written is read");
}

#[test]
fn foreign_annotations_are_refused_by_name() {
    for (name, value, said) in [
        (TERM, "9007199254740991", "too large"),
        (TERM, "seven", "not a number"),
        (TERM, "-7", "not a number"),
        (TERM, "99999999999999999999", "out of range"),
        (TERM, "", "out of range"),
        (NONCE, "zz", "tenure.dev/nonce"),
        (HOLD_OFF, "1", "only one of"),
        (SUCCESSOR, "b", "only one of"),
    ] {
        let mut lease = held();
        annotate(&mut lease, name, value);
        let failure = snapshot(&lease, PLACE).unwrap_err();
        assert!(failure.message.contains(said), "{name}={value}: {failure}");
    }
}

#[test]
fn a_renewal_is_no_news_and_all_else_is() {
    let (mut lease, known) = (held(), news(&held()));
    renew(&mut lease, &bid(1), at(9));
    lease.metadata.resource_version = "9".to_owned();
    assert_eq!(news(&lease), known);
    let changes: [fn(&mut Lease); 4] = [
        |it| write_term(it, &bid(1), 7),
        |it| set_successor(it, &Successor { identity: "b".to_owned(), hold_off: Duration::ZERO }),
        |it| free(it, at(1)),
        |it| take(it, &bid(2), at(1)),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut lease = held();
        change(&mut lease);
        assert_ne!(news(&lease), known, "{n}");
    }
}

#[test]
fn a_duration_is_never_written_shorter_than_it_is() {
    for (millis, seconds) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (15_000, 15)] {
        assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
    }
    assert_eq!(whole_seconds(Duration::from_nanos(1_000_000_001)), 2);
    assert_eq!(whole_seconds(Duration::MAX), i32::MAX);
}

#[test]
fn a_version_is_of_one_state_of_one_lease() {
    let mut lease = held();
    assert_eq!(of_version(&version(&lease)), None, "it was never stored");
    lease.metadata.uid = "a".to_owned();
    lease.metadata.resource_version = "8".to_owned();
    let seen = version(&lease);
    assert_eq!(of_version(&seen).as_ref(), Some(&lease));
    assert!(is_in_version(&lease, &seen));
    let mut written = lease.clone();
    written.metadata.resource_version = "9".to_owned();
    let mut recreated = lease.clone();
    recreated.metadata.uid = "b".to_owned();
    assert!(!is_in_version(&written, &seen) && !is_in_version(&recreated, &seen));
    let missing = missing();
    assert!(missing.free && is_missing(&missing.version));
    assert!(!is_missing(&seen) && !is_in_version(&lease, &missing.version));
}

#[test]
fn the_holder_is_an_acquisition_of_tenure_only_while_the_lease_names_it() {
    let mut lease = held();
    assert_eq!(held_by(&lease), Some(Nonce(1)), "it has written no term yet");
    write_term(&mut lease, &bid(1), 7);
    assert_eq!(held_by(&lease), Some(Nonce(1)));
    let [mut freed, mut broken, mut usurped] = [lease.clone(), lease.clone(), lease.clone()];
    free(&mut freed, at(1));
    mark_broken(&mut broken, at(1));
    usurped.spec.holder_identity = Some("client-go_1".to_owned());
    for (what, lease) in [("free", freed), ("broken", broken), ("of client-go", usurped)] {
        assert_eq!(held_by(&lease), None, "{what}");
    }
    take(&mut lease, &bid(2), at(1));
    assert_eq!(held_by(&lease), Some(Nonce(2)), "the record is still that of the last holder");
    // An operator may break a lease before its holder has written a term.
    let mut broken = held();
    mark_broken(&mut broken, at(1));
    assert_eq!(held_by(&broken), None);
}

#[test]
fn the_holder_is_shown_up_to_twice_the_length_of_a_name() {
    for (length, shown_length) in [(2 * LONGEST_NAME, 256), (2 * LONGEST_NAME + 1, 257)] {
        let shown = shown(&"x".repeat(length));
        assert_eq!(shown.chars().count(), shown_length);
        assert_eq!(shown.ends_with('…'), length > 256);
    }
}

#[test]
fn a_new_record_keeps_nothing_of_the_one_before() {
    let mut lease = held();
    write_term(&mut lease, &bid(1), 7);
    set_successor(&mut lease, &Successor { identity: "b".to_owned(), hold_off: Duration::ZERO });
    let mut silent = bid(2);
    let candidate = Candidate {
        address: None,
        peer: Some(String::new()),
        ..Candidate::clone(&silent.candidate)
    };
    silent.candidate = Arc::new(candidate);
    write_term(&mut lease, &silent, 8);
    let record = read(&lease, PLACE).unwrap();
    let holder = record.holder.unwrap();
    assert_eq!((&holder.address, &holder.peer, record.successor), (&None, &None, None));
    assert_eq!((record.term, record.nonce), (Some(8), Some(Nonce(2))));
}

#[test]
fn a_lease_is_of_tenure_by_any_annotation_of_tenure() {
    let mut lease = Lease::default();
    assert!(!is_written_by_tenure(&lease));
    annotate(&mut lease, "team", "blue");
    assert!(!is_written_by_tenure(&lease));
    annotate(&mut lease, TERM, "7");
    assert!(is_written_by_tenure(&lease));
}

#[test]
fn a_lease_created_with_a_first_term_is_free_and_has_nothing_else() {
    let read = snapshot(&free_with_term("shop", "orders", 700), PLACE).unwrap();
    assert!(read.free);
    assert_eq!(read.record, Record { term: Some(700), ..Record::default() });
}

proptest! {
    #[test]
    fn a_record_comes_back_as_it_was_written(
        identity in "[ -~]{1,128}",
        address in proptest::option::of("\\PC{1,40}"),
        peer in proptest::option::of("\\PC{1,40}"),
        term in 1..TERM_LIMIT - 1,
        millis in 0_u64..=3_600_000,
    ) {
        let mut bid = bid(1);
        let instance = "01J".to_owned();
        let identity_of = identity.clone();
        bid.candidate = Arc::new(Candidate { identity: identity_of, instance, address, peer });
        let successor = Successor { identity, hold_off: Duration::from_millis(millis) };
        let mut lease = taken_anew("shop", "orders", &bid, at(0));
        write_term(&mut lease, &bid, term);
        set_successor(&mut lease, &successor);
        let wire = serde_json::to_string(&lease).unwrap();
        let record = snapshot(&serde_json::from_str(&wire).unwrap(), PLACE).unwrap().record;
        prop_assert_eq!(term_of(&record, &bid), Some(term));
        prop_assert_eq!(record.holder, Some(bid.candidate));
        prop_assert_eq!(record.successor, Some(successor));
    }
}

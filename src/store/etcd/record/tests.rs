//! Tests of the formats and of what the keys mean together.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::super::wire::{Header, Number};
use super::*;
use crate::lease::Candidate;
use crate::store::json::Bytes;

fn keys() -> Keys {
    let folder = "/tenure/orders/".to_owned();
    Keys {
        lease: format!("{folder}lease"),
        record: format!("{folder}record"),
        end: format!("{folder}record\0"),
        folder,
    }
}

fn bid(number: u128) -> Bid {
    Bid {
        lease: LeaseId::from_random(number),
        nonce: Nonce(number),
        candidate: Arc::new(Candidate {
            identity: "a \"quoted\" name".to_owned(),
            instance: "1".to_owned(),
            address: Some("[::1]:80".to_owned()),
            peer: None,
        }),
        lease_duration: Duration::from_secs(15),
        seen: Version("0".into()),
        written: None,
    }
}

fn key(name: &str, value: &[u8], lease: i64) -> KeyValue {
    KeyValue {
        key: Bytes(name.as_bytes().to_vec()),
        value: Bytes(value.to_vec()),
        create_revision: Number(7),
        mod_revision: Number(9),
        lease: Number(lease),
    }
}

fn range(kvs: Vec<KeyValue>) -> Range {
    Range { header: Header::default(), kvs }
}

fn seen(kvs: Vec<KeyValue>) -> Result<Seen, Failure> {
    Seen::of(&range(kvs), &keys())
}

#[test]
fn the_range_has_both_keys_and_not_the_one_of_the_trials() {
    let Keys { lease, record, end, .. } = keys();
    assert!(lease < record && record < end);
    assert!(keys().trial() < lease);
}

#[test]
fn a_lease_number_is_positive_and_follows_from_the_id() {
    let one = lease_number(LeaseId::from_random(1));
    assert_eq!(one, lease_number(LeaseId::from_random(1)));
    assert_ne!(one, lease_number(LeaseId::from_random(2)));
    assert_ne!(one, lease_number(LeaseId::from_random(1 << 100)));
    for bits in [0, u128::MAX, u128::from(u64::MAX), u128::MAX << 64] {
        assert!(lease_number(LeaseId::from_random(bits)) > 0);
    }
}

#[test]
fn a_lease_number_has_both_halves_of_the_id_and_is_never_zero() {
    for (upper, lower, expected) in
        [(0x4000, 0x4000, 1), (0x4010, 0x4000, 0x10), (0x4000, 0x4020, 0x20), (0x4001, 0x4000, 1)]
    {
        let bits: u128 = (upper << 64) | (1 << 63) | lower;
        assert_eq!(lease_number(LeaseId::from_random(bits)), expected, "{bits:x}");
    }
}

#[test]
fn what_a_bid_writes_is_read_back() {
    let (bid, keys) = (bid(5), keys());
    let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_millis(1_500) };
    let read = seen(vec![
        key(&keys.lease, &claim(&bid), lease_number(bid.lease)),
        key(&keys.record, &of_bid(&bid, 42, Some(&successor)), 0),
    ])
    .unwrap();
    let held = read.held.clone().unwrap();
    assert!(held.is_of(&bid) && !held.is_breaking);
    assert_eq!(read.record.holder.as_deref(), Some(&*bid.candidate));
    assert_eq!(read.record.successor, Some(successor));
    assert_eq!((read.term_of(&bid), read.version()), (Some(42), Version("9".into())));
    let broken = seen(vec![key(&keys.lease, &held.broken(), held.lease)]).unwrap().held.unwrap();
    assert!(broken.is_of(&bid) && broken.is_breaking, "its own, and an operator's");
    let other = Bid { nonce: Nonce(6), ..bid.clone() };
    assert!(!held.is_of(&other));
    let moved = seen(vec![key(&keys.lease, &claim(&bid), 1)]).unwrap().held.unwrap();
    assert!(moved.is_of(&bid), "whatever lease its last renewal was under");
}

#[test]
fn a_missing_record_has_version_zero_and_no_term() {
    let read = seen(Vec::new()).unwrap();
    assert_eq!(
        (read.version(), read.exists, read.record),
        (Version("0".into()), false, Record::default())
    );
    let read = seen(vec![key(&keys().record, &first(700), 0)]).unwrap();
    assert_eq!(read.record, Record { term: Some(700), ..Record::default() });
    assert!(read.exists && read.is_in_version(&Version("9".into())));
}

#[test]
fn a_term_is_above_the_last_one_the_floor_and_the_revision_of_the_claim() {
    let bid = bid(5);
    let claim = key(&keys().lease, &claim(&bid), lease_number(bid.lease));
    let next = |record: Option<Vec<u8>>, floor| {
        let record = record.map(|it| key(&keys().record, &it, 0));
        let read = seen([claim.clone()].into_iter().chain(record).collect()).unwrap();
        read.next_term(read.held.as_ref().unwrap(), floor)
    };
    assert_eq!(next(None, 0), Some(7), "the revision at which the claim came into being");
    assert_eq!(next(None, 8), Some(8));
    assert_eq!(next(Some(first(7)), 0), Some(8));
    assert_eq!(next(Some(first(41)), 0), Some(42));
    assert_eq!(next(Some(first(41)), 100), Some(100));
    assert_eq!(next(Some(first(u64::MAX - 2)), 0), Some(u64::MAX - 1));
    assert_eq!(next(Some(first(u64::MAX - 1)), 0), None);
    assert_eq!(next(Some(first(u64::MAX)), 0), None);
    assert_eq!(next(None, u64::MAX), None);
    let nothing = seen(Vec::new()).unwrap();
    let held = seen(vec![claim]).unwrap().held.unwrap();
    for created in [0, -1] {
        assert_eq!(nothing.next_term(&Held { created, ..held.clone() }, 0), Some(1));
    }
}

#[test]
fn what_tenure_did_not_write_is_foreign() {
    let nonce = r#""nonce":"1""#;
    for record in [
        "",
        "null",
        "7",
        "locked",
        r#"{"term":7}"#,
        r#"{"tenure":2,"term":7}"#,
        r#"{"tenure":1}"#,
        r#"{"tenure":1,"term":-7}"#,
        r#"{"tenure":1,"term":"seven"}"#,
        r#"{"tenure":1,"term":7,"more":1}"#,
        r#"{"tenure":1,"term":7,"nonce":"x"}"#,
        r#"{"tenure":1,"term":7,"holder":{"identity":"a","instance":"1"}}"#,
        r#"{"tenure":1,"term":7,"successor":{"identity":"a","hold_off_ms":1}}"#,
    ] {
        let failure = seen(vec![key(&keys().record, record.as_bytes(), 0)]).unwrap_err();
        assert_eq!(failure.cause, Cause::Record);
        assert!(failure.message.contains("/tenure/orders/record"), "{failure}");
    }
    for claim in
        ["", "x", r#"{"tenure":1}"#, r#"{"tenure":1,"nonce":"1"}"#, &format!("{{{nonce}}}")]
    {
        assert!(seen(vec![key(&keys().lease, claim.as_bytes(), 5)]).is_err(), "{claim}");
    }
    assert!(seen(vec![key("/tenure/orders/mine", b"x", 0)]).is_ok(), "none of the two");
}

proptest! {
    #[test]
    fn no_value_panics(claim in "\\PC{0,60}", record in r#"\{"tenure":1,("term":[0-9]{1,25})?.{0,40}\}?"#) {
        let read = seen(vec![
            key(&keys().lease, claim.as_bytes(), 5),
            key(&keys().record, record.as_bytes(), 0),
        ]);
        if let Err(failure) = read {
            prop_assert!(failure.message.chars().all(crate::lease::text::is_printable));
        }
    }
}

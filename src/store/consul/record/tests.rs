//! Tests of the value of the key.

use super::*;
use crate::lease::fuzzing::bid;
use crate::store::json::Bytes;

const KEY: &str = "tenure/orders/lease";

fn entry(value: &[u8], session: Option<&str>) -> Entry {
    Entry {
        key: KEY.to_owned(),
        value: Some(Bytes(value.to_vec())),
        session: session.map(str::to_owned),
        modify_index: 7,
    }
}

fn seen(content: &Content, session: Option<&str>) -> Seen {
    Seen::of(Some(&entry(&content.bytes(), session)), KEY).unwrap()
}

#[test]
fn a_claim_counts_as_long_as_a_session_has_the_lock() {
    let session = Uuid::from_u128(5).to_string();
    let claimed = Content::default().with_claim(Some(Claim::of(&bid())));
    let held = seen(&claimed, Some(&session));
    assert_eq!(held.session_of(&bid()), Some(Uuid::from_u128(5)));
    assert!(!held.clone().snapshot().free);
    for ended in [None, Some("")] {
        let freed = seen(&claimed, ended);
        assert_eq!((freed.session_of(&bid()), freed.claim()), (None, None), "{ended:?}");
        assert!(freed.snapshot().free);
    }
    let other = seen(&Content::default(), Some(&session));
    assert_eq!(other.session_of(&bid()), None, "locked without a claim");
    assert!(!other.snapshot().free);
}

#[test]
fn a_term_is_above_the_last_one_the_floor_and_the_index_of_the_key() {
    let at = |index, term| Seen {
        index,
        ..seen(
            &Content { record: Record { term, ..Record::default() }, ..Content::default() },
            None,
        )
    };
    assert_eq!(at(7, None).next_term(1), Some(7), "also where the record was lost");
    assert_eq!(at(7, Some(7)).next_term(1), Some(8));
    assert_eq!(at(7, Some(7)).next_term(100), Some(100));
    assert_eq!(at(0, None).next_term(0), Some(1), "the first of all");
    assert_eq!(at(7, Some(LARGEST_TERM)).next_term(1), None);
    assert_eq!(at(7, Some(LARGEST_TERM - 1)).next_term(1), Some(LARGEST_TERM));
}

#[test]
fn what_is_none_of_tenures_is_never_taken_for_a_free_lease() {
    for value in [
        "",
        "locked",
        "{}",
        r#"{"tenure":2}"#,
        r#"{"tenure":1,"x":1}"#,
        r#"{"tenure":1,"nonce":"1"}"#,
    ] {
        let failure = Seen::of(Some(&entry(value.as_bytes(), None)), KEY).unwrap_err();
        assert!(failure.message.contains(KEY), "{value}: {failure}");
    }
    let empty = Entry { value: None, ..entry(b"", None) };
    assert!(Seen::of(Some(&empty), KEY).is_err());
    assert!(Seen::of(Some(&entry(br#"{"tenure":1}"#, Some("x"))), KEY).is_err());
    assert!(Seen::of(None, KEY).unwrap().snapshot().free);
}

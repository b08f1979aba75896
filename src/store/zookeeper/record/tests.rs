//! Tests of the record.

use std::time::Duration;

use super::*;
use crate::lease::fuzzing::bid;

fn nodes() -> Nodes {
    let settings = ZookeeperSettings {
        servers: Vec::new(),
        path: "team/prod".to_owned(),
        election: "orders".to_owned(),
        auth: None,
        tls: None,
        lease_duration: Duration::from_secs(15),
        request_timeout: Duration::from_secs(2),
    };
    Nodes::new(&settings)
}

fn read(data: &[u8], held: bool) -> Result<Seen, Failure> {
    let state = State {
        created: 0x20,
        children: held.into(),
        children_changed: 0x1_0000_0007,
        ..State::default()
    };
    Seen::of(Some((data.to_vec(), state)), &nodes())
}

#[test]
fn the_folders_are_created_from_above() {
    let nodes = nodes();
    let expected = ["/team", "/team/prod", "/team/prod/orders", "/team/prod/orders/queue"];
    assert_eq!(nodes.folders(), expected);
    assert_eq!(nodes.lease, "/team/prod/orders/record/lease");
}

#[test]
fn a_claim_counts_while_the_node_of_the_lease_is_there() {
    let claimed = Seen::nothing().claimed(&bid());
    let held = read(&claimed, true).unwrap();
    assert!(held.held.as_ref().is_some_and(|it| it.is_of(&bid()) && !it.is_breaking));
    let other = Bid { nonce: Nonce(9), ..bid() };
    assert!(held.held.as_ref().is_some_and(|it| !it.is_of(&other)));
    assert_eq!(held.held.as_ref().unwrap().length, bid().lease_duration);
    assert!(!held.clone().snapshot().free);
    let expired = read(&claimed, false).unwrap();
    assert!(expired.held.is_none() && expired.snapshot().free);
    let freed = read(&held.freed(), false).unwrap();
    assert!(freed.held.is_none());
    assert!(read(&held.freed(), true).unwrap_err().message.contains("not Tenure's"));
}

#[test]
fn renewals_and_breaks_that_run_out_keep_the_version_and_everything_else_changes_it() {
    let nothing = Seen::nothing();
    assert_eq!(&*nothing.version().0, "0");
    assert_eq!(&*read(&nothing.first(1), false).unwrap().version().0, "20.1", "the first change");
    let held = read(&nothing.claimed(&bid()), true).unwrap();
    for same in [held.claimed(&bid()), held.broken()] {
        assert_eq!(read(&same, true).unwrap().version(), held.version());
    }
    assert!(read(&held.broken(), true).unwrap().held.unwrap().is_breaking);
    for other in [held.freed(), held.led(&bid(), 7, None), held.first(3)] {
        assert_ne!(read(&other, false).unwrap().version(), held.version());
    }
    let mut again = held.clone();
    again.node.as_mut().unwrap().1.created = 0x21;
    assert_ne!(again.version(), held.version(), "it was deleted and created again");
}

#[test]
fn terms_rise_above_the_last_one_the_floor_and_the_transaction_of_the_lease() {
    let held = read(&Seen::nothing().claimed(&bid()), true).unwrap();
    assert_eq!(held.next_term(1), Some(0x1_0000_0007), "no lower, though the record was lost");
    assert_eq!(held.next_term(1 << 40), Some(1 << 40), "the floor of another store");
    let led = read(&held.led(&bid(), 1 << 41, None), true).unwrap();
    assert_eq!(led.next_term(1), Some((1 << 41) + 1));
    assert_eq!(led.term_of(&bid()), Some(1 << 41));
    assert_eq!(Seen::nothing().next_term(0), Some(1));
    let mut wrapped = held.clone();
    wrapped.node.as_mut().unwrap().1.children_changed = -1;
    assert_eq!(wrapped.next_term(0), Some(1), "no transaction has this number");
    let last = read(&held.led(&bid(), LARGEST_TERM - 1, None), true).unwrap();
    assert_eq!(last.next_term(1), Some(LARGEST_TERM));
    let largest = read(&held.led(&bid(), LARGEST_TERM, None), true).unwrap();
    assert_eq!(largest.next_term(1), None);
}

#[test]
fn what_tenure_did_not_write_is_foreign() {
    for data in [
        "",
        "127.0.0.1",
        r#"{"tenure":2,"changes":1}"#,
        r#"{"tenure":1}"#,
        r#"{"tenure":1,"changes":1,"more":1}"#,
        r#"{"tenure":1,"changes":1,"term":-1}"#,
        r#"{"tenure":1,"changes":1,"claim":{"nonce":"x","identity":"a","lease_ms":1}}"#,
        r#"{"tenure":1,"changes":1,"holder":{"identity":"a","instance":"b"}}"#,
    ] {
        let failure = read(data.as_bytes(), false).unwrap_err();
        assert!(failure.message.contains("/team/prod/orders/record"), "{failure}");
    }
}

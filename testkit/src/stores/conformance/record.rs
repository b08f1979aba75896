//! Conformance tests for the record: its term and holder, its creation, its loss, and foreign content.

use std::sync::Arc;
use std::time::Duration;

use tenure::lease::{Bid, Candidate, Record, StoreError};
use tenure::store::{Presence, Verdict};

use super::{Contender, Harness, assert_refused, definite, read, written};

pub async fn a_term_is_above_the_last_one_and_at_least_the_floor<H: Harness>(lock: H) {
    let mut last = 0;
    for floor in [1000, 7, 0, 50_000_000] {
        let holder = Contender::holder(&lock, "a").await;
        last = written::<H>(holder.write_term(floor).await, floor.max(last + 1));
        assert_eq!(holder.read().await.record.term, Some(last));
        holder.release().await.expect("released");
    }
}

pub async fn a_term_is_written_once_in_an_acquisition<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let term = written::<H>(a.write_term(7).await, 7);
    assert_eq!(a.write_term(7).await, Ok(term));
    let higher = a.write_term(term + 100).await;
    assert_eq!(higher, Ok(term), "an answer was lost; the term stands");
    assert_eq!(a.read().await.record.term, Some(term));
}

pub async fn no_term_is_written_without_the_lease<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let term = a.write_term(7).await.expect("a term");
    let b = Contender::new(&lock, "b").await;
    assert_refused(b.write_term(term + 100).await);
    assert_eq!(b.read().await.record.term, Some(term));
    assert_eq!(b.read().await.record.nonce, Some(a.bid.nonce));
}

pub async fn no_term_is_written_under_a_lease_that_ran_out<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let term = a.write_term(7).await.expect("a term");
    a.release().await.expect("released");
    let b = Contender::holder(&lock, "b").await;
    lock.advance(H::LEASE).await;
    if H::OBSERVED {
        Contender::holder(&lock, "c").await;
    }
    assert_refused(b.write_term(term + 100).await);
    assert_eq!(b.read().await.record.term, Some(term));
}

pub async fn the_record_names_its_holder<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a \"quoted\" %41 name").await;
    let term = a.write_term(3).await.expect("a term");
    let record = Contender::new(&lock, "b").await.read().await.record;
    assert_eq!(record.term, Some(term));
    assert_eq!(record.nonce, Some(a.bid.nonce));
    assert_eq!(record.holder.as_deref(), Some(&*a.bid.candidate));
}

pub async fn the_record_keeps_nothing_of_the_last_holder<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    a.release().await.expect("released");
    let mut b = Contender::new(&lock, "b").await;
    let alone = Candidate { address: None, peer: None, ..Candidate::clone(&b.bid.candidate) };
    b.bid.candidate = Arc::new(alone);
    b.acquire().await.expect("granted");
    b.write_term(0).await.expect("a term");
    assert_eq!(b.read().await.record.holder, Some(b.bid.candidate));
}

pub async fn a_renewal_keeps_the_record<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    let record = a.read().await.record;
    a.renew().await.expect("renewed");
    a.acquire().await.expect("granted again");
    assert_eq!(a.read().await.record, record);
}

pub async fn a_deleted_lock_is_free_and_lost_to_its_holder<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.write_term(7).await.expect("a term");
    lock.delete().await;
    let snapshot = a.read().await;
    assert!(snapshot.free);
    assert_eq!(snapshot.record, Record::default());
    assert_refused(a.renew().await);
    assert_refused(a.write_term(0).await);
    assert_refused(a.release().await);
    let b = Contender::new(&lock, "b").await;
    assert_eq!(b.acquire().await.expect("granted").term, None);
}

pub async fn creating_writes_a_first_term_and_never_another<H: Harness>(lock: H) {
    let store = lock.candidate();
    let made = definite(async || store.create(700).await).await.expect("created");
    assert!(!made.is_empty());
    let snapshot = read(&store).await;
    assert!(snapshot.free);
    assert_eq!(snapshot.record.term, Some(700));
    let again = definite(async || store.create(900).await).await.expect("nothing to do");
    assert_eq!(again, Vec::<String>::new());
    assert_eq!(read(&store).await.record.term, Some(700));
    assert_eq!(definite(async || store.presence().await).await, Ok(Presence::Exists));
    let a = Contender::holder(&lock, "a").await;
    written::<H>(a.write_term(0).await, 701);
}

pub async fn creating_completes_what_a_holder_left_without_a_term<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.release().await.expect("released");
    let made = definite(async || a.store.create(700).await).await.expect("created");
    assert!(!made.is_empty());
    assert_eq!(a.read().await.record.term, Some(700));
    let b = Contender::holder(&lock, "b").await;
    written::<H>(b.write_term(0).await, 701);
}

/// The term over a missing record counts from it (R11).
pub async fn a_grant_has_a_date_if_the_store_has_one_with_a_record_or_without<H: Harness>(lock: H) {
    let a = Contender::new(&lock, "a").await;
    let dated = async |it: &Contender| {
        let bid = || Bid { written: None, ..it.bid.clone() };
        definite(async || it.store.acquire(&bid()).await).await.expect("granted").date
    };
    let over_a_missing_record = dated(&a).await;
    a.release().await.expect("released");
    let b = Contender::new(&lock, "b").await;
    let later = dated(&b).await;
    assert_eq!(over_a_missing_record.is_some(), later.is_some(), "{later:?}");
    if let (Some(first), Some(later)) = (over_a_missing_record, later) {
        assert!((later - first).abs() < Duration::from_secs(3_600), "{first} {later}");
    }
}

pub async fn the_rules_are_those_of_the_store<H: Harness>(lock: H) {
    assert_eq!(lock.candidate().rules(), H::RULES);
}

pub async fn an_examination_finds_nothing_wrong_and_changes_nothing<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.write_term(7).await.expect("a term");
    let bytes = lock.bytes().await;
    let findings = a.store.examine().await;
    assert!(!findings.is_empty());
    assert!(findings.iter().all(|it| it.verdict != Verdict::Failed), "{findings:?}");
    assert_eq!(lock.bytes().await, bytes);
    a.renew().await.expect("still a's");
}

pub async fn foreign_content_is_refused_and_never_overwritten<H: Harness>(_: H) {
    for foreign in H::FOREIGN {
        let lock = H::start().await;
        let a = Contender::new(&lock, "a").await;
        lock.plant(foreign).await;
        let bytes = lock.bytes().await;
        let snapshot = definite(async || a.store.read().await).await;
        assert!(matches!(snapshot, Err(StoreError::Foreign(_))), "{foreign}: {snapshot:?}");
        let granted = a.acquire().await;
        assert!(matches!(granted, Err(StoreError::Foreign(_))), "{foreign}: {granted:?}");
        let term = a.write_term(1).await;
        assert!(matches!(term, Err(StoreError::Foreign(_) | StoreError::Refused(_))), "{term:?}");
        let created = definite(async || a.store.create(1).await).await;
        assert!(matches!(created, Err(StoreError::Foreign(_))), "{foreign}: {created:?}");
        let broken = definite(async || a.store.break_lease(true).await).await;
        assert!(matches!(broken, Err(StoreError::Foreign(_))), "{foreign}: {broken:?}");
        let findings = a.store.examine().await;
        assert!(findings.iter().any(|it| it.verdict == Verdict::Failed), "{foreign}: {findings:?}");
        assert_eq!(lock.bytes().await, bytes, "{foreign}");
    }
}

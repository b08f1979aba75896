//! Tests of the calls and of the proof on a register in memory, with other candidates that write at the
//! same time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use time::OffsetDateTime;

use super::*;
use crate::lease::fuzzing::bid;
use crate::lease::{Candidate, Nonce};
use crate::store::{BreakOutcome, Finding, LeaseAdmin, Presence, Verdict};

/// A register whose next writes meet writes of others.
#[derive(Default)]
struct Busy {
    lease: Mutex<Option<Tagged>>,
    trial: Mutex<Option<Tagged>>,
    /// Counts the states of both.
    states: AtomicU64,
    /// How many writes on a tag are preceded by one of others, which changes nothing but the tag.
    others: Mutex<usize>,
    /// The conditions that it does not honour.
    ignores: Option<fn(If<'_>) -> bool>,
    /// Whether it refuses every condition.
    refuses: bool,
    /// Whether its tags are digests of the content, as those of S3 may be.
    has_digests: bool,
    /// Whether it checks the conditions of all writes at one time before it does one of them.
    checks_early: bool,
    /// Whether the writes in flight are answered in turn.
    yields: bool,
    date: Option<OffsetDateTime>,
    /// The requests for the lease.
    asked: Mutex<Vec<&'static str>>,
    /// How many writes were renewals.
    renewals: AtomicU64,
    /// The reports to come.
    told: Mutex<Vec<Told>>,
    /// How many watches were opened.
    watches: AtomicU64,
}

impl Busy {
    fn value(&self, slot: Slot) -> &Mutex<Option<Tagged>> {
        match slot {
            Slot::Lease => &self.lease,
            Slot::Trial => &self.trial,
        }
    }

    fn write(&self, slot: Slot, body: &Body) -> Written {
        let mut value = self.value(slot).lock().expect("no test panicked with it");
        let tag = match self.has_digests {
            true => format!("digest of {body:?}"),
            false => self.states.fetch_add(1, Ordering::Relaxed).to_string(),
        };
        *value = Some(Tagged { tag: tag.clone(), body: Ok(body.clone()), date: self.date });
        Written { tag, date: self.date }
    }

    /// Changes the lease as somebody else does.
    fn set(&self, body: Option<&Body>) {
        match body {
            Some(body) => drop(self.write(Slot::Lease, body)),
            None => *self.lease.lock().unwrap() = None,
        }
    }

    /// Returns the value of the lease, if there is one.
    fn body(&self) -> Option<Body> {
        self.lease.lock().unwrap().as_ref().map(|it| it.body.clone().unwrap())
    }

    fn asks(&self, slot: Slot, what: &'static str) {
        if slot == Slot::Lease {
            self.asked.lock().expect("no test panicked with it").push(what);
        }
    }

    /// Returns the requests for the lease since the last time.
    fn asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

#[async_trait]
impl Register for Busy {
    fn kind(&self) -> &'static str {
        "busy"
    }

    fn place(&self, _slot: Slot) -> String {
        "the value".to_owned()
    }

    fn answered(&self) -> String {
        "it answered".to_owned()
    }

    fn credential(&self) -> Option<String> {
        None
    }

    fn trials(&self) -> Trials {
        Trials::InARace
    }

    async fn get(&self, slot: Slot) -> Result<Option<Tagged>, RegisterError> {
        self.asks(slot, "get");
        Ok(self.value(slot).lock().expect("no test panicked with it").clone())
    }

    async fn put_renewal(
        &self,
        condition: If<'_>,
        body: &Body,
    ) -> Result<Option<Written>, RegisterError> {
        self.renewals.fetch_add(1, Ordering::Relaxed);
        self.put(Slot::Lease, condition, body).await
    }

    async fn put(
        &self,
        slot: Slot,
        condition: If<'_>,
        body: &Body,
    ) -> Result<Option<Written>, RegisterError> {
        self.asks(slot, "put");
        let found = || self.value(slot).lock().expect("no test panicked with it").clone();
        if let If::Tagged(_) = condition {
            let mut others = self.others.lock().expect("no test panicked with it");
            if *others > 0 {
                *others -= 1;
                let body = found().map(|it| it.body.expect("it is of Tenure")).unwrap_or_default();
                self.write(slot, &body);
            }
        }
        if self.yields {
            tokio::task::yield_now().await;
        }
        let holds = match condition {
            _ if self.ignores.is_some_and(|it| it(condition)) => true,
            If::Absent => found().is_none(),
            If::Tagged(tag) => found().is_some_and(|it| it.tag == tag),
        };
        if self.checks_early {
            tokio::task::yield_now().await;
        }
        Ok((holds && !self.refuses).then(|| self.write(slot, body)))
    }

    async fn told(&self) -> Told {
        self.watches.fetch_add(1, Ordering::Relaxed);
        let told = self.told.lock().expect("no test panicked with it").pop();
        match told {
            Some(told) => told,
            None => std::future::pending().await,
        }
    }

    async fn others(&self) -> Option<Vec<String>> {
        Some(vec!["b".to_owned()])
    }

    async fn examine(&self) -> Vec<Finding> {
        vec![Finding {
            subject: "value".into(),
            verdict: Verdict::Passed,
            detail: self.place(Slot::Lease),
            remedy: None,
        }]
    }
}

fn store() -> Registered<Busy> {
    Registered::new(Busy::default())
}

fn successor() -> Successor {
    Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) }
}

/// Acquires the lease; returns the bid as it is then.
async fn acquired(store: &Registered<Busy>) -> Bid {
    let mut bid = Bid { seen: store.read().await.unwrap().version, ..bid() };
    bid.written = store.acquire(&bid).await.unwrap().version;
    assert!(bid.written.is_some());
    store.register.asked();
    bid
}

/// Tries all that doctor tries.
async fn prove(register: &Busy) -> Result<(), StoreError> {
    proof::in_order(register).await?;
    proof::in_a_race(register).await
}

#[tokio::test]
async fn candidates_that_try_at_the_same_time_do_not_spoil_the_proof() {
    for (others, proven) in [(0, true), (1, true), (4, true), (5, false)] {
        let register = Busy::default();
        *register.others.lock().unwrap() = others;
        let proof = proof::in_order(&register).await;
        assert_eq!(proof.is_ok(), proven, "{others}");
        if let Err(error) = proof {
            assert_eq!(error.failure().cause, Cause::Unavailable, "it says nothing of the server");
        }
        // The value stays, and the next candidate finds it.
        assert_eq!(prove(&register).await, Ok(()));
    }
}

#[tokio::test]
async fn hosts_that_prove_at_once_never_condemn_a_good_server() {
    for hosts in 2..=6 {
        let register = Busy { yields: true, ..Busy::default() };
        let proofs = join_all((0..hosts).map(|_| prove(&register))).await;
        assert!(proofs.contains(&Ok(())), "{proofs:?}");
        for error in proofs.into_iter().filter_map(Result::err) {
            assert_eq!(error.failure().cause, Cause::Unavailable, "{error}");
        }
    }
}

#[tokio::test]
async fn a_server_that_does_not_honour_a_condition_gets_no_bid() {
    let ignores = |ignores: fn(If<'_>) -> bool| Busy { ignores: Some(ignores), ..Busy::default() };
    for (register, words) in [
        (ignores(|it| it == If::Absent), "created the value although it existed"),
        (ignores(|it| it != If::Absent), "on the condition of a state that was over"),
        (
            Busy { checks_early: true, ..Busy::default() },
            "did 8 of 8 writes of the value at the same time",
        ),
        (
            Busy { refuses: true, trial: Mutex::new(some_trial()), ..Busy::default() },
            "refused 5 times",
        ),
    ] {
        let store = Registered::new(register);
        let bid = Bid { seen: store.read().await.unwrap().version, ..bid() };
        store.register.asked();
        for _ in 0..2 {
            let error = store.acquire(&bid).await.unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(error.failure().cause, Cause::Settings);
            assert!(matches!(error, StoreError::Unknown(_)) && store.register.asked().is_empty());
        }
    }
}

fn some_trial() -> Option<Tagged> {
    Some(Tagged { tag: "0".to_owned(), body: Err("is of another".to_owned()), date: None })
}

#[tokio::test]
async fn a_race_is_run_once_a_day() {
    let at = |hours: i64| Some(OffsetDateTime::UNIX_EPOCH + time::Duration::hours(hours));
    let mut register = Busy { date: at(1_000), ..Busy::default() };
    assert!(proof::in_order(&register).await.unwrap().is_race_due(), "the value is new");
    assert_eq!(prove(&register).await, Ok(()));
    for (hours, is_due) in [(1_000, false), (1_023, false), (1_024, true), (999, true)] {
        register.date = at(hours);
        assert_eq!(proof::in_order(&register).await.unwrap().is_race_due(), is_due, "{hours}");
    }
    register.date = None;
    assert!(proof::in_order(&register).await.unwrap().is_race_due(), "nobody knows");
}

#[tokio::test]
async fn the_states_of_a_trial_have_digests_of_their_own() {
    let register = Busy { has_digests: true, ..Busy::default() };
    for _ in 0..2 {
        assert_eq!(prove(&register).await, Ok(()));
    }
}

#[test]
fn what_is_kept_beside_the_elections_is_not_listed_as_one() {
    let found = ["orders", "b.2", "orders_trial", ".b_trial.tmp.17", "Readme", "", "a-1"];
    assert_eq!(elections(found.into_iter()), ["a-1", "b.2", "orders"]);
    let many: Vec<_> =
        (100..=100 + crate::store::MOST_LISTED).rev().map(|it| it.to_string()).collect();
    let listed = elections(many.iter().map(String::as_str));
    assert_eq!((listed.len(), &*listed[0], &*listed[19]), (20, "100", "119"));
}

#[tokio::test]
async fn each_change_by_the_holder_is_one_write() {
    let store = store();
    let before = store.read().await.unwrap();
    assert!(before.free && !store.rules().missing_is_free, "a missing record needs a hold");
    let mut bid = acquired(&store).await;
    assert_eq!(store.write_term(&bid, 9).await, Ok(9));
    assert_eq!(store.register.asked(), ["put"]);
    // That write returned no version.
    bid.written = None;
    bid.written = store.renew(&bid).await.unwrap();
    assert_eq!(store.register.asked(), ["get", "put"]);
    let first = store.read().await.unwrap();
    assert_eq!(Some(&first.version), bid.written.as_ref());
    store.register.asked();
    bid.written = store.renew(&bid).await.unwrap();
    assert_eq!(store.register.asked(), ["put"]);
    let second = store.read().await.unwrap();
    assert!(first.claim != second.claim && first.record == second.record);
    store.register.asked();
    bid.written = store.set_successor(&bid, &successor()).await.unwrap();
    assert_eq!(store.register.asked(), ["put"]);
    store.release(&bid).await.unwrap();
    assert_eq!(store.register.asked(), ["get", "put"], "a release is based on a read");
    let after = store.read().await.unwrap();
    assert_eq!((after.free, after.record.successor), (true, Some(successor())));
    // The next one finds the record.
    let next = Bid { seen: after.version, nonce: Nonce(8), ..bid.clone() };
    assert_eq!(store.acquire(&next).await.unwrap().record.term, Some(9));
}

#[tokio::test]
async fn what_a_read_shows_as_ours_is_written_once_more() {
    let store = store();
    let mut bid = acquired(&store).await;
    let early = store.set_successor(&bid, &successor()).await.unwrap_err();
    assert!(matches!(early, StoreError::Refused(_)), "{early:?}");
    assert!(early.to_string().contains("did not write the record"), "{early}");
    assert_eq!(store.write_term(&bid, 1).await, Ok(1));
    // The answers were lost: a failover may take back what the read shows.
    bid.written = None;
    store.register.asked();
    assert_eq!(store.write_term(&bid, 7).await, Ok(1), "the term that was written first");
    assert_eq!(store.register.asked(), ["get", "put"]);
    store.set_successor(&bid, &successor()).await.unwrap();
    store.register.asked();
    bid.written = store.set_successor(&bid, &successor()).await.unwrap();
    assert_eq!(store.register.asked(), ["get", "put"]);
    // What was acknowledged lasts, but for a lease that is lost.
    assert_eq!(store.set_successor(&bid, &successor()).await.as_ref(), Ok(&bid.written));
    assert_eq!(store.register.asked(), ["get"]);
    store.break_lease(false).await.unwrap();
    let lost = store.set_successor(&bid, &successor()).await;
    assert!(matches!(lost, Err(StoreError::Refused(_))), "{lost:?}");
}

#[tokio::test]
async fn each_write_has_numbers_of_its_own_also_after_a_lost_answer() {
    let store = store();
    let mut bid = acquired(&store).await;
    let mut seen = vec![store.register.body().unwrap()];
    for written in [true, false, false, true] {
        bid.written = bid.written.filter(|_| written);
        bid.written = store.renew(&bid).await.unwrap();
        seen.push(store.register.body().unwrap());
    }
    // The server loses what was written last, and gets the next renewal.
    let known = [seen[3].clone(), seen[4].clone()];
    store.register.set(Some(&seen[3]));
    bid.written = None;
    for _ in 0..2 {
        store.renew(&bid).await.unwrap();
        seen.push(store.register.body().unwrap());
    }
    assert_eq!(
        known[1].held.as_ref().map(|it| it.writes),
        seen[5].held.as_ref().map(|it| it.writes)
    );
    let numbers = |body: &Body| (body.write, body.held.as_ref().map(|it| it.renewal));
    for (index, body) in seen.iter().enumerate() {
        let (write, renewal) = numbers(body);
        for before in seen[..index].iter().map(numbers) {
            assert!(before.0 != write && before.1 != renewal, "{seen:?}");
        }
    }
}

#[tokio::test]
async fn a_bid_that_is_given_up_finds_another_state_when_it_is_delivered() {
    let free = Body::default();
    let mut held = Body::default();
    held.take(&Bid { nonce: Nonce(8), ..bid() }, Nonce(1));
    for base in [None, Some(free), Some(held)] {
        let store = store();
        store.register.set(base.as_ref());
        let bid = Bid { seen: store.read().await.unwrap().version, ..bid() };
        // Its write is under way.
        let tag = body::of_version(&bid.seen).map(|it| it.0);
        let condition = tag.as_deref().map_or(If::Absent, If::Tagged);
        let released = store.release(&bid).await;
        assert!(matches!(released, Err(StoreError::Refused(_))), "it held nothing: {released:?}");
        let mut late = base.clone().unwrap_or_default();
        late.take(&bid, Nonce(2));
        let delivered = store.register.put(Slot::Lease, condition, &late).await;
        assert_eq!(delivered, Ok(None), "{base:?}");
        let after = store.register.body().unwrap();
        let claim = |it: &Body| it.held.as_ref().map(Held::claim);
        assert_eq!(claim(&after), base.as_ref().and_then(claim), "no observer waits anew");
        assert_eq!(after.record, Record::default());
    }
}

#[tokio::test]
async fn a_release_that_meets_the_late_bid_is_repeated() {
    let store = store();
    let bid = Bid { seen: store.read().await.unwrap().version, ..bid() };
    let mut late = Body::default();
    late.take(&bid, Nonce(2));
    store.register.set(Some(&late));
    *store.register.others.lock().unwrap() = 1;
    let met = store.release(&bid).await;
    assert!(matches!(met, Err(StoreError::RetryNow(_))), "{met:?}");
    assert_eq!(store.release(&bid).await, Ok(()));
    assert!(store.read().await.unwrap().free);
}

#[tokio::test]
async fn the_largest_term_has_no_successor() {
    let store = store();
    let bid = acquired(&store).await;
    let error = store.write_term(&bid, u64::MAX).await.unwrap_err();
    assert!(matches!(error, StoreError::Foreign(_)), "{error:?}");
}

#[tokio::test]
async fn a_bid_whose_answer_was_lost_finds_its_lease() {
    let store = store();
    let bid = Bid { written: None, ..acquired(&store).await };
    assert!(store.acquire(&bid).await.is_ok(), "created by an earlier request");
    // An earlier request was done after the read.
    store.release(&bid).await.unwrap();
    let bid = Bid { seen: store.read().await.unwrap().version, ..bid };
    assert!(store.acquire(&bid).await.is_ok());
    assert!(store.acquire(&bid).await.is_ok());
    // Others change the value each time.
    *store.register.others.lock().unwrap() = 2;
    let error = store.acquire(&bid).await.unwrap_err();
    assert!(matches!(error, StoreError::RetryNow(_)), "{error:?}");
}

#[tokio::test]
async fn a_bid_is_based_on_what_was_read_whatever_was_told_since() {
    let store = store();
    store.register.set(Some(&body::first(9)));
    let bid = Bid { seen: store.read().await.unwrap().version, ..bid() };
    store.register.told.lock().unwrap().push(Told::Body(body::first(3)));
    assert!(store.changed().now_or_never().is_some());
    assert_eq!(store.acquire(&bid).await.unwrap().record.term, Some(9));
    assert_eq!(store.register.body().unwrap().record.term, Some(9));
}

#[tokio::test]
async fn a_lost_lease_is_refused_with_the_reason_and_nothing_is_written() {
    let mut others = Body::default();
    let candidate = Candidate { identity: "b".to_owned(), ..(*bid().candidate).clone() };
    others.take(&Bid { nonce: Nonce(8), candidate: candidate.into(), ..bid() }, Nonce(1));
    let mut broken = Body::default();
    broken.take(&bid(), Nonce(1));
    broken.mark_broken(Nonce(2));
    for (found, words) in [
        (Some(others), "the lease in the value is held by \"b\""),
        (Some(broken.clone()), "an operator broke the lease in the value"),
        (Some(Body::default()), "the lease in the value was freed, or has changed"),
        (None, "the value was deleted"),
    ] {
        let store = store();
        let bid = Bid { written: None, ..acquired(&store).await };
        assert_eq!(store.write_term(&bid, 1).await, Ok(1));
        store.register.set(found.as_ref());
        store.register.asked();
        let mut outcomes = vec![
            store.renew(&bid).await.map(drop),
            store.write_term(&bid, 1).await.map(drop),
            store.set_successor(&bid, &successor()).await.map(drop),
        ];
        assert_eq!(store.register.asked(), ["get"; 3]);
        let released = store.release(&bid).await;
        match found == Some(broken.clone()) {
            true => assert_eq!(released, Ok(())),
            false => outcomes.push(released),
        }
        for outcome in outcomes {
            let Err(StoreError::Refused(failure)) = &outcome else { panic!("{outcome:?}") };
            assert!(failure.message.starts_with(words), "{failure}");
        }
    }
}

#[tokio::test]
async fn a_bid_for_a_lease_that_another_has_taken_is_refused() {
    let store = store();
    let late = Bid { seen: store.read().await.unwrap().version, nonce: Nonce(8), ..bid() };
    let first = acquired(&store).await;
    let error = store.acquire(&late).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused(_)) && error.to_string().contains("held by"));
    // Where its time is over, as observers count it, the version is the one that was seen.
    let next = Bid { seen: store.read().await.unwrap().version, ..late };
    assert!(store.acquire(&next).await.is_ok());
    assert!(store.renew(&Bid { written: None, ..first }).await.is_err());
}

#[tokio::test]
async fn a_broken_lease_runs_out_or_is_freed_at_once() {
    let (store, length) = (store(), bid().lease_duration);
    for at_once in [false, true] {
        assert_eq!(store.break_lease(at_once).await, Ok(BreakOutcome::NotHeld));
    }
    let bid = Bid { written: None, ..acquired(&store).await };
    assert_eq!(store.write_term(&bid, 1).await, Ok(1));
    let record = store.read().await.unwrap().record;
    let held = |free_in| Ok(BreakOutcome::Held { record: record.clone(), free_in });
    *store.register.others.lock().unwrap() = 1;
    let error = store.break_lease(false).await.unwrap_err();
    assert!(error.to_string().contains("nothing was broken: try again"), "{error}");
    assert_eq!(store.break_lease(false).await, held(length));
    store.register.asked();
    assert_eq!(store.break_lease(false).await, held(length));
    assert_eq!(store.register.asked(), ["get"], "it is broken already");
    assert!(!store.read().await.unwrap().free && store.renew(&bid).await.is_err());
    assert_eq!(store.break_lease(true).await, held(Duration::ZERO));
    assert!(store.read().await.unwrap().free);
}

#[tokio::test]
async fn a_first_term_is_written_once() {
    let store = store();
    let missing = "no value".to_owned();
    let others = Some(vec!["b".to_owned()]);
    assert_eq!(store.presence().await, Ok(Presence::Missing { missing, others }));
    let created = store.create(40).await.unwrap();
    assert_eq!(created, ["created the value with the first term 40"]);
    assert_eq!(store.presence().await, Ok(Presence::Exists));
    assert_eq!(store.create(50).await, Ok(Vec::new()));
    assert_eq!(store.read().await.unwrap().record.term, Some(40));
    store.register.set(Some(&Body::default()));
    let created = store.create(60).await.unwrap();
    assert_eq!(created, ["wrote the first term 60 to the value"]);
    assert_eq!(store.read().await.unwrap().record.term, Some(60));
}

#[tokio::test]
async fn an_examination_is_that_of_the_register() {
    let store = store();
    assert_eq!(store.examine().await, store.register.examine().await);
}

#[test]
fn a_server_that_reports_nothing_wakes_nobody() {
    assert!(store().changed().now_or_never().is_none());
}

#[tokio::test]
async fn a_watch_that_two_reads_are_ahead_of_is_opened_anew() {
    let (store, body) = (store(), |term| body::first(term));
    let stamped = |term| {
        let mut body = body(term);
        body.stamp(Nonce(term.into()));
        body
    };
    store.register.told.lock().unwrap().push(Told::Body(stamped(1)));
    assert_eq!(store.changed().now_or_never(), Some(Change::News { held_by: None }));
    let mut changed = store.changed();
    for (term, watches) in [(1, 2), (2, 2), (3, 3), (4, 3)] {
        store.register.set(Some(&stamped(term)));
        store.read().await.unwrap();
        assert!(futures::poll!(&mut changed).is_pending());
        assert_eq!(store.register.watches.load(Ordering::Relaxed), watches, "{term}");
    }
}

#[tokio::test]
async fn a_holder_is_not_woken_by_its_own_writes() {
    let store = store();
    let mut bid = acquired(&store).await;
    store.write_term(&bid, 1).await.unwrap();
    bid.written = None;
    for _ in 0..2 {
        bid.written = store.renew(&bid).await.unwrap();
        let told = Told::Body(store.register.body().unwrap());
        store.register.told.lock().unwrap().push(told);
        assert_eq!(store.changed().now_or_never(), None);
    }
    // The same report at another candidate.
    let other = Registered::new(Busy::default());
    other.register.told.lock().unwrap().push(Told::Body(store.register.body().unwrap()));
    assert_eq!(other.changed().now_or_never(), Some(Change::News { held_by: Some(bid.nonce) }));
}

#[tokio::test]
async fn only_a_renewal_is_written_as_one() {
    let store = store();
    let renewals = || store.register.renewals.load(Ordering::Relaxed);
    let mut bid = Bid { seen: store.read().await.unwrap().version, ..bid() };
    bid.written = store.acquire(&bid).await.unwrap().version;
    store.write_term(&bid, 1).await.unwrap();
    assert_eq!(renewals(), 0);
    bid.written = None;
    for count in 1..=3 {
        bid.written = store.renew(&bid).await.unwrap();
        assert_eq!(renewals(), count);
    }
    store.acquire(&bid).await.unwrap();
    assert_eq!(renewals(), 4, "a bid that is repeated");
    let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
    bid.written = None;
    store.set_successor(&bid, &successor).await.unwrap();
    store.break_lease(false).await.unwrap();
    store.release(&bid).await.unwrap();
    assert_eq!(renewals(), 4);
}

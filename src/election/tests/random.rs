//! The rules as invariants over random histories.

use proptest::prelude::*;

use super::*;
use crate::election::PeerNotice;

#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Freeze(u64),
    WallJump(i64),
    Suspend(u64),
    Answer(u8),
    Again,
    Wakeup,
    Changed(u128),
    Notice(PeerNotice),
    Announce,
    Maintenance(bool),
    Resign,
}

/// Any notice, honest or not, with terms around the recorded ones.
fn notice() -> impl Strategy<Value = PeerNotice> {
    let term = || prop_oneof![4 => 6_u64..12, 1 => Just(u64::MAX)];
    let length = || prop_oneof![4 => (0_u64..20_000).prop_map(ms), 1 => Just(Duration::MAX)];
    prop_oneof![
        4 => (term(), length(), length(), length()).prop_map(|(term, sent_ago, lease, next)| {
            PeerNotice::Holding { term, sent_ago, lease, next }
        }),
        1 => (term(), any::<bool>())
            .prop_map(|(term, is_heir)| PeerNotice::Draining { term, is_heir }),
        2 => (term(), any::<bool>())
            .prop_map(|(term, is_heir)| PeerNotice::Released { term, is_heir }),
        1 => any::<bool>().prop_map(|is_heir| PeerNotice::Candidates { is_heir }),
        2 => Just(PeerNotice::Lost),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (1_u64..3_000).prop_map(Event::Pass),
        1 => (1_u64..30_000).prop_map(Event::Freeze),
        1 => (-5_000_i64..5_000).prop_map(Event::WallJump),
        1 => (1_u64..30_000).prop_map(Event::Suspend),
        16 => (0_u8..8).prop_map(Event::Answer),
        2 => Just(Event::Again),
        1 => Just(Event::Wakeup),
        2 => (0_u128..30).prop_map(Event::Changed),
        4 => notice().prop_map(Event::Notice),
        2 => Just(Event::Announce),
        1 => any::<bool>().prop_map(Event::Maintenance),
        1 => Just(Event::Resign),
    ]
}

/// What a history has shown, which the election is checked against.
#[derive(Default)]
struct Witness {
    /// The lease of the last granted request, and when that was sent.
    granted: Option<(LeaseId, Moment)>,
    /// The lease under which a term was written.
    written: Option<LeaseId>,
    dead: Vec<LeaseId>,
    /// Whether the last answer was to a read, and showed the lease free.
    read_free: bool,
    /// The lease of the last bid.
    bid: Option<LeaseId>,
    sent: Option<Moment>,
    last: Option<Request>,
    resigned: Option<Moment>,
    /// Whether maintenance is imminent.
    maintenance: bool,
}

impl Witness {
    /// Records a request that was just sent.
    fn note(&mut self, bench: &Bench) {
        let Some(request) = &bench.request else { return };
        if self.last.as_ref().is_some_and(|last| last.id == request.id) {
            return;
        }
        if let Some(lease) = request.op.lease() {
            let releases = request.op.name() == "release";
            assert!(releases || !self.dead.contains(&lease), "a dead lease id is used again");
            let bids = request.op.name() == "acquire";
            assert!(!(bids && self.maintenance), "a bid during maintenance");
            if releases && !self.dead.contains(&lease) {
                self.dead.push(lease);
            }
        }
        if request.op.name() == "acquire" && self.bid != request.op.lease() {
            assert!(self.read_free, "a bid for what was not read as free");
            self.bid = request.op.lease();
        }
        self.sent = Some(bench.now);
        self.last = Some(request.clone());
    }

    /// Checks that a leader has a term under a lease whose last granted request is recent enough.
    fn apply_deadlines(&self, bench: &Bench) {
        if !bench.leads() {
            return;
        }
        assert!(self.resigned.is_none(), "active after resigning");
        assert!(!self.maintenance, "active during maintenance");
        let (lease, sent) = self.granted.expect("active without a grant");
        assert_eq!(self.written, Some(lease), "active without a term under this lease");
        assert!(sent.elapsed_max(bench.now) < ms(DEADLINE), "active after the deadline");
        assert!(!self.dead.contains(&lease), "active on a dead lease");
    }

    fn answer(&mut self, bench: &mut Bench, kind: u8) {
        let Some(request) = bench.request.clone() else { return };
        let answer = match (kind, request.op.name()) {
            (0..4, "read") => Ok(if kind < 3 { free(Some(7)) } else { held(Some(9)) }),
            (0..4, "acquire") => Ok(grant(Some(7))),
            (0..4, "write-term") => Ok(Answer::Term(10)),
            (0..2, _) => Ok(Answer::Written(Version(kind.to_string().into()))),
            (2..4, _) => Ok(Answer::Done),
            (4, _) => refused(),
            (5, _) => broken(),
            (6, _) => foreign(),
            _ => unknown(),
        };
        let lease = request.op.lease();
        match (&answer, request.op.name()) {
            (Ok(_), "acquire" | "renew") => {
                // A repeated bid counts from its first sending; a later time is more lenient here.
                self.granted = lease.zip(self.sent);
            }
            (Ok(_), "write-term") => self.written = lease,
            (Err(StoreError::Refused(_)), _) => self.dead.extend(lease),
            _ => {}
        }
        self.read_free = matches!(&answer, Ok(Answer::Snapshot(snapshot)) if snapshot.free);
        bench.answer(answer);
    }

    fn apply(&mut self, bench: &mut Bench, event: Event) {
        match event {
            Event::Pass(millis) => {
                // The driver answers for a request that has timed out.
                bench.pass(millis);
                let over = |it: &Request, sent: Moment| sent.elapsed_max(bench.now) >= it.timeout;
                if bench.request.as_ref().zip(self.sent).is_some_and(|(it, sent)| over(it, sent)) {
                    bench.answer(unknown());
                }
            }
            Event::Freeze(millis) => bench.sleep(millis),
            Event::WallJump(millis) => {
                bench.now.wall = bench.now.wall.saturating_add(ms(millis.unsigned_abs()));
            }
            Event::Suspend(millis) => {
                bench.now.boot += ms(millis);
                bench.now.wall += ms(millis);
            }
            Event::Answer(kind) => self.answer(bench, kind),
            Event::Again => {
                if let Some(last) = self.last.clone().filter(|_| bench.request.is_none()) {
                    let entropy = bench.entropy();
                    bench.election.handle_answer(last.id, Ok(Answer::Done), bench.now, entropy);
                    bench.drain();
                }
            }
            Event::Wakeup => {
                let entropy = bench.entropy();
                bench.election.handle_wakeup(bench.now, entropy);
                bench.drain();
            }
            Event::Changed(holder) => {
                let entropy = bench.entropy();
                let change = Change::News { held_by: Some(Nonce(holder)) };
                bench.election.handle_changed(change, bench.now, entropy);
                bench.drain();
            }
            Event::Notice(notice) => {
                bench.notify(notice);
            }
            Event::Announce => bench.publish_acked(),
            Event::Maintenance(imminent) => {
                self.maintenance = imminent;
                bench.maintenance(imminent);
            }
            Event::Resign => {
                bench.resign();
                self.resigned.get_or_insert(bench.now);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn every_leadership_has_its_reason_and_every_resignation_ends(
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut bench = Bench::new(config());
        let mut witness = Witness::default();
        witness.note(&bench);
        for event in events {
            witness.apply(&mut bench, event);
            witness.note(&bench);
            witness.apply_deadlines(&bench);
        }
        bench.resign();
        prop_assert!(!bench.leads());
        for _ in 0..1_000 {
            if bench.election.is_finished() {
                return Ok(());
            }
            if bench.request.is_some() {
                bench.answer(unknown());
            } else {
                bench.pass(10);
            }
        }
        prop_assert!(false, "a resignation without end");
    }
}

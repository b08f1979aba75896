//! The conformance suite on the stores of the simulation that have leases of their own. Of a register, the
//! simulation runs what ships.

use simulator as simulation;
use testkit::stores::{conformance, simulated_lock};

use std::sync::Arc;
use std::time::Duration;

use conformance::Harness;
use simulated_lock::SimulatedLock;
use simulation::store::{Kind, Stage, Step, Store};
use tenure::election::{Answer, Op};
use tenure::lease::{Bid, Candidate, LeaseId, Nonce, Rules, StoreError, Version};
use tenure::store::LeaseAdmin;

/// A simulated store that counts the time of its lease.
struct Simulated<const KIND: usize>(SimulatedLock);

const KINDS: [Kind; 2] = [Kind::Blob, Kind::Host];

impl<const KIND: usize> Harness for Simulated<KIND> {
    const LEASE: Duration = Duration::from_secs(15);
    const FOREIGN: &'static [&'static str] = &[];
    const RULES: Rules = Rules {
        longest_lease: match KINDS[KIND] {
            Kind::Blob => Some(Duration::from_secs(60)),
            _ => None,
        },
        missing_is_free: matches!(KINDS[KIND], Kind::Host),
    };
    async fn start() -> Self {
        Self(SimulatedLock::new(KINDS[KIND]))
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        Arc::new(self.0.clone())
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by);
    }

    async fn delete(&self) {
        self.0.delete();
    }

    async fn plant(&self, foreign: &str) {
        unreachable!("the simulation's faults do that, {foreign} is none of its store");
    }

    async fn bytes(&self) -> Vec<u8> {
        self.0.bytes()
    }
}

#[test]
fn a_bid_creates_no_blob_before_a_response_reports_it_missing() {
    let candidate =
        Candidate { identity: "one".into(), instance: "1".into(), address: None, peer: None };
    let bid = Arc::new(Bid {
        lease: LeaseId::from_random(1),
        nonce: Nonce(1),
        candidate: Arc::new(candidate),
        lease_duration: Duration::from_secs(15),
        seen: Version("".into()),
        written: None,
    });
    let (acquire, renew) = (Op::Acquire(bid.clone()), Op::Renew(bid));
    let mut store = Store::new(Kind::Blob, 0);
    let mut ask = |op, stage| store.step(op, stage, 0, &mut None);
    // Of a late copy no more than this arrives, whose answer nobody waits for.
    assert!(matches!(ask(&acquire, Stage::First), Step::More(Stage::Missing)));
    assert!(matches!(ask(&renew, Stage::First), Step::Done(Err(StoreError::Refused(_)))));
    assert!(matches!(ask(&acquire, Stage::Missing), Step::More(Stage::Made)));
    assert!(matches!(ask(&renew, Stage::First), Step::Done(Err(StoreError::Refused(_)))));
    assert!(matches!(ask(&acquire, Stage::Made), Step::More(Stage::Second { .. })));
    assert!(matches!(ask(&renew, Stage::First), Step::Done(Ok(Answer::Done))));
}

testkit::conformance!(simulated_blob, Simulated<0>);
testkit::conformance!(simulated_host, Simulated<1>);

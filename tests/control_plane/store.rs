//! The conformance suite on a real kube-apiserver. The store has only the permissions that it needs.

use testkit::kubernetes::{lease_lock, real_lease};
use testkit::stores::{conformance, observed};

use std::sync::Arc;
use std::time::Duration;

use conformance::{Harness, ObservedHarness};
use lease_lock::FOREIGN_LEASES;
use observed::Observers;
use real_lease::RealLease;
use tenure::store::LeaseAdmin;

/// A Lease, with observers whose clock the test advances.
struct LeaseLock {
    lease: RealLease,
    observers: Observers,
}

impl Harness for LeaseLock {
    const LEASE: Duration = Duration::from_secs(15);
    const FOREIGN: &'static [&'static str] = FOREIGN_LEASES;
    const OBSERVED: bool = true;

    async fn start() -> Self {
        Self { lease: RealLease::start(), observers: Observers::default() }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        Arc::new(self.observers.handle(Arc::new(self.lease.open())))
    }

    async fn advance(&self, by: Duration) {
        // A standby must have read the Lease before time passes.
        let _ = self.candidate().read().await;
        self.observers.pass(by);
    }

    async fn delete(&self) {
        self.lease.delete();
    }

    async fn plant(&self, foreign: &str) {
        self.lease.put(serde_json::from_str(foreign).expect("JSON"));
    }

    async fn bytes(&self) -> Vec<u8> {
        self.lease.stored().to_string().into_bytes()
    }
}

impl ObservedHarness for LeaseLock {
    async fn touch(&self) {
        let drawn = uuid::Uuid::new_v4().to_string();
        self.lease.modify(|it| {
            it["metadata"]["annotations"]["example.com/touched"] = drawn.into();
        });
    }

    async fn usurp(&self) {
        self.lease.modify(lease_lock::usurp);
    }
}

testkit::conformance!(kubernetes_itself, LeaseLock, observed);

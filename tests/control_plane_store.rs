//! The Lease store on a real kube-apiserver: the sentences of the conformance suite, and those about
//! what stands in a Lease; the store has the rights that it needs and no more.

#![allow(clippy::disallowed_methods, reason = "tests wait on real processes, by the real clock")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "support/conformance.rs"]
mod conformance;
#[path = "support/control_plane.rs"]
mod control_plane;
#[path = "support/kube_raw.rs"]
mod kube_raw;
#[path = "support/kube_server.rs"]
mod kube_server;
#[path = "support/kubectl.rs"]
mod kubectl;
#[path = "support/lease_format.rs"]
mod lease_format;
#[path = "support/lease_lock.rs"]
mod lease_lock;
#[path = "support/observed.rs"]
mod observed;
#[path = "support/process.rs"]
mod process;
#[path = "support/real_lease.rs"]
mod real_lease;

use std::sync::Arc;
use std::time::Duration;

use conformance::{Harness, ObservedHarness};
use lease_format::Cluster;
use lease_lock::FOREIGN_LEASES;
use observed::Observers;
use real_lease::RealLease;
use serde_json::Value;
use tenure::store::LeaseStore;
use tenure::store::kubernetes::Kubernetes;

/// A Lease, with observers whose clock the test turns.
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

    fn candidate(&self) -> Arc<dyn LeaseStore> {
        Arc::new(self.observers.handle(Arc::new(self.lease.open())))
    }

    async fn advance(&self, by: Duration) {
        // Somebody stands by, and has looked.
        let _ = self.candidate().look().await;
        self.observers.pass(by);
    }

    async fn delete(&self) {
        self.lease.delete();
    }

    async fn plant(&self, foreign: &str) {
        self.lease.put(serde_json::from_str(foreign).expect("JSON"));
    }

    async fn bytes(&self) -> Vec<u8> {
        self.lease.stands().to_string().into_bytes()
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

impl Cluster for RealLease {
    fn open(&self) -> Kubernetes {
        self.open()
    }

    fn place(&self) -> String {
        format!("{}/orders", self.namespace)
    }

    fn lease(&self) -> Value {
        self.stands()
    }

    fn put(&self, lease: Value) {
        self.put(lease);
    }

    fn modify(&self, change: impl FnOnce(&mut Value)) {
        self.modify(change);
    }
}

conformance!(kubernetes_itself, LeaseLock, observed);

mod what_stands_there {
    use super::*;

    lease_format!(RealLease::start());
}

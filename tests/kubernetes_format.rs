//! What stands in a Lease, asked of the tests' own API server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "support/kube_server.rs"]
mod kube_server;
#[path = "support/lease_format.rs"]
mod lease_format;
#[path = "support/lease_lock.rs"]
mod lease_lock;

use kube_server::KubeServer;
use lease_format::Cluster;
use serde_json::Value;
use tenure::store::kubernetes::Kubernetes;

impl Cluster for KubeServer {
    fn open(&self) -> Kubernetes {
        lease_lock::open(self)
    }

    fn place(&self) -> String {
        "team/orders".to_owned()
    }

    fn lease(&self) -> Value {
        lease_lock::lease(self)
    }

    fn put(&self, lease: Value) {
        self.put("leases", "team", "orders", lease);
    }

    fn modify(&self, change: impl FnOnce(&mut Value)) {
        self.modify("leases", "team", "orders", change);
    }
}

lease_format!(KubeServer::start());

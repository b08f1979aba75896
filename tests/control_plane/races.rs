//! Races on Leases of a real kube-apiserver.

use std::sync::Arc;

use testkit::races::courses::ServerCourse;
use testkit::races::run::{Plan, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_on_leases_are_linearizable() {
    let result = run(Arc::new(ServerCourse::kubernetes()), Plan::from_environment()).await;
    assert!(result.first.is_none(), "{}", result.first.unwrap_or_default());
    assert!(result.races > 0, "no race in time");
}

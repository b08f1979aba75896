//! Support for the tests: starts, observes and disturbs real processes and servers.
//!
//! Only [`stores::conformance`], which several test binaries share, asserts properties of Tenure.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(async_fn_in_trait, reason = "the tests await what they call")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::sync::OnceLock;

use tokio::runtime::Runtime;

pub mod azure;
pub mod consul;
pub mod etcd;
pub mod faults;
pub mod gcs;
pub mod generated;
pub mod http;
pub mod kubernetes;
pub mod mongodb;
pub mod paths;
pub mod ports;
pub mod postgres;
pub mod processes;
pub mod races;
pub mod recorder;
pub mod redis;
pub mod s3;
pub mod soak_report;
pub mod stores;
pub mod tasks;
pub mod tools;
pub mod zookeeper;

/// Returns the runtime of what tests share: it outlives each of them.
fn shared_runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut it = tokio::runtime::Builder::new_multi_thread();
        it.worker_threads(1).enable_all().build().expect("a runtime")
    })
}

/// Blocks on a call, in synchronous code.
pub fn blocking<T: Send>(call: impl Future<Output = T> + Send) -> T {
    // A thread of its own, because the caller may be inside of another runtime.
    std::thread::scope(|scope| {
        scope.spawn(|| shared_runtime().block_on(call)).join().expect("the call did not panic")
    })
}

//! What the tests of the backends share: bids, timeouts, and what calls have brought.

use std::sync::Arc;
use std::time::Duration;

use tenure::config::AzureSettings;
use tenure::lease::{Bid, Candidate, Cause, Change, LeaseId, Nonce, StoreError, Version};
use tenure::store::azure::Azure;
use tenure::store::{Finding, LeaseStore};

use crate::azure::blob_server::BlobServer;

/// The number of one candidate.
pub const A: u128 = 0xA;
/// The number of another candidate.
pub const B: u128 = 0xB;

/// The bound on requests to real servers: on a busy machine, signing in to some of them takes seconds in a
/// debug build.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Returns the bid of the candidate with a number.
pub fn bid(number: u128) -> Bid {
    bid_as(&format!("candidate {number:X} (100 %)"), number)
}

/// Returns the bid of the candidate with a number and this identity.
pub fn bid_as(identity: &str, number: u128) -> Bid {
    Bid {
        lease: LeaseId::from_random(number),
        nonce: Nonce(number),
        candidate: Arc::new(Candidate {
            identity: identity.to_owned(),
            instance: format!("instance-{number}"),
            address: Some("[::1]:80".to_owned()),
            peer: None,
        }),
        lease_duration: Duration::from_secs(15),
        seen: Version("missing".into()),
        written: None,
    }
}

/// Returns the bid of the candidate with a number for the present version.
pub async fn bid_on(store: &(impl LeaseStore + ?Sized), number: u128) -> Bid {
    let seen = soon(store.read()).await.expect("a read").version;
    Bid { seen, ..bid(number) }
}

pub fn open(settings: AzureSettings) -> Azure {
    Azure::open(settings).expect("the settings are good")
}

/// Fails the test if a call takes longer than 20 s.
pub async fn soon<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), call).await.expect("an end within 20 s")
}

/// Waits until the store reports anything but a renewal; returns the acquisition that it names.
pub async fn news(store: &(impl LeaseStore + ?Sized)) -> Option<Nonce> {
    loop {
        if let Change::News { held_by } = store.changed().await {
            return held_by;
        }
    }
}

/// Returns the outcome of a call as text.
pub fn outcome<T>(result: &Result<T, StoreError>) -> &'static str {
    match result {
        Ok(_) => "granted",
        Err(StoreError::Refused(failure)) => {
            assert_eq!(failure.cause, Cause::Lease, "{failure}");
            "refused"
        }
        Err(StoreError::Foreign(_)) => "foreign",
        Err(StoreError::RetryNow(_)) => "broken",
        Err(StoreError::Unknown(_)) => "unknown",
    }
}

/// Returns the cause and the words of a call whose outcome is unknown.
pub fn failure<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> (Cause, String) {
    match outcome {
        Err(StoreError::Unknown(failure)) => (failure.cause, failure.message.into_owned()),
        other => panic!("it is unknown, and not {other:?}"),
    }
}

/// Returns what `doctor` has found of a subject.
pub fn finding<'a>(found: &'a [Finding], subject: &str) -> &'a Finding {
    found.iter().find(|it| it.subject == subject).unwrap_or_else(|| panic!("{subject}: {found:?}"))
}

/// Returns a server, and a store on it whose lease A holds with a term.
pub async fn leading() -> (BlobServer, Azure) {
    let server = BlobServer::start().await;
    let store = open(server.settings("locks", "orders"));
    soon(store.acquire(&bid(A))).await.expect("the lease");
    soon(store.write_term(&bid(A), 1)).await.expect("the term");
    server.take_log();
    (server, store)
}

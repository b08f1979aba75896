//! What the watch of a store tells a standby, where it begins with the present state.

use std::time::Duration;

use tenure::lease::Nonce;
use tenure::store::LeaseAdmin;

use super::bids::{A, B, bid_on, news, soon};

/// Longer than it takes until a watch tells of a change.
const QUIET: Duration = Duration::from_millis(700);

/// Checks that each change of hands is told, and no renewal.
pub async fn tells_of_each_change_of_hands(
    leader: &(impl LeaseAdmin + ?Sized),
    standby: &(impl LeaseAdmin + ?Sized),
) {
    assert_eq!(soon(news(standby)).await, None, "it begins with the present state");
    let a = bid_on(leader, A).await;
    soon(leader.acquire(&a)).await.unwrap();
    assert_eq!(soon(news(standby)).await, Some(Nonce(A)));
    soon(leader.write_term(&a, 1)).await.unwrap();
    assert_eq!(soon(news(standby)).await, Some(Nonce(A)), "the term is news too");
    for _ in 0..3 {
        soon(leader.renew(&a)).await.unwrap();
    }
    let quiet = tokio::time::timeout(QUIET, news(standby)).await;
    assert!(quiet.is_err(), "a renewal is none: {quiet:?}");
    soon(leader.release(&a)).await.unwrap();
    assert_eq!(soon(news(standby)).await, None);
    // What happens while nobody waits is not missed.
    let b = bid_on(leader, B).await;
    soon(leader.acquire(&b)).await.unwrap();
    soon(leader.write_term(&b, 1)).await.unwrap();
    assert_eq!(soon(news(standby)).await, Some(Nonce(B)));
    soon(leader.break_lease(true)).await.unwrap();
    let mut told = soon(news(standby)).await;
    if told == Some(Nonce(B)) {
        told = soon(news(standby)).await;
    }
    assert_eq!(told, None, "the last state counts");
}

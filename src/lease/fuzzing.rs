//! What the fuzz targets of the stores share.

use std::sync::Arc;
use std::time::Duration;

use super::text::is_printable;
use super::{Bid, Candidate, LeaseId, Nonce, Snapshot, Version};

/// Returns a bid for a record in version 0.
pub(crate) fn bid() -> Bid {
    let candidate = Candidate {
        identity: "a".into(),
        instance: "1".into(),
        address: Some("[::1]:80".into()),
        peer: None,
    };
    Bid {
        lease: LeaseId::from_random(7),
        nonce: Nonce(7),
        candidate: Arc::new(candidate),
        lease_duration: Duration::from_secs(15),
        seen: Version("0".into()),
        written: None,
    }
}

/// Checks that all names of an admitted snapshot can be shown.
pub(crate) fn shown(snapshot: &Snapshot) {
    let holder = snapshot.record.holder.iter();
    let names = holder.flat_map(|it| [Some(&it.identity), Some(&it.instance), it.address.as_ref()]);
    let successor = snapshot.record.successor.as_ref().map(|it| &it.identity);
    for name in names.chain([successor]).flatten() {
        assert!(name.chars().count() <= 128 && name.chars().all(is_printable), "{name:?}");
    }
}

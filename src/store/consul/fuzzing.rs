//! Fuzz target for what Consul may answer to a read and to a transaction.

use super::api::written;
use super::wire::{Entry, Txn};
use super::{election, wire};
use crate::store::register::Told;

/// Checks that nothing but the key that was written gives its index.
pub fn consul_answer(data: &[u8]) {
    if let Ok(found) = serde_json::from_slice::<Vec<Entry>>(data) {
        for entry in found {
            let parts = election(&entry.key, "t/").map(|it| format!("t/{it}/"));
            assert!(parts.is_none_or(|it| it == entry.key));
            drop(Told::of(Some(&entry.into_value())));
        }
    }
    let Ok(answer) = serde_json::from_slice::<Txn>(data) else { return };
    let operations = [wire::cas("t/orders/lease", b"x", 1), wire::set("t/orders/term", b"7")];
    let results = answer.results.unwrap_or_default();
    if let Some(index) = written(&operations, &results) {
        assert!(index > 1 && results.len() == 2);
        assert_eq!(results[0].kv.as_ref().map(|it| it.key.as_str()), Some("t/orders/lease"));
    }
}

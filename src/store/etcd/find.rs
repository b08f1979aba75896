//! Whether the election exists, and which others are beside it.

use azure_core::base64;
use serde_json::json;

use super::Etcd;
use crate::lease::StoreError;
use crate::store::{MOST_LISTED, Presence};

/// How many keys are read to find other elections: two for each, and as many again that are none.
const MOST_KEYS: usize = MOST_LISTED * 4;

impl Etcd {
    /// Returns whether this election has a key, and if not, which elections of the same prefix have.
    pub(super) async fn find(&self) -> Result<Presence, StoreError> {
        let mut call = self.gateway.call();
        if self.see(&mut call).await?.exists {
            return Ok(Presence::Exists);
        }
        let folder = format!("/{}/", self.settings.prefix);
        let body = json!({
            "key": base64::encode(&folder),
            // The first key behind all of this folder.
            "range_end": base64::encode(format!("/{}0", self.settings.prefix)),
            "keys_only": true,
            "limit": MOST_KEYS.to_string(),
        });
        // A user may be allowed to read its own election only.
        let others = call.range(&body).await.ok().map(|found| {
            let keys = found.kvs.iter().filter_map(|it| str::from_utf8(&it.key.0).ok());
            let mut names: Vec<_> = keys.filter_map(|it| election(it, &folder)).collect();
            names.sort();
            names.dedup();
            names.truncate(MOST_LISTED);
            names
        });
        Ok(Presence::Missing { missing: format!("no key in {} in etcd", self.place()), others })
    }
}

/// Returns the election that a key belongs to, if it is one of Tenure's.
fn election(key: &str, folder: &str) -> Option<String> {
    let (name, last) = key.strip_prefix(folder)?.split_once('/')?;
    matches!(last, "lease" | "record").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_election_is_known_by_its_keys() {
        let of = |key| election(key, "/tenure/");
        assert_eq!(of("/tenure/orders/record").as_deref(), Some("orders"));
        assert_eq!(of("/tenure/orders/lease").as_deref(), Some("orders"));
        for other in ["/tenure/orders/doctor", "/tenure/a/b/record", "/tenure/record", "/x/a/lease"]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }
}

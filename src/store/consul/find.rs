//! Whether the election exists, and which others are beside it.

use super::Consul;
use crate::lease::StoreError;
use crate::store::{MOST_LISTED, Presence};

impl Consul {
    /// Returns whether this election has a key, and if not, which elections of the same prefix have.
    pub(super) async fn find(&self) -> Result<Presence, StoreError> {
        let mut call = self.api.call();
        if self.see(&mut call).await?.index != 0 {
            return Ok(Presence::Exists);
        }
        let folder = format!("{}/", self.settings.prefix);
        // A token may be allowed to read its own election only.
        let others = call.list(&folder).await.ok().map(|found| {
            let mut names: Vec<_> = found.iter().filter_map(|it| election(it, &folder)).collect();
            names.sort();
            names.truncate(MOST_LISTED);
            names
        });
        Ok(Presence::Missing { missing: format!("no key {} in Consul", self.key), others })
    }
}

/// Returns the election that a part of the keys may belong to.
fn election(part: &str, folder: &str) -> Option<String> {
    let name = part.strip_prefix(folder)?.strip_suffix('/')?;
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_election_is_known_by_its_folder() {
        assert_eq!(election("tenure/orders/", "tenure/").as_deref(), Some("orders"));
        for other in ["tenure/orders", "tenure/", "tenure//", "x/a/"] {
            assert_eq!(election(other, "tenure/"), None, "{other}");
        }
    }
}

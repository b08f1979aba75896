//! Finds the blob of an election, or the others in its place, for an operator.

use azure_storage_blob::models::{BlobContainerClientListBlobsOptions, BlobItem};
use futures::{StreamExt, TryStreamExt};

use super::Azure;
use super::access::Access;
use super::errors::{Op, code, is_missing};
use crate::lease::StoreError;
use crate::store::{MOST_LISTED, Presence};

impl Azure {
    /// Returns whether the blob exists, and if not, which others have its prefix.
    pub(super) async fn find(&self, access: &Access) -> Result<Presence, StoreError> {
        let error = match access.lock.get_properties(None).await {
            Ok(_) => return Ok(Presence::Exists),
            Err(error) if is_missing(&error) => error,
            Err(error) => return Err(self.failed(Op::Read, &error)),
        };
        if code(&error).is_some_and(|(_, code)| code == "ContainerNotFound") {
            let missing = format!("the container {} does not exist", self.settings.container);
            return Ok(Presence::Missing { missing, others: None });
        }
        let (prefix, election) = match self.settings.blob.rsplit_once('/') {
            Some((prefix, election)) => (format!("{prefix}/"), election),
            None => (String::new(), self.settings.blob.as_str()),
        };
        let missing = format!(
            "no election {election:?} in the container {}, where its blob would be {}",
            self.settings.container, self.settings.blob
        );
        // A SAS or a custom role may have no right to list.
        let others = list(access, &prefix).await.ok();
        Ok(Presence::Missing { missing, others })
    }
}

/// Returns the names of the blobs with this prefix, without it.
async fn list(access: &Access, prefix: &str) -> azure_core::Result<Vec<String>> {
    let options = BlobContainerClientListBlobsOptions {
        maxresults: i32::try_from(MOST_LISTED).ok(),
        prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
        ..Default::default()
    };
    let listed = access.container.list_blobs(Some(options))?.take(MOST_LISTED);
    let blobs: Vec<BlobItem> = listed.try_collect().await?;
    let names = blobs.iter().filter_map(|it| it.name.as_deref()?.strip_prefix(prefix));
    Ok(names.map(str::to_owned).collect())
}

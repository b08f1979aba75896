//! Creates the container and the blob if they are missing. Writes no term, since the election's
//! hold comes first, and changes nothing that exists.

use std::collections::HashMap;

use azure_core::error::Error;
use azure_core::http::{Etag, RequestContent};
use azure_storage_blob::BlobClient;
use azure_storage_blob::models::BlobClientUploadOptions;

use super::access::Access;
use super::errors::{Op, code};
use super::permissions::Protection;
use super::rejected::IMMUTABLE;
use super::{Azure, genuine};
use crate::lease::{Cause, Failure, StoreError};

impl Azure {
    /// Creates the blob, and the container too if that is missing; overwrites neither.
    pub(super) async fn make(&self, access: &Access, container: bool) -> Result<(), StoreError> {
        if container && self.make_container(access).await? {
            tracing::warn!(container = self.settings.container, "created the missing container");
        } else {
            self.check_protection(access).await?;
        }
        if self.make_blob(&access.lock, None).await? {
            tracing::warn!(
                blob = self.place(),
                "created the missing blob; the first leader waits a minute, in case an earlier \
                 leader is alive"
            );
        }
        Ok(())
    }

    /// Refuses a container in which the blob could neither be changed nor deleted.
    pub(super) async fn check_protection(&self, access: &Access) -> Result<(), StoreError> {
        if self.protection(access).await == Protection::Immutable {
            let message = format!(
                "the blob {} does not exist and was not created: {IMMUTABLE}",
                self.place()
            );
            return Err(StoreError::Unknown(Failure::new(Cause::Settings, message)));
        }
        Ok(())
    }

    /// Creates the container; returns whether it was missing.
    pub(super) async fn make_container(&self, access: &Access) -> Result<bool, StoreError> {
        match access.container.create(None).await {
            Ok(answer) => genuine(answer.headers()).map(|_| true),
            Err(error) if matches!(code(&error), Some((409, "ContainerAlreadyExists"))) => {
                Ok(false)
            }
            Err(error) => Err(self.not_made("container", &self.settings.container, &error)),
        }
    }

    /// Creates an empty blob with these metadata; returns whether it was missing.
    pub(super) async fn make_blob(
        &self,
        blob: &BlobClient,
        metadata: Option<HashMap<String, String>>,
    ) -> Result<bool, StoreError> {
        let options = BlobClientUploadOptions {
            if_none_match: Some(Etag::from("*")),
            metadata,
            ..Default::default()
        };
        match blob.upload(RequestContent::from(Vec::new()), Some(options)).await {
            Ok(answer) => genuine(answer.raw_response.headers()).map(|_| true),
            // A leased blob answers with this before it says that it exists.
            Err(error)
                if matches!(
                    code(&error),
                    Some((409, "BlobAlreadyExists") | (412, "LeaseIdMissing" | "ConditionNotMet"))
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(self.not_made("blob", &self.place(), &error)),
        }
    }

    fn not_made(&self, what: &str, name: &str, error: &Error) -> StoreError {
        match self.failed(Op::Make, error) {
            StoreError::Unknown(failure) => StoreError::Unknown(Failure::new(
                failure.cause,
                format!("the {what} {name} does not exist and could not be created: {failure}"),
            )),
            other => other,
        }
    }
}

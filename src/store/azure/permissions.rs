//! Tries the permissions that a lease needs, for `tenure doctor`: on a probe blob, which is removed
//! afterwards, or where that might not be possible, on a blob that does not exist.

use std::collections::HashMap;

use azure_core::http::headers::Headers;
use azure_storage_blob::BlobClient;
use azure_storage_blob::models::{BlobClientAcquireLeaseOptions, BlobClientDeleteOptions};
use uuid::Uuid;

use super::access::Access;
use super::doctor::patiently;
use super::errors::{Op, is_missing};
use super::findings::{LEASE, METADATA};
use super::rejected::IMMUTABLE;
use super::{Azure, header};
use crate::lease::{Cause, LeaseId, StoreError};
use crate::store::finding::Findings;

/// Whether what is written to the container can be changed and deleted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    /// It can.
    None,
    /// An immutability policy or a legal hold forbids it.
    Immutable,
    /// Unknown: blobs may have policies of their own, or the container may not be examined.
    Unknown,
}

impl Azure {
    /// Returns whether the container protects what is written to it.
    pub(super) async fn protection(&self, access: &Access) -> Protection {
        let Ok(answer) = access.container.get_properties(None).await else {
            return Protection::Unknown;
        };
        let is = |name| header(answer.headers(), name) == Some("true");
        if is("x-ms-has-immutability-policy") || is("x-ms-has-legal-hold") {
            Protection::Immutable
        } else if is("x-ms-immutable-storage-with-versioning-enabled") {
            Protection::Unknown
        } else {
            Protection::None
        }
    }
}

/// Tries the permissions.
pub(super) async fn examine(store: &Azure, access: &Access, findings: &mut Findings) {
    let name = format!("{}.doctor-{}", store.settings.blob, Uuid::new_v4().simple());
    let Ok(probe) = access.blob(store.settings.blob_url(&name)) else {
        return;
    };
    match patiently(store.protection(access)).await.unwrap_or(Protection::Unknown) {
        Protection::Immutable => {
            findings.failed(LEASE, IMMUTABLE, "use a container without; nothing was written here");
        }
        Protection::Unknown => without_writing(store, &probe, findings).await,
        Protection::None => by_writing(store, &probe, &name, findings).await,
    }
}

/// Tries the permissions on a blob that does not exist: the store judges them first, and then says that
/// there is no such blob.
async fn without_writing(store: &Azure, probe: &BlobClient, findings: &mut Findings) {
    let detail = "permitted; tried on a blob that does not exist, since the container may have an \
                  immutability policy, so that a probe could not be deleted";
    let lease = LeaseId::from_random(Uuid::new_v4().as_u128());
    let leased = patiently(lease_probe(probe, lease)).await;
    let written = patiently(write_probe(probe, None)).await;
    for (subject, outcome) in [(LEASE, leased), (METADATA, written.map(|it| it.map(drop)))] {
        match outcome {
            Some(Err(error)) if is_missing(&error) => findings.passed(subject, detail),
            Some(Err(error)) => denied(subject, &store.failed(Op::Make, &error), findings),
            Some(Ok(())) => findings.passed(subject, "permitted"),
            None => findings.failed(subject, "no answer within 25 s", "try again later"),
        }
    }
}

/// Tries the permissions on a probe blob.
async fn by_writing(store: &Azure, probe: &BlobClient, name: &str, findings: &mut Findings) {
    let made = patiently(store.make_blob(probe, None)).await;
    if let Err(error) = made.unwrap_or_else(|| Err(super::not_azure())) {
        denied(LEASE, &error, findings);
        return;
    }
    let lease = LeaseId::from_random(Uuid::new_v4().as_u128());
    let leased = patiently(lease_probe(probe, lease)).await;
    match &leased {
        Some(Ok(())) => findings.passed(LEASE, "leased a probe blob"),
        Some(Err(error)) => denied(LEASE, &store.failed(Op::Make, error), findings),
        None => findings.failed(LEASE, "no answer within 25 s", "try again later"),
    }
    let lease = leased.is_some_and(|it| it.is_ok()).then_some(lease);
    match patiently(write_probe(probe, lease)).await {
        Some(Ok(_)) => findings.passed(METADATA, "wrote metadata to a probe blob under its lease"),
        Some(Err(error)) => denied(METADATA, &store.failed(Op::Make, &error), findings),
        None => findings.failed(METADATA, "no answer within 25 s", "try again later"),
    }
    let options =
        BlobClientDeleteOptions { lease_id: lease.map(LeaseId::to_wire), ..Default::default() };
    if !matches!(patiently(probe.delete(Some(options))).await, Some(Ok(_))) {
        let detail = format!("failed to delete the probe blob {name}");
        findings.warning(
            METADATA,
            detail,
            "delete it; Tenure needs no permission to delete otherwise",
        );
    }
}

/// Reports a refusal, whose words have the remedy for its cause.
fn denied(subject: &'static str, error: &StoreError, findings: &mut Findings) {
    let remedy = match error.failure().cause {
        Cause::Auth => "fix the first cause that applies, and run `tenure doctor` again",
        _ => "fix the cause, and run `tenure doctor` again",
    };
    findings.failed(subject, error.to_string(), remedy);
}

async fn lease_probe(probe: &BlobClient, lease: LeaseId) -> azure_core::Result<()> {
    let options = BlobClientAcquireLeaseOptions {
        proposed_lease_id: Some(lease.to_wire()),
        ..Default::default()
    };
    probe.acquire_lease(15, Some(options)).await.map(|_| ())
}

async fn write_probe(probe: &BlobClient, lease: Option<LeaseId>) -> azure_core::Result<Headers> {
    let fields = HashMap::from([("tenure_probe".to_owned(), "1".to_owned())]);
    Azure::write(probe, &fields, lease, &Headers::new()).await
}

//! The `azure:` store: the lease on a blob of Azure Storage.
//!
//! The record is in the metadata of the blob; its content stays empty. The backend retries nothing
//! and waits only for the answer (R9), follows no redirect, overwrites nothing that Tenure did not
//! write, and treats an error as definite only if Azure says so (R4). A request never waits for a
//! sign-in once there has been one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::Error;
use azure_core::http::headers::{HeaderName, Headers};
use azure_core::http::{Etag, HttpClient};
use azure_core::time::parse_rfc7231;
use azure_storage_blob::BlobClient;
use azure_storage_blob::models::{BlobClientAcquireLeaseOptions, BlobClientSetMetadataOptions};
use time::OffsetDateTime;

use self::access::Access;
use self::denied::Evidence;
use self::errors::{Op, answer_headers, classify, code, is_missing, not_azure};
use self::record::Metadata;
use self::transport::{ProxyRoute, REQUEST_ID};
use super::renewed::Renewed;
use super::{BreakOutcome, Finding, LeaseAdmin, LeaseStore, Presence};
use crate::clock;
use crate::config::{AzureSettings, is_loopback};
use crate::http::resolver::Resolver;
use crate::lease::{
    Bid, Cause, Failure, Grant, LeaseId, Record, Rules, Snapshot, StoreError, Successor, Version,
};

mod access;
mod auth;
mod breaking;
mod credential;
mod denied;
mod doctor;
mod errors;
mod find;
mod findings;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod permissions;
mod provision;
mod record;
mod rejected;
mod sas;
mod shared_key;
#[cfg(test)]
mod tests;
mod token;
mod transport;

/// The version of the service's API, which Azurite 3.35 supports too.
const VERSION: &str = "2023-11-03";

/// The version of a blob that does not exist.
const MISSING: &str = "missing";

/// The longest lease that a blob can have, except for an infinite one.
const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// Directives for the log filter that belong after all others: below these levels the client crates
/// log lease ids and the text of answers.
pub const QUIET: [&str; 3] =
    ["typespec_client_core=warn", "azure_core=warn", "azure_identity=warn"];

/// A lease on a blob.
pub struct Azure {
    settings: AzureSettings,
    transport: Arc<dyn HttpClient>,
    credential: Renewed<Access>,
}

impl std::fmt::Debug for Azure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Azure").field("blob", &self.place()).finish_non_exhaustive()
    }
}

/// The blob as read.
struct Seen {
    headers: Headers,
    record: Record,
}

impl Azure {
    /// Creates the store from its settings. Reaches no network and reads no secret yet, so that a
    /// process starts without either and recovers when they become available; only invalid settings
    /// are an error. Must be called within a tokio runtime, in which a task renews the credential
    /// until the store is dropped.
    pub fn open(settings: AzureSettings) -> Result<Self, StoreError> {
        let route = if is_loopback(&settings.endpoint) {
            ProxyRoute::Direct
        } else {
            ProxyRoute::Proxied {
                proxy: settings.proxy.as_deref(),
                except: settings.no_proxy.as_deref(),
            }
        };
        let tls = settings.endpoint.scheme() == "https";
        let resolver = Resolver::default();
        let transport = transport::client(route, tls, &resolver).map_err(StoreError::Unknown)?;
        let credential =
            credential::open(&settings, &transport, &resolver).map_err(StoreError::Unknown)?;
        Ok(Self { settings, transport, credential })
    }

    /// Returns container and name of the blob, for messages.
    fn place(&self) -> String {
        format!("{}/{}", self.settings.container, self.settings.blob)
    }

    /// Classifies an error, and has the credential renewed if the store refused it.
    fn failed(&self, op: Op, error: &Error) -> StoreError {
        let access = self.credential.known();
        let failed = classify(
            op,
            error,
            &Evidence {
                proof: access.as_ref().map(|it| &it.proof),
                account: &self.settings.account,
                endpoint: &self.settings.endpoint,
                date: answer_headers(error).and_then(date),
                now: clock::now().date(),
            },
        );
        let is_denied = matches!(code(error), Some((401 | 403, _)));
        if failed.failure().cause != Cause::Auth && !is_denied {
            return failed;
        }
        self.credential.distrust();
        match (failed, self.credential.failure()) {
            (StoreError::Unknown(failure), Some(why)) => {
                StoreError::Unknown(Failure::new(failure.cause, format!("{failure}; and {why}")))
            }
            (failed, _) => failed,
        }
    }

    /// Reads lease state and metadata; `None` if the blob does not exist.
    async fn head(&self, access: &Access) -> Result<Option<Headers>, StoreError> {
        match access.lock.get_properties(None).await {
            Ok(answer) => genuine(answer.headers()).cloned().map(Some),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(self.failed(Op::Read, &error)),
        }
    }

    /// Reads the blob and its record; `None` if the blob does not exist.
    async fn see(&self, access: &Access) -> Result<Option<Seen>, StoreError> {
        let Some(headers) = self.head(access).await? else {
            return Ok(None);
        };
        let record = record::read(&headers, &self.place()).map_err(StoreError::Foreign)?;
        Ok(Some(Seen { headers, record }))
    }

    /// Acquires the lease of the blob as it was seen free, or creates the blob first if there was
    /// none. A copy of the request that arrives late finds another version, or no blob, and so
    /// leases nothing: not even a blob that was deleted and created again since. Only a late copy
    /// of a bid that saw no blob may lease one; its next holder waits as R11 requires.
    async fn take(&self, access: &Access, bid: &Bid) -> Result<(), StoreError> {
        let seconds = i32::try_from(bid.lease_duration.as_secs()).unwrap_or(i32::MAX);
        let seen = Some(&*bid.seen.0).filter(|it| *it != MISSING);
        let options = || BlobClientAcquireLeaseOptions {
            if_match: seen.map(|it| Etag::from(it.to_owned())),
            proposed_lease_id: Some(bid.lease.to_wire()),
            ..Default::default()
        };
        let mut answer = access.lock.acquire_lease(seconds, Some(options())).await;
        if let Err(error) = &answer
            && is_missing(error)
            && seen.is_none()
        {
            self.make(access, code(error).is_some_and(|(_, code)| code == "ContainerNotFound"))
                .await?;
            answer = access.lock.acquire_lease(seconds, Some(options())).await;
        }
        match answer {
            Ok(answer) => names(answer.headers(), bid.lease),
            // Changed by another candidate, or by this one since it holds the lease.
            Err(error) if matches!(code(&error), Some((412, "ConditionNotMet"))) => {
                self.renew(bid).await.map(drop)
            }
            Err(error) => Err(self.failed(Op::Acquire, &error)),
        }
    }

    /// Writes metadata under a lease, if the blob has not changed since it was read.
    async fn write(
        blob: &BlobClient,
        fields: &HashMap<String, String>,
        lease: Option<LeaseId>,
        seen: &Headers,
    ) -> azure_core::Result<Headers> {
        let options = BlobClientSetMetadataOptions {
            if_match: header(seen, "etag").map(|etag| Etag::from(etag.to_owned())),
            lease_id: lease.map(LeaseId::to_wire),
            ..Default::default()
        };
        Ok(blob.set_metadata(fields, Some(options)).await?.headers().clone())
    }
}

#[async_trait]
impl LeaseStore for Azure {
    fn kind(&self) -> &'static str {
        "azure"
    }

    fn rules(&self) -> Rules {
        Rules { longest_lease: Some(LONGEST_LEASE), missing_is_free: false }
    }

    fn credential_expires(&self) -> Option<OffsetDateTime> {
        sas::end(&self.credential.known()?.proof)
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        let access = self.credential.current().await?;
        let Some(Seen { headers, record }) = self.see(&access).await? else {
            let version = Version(MISSING.into());
            let record = Record::default();
            return Ok(Snapshot { free: true, record, version, claim: None, ends_in: None });
        };
        let free = match header(&headers, "x-ms-lease-state") {
            Some("available" | "expired" | "broken") => true,
            Some("leased" | "breaking") => false,
            _ => return Err(not_azure()),
        };
        let etag = header(&headers, "etag").ok_or_else(not_azure)?;
        let is_endless = header(&headers, "x-ms-lease-duration") == Some("infinite");
        let ends_in = is_endless.then_some(Duration::MAX);
        Ok(Snapshot { free, record, version: Version(etag.into()), claim: None, ends_in })
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        let access = self.credential.current().await?;
        self.take(&access, bid).await?;
        let Some(Seen { headers, record }) = self.see(&access).await? else {
            let message = "the lease was granted, but the blob has been deleted since";
            return Err(StoreError::Unknown(Failure::new(Cause::Unavailable, message)));
        };
        Ok(Grant { record, date: date(&headers), version: None })
    }

    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        let access = self.credential.current().await?;
        let gone = || refused("the blob was deleted, and the lease with it");
        let Seen { headers, record } = self.see(&access).await?.ok_or_else(gone)?;
        if let Some(term) = ours(&record, bid) {
            return Ok(term);
        }
        let term = next_term(record.term, floor, &self.place())?;
        let fields = record::metadata(&headers).write_term(bid, term);
        match Self::write(&access.lock, &fields, Some(bid.lease), &headers).await {
            Ok(answer) => written(&answer, &headers).map(|()| term),
            Err(error) if matches!(code(&error), Some((412, "ConditionNotMet"))) => {
                let seen = self.see(&access).await?.ok_or_else(gone)?;
                ours(&seen.record, bid)
                    .ok_or_else(|| refused("the record was modified concurrently"))
            }
            Err(error) => Err(self.failed(Op::Hold, &error)),
        }
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        let access = self.credential.current().await?;
        let Some(Seen { headers, record }) = self.see(&access).await? else {
            return Err(refused("the blob was deleted, and the lease with it"));
        };
        if ours(&record, bid).is_none() {
            return Err(refused(
                "this candidate did not write the record, so no successor was written",
            ));
        }
        if record.successor.as_ref() == Some(&successor.as_stored()) {
            return Ok(None);
        }
        let fields = record::metadata(&headers).set_successor(successor);
        match Self::write(&access.lock, &fields, Some(bid.lease), &headers).await {
            Ok(answer) => written(&answer, &headers).map(|()| None),
            Err(error) => Err(self.failed(Op::Hold, &error)),
        }
    }

    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError> {
        let access = self.credential.current().await?;
        match access.lock.renew_lease(bid.lease.to_wire(), None).await {
            Ok(answer) => names(answer.headers(), bid.lease).map(|()| None),
            Err(error) => Err(self.failed(Op::Hold, &error)),
        }
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        let access = self.credential.current().await?;
        match access.lock.release_lease(bid.lease.to_wire(), None).await {
            Ok(answer) => genuine(answer.headers()).map(|_| ()),
            Err(error) => Err(self.failed(Op::Hold, &error)),
        }
    }
}

#[async_trait]
impl LeaseAdmin for Azure {
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError> {
        let access = self.credential.first().await?;
        self.end_lease(&access, at_once).await
    }

    async fn presence(&self) -> Result<Presence, StoreError> {
        let access = self.credential.current().await?;
        self.find(&access).await
    }

    async fn examine(&self) -> Vec<Finding> {
        doctor::examine(self).await
    }

    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError> {
        let access = self.credential.first().await?;
        let mut made = Vec::new();
        let Some(Seen { headers, record }) = self.see(&access).await? else {
            if self.make_container(&access).await? {
                made.push(format!("created the container {}", self.settings.container));
            } else {
                self.check_protection(&access).await?;
            }
            let fields = Metadata::default().first_term(floor);
            if self.make_blob(&access.lock, Some(fields)).await? {
                made.push(format!("created the blob {} with the first term {floor}", self.place()));
            }
            return Ok(made);
        };
        if record.term.is_none() {
            let fields = record::metadata(&headers).first_term(floor);
            let answer = Self::write(&access.lock, &fields, None, &headers).await;
            written(&answer.map_err(|error| self.failed(Op::Make, &error))?, &headers)?;
            made.push(format!("wrote the first term {floor} to the blob {}", self.place()));
        }
        Ok(made)
    }
}

/// Returns the term of the record, if this bid wrote it.
fn ours(record: &Record, bid: &Bid) -> Option<u64> {
    record.term.filter(|_| record.nonce == Some(bid.nonce))
}

fn next_term(recorded: Option<u64>, floor: u64, place: &str) -> Result<u64, StoreError> {
    match recorded.unwrap_or(0).checked_add(1) {
        Some(next) => Ok(next.max(floor)),
        None => {
            let message = format!("the blob {place} has the largest possible term");
            Err(StoreError::Foreign(Failure::new(Cause::Record, message)))
        }
    }
}

fn refused(message: &'static str) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, message))
}

/// Checks that the answer grants this lease, and not another.
fn names(headers: &Headers, lease: LeaseId) -> Result<(), StoreError> {
    match header(genuine(headers)?, "x-ms-lease-id") {
        Some(id) if id.eq_ignore_ascii_case(&lease.to_wire()) => Ok(()),
        Some(_) => Err(refused("the store granted the lease under another id")),
        None => Err(not_azure()),
    }
}

/// Checks that Azure answered, and not a proxy with a page of its own.
fn genuine(headers: &Headers) -> Result<&Headers, StoreError> {
    header(headers, REQUEST_ID).map(|_| headers).ok_or_else(not_azure)
}

/// Checks that the answer to a write of metadata shows it. Such an answer has nothing of what was
/// written, so the proof is a new `ETag`: the write was conditional on the one `seen` before, and
/// only a write changes it.
fn written(answer: &Headers, seen: &Headers) -> Result<(), StoreError> {
    let etag = header(genuine(answer)?, "etag").ok_or_else(not_azure)?;
    if header(seen, "etag") == Some(etag) {
        let message = "the store answered a write with the version of before: check whether a \
                       proxy answers in its place";
        return Err(StoreError::Unknown(Failure::new(Cause::Settings, message)));
    }
    Ok(())
}

/// Returns the store's date from its answer.
fn date(headers: &Headers) -> Option<OffsetDateTime> {
    parse_rfc7231(header(headers, "date")?).ok()
}

fn header<'a>(headers: &'a Headers, name: &'static str) -> Option<&'a str> {
    headers.get_optional_str(&HeaderName::from_static(name))
}

//! Breaking the lease of a blob, whichever candidate holds it. The blob and its record stay as they
//! are.

use std::time::Duration;

use azure_core::http::Etag;
use azure_core::http::headers::Headers;
use azure_storage_blob::models::BlobClientBreakLeaseOptions;

use super::access::Access;
use super::errors::{Op, code};
use super::{Azure, LONGEST_LEASE, Seen, genuine, header, not_azure, refused};
use crate::lease::{Cause, Failure, StoreError};
use crate::store::BreakOutcome;

/// The longest break period that Azure accepts, in seconds. A finite lease never has more left, so
/// it just runs out. An infinite one, acquired since the read, does not break at once, as it would
/// without a period.
const LONGEST_PERIOD: i32 = 60;

impl Azure {
    /// Breaks the lease as it was read, unless another leadership has begun since.
    pub(super) async fn end_lease(
        &self,
        access: &Access,
        at_once: bool,
    ) -> Result<BreakOutcome, StoreError> {
        let Some(Seen { headers, record }) = self.see(access).await? else {
            return Ok(BreakOutcome::NotHeld);
        };
        match header(&headers, "x-ms-lease-state") {
            Some("available" | "expired" | "broken") => return Ok(BreakOutcome::NotHeld),
            Some("leased")
                if !at_once && header(&headers, "x-ms-lease-duration") == Some("infinite") =>
            {
                return Err(refused(
                    "the lease is infinite and never expires, so Tenure did not acquire it",
                ));
            }
            Some("leased" | "breaking") => (),
            _ => return Err(not_azure()),
        }
        let options = BlobClientBreakLeaseOptions {
            break_period: Some(if at_once { 0 } else { LONGEST_PERIOD }),
            if_match: header(&headers, "etag").map(|etag| Etag::from(etag.to_owned())),
            ..Default::default()
        };
        match access.lock.break_lease(Some(options)).await {
            Ok(answer) => {
                let free_in = rest(genuine(answer.headers())?, at_once);
                Ok(BreakOutcome::Held { record, free_in })
            }
            Err(error) => match code(&error) {
                Some((409, "LeaseNotPresentWithLeaseOperation" | "LeaseAlreadyBroken"))
                | Some((404, "BlobNotFound" | "ContainerNotFound")) => Ok(BreakOutcome::NotHeld),
                Some((412, "ConditionNotMet")) => {
                    let message =
                        "the record was modified concurrently, so nothing was broken: try again";
                    Err(StoreError::Unknown(Failure::new(Cause::Lease, message)))
                }
                _ => Err(self.failed(Op::Break, &error)),
            },
        }
    }
}

/// Returns the longest time that the lease lasts; the answer may have cut off a fraction of a
/// second.
fn rest(headers: &Headers, at_once: bool) -> Duration {
    match header(headers, "x-ms-lease-time").and_then(|it| it.parse().ok()) {
        Some(0) if at_once => Duration::ZERO,
        Some(seconds) => {
            Duration::from_secs(seconds).saturating_add(Duration::from_secs(1)).min(LONGEST_LEASE)
        }
        None => LONGEST_LEASE,
    }
}

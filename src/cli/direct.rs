//! What the commands have in common that use a store directly, without a sidecar.

use std::sync::Arc;
use std::time::Duration;

use super::terminal::harmless;
use crate::lease::{Cause, Failure, Record, Snapshot, StoreError};
use crate::status::words::spoken;
use crate::store::LeaseAdmin;

/// The bound on one request, including authentication.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a request that failed transiently is tried, and the pause between two tries.
pub(super) const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(300);

/// Bounds a request by [`PATIENCE`].
pub(super) async fn bounded<T>(
    request: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(outcome) => outcome,
        Err(_) => Err(StoreError::Unknown(Failure::new(
            Cause::Timeout,
            format!("the store did not answer within {}", spoken(PATIENCE)),
        ))),
    }
}

/// Makes a request until it succeeds, or fails for a reason that does not pass.
pub(super) async fn tried<T>(
    mut request: impl AsyncFnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match bounded(request()).await {
            Err(error) if tries < TRIES && is_passing(&error) => pause().await,
            outcome => return outcome,
        }
    }
}

/// Reads the lease, or returns why it cannot be read.
pub(super) async fn read(store: &Arc<dyn LeaseAdmin>) -> Result<Snapshot, String> {
    tried(async || store.read().await).await.map_err(|error| error.to_string())
}

/// Returns whether a retry may succeed without any intervention.
pub(super) fn is_passing(error: &StoreError) -> bool {
    match error {
        StoreError::RetryNow(_) => true,
        StoreError::Unknown(failure) => {
            matches!(failure.cause, Cause::Unavailable | Cause::Network | Cause::Lease)
        }
        StoreError::Refused(_) | StoreError::Foreign(_) => false,
    }
}

pub(super) async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

/// Formats the holder of a record for messages.
pub(super) fn named(record: &Record) -> String {
    let mut record = record.clone();
    record.admit();
    let Some(holder) = &record.holder else {
        return "a candidate that has written no term".to_owned();
    };
    let address = holder.address.as_ref().map_or(String::new(), |it| format!(" ({it})"));
    let term = record.term.map_or(String::new(), |it| format!(", in term {it}"));
    harmless(&format!("{}{address}{term}", holder.identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_must_mend_is_not_tried_again() {
        let unknown = |cause| StoreError::Unknown(Failure::new(cause, "x"));
        for (cause, passing) in [
            (Cause::Unavailable, true),
            (Cause::Network, true),
            (Cause::Auth, false),
            (Cause::Settings, false),
            (Cause::Throttled, false),
            (Cause::Timeout, false),
        ] {
            assert_eq!(is_passing(&unknown(cause)), passing, "{cause:?}");
        }
        assert!(!is_passing(&StoreError::Refused(Failure::new(Cause::Lease, "x"))));
    }

    #[test]
    fn a_record_without_a_holder_is_of_a_candidate_without_a_term() {
        assert!(named(&Record::default()).contains("no term"));
    }
}

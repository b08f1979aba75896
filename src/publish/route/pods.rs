//! Whether a pod is gone. It is read twice, since the answer ends a leadership or removes an
//! endpoint. A pod that cannot be read is not gone.

use std::time::Duration;

use super::client::RouteClient;
use crate::kube::KubeError;
use crate::kube::objects::Pod;

/// The time between the two reads.
const CONFIRM_AFTER: Duration = Duration::from_secs(1);

/// Returns whether the pod of this name and uid is gone: there is none of this name, or another
/// one.
pub(super) async fn is_gone(
    client: &RouteClient,
    name: &str,
    uid: &str,
) -> Result<bool, KubeError> {
    is_confirmed(client, name, |found| found.is_none_or(|it| it.metadata.uid != uid)).await
}

/// Returns whether the pod of this name and uid is gone, or has ended: it no longer has its
/// address.
pub(super) async fn has_left(
    client: &RouteClient,
    name: &str,
    uid: &str,
) -> Result<bool, KubeError> {
    let has_left = |it: &Pod| it.metadata.uid != uid || it.has_ended();
    is_confirmed(client, name, |found| found.is_none_or(has_left)).await
}

/// Returns whether two reads of a pod show the same.
async fn is_confirmed(
    client: &RouteClient,
    name: &str,
    shows: impl Fn(Option<&Pod>) -> bool,
) -> Result<bool, KubeError> {
    for pause in [Duration::ZERO, CONFIRM_AFTER] {
        tokio::time::sleep(pause).await;
        let found = match client.get::<Pod>(name).await {
            Ok(pod) => Some(pod),
            Err(KubeError::Missing(_)) => None,
            Err(error) => return Err(error),
        };
        if !shows(found.as_ref()) {
            return Ok(false);
        }
    }
    Ok(true)
}

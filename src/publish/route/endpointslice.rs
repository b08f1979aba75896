//! The route by an `EndpointSlice`: the leader writes its address behind a Service without
//! selector, so that the same update removes the old address and adds the new one.
//!
//! There is one slice for each Service and election. Every write is a compare-and-set: by the
//! slice's resource version, and by the term in its annotation, so that a late write of an older
//! leader is rejected. The leader's Pod owns the slice, so that Kubernetes deletes it after the last
//! leader's Pod if no instance is left to empty it. Slices with other managers are not changed, but
//! their endpoints are reported.

use std::net::IpAddr;

use super::client::RouteClient;
use super::{Outcome, RouteError, Target, changed_nothing, draw};
use crate::config::slice_name;
use crate::kube::KubeError;
use crate::kube::objects::{EndpointSlice, Metadata, ObjectReference, Pod, Service};
use crate::status::Role;
use futures::future::OptionFuture;
use ours::Ours;
pub(super) use ours::{MANAGER, SERVICE, is_ready};
use plan::Step;
pub(super) use ports::ports;

mod ours;
mod plan;
mod ports;
mod survey;
#[cfg(test)]
mod tests;

/// How often one reconciliation retries after a conflict.
const ATTEMPTS: usize = 4;

/// The slice that contains this pod's address while it leads.
#[derive(Debug)]
pub(super) struct Slice {
    client: RouteClient,
    ours: Ours,
    /// Whether a write with an unknown result may still arrive.
    unsure: bool,
    /// The role that the slice reports for this pod, if known.
    known: Option<Role>,
    /// Whether this pod has been read, or cannot be.
    knows_pod: bool,
}

impl Slice {
    pub(super) fn new(
        client: RouteClient,
        pod: String,
        election: String,
        service: String,
        address: IpAddr,
    ) -> Self {
        let namespace = client.namespace.clone();
        let slice = Metadata::named(&namespace, &slice_name(&service, &election));
        let pod =
            ObjectReference { kind: "Pod".to_owned(), namespace, name: pod, ..<_>::default() };
        let ours = Ours { slice, service, election, address, pod, node: None };
        Self { client, ours, unsure: false, known: None, knows_pod: false }
    }

    /// Returns the role that the slice reports for this pod; `None` after a write with an unknown
    /// result.
    pub(super) fn known(&self) -> Option<Role> {
        self.known
    }

    /// Makes the slice report the wanted role, for as long as `still` returns true. May be dropped.
    pub(super) async fn reconcile(
        &mut self,
        target: Target,
        still: &(dyn Fn() -> bool + Sync),
    ) -> Outcome {
        let mut outcome = Outcome::default();
        for _ in 0..ATTEMPTS {
            let (service, found, pod) = tokio::join!(
                self.client.get::<Service>(&self.ours.service),
                self.client.get::<EndpointSlice>(&self.ours.slice.name),
                self.read_own_pod(),
            );
            if let Some(pod) = pod {
                self.know_our_pod(pod);
            }
            let found = match found {
                Ok(found) => Some(found),
                Err(KubeError::Missing(_)) => None,
                Err(error) => return outcome.with(error.into()),
            };
            let said = self.ours.read(found.as_ref());
            self.known = (!self.unsure).then_some(said);
            // A standby does not need this, but reports early why it could not lead.
            let ports = service.map_err(RouteError::from).and_then(|service| {
                Ok((ports(&service).map_err(RouteError::Setting)?, service.metadata))
            });
            let fence = self.unsure.then(draw);
            let step = match (target, ports) {
                (Target::Active(term), Ok((ports, service))) => {
                    self.ours.lead(found, &service, ports, term, fence)
                }
                (Target::Active(_), Err(error)) => return outcome.with(error),
                (Target::Passive { led }, Ok((_, service))) => {
                    self.ours.leave(found, Some(&service), led, fence)
                }
                (Target::Passive { led }, Err(error)) => {
                    outcome.error = Some(error);
                    self.ours.leave(found, None, led, fence)
                }
            };
            let slice = match step {
                Step::Agrees => {
                    // A write still in flight carries an outdated version.
                    (self.unsure, self.known) = (false, Some(said));
                    return outcome;
                }
                Step::Newer(newer) => {
                    let what = format!("the EndpointSlice {}", self.ours.slice.name);
                    return outcome.with(RouteError::newer(what, newer, target));
                }
                Step::Refused(why) => return outcome.with(RouteError::Setting(why)),
                Step::Write(_) if !still() => return outcome.with(RouteError::Overtaken),
                Step::Write(slice) => slice,
            };
            let before = std::mem::replace(&mut self.unsure, true);
            self.known = None;
            match self.write(&slice).await {
                Ok(_) => {
                    self.unsure = false;
                    self.known = Some(target.role());
                    return outcome;
                }
                // Any write still in flight carries an outdated version, or is for a slice that is
                // gone.
                Err(KubeError::Conflict(_) | KubeError::Exists(_) | KubeError::Missing(_)) => {
                    self.unsure = false;
                }
                Err(error) => {
                    if changed_nothing(&error) {
                        self.unsure = before;
                        self.known = (!before).then_some(said);
                    }
                    return outcome.with(error.into());
                }
            }
        }
        outcome.with(RouteError::busy(&self.ours.slice.name))
    }

    /// Replaces the slice that was found, or creates it if it has no resource version.
    async fn write(&self, slice: &EndpointSlice) -> Result<EndpointSlice, KubeError> {
        if slice.metadata.resource_version.is_empty() {
            self.client.create(slice).await
        } else {
            self.client.replace(slice).await
        }
    }

    /// Reads this pod, if it has not been read yet.
    async fn read_own_pod(&self) -> Option<Result<Pod, KubeError>> {
        let asks = !self.knows_pod;
        OptionFuture::from(asks.then(|| self.client.get::<Pod>(&self.ours.pod.name))).await
    }

    /// Takes uid and node from this pod. Without them the slice routes as well, so that no
    /// permission is required for them.
    fn know_our_pod(&mut self, answer: Result<Pod, KubeError>) {
        match answer {
            Ok(pod) => {
                self.knows_pod = true;
                self.ours.pod.uid = pod.metadata.uid;
                self.ours.node = pod.spec.node_name;
            }
            Err(error) => {
                self.knows_pod = matches!(error, KubeError::Missing(_) | KubeError::Forbidden(_));
                tracing::debug!(
                    "the EndpointSlice will not contain the uid and node of the pod: {error}"
                );
            }
        }
    }
}

//! The route by an `EndpointSlice`: the leader writes its address behind a Service that selects no
//! pods itself, so that the old address goes in the same update as the new one comes.
//!
//! There is one slice for a Service and an election. Every write is compared and set: by the slice's
//! version, and by the term in its annotation, so that a late write of an older leader is refused.
//! It belongs to the Service, and goes with it.
//!
//! What it does not do: it changes no Service, touches no slice that others manage, and judges no
//! time.

use std::net::IpAddr;

use super::desk::Desk;
use super::{Outcome, Trouble, Want, changed_nothing, draw};
use crate::config::slice_name;
use crate::kube::KubeError;
use crate::kube::objects::{EndpointSlice, Metadata, ObjectReference, Pod, Service};
use crate::publish::Role;
use futures::future::OptionFuture;
pub(super) use steps::ports;
use steps::{Ours, Step};

mod steps;

/// How often a write is tried anew in one go when others write too.
const ATTEMPTS: usize = 4;

/// The slice in which we stand while we lead.
#[derive(Debug)]
pub(super) struct Slice {
    desk: Desk,
    ours: Ours,
    /// A write of ours may yet arrive of which we have heard nothing.
    unsure: bool,
    /// What the slice says of us as far as is known.
    known: Option<Role>,
    /// Our pod has been looked at, or may not be.
    knows_pod: bool,
}

impl Slice {
    pub(super) fn new(
        desk: Desk,
        pod: String,
        election: String,
        service: String,
        address: IpAddr,
    ) -> Self {
        let namespace = desk.namespace.clone();
        let slice = Metadata::named(&namespace, &slice_name(&service, &election));
        let pod =
            ObjectReference { kind: "Pod".to_owned(), namespace, name: pod, ..<_>::default() };
        let ours = Ours { slice, service, election, address, pod, node: None };
        Self { desk, ours, unsure: false, known: None, knows_pod: false }
    }

    /// What the slice says of us as far as is known: not after a write of which nothing was heard.
    pub(super) fn known(&self) -> Option<Role> {
        self.known
    }

    /// Has the slice say what is wanted, while that `still` is wanted. May be dropped.
    pub(super) async fn say(&mut self, want: Want, still: &(dyn Fn() -> bool + Sync)) -> Outcome {
        let mut outcome = Outcome::default();
        for _ in 0..ATTEMPTS {
            let (service, found, pod) = tokio::join!(
                self.desk.get::<Service>(&self.ours.service),
                self.desk.get::<EndpointSlice>(&self.ours.slice.name),
                self.look_at_our_pod(want),
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
            // A standby needs none of this, and says early what its leading would fail by.
            let ports = service.map_err(Trouble::from).and_then(|service| {
                Ok((ports(&service).map_err(Trouble::Setting)?, service.metadata))
            });
            let fence = self.unsure.then(draw);
            let step = match (want, ports) {
                (Want::Active(term), Ok((ports, service))) => {
                    self.ours.lead(found, &service, ports, term, fence)
                }
                (Want::Active(_), Err(trouble)) => return outcome.with(trouble),
                (Want::Passive { led }, Ok((_, service))) => {
                    self.ours.leave(found, Some(&service), led, fence)
                }
                (Want::Passive { led }, Err(trouble)) => {
                    outcome.trouble = Some(trouble);
                    self.ours.leave(found, None, led, fence)
                }
            };
            let slice = match step {
                Step::Agrees => {
                    // What may yet arrive is for a version that is no more.
                    (self.unsure, self.known) = (false, Some(said));
                    return outcome;
                }
                Step::Newer(newer) => {
                    let what = format!("the EndpointSlice {}", self.ours.slice.name);
                    return outcome.with(Trouble::newer(what, newer, want));
                }
                Step::Refused(why) => return outcome.with(Trouble::Setting(why)),
                Step::Write(_) if !still() => return outcome.with(Trouble::Overtaken),
                Step::Write(slice) => slice,
            };
            let before = std::mem::replace(&mut self.unsure, true);
            self.known = None;
            match self.write(&slice).await {
                Ok(_) => {
                    self.unsure = false;
                    self.known = Some(want.role());
                    return outcome;
                }
                // Whatever was under way was for a version, or a slice, that is no more.
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
        outcome.with(Trouble::busy(&self.ours.slice.name))
    }

    /// Writes the slice in the place of the one that was found; without a version none was, and it
    /// is made.
    async fn write(&self, slice: &EndpointSlice) -> Result<EndpointSlice, KubeError> {
        if slice.metadata.resource_version.is_empty() {
            self.desk.create(slice).await
        } else {
            self.desk.replace(slice).await
        }
    }

    /// Asks for our pod if we are to lead and have never heard of it.
    async fn look_at_our_pod(&self, want: Want) -> Option<Result<Pod, KubeError>> {
        let asks = !self.knows_pod && want.role() == Role::Active;
        OptionFuture::from(asks.then(|| self.desk.get::<Pod>(&self.ours.pod.name))).await
    }

    /// Takes uid and node of our pod. Nothing depends on them but how well others can tell which pod
    /// it is and where, so that no right is needed for it.
    fn know_our_pod(&mut self, answer: Result<Pod, KubeError>) {
        match answer {
            Ok(pod) => {
                self.knows_pod = true;
                self.ours.pod.uid = pod.metadata.uid;
                self.ours.node = pod.spec.node_name;
            }
            Err(error) => {
                self.knows_pod = matches!(error, KubeError::Missing(_) | KubeError::Forbidden(_));
                tracing::debug!("the EndpointSlice will not tell our pod's uid and node: {error}");
            }
        }
    }
}

//! Surveys the endpoints of the Service beyond this instance's own: those in other slices, which
//! are reported, and those of pods that are gone, which an instance that does not lead removes.

use super::ours::SERVICE;
use super::{Slice, Target};
use crate::kube::KubeError;
use crate::kube::objects::EndpointSlice;
use crate::publish::route::{RouteError, Survey, pods};
use crate::status::Role;

/// The maximum number of endpoints whose pods are read in one survey.
const MOST_PODS: usize = 4;

impl Slice {
    /// Surveys the endpoints of the Service, and whether this pod still exists if it leads. May be
    /// dropped.
    pub(in crate::publish::route) async fn survey(
        &self,
        target: Target,
        still: &(dyn Fn() -> bool + Sync),
    ) -> Survey {
        let selector = format!("{SERVICE}={}", self.ours.service);
        let (slices, pod_is_gone) = tokio::join!(
            self.client.list::<EndpointSlice>(&selector),
            self.own_pod_is_gone(target)
        );
        let mut survey = Survey::default();
        match pod_is_gone {
            Ok(is_gone) => survey.pod_is_gone = is_gone,
            Err(error) => survey.error = Some(error.into()),
        }
        let slices = match slices {
            Ok(slices) => slices,
            Err(error) => {
                survey.error = Some(error.into());
                return survey;
            }
        };
        survey.other = self.ours.strangers(&slices, target.role()).next();
        let own = slices.into_iter().find(|it| it.metadata.name == self.ours.slice.name);
        if let (Role::Passive, Some(own)) = (target.role(), own)
            && let Err(error) = self.remove_gone(own, still).await
        {
            survey.error = Some(error);
        }
        survey
    }

    /// Returns whether this pod is gone, if it leads and its uid is known.
    async fn own_pod_is_gone(&self, target: Target) -> Result<bool, KubeError> {
        let pod = &self.ours.pod;
        if target.role() == Role::Passive || pod.uid.is_empty() {
            return Ok(false);
        }
        pods::is_gone(&self.client, &pod.name, &pod.uid).await
    }

    /// Removes the endpoints of pods that are gone from the slice that leaders write. Nobody else
    /// does while there is no leader, and their addresses may be given to other pods.
    async fn remove_gone(
        &self,
        mut slice: EndpointSlice,
        still: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), RouteError> {
        let mut gone = Vec::new();
        for pod in self.ours.pods_of_others(&slice).take(MOST_PODS) {
            match pods::has_left(&self.client, &pod.name, &pod.uid).await {
                Ok(true) => gone.push(pod.clone()),
                // Without the permission, the endpoint stays until the next leader.
                Ok(false) | Err(KubeError::Forbidden(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let is_gone = |it: &Option<_>| it.as_ref().is_some_and(|it| gone.contains(it));
        slice.endpoints.retain(|it| !is_gone(&it.target_ref));
        if gone.is_empty() {
            return Ok(());
        }
        if !still() {
            return Err(RouteError::Overtaken);
        }
        match self.client.replace(&slice).await {
            Ok(_) => {
                for pod in gone {
                    let slice = &self.ours.slice.name;
                    tracing::info!(
                        slice,
                        pod = pod.name,
                        "removed the endpoint of a pod that does not exist any more"
                    );
                }
                Ok(())
            }
            // Another instance has written it: the next survey shows what is left.
            Err(KubeError::Conflict(_) | KubeError::Missing(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

//! Plans the change of an `EndpointSlice` from what was found and what is wanted; pure.

use serde_json::Value;

use super::ours::{MANAGER, OWNERS, Ours};
use crate::kube::objects::{EndpointPort, EndpointSlice, Metadata};
use crate::publish::route::{FENCE, TERM, term_of};
use crate::status::Role;

/// What to do with the slice.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing: it is as wanted.
    Agrees,
    /// Create it, or replace it, with this content.
    Write(Box<EndpointSlice>),
    /// Nothing: a leader of this newer term has written it.
    Newer(u64),
    /// Nothing, for this reason.
    Refused(String),
}

impl Ours {
    /// Plans the change by the leader of this term.
    pub(super) fn lead(
        &self,
        found: Option<EndpointSlice>,
        service: &Metadata,
        ports: Vec<EndpointPort>,
        term: u64,
        fence: Option<String>,
    ) -> Step {
        let mut slice = match found {
            None => self.empty(service),
            Some(found) => match self.refusal(&found, term) {
                Some(step) => return step,
                None => found,
            },
        };
        let endpoints = vec![self.endpoint()];
        let labels = &slice.metadata.labels;
        let owner = self.pod_owner().filter(|_| has_owner(&slice.metadata));
        let is_owned = owner.is_none() || slice.metadata.rest.get(OWNERS) == owner.as_ref();
        let is_found =
            self.labels().all(|(key, value)| labels.get(key).is_some_and(|it| it == value));
        let is_said = is_found && is_owned && slice.endpoints == endpoints && slice.ports == ports;
        if is_said && term_of(&slice.metadata) == Some(term) && fence.is_none() {
            return Step::Agrees;
        }
        let labels = self.labels().map(|(key, value)| (key.to_owned(), value.to_owned()));
        slice.metadata.labels.extend(labels);
        (slice.endpoints, slice.ports) = (endpoints, ports);
        slice.metadata.annotations.insert(TERM.to_owned(), term.to_string());
        if let Some(owner) = owner {
            slice.metadata.rest.insert(OWNERS.to_owned(), owner);
        }
        if let Some(fence) = fence {
            slice.metadata.annotations.insert(FENCE.to_owned(), fence);
        }
        Step::Write(Box::new(slice))
    }

    /// Returns why the leader of this term must not write the slice, if so.
    fn refusal(&self, found: &EndpointSlice, term: u64) -> Option<Step> {
        let name = &self.slice.name;
        let (label, us) = MANAGER;
        if found.metadata.labels.get(label).is_none_or(|it| it != us) {
            return Some(Step::Refused(format!(
                "the EndpointSlice {name} is not managed by Tenure: delete it, or set another \
                 Service or election"
            )));
        }
        if let Some(newer) = term_of(&found.metadata).filter(|it| *it > term) {
            return Some(Step::Newer(newer));
        }
        (found.address_type != self.address_type()).then(|| {
            Step::Refused(format!(
                "the EndpointSlice {name} has the address type {}, but the address of this pod is \
                 {}, and Kubernetes does not allow the type to change: delete it, and give all \
                 candidates addresses of one family",
                found.address_type, self.address
            ))
        })
    }

    /// Plans the change by an instance that does not lead: it removes its own endpoint, whoever
    /// added it, and keeps those of others. With a `fence`, a slice of this process's last term or
    /// an older one is written even without its endpoint, and a missing one is created if the
    /// `service` exists, since a creation may be in flight.
    pub(super) fn leave(
        &self,
        found: Option<EndpointSlice>,
        service: Option<&Metadata>,
        led: Option<u64>,
        fence: Option<String>,
    ) -> Step {
        let made = || fence.as_ref().and(service).map(|service| self.empty(service));
        let found = found.or_else(made);
        let Some(mut slice) = found else { return Step::Agrees };
        let is_in = self.read(Some(&slice)) == Role::Active;
        let fence = fence.filter(|_| led.is_some() && term_of(&slice.metadata) <= led);
        if !is_in && fence.is_none() {
            return Step::Agrees;
        }
        slice.endpoints.retain(|it| !self.is_us(it));
        if let Some(fence) = fence {
            slice.metadata.annotations.insert(FENCE.to_owned(), fence);
        }
        Step::Write(Box::new(slice))
    }
}

/// Returns whether an object has an owner. A slice that an administrator created has none, and must
/// not be deleted with a pod: to create it again may not be permitted.
pub(super) fn has_owner(found: &Metadata) -> bool {
    found.rest.get(OWNERS).and_then(Value::as_array).is_some_and(|it| !it.is_empty())
}

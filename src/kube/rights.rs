//! Every permission that Tenure needs in a cluster, and why. The chart and the manifests are tested
//! against this list, and the documentation is generated from it.

use super::objects::{EndpointSlice, Event, KubeObject, Lease, Pod, Resource, Service};

/// The purpose of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The store `kubernetes:`.
    Store,
    /// `--kube-route label`.
    Label,
    /// `--kube-route endpointslice`.
    EndpointSlice,
    /// Events, with the store or with a route.
    Events,
}

/// One permission, in the namespace of its object.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    /// The purpose.
    pub purpose: Purpose,
    /// The verb, as in RBAC rules.
    pub verb: &'static str,
    /// The kind of object.
    pub resource: Resource,
    /// Whether `resourceNames` may restrict it to one object. That is not possible for `create`,
    /// whose requests have no name that rules could match, nor for pods, whose names are generated.
    pub named: bool,
    /// Whether the purpose fails without it.
    pub needed: bool,
    /// The reason.
    pub why: &'static str,
}

/// All permissions.
pub const RIGHTS: [Right; 16] = {
    use Purpose as P;
    const ONE: bool = true;
    const ANY: bool = false;
    [
        needed(P::Store, "get", Lease::RESOURCE, ONE, "read the holder of the lease"),
        needed(P::Store, "create", Lease::RESOURCE, ANY, "create the Lease if it is missing"),
        needed(P::Store, "update", Lease::RESOURCE, ONE, "acquire, renew and release it"),
        right(
            P::Store,
            "watch",
            Lease::RESOURCE,
            ONE,
            "notice a release at once, not at the next poll",
        ),
        needed(P::Label, "get", Pod::RESOURCE, ANY, "read the label of the pod"),
        needed(
            P::Label,
            "list",
            Pod::RESOURCE,
            ANY,
            "find pods that still have the label of an earlier leader",
        ),
        needed(
            P::Label,
            "patch",
            Pod::RESOURCE,
            ANY,
            "set the label of the pod, and remove it from others",
        ),
        needed(
            P::EndpointSlice,
            "get",
            Service::RESOURCE,
            ONE,
            "read its ports, and that it has no selector",
        ),
        needed(
            P::EndpointSlice,
            "get",
            EndpointSlice::RESOURCE,
            ONE,
            "read its term and its leader",
        ),
        needed(
            P::EndpointSlice,
            "list",
            EndpointSlice::RESOURCE,
            ANY,
            "find endpoints of the Service that are not the leader's, in slices of others",
        ),
        needed(
            P::EndpointSlice,
            "create",
            EndpointSlice::RESOURCE,
            ANY,
            "create it if it is missing",
        ),
        needed(
            P::EndpointSlice,
            "update",
            EndpointSlice::RESOURCE,
            ONE,
            "add and remove the leader's address",
        ),
        right(
            P::EndpointSlice,
            "get",
            Pod::RESOURCE,
            ANY,
            "notice that the pod of an endpoint is gone, and that its own is; write the uid and node \
             of the pod to the slice",
        ),
        right(P::Events, "create", Event::RESOURCE, ANY, "record each change of leader"),
        right(
            P::Events,
            "get",
            Pod::RESOURCE,
            ANY,
            "write the uid of the pod to Events, by which `kubectl describe pod` finds them",
        ),
        right(
            P::Events,
            "get",
            Lease::RESOURCE,
            ONE,
            "write the uid of the Lease to Events, outside of a pod",
        ),
    ]
};

const fn needed(
    purpose: Purpose,
    verb: &'static str,
    resource: Resource,
    named: bool,
    why: &'static str,
) -> Right {
    Right { purpose, verb, resource, named, needed: true, why }
}

const fn right(
    purpose: Purpose,
    verb: &'static str,
    resource: Resource,
    named: bool,
    why: &'static str,
) -> Right {
    Right { purpose, verb, resource, named, needed: false, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcomes_of_errors_are_those_of_the_list() {
        for right in RIGHTS {
            let verbs = right.resource.verbs.split(',').collect::<Vec<_>>();
            assert!(verbs.contains(&right.verb), "{} of {}", right.verb, right.resource.plural);
            for verb in verbs {
                let listed =
                    |it: &Right| it.verb == verb && it.resource.plural == right.resource.plural;
                assert!(RIGHTS.iter().any(listed), "{verb} of {}", right.resource.plural);
            }
        }
    }
}

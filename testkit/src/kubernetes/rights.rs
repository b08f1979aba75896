//! The permissions that Tenure says it needs, in the form in which Roles grant them.

use std::collections::BTreeSet;

use tenure::kube::rights::{Purpose, RIGHTS};

use crate::kubernetes::manifests::Granted;

/// The objects that the permissions are for.
pub struct Of<'a> {
    /// The namespace of the pod.
    pub namespace: &'a str,
    /// Namespace and name of the Lease.
    pub lease: (&'a str, &'a str),
    /// The Service that follows the leader.
    pub service: &'a str,
    pub election: &'a str,
}

/// Returns the permissions that Tenure needs in a pod for these purposes.
pub fn needed(purposes: &[Purpose], of: &Of<'_>) -> BTreeSet<Granted> {
    let mut all = BTreeSet::new();
    let slice = format!("{}.{}", of.service, of.election);
    for right in RIGHTS.iter().filter(|it| purposes.contains(&it.purpose)) {
        let (namespace, name) = match right.resource.plural {
            // In a pod, Events are about the pod.
            "leases" if right.purpose == Purpose::Events => continue,
            "leases" => of.lease,
            "services" => (of.namespace, of.service),
            "endpointslices" => (of.namespace, slice.as_str()),
            _ => (of.namespace, ""),
        };
        let name = right.named.then(|| name.to_owned());
        let (group, resource) = (right.resource.group.to_owned(), right.resource.plural.to_owned());
        all.insert((namespace.to_owned(), group, resource, right.verb.to_owned(), name));
    }
    all
}

//! The rights that Tenure says it needs, in the form in which Roles grant them.
//!
//! What it does not do: it reads no manifest.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeSet;

use tenure::kube::rights::{Purpose, RIGHTS};

use super::manifests::Granted;

/// What is asked for, where, and under which names.
pub(crate) struct Of<'a> {
    /// The namespace of the pod.
    pub(crate) namespace: &'a str,
    /// Namespace and name of the Lease.
    pub(crate) lease: (&'a str, &'a str),
    /// The Service that follows the leader.
    pub(crate) service: &'a str,
    pub(crate) election: &'a str,
}

/// What Tenure needs in a pod, for these purposes.
pub(crate) fn needed(purposes: &[Purpose], of: &Of<'_>) -> BTreeSet<Granted> {
    let mut all = BTreeSet::new();
    let slice = format!("{}.{}", of.service, of.election);
    for right in RIGHTS.iter().filter(|it| purposes.contains(&it.purpose)) {
        let (namespace, name) = match right.resource.plural {
            // Events are about the pod, where there is one.
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

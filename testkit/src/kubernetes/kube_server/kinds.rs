//! The kinds of object that the server supports, which are those that Tenure uses, and their paths.

use std::collections::HashMap;

/// A kind of object.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// Whether PUT creates a missing object.
    pub made_by_put: bool,
}

const fn kind(group: &'static str, plural: &'static str, kind: &'static str) -> Kind {
    Kind { group, version: "v1", plural, kind, namespaced: true, made_by_put: false }
}

pub static NAMESPACES: Kind = Kind { namespaced: false, ..kind("", "namespaces", "Namespace") };
pub static LEASES: Kind =
    Kind { made_by_put: true, ..kind("coordination.k8s.io", "leases", "Lease") };
pub static REVIEWS: Kind = Kind {
    namespaced: false,
    ..kind("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview")
};

/// All supported kinds.
pub static KINDS: [&Kind; 7] = [
    &LEASES,
    &NAMESPACES,
    &REVIEWS,
    &kind("", "pods", "Pod"),
    &kind("", "services", "Service"),
    &kind("events.k8s.io", "events", "Event"),
    &kind("discovery.k8s.io", "endpointslices", "EndpointSlice"),
];

impl Kind {
    /// Returns the kind with this plural.
    pub fn of(plural: &str) -> &'static Self {
        KINDS.into_iter().find(|it| it.plural == plural).unwrap_or_else(|| panic!("no {plural}"))
    }

    /// Returns the plural with its group, as messages name it.
    pub fn qualified(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.plural, self.group)
    }

    /// Returns the `apiVersion` of objects.
    pub fn api_version(&self) -> String {
        let slash = if self.group.is_empty() { "" } else { "/" };
        format!("{}{slash}{}", self.group, self.version)
    }
}

/// The target of a request.
#[derive(Clone, Debug)]
pub struct Target {
    pub kind: &'static Kind,
    /// Empty for cluster-scoped objects, and for all namespaces.
    pub namespace: String,
    /// Empty for a collection.
    pub name: String,
    /// The verb for the authorizer: `get`, `list`, `watch`, `create`, `update`, `patch`.
    pub verb: &'static str,
    pub query: HashMap<String, String>,
}

impl Target {
    /// Parses a request; `None` if the server has no such path.
    pub fn of(method: &str, path: &str, query: HashMap<String, String>) -> Option<Self> {
        let parts: Vec<_> = path.strip_prefix('/')?.split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, plural, name) = match *rest {
            ["namespaces", namespace, plural] => (namespace, plural, ""),
            ["namespaces", namespace, plural, name] => (namespace, plural, name),
            [plural] => ("", plural, ""),
            [plural, name] => ("", plural, name),
            _ => return None,
        };
        let known = |it: &&Kind| (it.group, it.version, it.plural) == (group, version, plural);
        let kind = KINDS.into_iter().find(known)?;
        if kind.namespaced && namespace.is_empty() && !name.is_empty() {
            return None;
        }
        let watches = query.get("watch").is_some_and(|it| matches!(it.as_str(), "1" | "true"));
        let verb = match (method, name.is_empty()) {
            ("GET", true) if watches => "watch",
            ("GET", true) => "list",
            ("GET", false) => "get",
            ("POST", true) => "create",
            ("PUT", false) => "update",
            ("PATCH", false) => "patch",
            _ => return None,
        };
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Some(Self { kind, namespace, name, verb, query })
    }

    /// Returns the operation as tests name it, such as `update leases`.
    pub fn op(&self) -> String {
        format!("{} {}", self.verb, self.kind.plural)
    }

    /// Returns the name for the authorizer: a list or watch that selects one name counts as a
    /// request for it.
    pub fn judged_name(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        let fields = self.query.get("fieldSelector").map_or("", String::as_str);
        let named = fields.split(',').find_map(|it| it.strip_prefix("metadata.name="));
        named.map(|it| it.trim_start_matches('=').to_owned()).unwrap_or_default()
    }
}

//! The kinds of object that the server knows, and the paths under which it serves them.
//!
//! What it does not do: subresources, discovery, and any kind that Tenure does not touch.

use std::collections::HashMap;

/// One kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// Whether PUT makes what is missing.
    pub made_by_put: bool,
    /// Whether a PUT without a resourceVersion overwrites whatever is there.
    pub unconditional: bool,
}

const fn kind(group: &'static str, plural: &'static str, kind: &'static str) -> Kind {
    let (version, namespaced, made_by_put, unconditional) = ("v1", true, false, true);
    Kind { group, version, plural, kind, namespaced, made_by_put, unconditional }
}

pub static NAMESPACES: Kind = Kind { namespaced: false, ..kind("", "namespaces", "Namespace") };
pub static LEASES: Kind = Kind {
    made_by_put: true,
    unconditional: false,
    ..kind("coordination.k8s.io", "leases", "Lease")
};
pub static REVIEWS: Kind = Kind {
    namespaced: false,
    ..kind("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview")
};

/// All of them.
pub static KINDS: [&Kind; 8] = [
    &LEASES,
    &NAMESPACES,
    &REVIEWS,
    &kind("", "pods", "Pod"),
    &Kind { made_by_put: true, ..kind("", "services", "Service") },
    &Kind { made_by_put: true, ..kind("", "events", "Event") },
    &Kind { made_by_put: true, ..kind("events.k8s.io", "events", "Event") },
    &kind("discovery.k8s.io", "endpointslices", "EndpointSlice"),
];

impl Kind {
    /// The kind of this plural; of `events`, the core one.
    pub fn of(plural: &str) -> &'static Self {
        KINDS.into_iter().find(|it| it.plural == plural).unwrap_or_else(|| panic!("no {plural}"))
    }

    /// The plural with its group, as messages call it.
    pub fn qualified(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.plural, self.group)
    }

    /// What objects bear as apiVersion.
    pub fn api_version(&self) -> String {
        let slash = if self.group.is_empty() { "" } else { "/" };
        format!("{}{slash}{}", self.group, self.version)
    }
}

/// What a request is about.
#[derive(Clone, Debug)]
pub struct Target {
    pub kind: &'static Kind,
    /// Empty for what is in no namespace, and for all namespaces.
    pub namespace: String,
    /// Empty for a collection.
    pub name: String,
    /// As the authorizer calls it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
    /// `deletecollection`.
    pub verb: &'static str,
    pub query: HashMap<String, String>,
}

impl Target {
    /// Takes a request apart; `None` where the server has no such path.
    pub fn of(method: &str, path: &str, query: HashMap<String, String>) -> Option<Self> {
        let parts: Vec<_> = path.strip_prefix('/')?.split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, plural, name) = match *rest {
            ["namespaces", name] => ("", "namespaces", name),
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
            ("DELETE", false) => "delete",
            ("DELETE", true) => "deletecollection",
            _ => return None,
        };
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Some(Self { kind, namespace, name, verb, query })
    }

    /// How tests call what is asked: `update leases`.
    pub fn op(&self) -> String {
        format!("{} {}", self.verb, self.kind.plural)
    }

    /// The name that the authorizer judges: a list or watch of one name counts as about it.
    pub fn judged_name(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        let fields = self.query.get("fieldSelector").map_or("", String::as_str);
        let named = fields.split(',').find_map(|it| it.strip_prefix("metadata.name="));
        named.map(|it| it.trim_start_matches('=').to_owned()).unwrap_or_default()
    }
}

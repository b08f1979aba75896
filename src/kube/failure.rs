//! Errors of requests to the API server, by what the caller does next, with the remedy in the
//! message. No message shows a token or a URL.

use std::time::Duration;

use serde::Deserialize;

use super::objects::Resource;
use crate::lease::text::is_printable;

/// Why a request returned no object. The text is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeError {
    /// Definite: there is no such object. A read cannot tell whether its namespace exists.
    #[error("{0}")]
    Missing(String),
    /// Definite: there is no such namespace, so nothing can be created in it.
    #[error("{0}")]
    NoNamespace(String),
    /// Not written: the object has changed, or is gone, since it was read.
    #[error("{0}")]
    Conflict(String),
    /// Not created: there is one of that name.
    #[error("{0}")]
    Exists(String),
    /// The token is missing, has expired, or belongs to another cluster.
    #[error("{0}")]
    Unauthorized(String),
    /// An RBAC rule is missing, or something else forbids the request.
    #[error("{0}")]
    Forbidden(String),
    /// The version from which a watch was to continue is too old; start a new one.
    #[error("{0}")]
    Gone(String),
    /// The server throttles requests.
    #[error("{message}")]
    Throttled {
        /// The message.
        message: String,
        /// How long to wait, if the server says so.
        retry_after: Option<Duration>,
    },
    /// The server failed, or is not ready.
    #[error("{0}")]
    Unavailable(String),
    /// The server rejected the request as invalid, or its answer is unusable: a setting is wrong.
    #[error("{0}")]
    Invalid(String),
    /// No answer within request-timeout.
    #[error("{0}")]
    Timeout(String),
    /// The server cannot be reached: name resolution or certificate.
    #[error("{0}")]
    Network(String),
    /// The connection failed, or broke during the request. One immediate retry is worthwhile.
    #[error("{0}")]
    Disconnected(String),
    /// The token or certificate file cannot be read.
    #[error("{0}")]
    Files(String),
}

/// The request, as described in an error.
#[derive(Clone, Copy)]
pub(super) struct RequestInfo<'a> {
    /// The verb, as in RBAC rules.
    pub(super) verb: &'static str,
    /// The kind of object.
    pub(super) resource: &'static Resource,
    /// The namespace.
    pub(super) namespace: &'a str,
    /// The name of the object; empty for a list or a new one.
    pub(super) name: &'a str,
    /// The server, without anything secret.
    pub(super) host: &'a str,
    /// Whether a token was sent.
    pub(super) signed: bool,
}

/// The body of an answer that is not an object.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    kind: String,
    message: String,
    reason: String,
    pub(super) code: u16,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    kind: String,
    name: String,
    retry_after_seconds: u64,
}

impl Status {
    /// Reads the body of an answer; one that is not a Status has no kind.
    pub(super) fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }
}

impl RequestInfo<'_> {
    /// Converts a Status of the server to an error for this request.
    pub(super) fn refused(&self, code: u16, status: &Status, wait: Option<u64>) -> KubeError {
        let said = server_answer(code, status);
        let what = self.target();
        let host = self.host;
        match code {
            401 => KubeError::Unauthorized(self.unauthorized(&said)),
            403 => KubeError::Forbidden(self.forbidden(status, &said)),
            404 if status.details.kind == "namespaces" => KubeError::NoNamespace(format!(
                "the namespace {} does not exist: create it, or set another",
                self.namespace
            )),
            404 if status.kind == "Status" && !status.details.name.is_empty() => {
                KubeError::Missing(format!("{what} does not exist"))
            }
            404 => KubeError::Invalid(format!(
                "{host} does not serve {}: it is not a Kubernetes API server, or too old; check \
                 --kube-api ({said})",
                self.resource.in_rules()
            )),
            409 if status.reason == "AlreadyExists" => {
                KubeError::Exists(format!("{what} already exists"))
            }
            409 => KubeError::Conflict(format!("{what} was modified concurrently")),
            410 => KubeError::Gone(format!("the watch of {what} is too old to resume ({said})")),
            429 => {
                let wait = wait.unwrap_or(status.details.retry_after_seconds);
                KubeError::Throttled {
                    message: format!("the API server {host} throttles requests ({said})"),
                    retry_after: (wait > 0).then(|| Duration::from_secs(wait)),
                }
            }
            500.. => KubeError::Unavailable(format!(
                "the API server {host} failed to {} {what} ({said})",
                self.verb
            )),
            300..=399 => KubeError::Invalid(format!(
                "{host} answered with a redirect, which Tenure does not follow: check --kube-api \
                 ({said})"
            )),
            _ => KubeError::Invalid(format!(
                "the API server {host} refused to {} {what} ({said})",
                self.verb
            )),
        }
    }

    fn unauthorized(&self, said: &str) -> String {
        let host = self.host;
        if self.signed {
            format!(
                "the API server {host} rejected the service account token: it expired, or is for \
                 another cluster or audience, or its service account was deleted; check \
                 --kube-token-file ({said})"
            )
        } else {
            format!(
                "the API server {host} requires a token, and none is configured: run with a \
                 service account, or set --kube-token-file ({said})"
            )
        }
    }

    /// Describes a missing RBAC rule with the command that creates it; other reasons in the
    /// server's words.
    fn forbidden(&self, status: &Status, said: &str) -> String {
        if !self.signed {
            // Without a token the user is anonymous, which should be granted nothing.
            return self.unauthorized(said);
        }
        let Some(user) = user(&status.message) else {
            return format!("{} is forbidden ({said})", self.target());
        };
        let Self { verb, namespace, resource, .. } = self;
        format!(
            "{user} cannot {verb} {} in the namespace {namespace}: an RBAC rule is missing; create \
             it with: {}",
            resource.plural,
            rule(resource, namespace, user)
        )
    }

    /// Describes the object of the request.
    pub(super) fn target(&self) -> String {
        let Self { namespace, name, resource, .. } = self;
        match (*name, *namespace) {
            ("", "") => format!("a {}", resource.kind),
            ("", _) => format!("{} in the namespace {namespace}", resource.plural),
            _ => format!("the {} {namespace}/{name}", resource.kind),
        }
    }
}

/// Returns the commands that grant a user all that Tenure needs for a kind of object.
pub(crate) fn rule(resource: &Resource, namespace: &str, user: &str) -> String {
    let (verbs, plural) = (resource.verbs, resource.plural);
    let subject = match user.strip_prefix("system:serviceaccount:") {
        Some(account) => format!("--serviceaccount={account}"),
        None => format!("--user={user}"),
    };
    format!(
        "kubectl create role tenure-{plural} -n {namespace} --verb={verbs} --resource={} && \
         kubectl create rolebinding tenure-{plural} -n {namespace} --role=tenure-{plural} {subject}",
        resource.in_rules()
    )
}

/// Returns the server's message, without control characters and shortened.
fn server_answer(code: u16, status: &Status) -> String {
    let words: String = status.message.chars().filter(|it| is_printable(*it)).take(400).collect();
    if words.is_empty() {
        format!("the server answered {code}")
    } else {
        format!("the server answered {code}: {words}")
    }
}

/// Returns the user that lacks a permission, by the server's message; `None` if the reason is
/// another.
fn user(message: &str) -> Option<&str> {
    let (_, after) = message.split_once("User \"")?;
    let (user, after) = after.split_once('"')?;
    let plain = user.bytes().all(|it| it.is_ascii_graphic() && !b"'`$;&|<>\\".contains(&it));
    (after.starts_with(" cannot ") && plain && !user.is_empty()).then_some(user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::objects::{KubeObject, Lease};
    use serde_json::json;

    const ASKED: RequestInfo<'_> = RequestInfo {
        verb: "update",
        resource: &Lease::RESOURCE,
        namespace: "shop",
        name: "orders",
        host: "10.0.0.1:443",
        signed: true,
    };

    fn refused(code: u16, body: &serde_json::Value) -> KubeError {
        ASKED.refused(code, &Status::read(body.to_string().as_bytes()), None)
    }

    #[test]
    fn a_missing_rule_comes_with_the_command_that_makes_it() {
        let message = "leases.coordination.k8s.io \"orders\" is forbidden: User \
                       \"system:serviceaccount:shop:worker\" cannot update resource \"leases\" in \
                       API group \"coordination.k8s.io\" in the namespace \"shop\"";
        let said = refused(403, &json!({"kind": "Status", "message": message})).to_string();
        for part in [
            "system:serviceaccount:shop:worker cannot update leases in the namespace shop",
            "kubectl create role tenure-leases -n shop --verb=get,create,update,watch \
             --resource=leases.coordination.k8s.io",
            "--serviceaccount=shop:worker",
        ] {
            assert!(said.contains(part), "{said}");
        }
        let message = message.replace("system:serviceaccount:shop:worker", "jane");
        let said = refused(403, &json!({"kind": "Status", "message": message})).to_string();
        assert!(said.ends_with("--user=jane"), "{said}");
    }

    #[test]
    fn another_reason_for_forbidden_is_quoted() {
        let message = "leases \"orders\" is forbidden: exceeded quota: few\u{1b}[31m";
        let said = refused(403, &json!({"kind": "Status", "message": message})).to_string();
        assert!(said.contains("exceeded quota: few[31m") && !said.contains("kubectl"), "{said}");
        let message = "User \"a;rm -rf\" cannot get";
        let said = refused(403, &json!({"kind": "Status", "message": message})).to_string();
        assert!(!said.contains("kubectl"), "{said}");
    }

    #[test]
    fn a_missing_object_a_missing_namespace_and_a_wrong_server_differ() {
        let details = |kind: &str| json!({"kind": "Status", "reason": "NotFound", "details": {"kind": kind, "name": "x"}});
        assert!(matches!(refused(404, &details("leases")), KubeError::Missing(_)));
        let none = refused(404, &details("namespaces"));
        assert!(matches!(&none, KubeError::NoNamespace(it) if it.contains("shop")), "{none}");
        for body in [json!({"kind": "Status", "details": {}}), json!("404 page not found")] {
            let wrong = refused(404, &body);
            assert!(matches!(&wrong, KubeError::Invalid(it) if it.contains("--kube-api")));
        }
    }

    #[test]
    fn each_code_is_what_the_caller_does_next() {
        let reason = |reason: &str| json!({"kind": "Status", "reason": reason});
        assert!(matches!(refused(409, &reason("AlreadyExists")), KubeError::Exists(_)));
        assert!(matches!(refused(409, &reason("Conflict")), KubeError::Conflict(_)));
        assert!(matches!(refused(410, &reason("Expired")), KubeError::Gone(_)));
        assert!(matches!(refused(503, &json!(null)), KubeError::Unavailable(_)));
        assert!(matches!(refused(302, &json!(null)), KubeError::Invalid(_)));
        assert!(matches!(refused(422, &reason("Invalid")), KubeError::Invalid(_)));
        let expired = refused(401, &reason("Unauthorized"));
        assert!(matches!(&expired, KubeError::Unauthorized(it) if it.contains("expired")));
        let unsigned =
            RequestInfo { signed: false, ..ASKED }.refused(401, &Status::default(), None);
        assert!(unsigned.to_string().contains("requires a token"), "{unsigned}");
        let anonymous = Status::read(br#"{"message": "User \"system:anonymous\" cannot get"}"#);
        let unsigned =
            RequestInfo { signed: false, ..ASKED }.refused(403, &anonymous, None).to_string();
        assert!(unsigned.contains("--kube-token-file") && !unsigned.contains("kubectl"));
        let throttled = ASKED.refused(429, &Status::default(), Some(3));
        let after = Some(Duration::from_secs(3));
        assert!(
            matches!(throttled, KubeError::Throttled { retry_after, .. } if retry_after == after)
        );
    }
}

//! Authentication by bearer token, and authorization in the manner of RBAC. There are no role
//! objects; permissions are granted to users directly.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::answers::Answer;
use super::kinds::{Kind, REVIEWS, Target};

/// A permission of one user.
#[derive(Clone, Debug)]
pub struct Right {
    pub user: String,
    /// Empty for all namespaces and for cluster-scoped objects.
    pub namespace: String,
    /// `*` for all.
    pub group: String,
    /// `*` for all.
    pub resource: String,
    /// `*` for all.
    pub verbs: Vec<String>,
}

/// Tokens and permissions.
#[derive(Debug, Default)]
pub struct Access {
    /// The user of each token; `None` if it has expired.
    pub tokens: HashMap<String, Option<String>>,
    pub rights: Vec<Right>,
}

impl Access {
    /// Returns the user of an `Authorization` header.
    pub fn user(&self, header: Option<&str>) -> Result<String, Box<Answer>> {
        let Some(header) = header else {
            return Ok("system:anonymous".to_owned());
        };
        let token = header.strip_prefix("Bearer ").unwrap_or_default();
        let user = self.tokens.get(token).cloned().flatten();
        user.ok_or_else(|| Box::new(Answer::unauthorized()))
    }

    fn allows(&self, user: &str, question: &Question<'_>) -> bool {
        let fits = |right: &str, value: &str| right == "*" || right == value;
        self.rights.iter().any(|it| {
            it.user == user
                && (it.namespace.is_empty() || it.namespace == question.namespace)
                && fits(&it.group, question.group)
                && fits(&it.resource, question.resource)
                && it.verbs.iter().any(|verb| fits(verb, question.verb))
        })
    }

    /// Authorizes a request; the error has the wording of the API server.
    pub fn judge(&self, user: &str, target: &Target) -> Result<(), Box<Answer>> {
        if *target.kind == REVIEWS && user != "system:anonymous" {
            return Ok(());
        }
        self.judge_verb(user, target, target.verb)
    }

    /// Authorizes a verb on the target of a request.
    pub fn judge_verb(&self, user: &str, target: &Target, verb: &str) -> Result<(), Box<Answer>> {
        let Kind { group, plural, .. } = target.kind;
        let name = if verb == "create" { String::new() } else { target.judged_name() };
        let namespace = &target.namespace;
        if self.allows(user, &Question { namespace, group, resource: plural, verb }) {
            return Ok(());
        }
        let what = target.kind.qualified();
        let named = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let message = format!(
            "{what}{named} is forbidden: User {user:?} cannot {verb} resource {plural:?} in API \
             group {group:?} in the namespace {namespace:?}"
        );
        let details = super::answers::details(target.kind, &name);
        Err(Box::new(Answer::failure(403, "Forbidden", &message, details)))
    }

    /// Answers a SelfSubjectAccessReview.
    pub fn review(&self, user: &str, body: &Value) -> Answer {
        let question = &body["spec"]["resourceAttributes"];
        let text = |name: &str| question[name].as_str().unwrap_or_default();
        let question = Question {
            namespace: text("namespace"),
            group: text("group"),
            resource: text("resource"),
            verb: text("verb"),
        };
        let allowed = self.allows(user, &question);
        let mut status = json!({"allowed": allowed});
        if allowed {
            status["reason"] = "RBAC: allowed by RoleBinding".into();
        }
        let answer = json!({
            "kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "metadata": {"creationTimestamp": null},
            "spec": body["spec"],
            "status": status,
        });
        Answer::json(201, &answer)
    }
}

struct Question<'a> {
    namespace: &'a str,
    group: &'a str,
    resource: &'a str,
    verb: &'a str,
}

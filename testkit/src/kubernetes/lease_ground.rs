//! A namespace of the control plane with one Lease, and a service account that may do with Leases
//! what a candidate needs, and nothing else.
//!
//! What it does not do: it starts no candidate.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::kubernetes::control_plane::ControlPlane;

/// The service account, its role and the binding of the two, all of this name.
const ACCOUNT: &str = "candidate";

/// The Lease.
pub const LEASE: &str = "orders";

/// A namespace.
pub struct Ground<'a> {
    pub plane: &'a ControlPlane,
    pub namespace: String,
}

impl<'a> Ground<'a> {
    /// Makes the namespace, the account and its rights.
    pub fn new(plane: &'a ControlPlane, namespace: &str) -> Self {
        let it = Self { plane, namespace: namespace.to_owned() };
        plane.kubectl.apply(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}\n---\n\
             {{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {ACCOUNT}, namespace: {namespace}}}}}\n---\n\
             {{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {{name: {ACCOUNT}, namespace: {namespace}}},\n\
             rules: [{{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update, watch]}}]}}\n"
        ));
        it.give_rights();
        it
    }

    /// Gives the account its rights, again if they were taken.
    pub fn give_rights(&self) {
        let namespace = &self.namespace;
        self.plane.kubectl.apply(&format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding,\n\
             metadata: {{name: {ACCOUNT}, namespace: {namespace}}},\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {ACCOUNT}}},\n\
             subjects: [{{kind: ServiceAccount, name: {ACCOUNT}, namespace: {namespace}}}]}}\n"
        ));
    }

    /// Takes the account's rights.
    pub fn take_rights(&self) {
        self.plane.kubectl.run(&["delete", "rolebinding", "--namespace", &self.namespace, ACCOUNT]);
    }

    /// A file with a token of the account, of an hour.
    pub fn token(&self) -> PathBuf {
        self.plane.token(&self.namespace, ACCOUNT, Duration::from_secs(3600))
    }

    /// What a candidate needs to find the Lease with the token of a file.
    pub fn arguments(&self, token: &Path) -> Vec<String> {
        let given = [
            ("--store", format!("kubernetes:{}/{LEASE}", self.namespace)),
            ("--kube-api", self.plane.url()),
            ("--kube-ca-file", self.plane.ca_file().display().to_string()),
            ("--kube-token-file", token.display().to_string()),
        ];
        given.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    /// Makes the Lease with a first term, so that its first leader need not wait for another.
    pub fn create_lease(&self, token: &Path) {
        let made = Command::new(crate::paths::tenure())
            .args(["doctor", "--create", "--yes"])
            .args(self.arguments(token))
            .output()
            .expect("tenure starts");
        assert!(made.status.success(), "{made:?}");
    }

    /// What `kubectl get lease` shows as the holder.
    pub fn holder(&self) -> String {
        let row = ["get", "lease", "--namespace", &self.namespace, LEASE, "--no-headers"];
        let row = self.plane.kubectl.run(&row);
        row.split_whitespace().nth(1).expect("a holder").to_owned()
    }

    /// The Lease itself.
    pub fn lease(&self) -> serde_json::Value {
        self.plane.kubectl.get(&self.namespace, &["lease", LEASE])
    }

    /// Writes a token that is good for so long, as the API server itself would sign it if it gave
    /// tokens of less than ten minutes. It takes a token for a minute beyond its end.
    #[allow(clippy::disallowed_methods, reason = "a token's time is the wall clock's")]
    pub fn short_token(&self, life: Duration) -> PathBuf {
        let account = self.plane.kubectl.get(&self.namespace, &["serviceaccount", ACCOUNT]);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let claims = serde_json::json!({
            "iss": "https://kubernetes.default.svc", "aud": ["https://kubernetes.default.svc"],
            "sub": format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace),
            "iat": now - 60, "nbf": now - 60, "exp": now - 60 + life.as_secs(),
            "kubernetes.io": {"namespace": self.namespace, "serviceaccount": {
                "name": ACCOUNT, "uid": account["metadata"]["uid"]}},
        });
        let script = r#"
            set -euo pipefail
            url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
            body="$(printf '{"alg":"RS256","typ":"JWT"}' | url).$(printf %s "$1" | url)"
            sum="$(printf %s "$body" | openssl dgst -sha256 -sign "$2" -binary | url)"
            printf %s "$body.$sum""#;
        let signed = Command::new("bash")
            .args(["-c", script, "sign", &claims.to_string()])
            .arg(self.plane.file("accounts.key"))
            .output()
            .expect("bash and openssl are there");
        assert!(signed.status.success(), "{signed:?}");
        let file = self.plane.file(&format!("{}.short-token", self.namespace));
        std::fs::write(&file, signed.stdout).expect("written");
        file
    }
}

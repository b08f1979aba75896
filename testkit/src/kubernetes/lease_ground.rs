//! A namespace of the control plane with one Lease, and a service account with only the permissions
//! that a candidate needs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::kubernetes::control_plane::ControlPlane;

/// The name of the service account, its role and the role binding.
const ACCOUNT: &str = "candidate";

/// The name of the Lease.
pub const LEASE: &str = "orders";

/// The namespace.
pub struct Ground<'a> {
    pub plane: &'a ControlPlane,
    pub namespace: String,
}

impl<'a> Ground<'a> {
    /// Creates the namespace, the account and its permissions.
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

    /// Grants the account its permissions, also again after [`take_rights`](Self::take_rights).
    pub fn give_rights(&self) {
        let namespace = &self.namespace;
        self.plane.kubectl.apply(&format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding,\n\
             metadata: {{name: {ACCOUNT}, namespace: {namespace}}},\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {ACCOUNT}}},\n\
             subjects: [{{kind: ServiceAccount, name: {ACCOUNT}, namespace: {namespace}}}]}}\n"
        ));
    }

    /// Revokes the account's permissions.
    pub fn take_rights(&self) {
        self.plane.kubectl.run(&["delete", "rolebinding", "--namespace", &self.namespace, ACCOUNT]);
    }

    /// Returns a file with a token of the account that is valid for an hour.
    pub fn token(&self) -> PathBuf {
        self.plane.token(&self.namespace, ACCOUNT, Duration::from_secs(3600))
    }

    /// Returns a candidate's arguments for the Lease, with the token of a file.
    pub fn arguments(&self, token: &Path) -> Vec<String> {
        let given = [
            ("--store", format!("kubernetes:{}/{LEASE}", self.namespace)),
            ("--kube-api", self.plane.url()),
            ("--kube-ca-file", self.plane.ca_file().display().to_string()),
            ("--kube-token-file", token.display().to_string()),
        ];
        given.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    /// Creates the Lease with a first term, so that its first leader need not wait for a lease to
    /// expire.
    pub fn create_lease(&self, token: &Path) {
        let made = Command::new(crate::paths::tenure())
            .args(["doctor", "--create", "--yes"])
            .args(self.arguments(token))
            .output()
            .expect("tenure starts");
        assert!(made.status.success(), "{made:?}");
    }

    /// Returns the holder that `kubectl get lease` shows.
    pub fn holder(&self) -> String {
        let row = ["get", "lease", "--namespace", &self.namespace, LEASE, "--no-headers"];
        let row = self.plane.kubectl.run(&row);
        row.split_whitespace().nth(1).expect("a holder").to_owned()
    }

    /// Returns the Lease.
    pub fn lease(&self) -> serde_json::Value {
        self.plane.kubectl.get(&self.namespace, "leases", LEASE)
    }

    /// Writes a token with this lifetime, signed as the API server would, which itself issues none
    /// with less than ten minutes. The API server accepts a token until a minute after its expiry.
    #[allow(clippy::disallowed_methods, reason = "a token's time is the wall clock's")]
    pub fn short_token(&self, life: Duration) -> PathBuf {
        let account = self.plane.kubectl.get(&self.namespace, "serviceaccounts", ACCOUNT);
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

//! Leases of a real kube-apiserver, each in a namespace of its own, for candidates with the token
//! of a service account with minimal permissions; and an administrator's operations on them.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tenure::config::{KubeAccess, KubernetesSettings};
use tenure::store::kubernetes::Kubernetes;
use url::Url;

use crate::blocking;
use crate::kubernetes::control_plane::ControlPlane;
use crate::kubernetes::raw_client::Raw;

/// Returns the control plane that all tests of a process share, with the candidates' account.
pub fn plane() -> &'static ControlPlane {
    static PLANE: OnceLock<&ControlPlane> = OnceLock::new();
    PLANE.get_or_init(|| {
        let plane = ControlPlane::shared();
        plane.kubectl.apply(
            "{apiVersion: v1, kind: ServiceAccount, metadata: {name: app, namespace: default}}\n\
             ---\n\
             {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: app},\n\
             rules: [{apiGroups: [coordination.k8s.io], resources: [leases],\n\
             verbs: [get, create, update, watch]}]}\n\
             ---\n\
             {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding,\n\
             metadata: {name: app}, roleRef: {apiGroup: rbac.authorization.k8s.io,\n\
             kind: ClusterRole, name: app},\n\
             subjects: [{kind: ServiceAccount, name: app, namespace: default}]}\n",
        );
        plane
    })
}

/// Returns the file of a candidate's token.
fn token() -> &'static PathBuf {
    static TOKEN: OnceLock<PathBuf> = OnceLock::new();
    TOKEN.get_or_init(|| plane().token("default", "app", Duration::from_secs(86_400)))
}

/// Returns a client with the administrator's token.
fn administrator() -> &'static Raw {
    &plane().kubectl.api
}

/// The Lease `orders` in a namespace of its own.
pub struct RealLease {
    pub namespace: String,
}

impl RealLease {
    /// Creates the namespace.
    pub fn start() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let namespace = format!("team-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let made = json!({"metadata": {"name": namespace}});
        let (status, answer) = blocking(administrator().post("/api/v1/namespaces", made));
        assert_eq!(status, 201, "{answer}");
        Self { namespace }
    }

    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn path(&self) -> String {
        format!("{}/orders", self.collection())
    }

    pub fn settings(&self) -> KubernetesSettings {
        KubernetesSettings {
            access: KubeAccess {
                api: Url::parse(&plane().url()).expect("a URL"),
                token_file: Some(token().clone()),
                ca_file: Some(plane().ca_file()),
            },
            namespace: self.namespace.clone(),
            name: "orders".to_owned(),
            request_timeout: Duration::from_secs(10),
        }
    }

    pub fn open(&self) -> Kubernetes {
        Kubernetes::open(&self.settings()).expect("the settings are good")
    }

    /// Returns the Lease as stored, if it exists.
    pub fn found(&self) -> Option<Value> {
        let (status, answer) = blocking(administrator().get(&self.path()));
        match status {
            200 => Some(answer),
            404 => None,
            _ => panic!("{answer}"),
        }
    }

    pub fn stored(&self) -> Value {
        self.found().expect("a Lease")
    }

    fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        let (status, answer) = blocking(administrator().ask(method, path, body));
        assert!(status < 300, "{status}: {answer}");
        answer
    }

    /// Creates or replaces the Lease.
    pub fn put(&self, mut lease: Value) {
        lease["metadata"]["name"] = "orders".into();
        if let Some(found) = self.found() {
            lease["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
            self.ask(Method::PUT, &self.path(), lease);
        } else {
            self.ask(Method::POST, &self.collection(), lease);
        }
    }

    /// Changes the Lease as an administrator.
    pub fn modify(&self, change: impl FnOnce(&mut Value)) {
        let mut lease = self.stored();
        change(&mut lease);
        self.ask(Method::PUT, &self.path(), lease);
    }

    pub fn delete(&self) {
        self.ask(Method::DELETE, &self.path(), Value::Null);
    }
}

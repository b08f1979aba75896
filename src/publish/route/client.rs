//! The API client of the route: sends requests in one namespace, and counts each by its outcome.

use serde_json::Value;

use crate::kube::{Dated, Kube, KubeError, KubeObject};
use crate::metrics::Metrics;

/// The API client of the route.
#[derive(Clone)]
pub(super) struct RouteClient {
    pub(super) kube: Kube,
    pub(super) namespace: String,
    pub(super) metrics: Metrics,
}

impl std::fmt::Debug for RouteClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RouteClient").field(&self.kube).field(&self.namespace).finish()
    }
}

impl RouteClient {
    pub(super) async fn get<K: KubeObject>(&self, name: &str) -> Result<K, KubeError> {
        self.object(self.kube.get(&self.namespace, name).await)
    }

    pub(super) async fn list<K: KubeObject>(&self, selector: &str) -> Result<Vec<K>, KubeError> {
        self.counted(self.kube.list(&self.namespace, selector).await)
    }

    pub(super) async fn create<K: KubeObject>(&self, object: &K) -> Result<K, KubeError> {
        self.object(self.kube.create(object).await)
    }

    pub(super) async fn replace<K: KubeObject>(&self, object: &K) -> Result<K, KubeError> {
        self.object(self.kube.replace(object).await)
    }

    pub(super) async fn patch<K: KubeObject>(
        &self,
        name: &str,
        merge: &Value,
    ) -> Result<K, KubeError> {
        self.object(self.kube.patch(&self.namespace, name, merge).await)
    }

    fn object<K>(&self, answer: Result<Dated<K>, KubeError>) -> Result<K, KubeError> {
        self.counted(answer).map(|it| it.object)
    }

    fn counted<T>(&self, answer: Result<T, KubeError>) -> Result<T, KubeError> {
        self.metrics.route_request(answer.as_ref().map_or_else(outcome, |_| "ok"));
        answer
    }
}

/// Returns the outcome as a metric label.
fn outcome(error: &KubeError) -> &'static str {
    match error {
        KubeError::Missing(_) | KubeError::NoNamespace(_) => "missing",
        KubeError::Conflict(_) | KubeError::Exists(_) | KubeError::Gone(_) => "conflict",
        KubeError::Unauthorized(_) | KubeError::Files(_) => "unauthorized",
        KubeError::Forbidden(_) => "forbidden",
        KubeError::Throttled { .. } => "throttled",
        KubeError::Unavailable(_) => "unavailable",
        KubeError::Invalid(_) => "invalid",
        KubeError::Timeout(_) => "timeout",
        KubeError::Network(_) | KubeError::Disconnected(_) => "network",
    }
}

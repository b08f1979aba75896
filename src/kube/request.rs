//! One request to the API server, and its answer.
//!
//! A request is repeated only once, and only if a new token or certificate file may fix it, since
//! the server has done nothing then. No redirect is followed, no proxy is used, and no error has a
//! URL.

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Method, Response};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use url::Url;

use super::Kube;
use super::access::Credentials;
use super::failure::{KubeError, RequestInfo, Status};
use super::objects::Resource;
use crate::http::client::{self, BodyError, Cause};

/// The longest answer, or line of a watch, that is read. etcd by default limits a request to 1.5
/// MiB, and the objects here have a few kilobytes.
pub(super) const LONGEST_ANSWER: usize = 1024 * 1024;

/// A request.
pub(super) struct KubeRequest<'a> {
    verb: &'static str,
    method: Method,
    resource: &'static Resource,
    namespace: &'a str,
    /// The name of the object; empty for a list or a new one.
    name: &'a str,
    pub(super) query: &'a [(&'a str, &'a str)],
    body: Option<(&'static str, Vec<u8>)>,
}

/// An answer.
pub(super) struct KubeAnswer {
    pub(super) object: Value,
    pub(super) date: Option<OffsetDateTime>,
}

impl<'a> KubeRequest<'a> {
    /// Creates a request that reads.
    pub(super) fn get(
        verb: &'static str,
        resource: &'static Resource,
        namespace: &'a str,
        name: &'a str,
    ) -> Self {
        Self { verb, method: Method::GET, resource, namespace, name, query: &[], body: None }
    }

    /// Creates a request that changes something.
    pub(super) fn change(
        verb: &'static str,
        resource: &'static Resource,
        namespace: &'a str,
        name: &'a str,
        object: &Value,
    ) -> Self {
        let (method, kind) = match verb {
            "create" => (Method::POST, "application/json"),
            "patch" => (Method::PATCH, "application/merge-patch+json"),
            _ => (Method::PUT, "application/json"),
        };
        let body = Some((kind, object.to_string().into_bytes()));
        Self { verb, method, resource, namespace, name, query: &[], body }
    }

    /// Returns whether this is the object that was requested. Any JSON would pass for an object
    /// whose fields are all missing, and a Lease like that would be free.
    fn is_answered_by(&self, object: &Value) -> bool {
        let Resource { kind, .. } = self.resource;
        let is_kind = match object["kind"].as_str() {
            Some(it) if self.verb == "list" => it.strip_suffix("List") == Some(kind),
            it => it == Some(kind),
        };
        let is_named = self.name.is_empty() || object["metadata"]["name"] == self.name;
        is_kind && object["apiVersion"] == self.resource.api_version() && is_named
    }

    fn url(&self, base: &Url) -> Url {
        let mut url = base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(self.resource.api.split('/'));
            if !self.namespace.is_empty() {
                path.extend(["namespaces", self.namespace]);
            }
            path.push(self.resource.plural);
            if !self.name.is_empty() && self.method != Method::POST {
                path.push(self.name);
            }
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(self.query);
        }
        url
    }
}

impl Kube {
    /// Sends the request and reads the answer, within request-timeout.
    pub(super) async fn request(&self, ask: &KubeRequest<'_>) -> Result<KubeAnswer, KubeError> {
        let asking = async {
            let answer = self.sent(ask).await?;
            let date = date(answer.headers());
            let body = self.body(answer).await?;
            match serde_json::from_slice(&body) {
                Ok(object) if ask.is_answered_by(&object) => Ok(KubeAnswer { object, date }),
                _ => Err(KubeError::Invalid(format!(
                    "{} did not answer with the requested {}: it is not a Kubernetes API server, \
                     or a proxy answered instead; check --kube-api",
                    self.host(),
                    ask.resource.kind
                ))),
            }
        };
        self.in_time(ask, asking).await
    }

    /// Sends the request and returns the answer after its head has arrived, within request-timeout.
    pub(super) async fn open_answer(&self, ask: &KubeRequest<'_>) -> Result<Response, KubeError> {
        self.in_time(ask, self.sent(ask)).await
    }

    async fn in_time<T>(
        &self,
        ask: &KubeRequest<'_>,
        asking: impl Future<Output = Result<T, KubeError>>,
    ) -> Result<T, KubeError> {
        match tokio::time::timeout(self.timeout(), asking).await {
            Ok(outcome) => outcome,
            Err(_) => Err(KubeError::Timeout(format!(
                "the API server {} did not answer the request to {} {} within {:?}",
                self.host(),
                ask.verb,
                ask.resource.plural,
                self.timeout()
            ))),
        }
    }

    /// Sends a request; repeats it once if the server refused a token or certificate that has
    /// changed in its file since.
    async fn sent(&self, ask: &KubeRequest<'_>) -> Result<Response, KubeError> {
        let credentials = self.0.access.credentials().await?;
        match self.attempt(ask, &credentials).await {
            Err(error @ (KubeError::Unauthorized(_) | KubeError::Network(_))) => {
                let now = self.0.access.read_again().await?;
                if !std::sync::Arc::ptr_eq(&credentials, &now) {
                    return self.attempt(ask, &now).await;
                }
                Err(match (self.0.access.last_error(), error) {
                    (Some(why), KubeError::Unauthorized(it)) => {
                        KubeError::Unauthorized(format!("{it}; and {why}"))
                    }
                    (Some(why), KubeError::Network(it)) => {
                        KubeError::Network(format!("{it}; and {why}"))
                    }
                    (_, error) => error,
                })
            }
            outcome => outcome,
        }
    }

    async fn attempt(
        &self,
        ask: &KubeRequest<'_>,
        credentials: &Credentials,
    ) -> Result<Response, KubeError> {
        let url = ask.url(&self.0.base);
        let mut request =
            credentials.client.request(ask.method.clone(), url).header(ACCEPT, "application/json");
        if let Some(token) = &credentials.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        if let Some((kind, body)) = &ask.body {
            request = request.header(CONTENT_TYPE, *kind).body(body.clone());
        }
        let answer =
            credentials.client.send(request).await.map_err(|error| broken(&error, self.host()))?;
        let code = answer.status().as_u16();
        if answer.status().is_success() {
            return Ok(answer);
        }
        let wait = answer.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
        // A body that is not a Status says nothing; the code does.
        let status = Status::read(&self.body(answer).await.unwrap_or_default());
        let asked = RequestInfo {
            verb: ask.verb,
            resource: ask.resource,
            namespace: ask.namespace,
            name: ask.name,
            host: self.host(),
            signed: credentials.token.is_some(),
        };
        Err(asked.refused(code, &status, wait))
    }

    async fn body(&self, answer: Response) -> Result<Vec<u8>, KubeError> {
        let host = self.host();
        client::body(answer, LONGEST_ANSWER).await.map_err(|error| match error {
            BodyError::Broken(error) => broken(&error, host),
            BodyError::TooLong => KubeError::Invalid(format!(
                "the answer of {host} is longer than {LONGEST_ANSWER} bytes"
            )),
        })
    }
}

/// Returns the server's date from its answer.
fn date(headers: &HeaderMap) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(headers.get(DATE)?.to_str().ok()?, &Rfc2822).ok()
}

/// Converts the error of a request without an answer.
pub(super) fn broken(error: &reqwest::Error, host: &str) -> KubeError {
    match client::cause(error) {
        Cause::Certificate(why) => KubeError::Network(format!(
            "TLS with the API server {host} failed: {why}; check --kube-ca-file, and that the \
             certificate is valid for the host in --kube-api"
        )),
        Cause::Unresolved(why) => KubeError::Network(format!("{why}: check --kube-api")),
        Cause::Io(kind) if error.is_connect() => {
            KubeError::Disconnected(format!("cannot connect to the API server {host}: {kind}"))
        }
        Cause::Io(kind) => KubeError::Disconnected(format!(
            "the connection to the API server {host} broke: {kind}"
        )),
        Cause::Other if error.is_connect() => {
            KubeError::Disconnected(format!("cannot connect to the API server {host}"))
        }
        Cause::Other => KubeError::Disconnected(format!(
            "the connection to {host} broke, or it is not an HTTP server"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::objects::{KubeObject, Lease, SelfSubjectAccessReview};
    use serde_json::json;

    #[test]
    fn paths_are_below_the_base_path_of_the_server() {
        let leases = &Lease::RESOURCE;
        let at = |base: &str, ask: KubeRequest<'_>| ask.url(&Url::parse(base).unwrap()).to_string();
        let get = || KubeRequest::get("get", leases, "shop", "orders");
        let path = "/apis/coordination.k8s.io/v1/namespaces/shop/leases";
        assert_eq!(at("https://h", get()), format!("https://h{path}/orders"));
        assert_eq!(at("https://h/k8s/c-1/", get()), format!("https://h/k8s/c-1{path}/orders"));
        assert_eq!(at("https://h/k8s/c-1", get()), format!("https://h/k8s/c-1{path}/orders"));
        let create = KubeRequest::change("create", leases, "shop", "orders", &json!({}));
        assert_eq!(at("https://h", create), format!("https://h{path}"));
        let review = &SelfSubjectAccessReview::RESOURCE;
        let review = KubeRequest::change("create", review, "", "", &json!({}));
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        assert_eq!(at("https://h", review), format!("https://h{path}"));
        let mut list = KubeRequest::get("list", leases, "shop", "");
        list.query = &[("labelSelector", "a/b=c,d"), ("limit", "20")];
        let listed = at("https://h", list);
        assert!(listed.ends_with("/leases?labelSelector=a%2Fb%3Dc%2Cd&limit=20"), "{listed}");
    }

    #[test]
    fn the_date_is_that_of_http() {
        let mut headers = HeaderMap::new();
        assert_eq!(date(&headers), None);
        headers.insert(DATE, "Tue, 14 Nov 2023 22:13:20 GMT".parse().unwrap());
        assert_eq!(date(&headers).unwrap().unix_timestamp(), 1_700_000_000);
        headers.insert(DATE, "soon".parse().unwrap());
        assert_eq!(date(&headers), None);
    }
}

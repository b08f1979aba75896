//! A client for the Kubernetes API server: the few verbs and objects that Tenure needs, for the
//! Lease store and for the routes.
//!
//! It keeps no copy of any object, never reads from the server's cache (`resourceVersion=0`), and
//! follows neither redirects nor proxies. It retries only once, and only what a rotated token or
//! certificate file may fix. Each request is bounded by request-timeout, each answer and each line
//! of a watch by 1 MiB. No error and no `Debug` shows a token or a URL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use serde_json::Value;
use time::OffsetDateTime;
use url::Url;

use self::access::Access;
use self::request::KubeRequest;
use self::watching::Watch;
use crate::config::KubeAccess;

mod access;
mod failure;
pub mod objects;
mod request;
pub mod rights;
mod watching;

pub use failure::KubeError;
pub(crate) use failure::rule;
pub use objects::KubeObject;
pub use watching::Watched;

/// How many objects of a list are requested at a time, so that no answer is too long.
const PAGE: &str = "20";

/// The maximum number of pages of a list.
const MOST_PAGES: usize = 100;

/// A client of one API server; clones share its connections.
#[derive(Clone)]
pub struct Kube(Arc<Inner>);

struct Inner {
    base: Url,
    /// Host and port, for messages.
    host: String,
    access: Access,
    timeout: Duration,
}

impl fmt::Debug for Kube {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kube").field(&self.0.host).finish()
    }
}

/// An object with the server's date, if its answer had one.
#[derive(Clone, Debug, PartialEq)]
pub struct Dated<K> {
    /// The object as the server has it now.
    pub object: K,
    /// In whole seconds.
    pub date: Option<OffsetDateTime>,
}

impl Kube {
    /// Creates a client. Reaches no network and reads no file yet, so that a process starts without
    /// either and recovers when they become available.
    ///
    /// # Errors
    /// Returns an error if the URL is not usable for requests.
    pub fn open(access: &KubeAccess, request_timeout: Duration) -> anyhow::Result<Self> {
        let Some(host) = access.api.host_str() else {
            anyhow::bail!("the URL of the Kubernetes API has no host");
        };
        let host = match access.api.port_or_known_default() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let base = access.api.clone();
        let access = Access::new(access, request_timeout);
        Ok(Self(Arc::new(Inner { base, host, access, timeout: request_timeout })))
    }

    /// Reads one object as it is now, by a quorum read.
    ///
    /// # Errors
    /// Returns [`KubeError::Missing`] if there is no such object, whether or not the namespace
    /// exists.
    pub async fn get<K: KubeObject>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Dated<K>, KubeError> {
        self.asked(KubeRequest::get("get", &K::RESOURCE, namespace, name)).await
    }

    /// Reads all objects with these labels (`a=b,c`), as they are now.
    ///
    /// # Errors
    /// Returns an error if any page of the list cannot be read.
    pub async fn list<K: KubeObject>(
        &self,
        namespace: &str,
        selector: &str,
    ) -> Result<Vec<K>, KubeError> {
        let mut listed = Vec::new();
        let mut next = String::new();
        for _ in 0..MOST_PAGES {
            let query = [("labelSelector", selector), ("limit", PAGE), ("continue", &next)];
            let mut ask = KubeRequest::get("list", &K::RESOURCE, namespace, "");
            ask.query = if next.is_empty() { &query[..2] } else { &query };
            let mut page = self.request(&ask).await?.object;
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                for item in items {
                    listed.push(decode(item)?);
                }
            }
            match page.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(more) if !more.is_empty() => next = more.to_owned(),
                _ => return Ok(listed),
            }
        }
        Err(KubeError::Invalid(format!("too many {} to list", K::RESOURCE.plural)))
    }

    /// Creates an object.
    ///
    /// # Errors
    /// Returns [`KubeError::Exists`] if there is one of that name.
    pub async fn create<K: KubeObject>(&self, object: &K) -> Result<Dated<K>, KubeError> {
        self.make(object, &[]).await
    }

    /// Checks everything that creating an object needs, such as access and the namespace, as a dry
    /// run.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn try_create<K: KubeObject>(&self, object: &K) -> Result<Dated<K>, KubeError> {
        self.make(object, &[("dryRun", "All")]).await
    }

    async fn make<K: KubeObject>(
        &self,
        object: &K,
        query: &[(&str, &str)],
    ) -> Result<Dated<K>, KubeError> {
        let (body, at) = (encode(object)?, object.metadata());
        let mut ask = KubeRequest::change("create", &K::RESOURCE, &at.namespace, &at.name, &body);
        ask.query = query;
        self.asked(ask).await
    }

    /// Replaces an object by compare-and-set: its metadata must have the uid and resourceVersion
    /// that were read.
    ///
    /// # Errors
    /// Returns [`KubeError::Conflict`] if the object has changed or is gone.
    pub async fn replace<K: KubeObject>(&self, object: &K) -> Result<Dated<K>, KubeError> {
        let (body, at) = (encode(object)?, object.metadata());
        self.asked(KubeRequest::change("update", &K::RESOURCE, &at.namespace, &at.name, &body))
            .await
    }

    /// Changes parts of an object by a JSON merge patch; a compare-and-set if the patch has
    /// `metadata.resourceVersion`.
    ///
    /// # Errors
    /// Returns [`KubeError::Conflict`] if the object has changed, [`KubeError::Missing`] if it is
    /// gone.
    pub async fn patch<K: KubeObject>(
        &self,
        namespace: &str,
        name: &str,
        merge: &Value,
    ) -> Result<Dated<K>, KubeError> {
        self.asked(KubeRequest::change("patch", &K::RESOURCE, namespace, name, merge)).await
    }

    /// Watches one object from a resourceVersion on, or, without one, beginning with its present
    /// state. The watch ends after a minute, on an error, or when the server ends it; to continue,
    /// start another from the last version received.
    pub fn watch<K: KubeObject>(
        &self,
        namespace: &str,
        name: &str,
        from: Option<String>,
    ) -> impl Stream<Item = Result<Watched<K>, KubeError>> + Send + use<K> {
        let watch = Watch::new(self.clone(), &K::RESOURCE, namespace, name, from);
        futures::stream::unfold(watch, |mut watch| async move {
            let told = watch.next().await?;
            Some((told, watch))
        })
    }

    /// Returns host and port of the server.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// Reads the token from its file, for `tenure doctor`; `None` if no file is configured.
    pub(crate) async fn token(&self) -> Result<Option<Vec<u8>>, String> {
        self.0.access.token().await
    }

    fn timeout(&self) -> Duration {
        self.0.timeout
    }

    async fn asked<K: KubeObject>(&self, ask: KubeRequest<'_>) -> Result<Dated<K>, KubeError> {
        let answer = self.request(&ask).await?;
        Ok(Dated { object: decode(answer.object)?, date: answer.date })
    }
}

/// Converts an object to its wire format.
fn encode<K: KubeObject>(object: &K) -> Result<Value, KubeError> {
    let mut value = serde_json::to_value(object).map_err(|_| unfit::<K>())?;
    value["apiVersion"] = K::RESOURCE.api_version().into();
    value["kind"] = K::RESOURCE.kind.into();
    Ok(value)
}

fn decode<K: KubeObject>(value: Value) -> Result<K, KubeError> {
    serde_json::from_value(value).map_err(|_| unfit::<K>())
}

fn unfit<K: KubeObject>() -> KubeError {
    KubeError::Invalid(format!("the API server's answer is not a valid {}", K::RESOURCE.kind))
}

//! One watch: a stream of JSON objects, one in each line. A watch that has ended is not restarted
//! here; the caller continues from the last version, or without one after [`KubeError::Gone`].

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::failure::{KubeError, RequestInfo, Status};
use super::objects::{KubeObject, Resource};
use super::request::{KubeRequest, LONGEST_ANSWER, broken};
use super::{Kube, decode};

/// How long the server lets one watch last, after which the caller starts another. A connection may
/// be dead for this long before that shows; a shorter time costs more requests.
const LENGTH: Duration = Duration::from_secs(60);

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum Watched<K> {
    /// The object exists: it is new, or has existed since before the watch.
    Added(K),
    /// The object has changed.
    Modified(K),
    /// The object is gone; this is its last state.
    Deleted(K),
    /// Nothing has changed up to this resourceVersion, from which another watch may continue.
    Bookmark(String),
}

/// One watch in progress.
pub(super) struct Watch {
    kube: Kube,
    resource: &'static Resource,
    namespace: String,
    name: String,
    from: Option<String>,
    /// The answer, once it has begun.
    answer: Option<reqwest::Response>,
    /// What was read after the last whole line.
    rest: Vec<u8>,
    /// How much of it is known to have no end of a line.
    searched: usize,
    ended: bool,
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

impl Watch {
    pub(super) fn new(
        kube: Kube,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        from: Option<String>,
    ) -> Self {
        Self {
            kube,
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            from,
            answer: None,
            rest: Vec::new(),
            searched: 0,
            ended: false,
        }
    }

    /// Returns the next event; `None` when the server has ended the watch. Returns nothing after an
    /// error.
    pub(super) async fn next<K: KubeObject>(&mut self) -> Option<Result<Watched<K>, KubeError>> {
        while !self.ended {
            let told = match self.next_event().await {
                Ok(Some((kind, object))) => watched(&kind, object).transpose(),
                Ok(None) => {
                    self.ended = true;
                    return None;
                }
                Err(error) => Some(Err(error)),
            };
            self.ended = matches!(told, Some(Err(_)));
            if told.is_some() {
                return told;
            }
        }
        None
    }

    /// Returns the next line that is not an error: the type of the event, and the object.
    async fn next_event(&mut self) -> Result<Option<(String, Value)>, KubeError> {
        let Some(line) = self.line().await? else {
            return Ok(None);
        };
        let line: Line = serde_json::from_slice(&line)
            .map_err(|_| self.invalid("a line that is not a watch event"))?;
        if line.kind == "ERROR" {
            let status: Status = serde_json::from_value(line.object).unwrap_or_default();
            let code = if status.code == 0 { 500 } else { status.code };
            return Err(self.request_info().refused(code, &status, None));
        }
        Ok(Some((line.kind, line.object)))
    }

    /// Returns the next line that is not empty, without its line break.
    async fn line(&mut self) -> Result<Option<Vec<u8>>, KubeError> {
        loop {
            if let Some(end) = self.rest[self.searched..].iter().position(|it| *it == b'\n') {
                let after = self.rest.split_off(self.searched + end + 1);
                let mut line = std::mem::replace(&mut self.rest, after);
                self.searched = 0;
                line.pop();
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Ok(Some(line));
            }
            self.searched = self.rest.len();
            if self.rest.len() > LONGEST_ANSWER {
                return Err(self.invalid("a line that is too long"));
            }
            let Some(chunk) = self.chunk().await? else {
                let whole = self.rest.trim_ascii().is_empty();
                return if whole { Ok(None) } else { Err(self.invalid("an incomplete line")) };
            };
            self.rest.extend(chunk);
        }
    }

    async fn chunk(&mut self) -> Result<Option<Vec<u8>>, KubeError> {
        if self.answer.is_none() {
            self.answer = Some(self.begin().await?);
        }
        let Some(answer) = &mut self.answer else {
            return Ok(None);
        };
        let host = self.kube.host();
        // A connection that died silently is detected when the watch should long have ended.
        match tokio::time::timeout(LENGTH + self.kube.timeout(), answer.chunk()).await {
            Ok(Ok(read)) => Ok(read.map(|it| it.to_vec())),
            Ok(Err(error)) => Err(broken(&error, host)),
            Err(_) => Err(KubeError::Timeout(format!(
                "the watch of {host} received nothing for too long"
            ))),
        }
    }

    async fn begin(&self) -> Result<reqwest::Response, KubeError> {
        let selector = format!("metadata.name={}", self.name);
        let length = LENGTH.as_secs().to_string();
        let mut query = vec![
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &length),
            ("fieldSelector", &selector),
        ];
        query.extend(self.from.as_deref().map(|from| ("resourceVersion", from)));
        let mut ask = KubeRequest::get("watch", self.resource, &self.namespace, "");
        ask.query = &query;
        self.kube.open_answer(&ask).await
    }

    fn request_info(&self) -> RequestInfo<'_> {
        RequestInfo {
            verb: "watch",
            resource: self.resource,
            namespace: &self.namespace,
            name: &self.name,
            host: self.kube.host(),
            signed: true,
        }
    }

    fn invalid(&self, what: &str) -> KubeError {
        KubeError::Invalid(format!("the watch of {} received {what}", self.request_info().target()))
    }
}

/// Reads one event; `None` for an unknown type.
fn watched<K: KubeObject>(kind: &str, object: Value) -> Result<Option<Watched<K>>, KubeError> {
    Ok(Some(match kind {
        "ADDED" => Watched::Added(decode(object)?),
        "MODIFIED" => Watched::Modified(decode(object)?),
        "DELETED" => Watched::Deleted(decode(object)?),
        "BOOKMARK" => match object.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
            Some(version) => Watched::Bookmark(version.to_owned()),
            None => return Ok(None),
        },
        _ => return Ok(None),
    }))
}

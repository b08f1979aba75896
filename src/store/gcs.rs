//! The `gs:` store: the lease in an object of a bucket in Google Cloud Storage, which is written on the
//! condition of its generation and never deleted. Generations never repeat.
//!
//! What the object holds, and each change of it, is in `register`; here are the requests of the JSON API,
//! and the tokens for them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use serde::Deserialize;

use super::client::{self, Peer, StoreClient};
use super::network::in_time;
use super::query;
use super::register::{
    self, Body, If, Register, RegisterError, Registered, Slot, Tagged, Trials, Written,
};
use super::renewed::Renewed;
use super::{Finding, LeaseAdmin, MOST_LISTED};
use crate::config::{GcsSettings, GoogleCredential};
use crate::http::client::BodyError;

mod credential;
mod doctor;
mod errors;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod identity;
#[cfg(test)]
mod tests;

/// The end of the name on which conditions are tried. No election has an underscore in its name.
const TRIAL: &str = "_trial";

/// The longest answer that is read. An object here has some hundred bytes, and a list some hundred names.
const LONGEST_ANSWER: usize = 1024 * 1024;

/// The header with the generation of an object that is read.
const GENERATION: &str = "x-goog-generation";

/// A bucket.
struct Bucket {
    settings: GcsSettings,
    client: StoreClient,
    /// The header with the token; `None` where none is needed.
    token: Option<Renewed<HeaderValue>>,
    /// Host and port of the server.
    server: String,
}

/// An answer that is a success.
struct Answer {
    headers: HeaderMap,
    body: Vec<u8>,
}

/// What is answered to a write.
#[derive(Deserialize)]
struct Made {
    generation: String,
}

/// What is answered to a list.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Listed {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    name: String,
}

/// Creates the store from its settings. Reaches no network yet, but reads the files of TLS, which blocks.
/// Must be called within a tokio runtime, in which a task renews the token until the store is dropped.
///
/// # Errors
/// Returns an error if the files of TLS are not usable.
pub fn open(settings: &GcsSettings) -> anyhow::Result<Arc<dyn LeaseAdmin>> {
    Ok(Arc::new(Registered::new(Bucket::open(settings, settings.request_timeout)?)))
}

impl Bucket {
    fn open(settings: &GcsSettings, request_timeout: Duration) -> anyhow::Result<Self> {
        let mut settings = settings.clone();
        settings.request_timeout = request_timeout;
        let server = &settings.server[url::Position::BeforeHost..url::Position::AfterPort];
        Ok(Self {
            client: StoreClient::open(settings.tls.as_ref(), request_timeout)?,
            token: credential::open(&settings)?,
            server: server.to_owned(),
            settings,
        })
    }

    /// Returns the name of an object.
    fn name(&self, slot: Slot) -> String {
        match slot {
            Slot::Lease => self.settings.name(),
            Slot::Trial => format!("{}{TRIAL}", self.settings.name()),
        }
    }

    /// Sends a request and reads the answer, within request-timeout. `place` names what it is for.
    async fn request(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Vec<u8>,
        place: &str,
    ) -> Result<Answer, RegisterError> {
        let bound = self.settings.request_timeout;
        let asked = self.attempt(method, path, query, body, place);
        match (in_time(bound, &self.server, asked).await, &self.token) {
            (Err(RegisterError::Credential(why)), Some(token)) => {
                token.distrust();
                Err(RegisterError::Credential(match token.failure() {
                    Some(failure) if !why.contains(&*failure.message) => {
                        format!("{why}; and {failure}")
                    }
                    _ => why,
                }))
            }
            (outcome, _) => outcome,
        }
    }

    async fn attempt(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Vec<u8>,
        place: &str,
    ) -> Result<Answer, RegisterError> {
        let mut url: Url = self.settings.server.clone();
        url.set_path(path);
        url.set_query(Some(&query::query(query)));
        let client = self.client.current().await.map_err(RegisterError::no_client)?;
        let mut request = client.request(method.clone(), url);
        if let Some(token) = &self.token {
            let token = token.current().await;
            let token = token.map_err(|error| RegisterError::Credential(error.to_string()))?;
            request = request.header(AUTHORIZATION, HeaderValue::clone(&token));
        }
        if method == Method::POST {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let answer = client.send(request).await.map_err(|error| self.broken(&error))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = crate::http::client::body(answer, LONGEST_ANSWER).await;
        if status.is_success() {
            return body.map(|body| Answer { headers, body }).map_err(|error| match error {
                BodyError::Broken(error) => self.broken(&error),
                BodyError::TooLong => RegisterError::Invalid(format!(
                    "the answer of {} is longer than {LONGEST_ANSWER} bytes",
                    self.server
                )),
            });
        }
        // A body that cannot be read says nothing; the status does.
        Err(errors::refused(status.as_u16(), &body.unwrap_or_default(), &self.server, place))
    }

    fn broken(&self, error: &reqwest::Error) -> RegisterError {
        let peer = Peer {
            name: &self.server,
            setting: "STORAGE_EMULATOR_HOST, if it is set,",
            files: "--store-ca-file,",
            kind: "the server",
        };
        client::broken(error, &peer).into()
    }

    /// Returns the names of elections in the same place.
    async fn elections(&self) -> Result<Vec<String>, RegisterError> {
        let bucket = &self.settings.bucket;
        let prefix = self.settings.prefix.as_ref().map(|it| format!("{it}/")).unwrap_or_default();
        let most = (MOST_LISTED * 4).to_string();
        let query =
            [("delimiter", "/"), ("prefix", prefix.as_str()), ("maxResults", most.as_str())];
        let (path, place) = (format!("/storage/v1/b/{bucket}/o"), self.bucket());
        let asked = self.request(Method::GET, &path, &query, Vec::new(), &place);
        let listed: Listed = serde_json::from_slice(&asked.await?.body).unwrap_or_default();
        let names = listed.items.iter().filter_map(|it| it.name.strip_prefix(&prefix));
        Ok(register::elections(names))
    }

    fn bucket(&self) -> String {
        format!("the bucket {}", self.settings.bucket)
    }

    fn unlike(&self) -> RegisterError {
        RegisterError::Invalid(format!(
            "{} answered without a generation, so it is not Google Cloud Storage: check \
             STORAGE_EMULATOR_HOST",
            self.server
        ))
    }
}

#[async_trait]
impl Register for Bucket {
    fn kind(&self) -> &'static str {
        "gcs"
    }

    fn place(&self, slot: Slot) -> String {
        format!("the object gs://{}/{}", self.settings.bucket, self.name(slot))
    }

    fn answered(&self) -> String {
        let scheme = if self.settings.tls.is_some() { "TLS" } else { "plain HTTP" };
        format!("{} answered over {scheme}", self.server)
    }

    fn credential(&self) -> Option<String> {
        Some(match &self.settings.credential {
            GoogleCredential::None => "requests without a credential".to_owned(),
            _ => {
                self.token.as_ref()?.known()?;
                credential::named(&self.settings.credential)
            }
        })
    }

    /// Google's own server alone answers like this, and takes one write of an object a second.
    fn trials(&self) -> Trials {
        Trials::InOrder
    }

    async fn get(&self, slot: Slot) -> Result<Option<Tagged>, RegisterError> {
        let name = query::escaped(&self.name(slot));
        let path = format!("/storage/v1/b/{}/o/{name}", self.settings.bucket);
        let query = [("alt", "media")];
        match self.request(Method::GET, &path, &query, Vec::new(), &self.place(slot)).await {
            Ok(Answer { headers, body }) => {
                let tag = headers.get(GENERATION).and_then(|it| it.to_str().ok());
                let tag = tag.ok_or_else(|| self.unlike())?.to_owned();
                let body = Body::decode(&body);
                Ok(Some(Tagged { tag, body, date: client::date(&headers) }))
            }
            Err(RegisterError::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn put(
        &self,
        slot: Slot,
        condition: If<'_>,
        body: &Body,
    ) -> Result<Option<Written>, RegisterError> {
        let generation = match condition {
            If::Absent => "0",
            If::Tagged(tag) => tag,
        };
        let path = format!("/upload/storage/v1/b/{}/o", self.settings.bucket);
        let name = self.name(slot);
        let query =
            [("uploadType", "media"), ("name", name.as_str()), ("ifGenerationMatch", generation)];
        match self.request(Method::POST, &path, &query, body.encode(), &self.place(slot)).await {
            Ok(Answer { headers, body }) => {
                let Made { generation } =
                    serde_json::from_slice(&body).map_err(|_| self.unlike())?;
                Ok(Some(Written { tag: generation, date: client::date(&headers) }))
            }
            Err(RegisterError::Condition(_)) => Ok(None),
            // A write never misses an object.
            Err(RegisterError::Missing(_)) => Err(errors::no_bucket(&self.settings.bucket)),
            Err(error) => Err(error),
        }
    }

    async fn others(&self) -> Option<Vec<String>> {
        // The right to list is one that nothing else needs.
        self.elections().await.ok()
    }

    async fn examine(&self) -> Vec<Finding> {
        doctor::examine(self).await
    }
}

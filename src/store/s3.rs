//! The `s3:` store: the lease in an object of a bucket, which is written on conditions (`If-None-Match` to
//! create it, `If-Match` to change it) and never deleted.
//!
//! What the object holds, and each change of it, is in `register`; here are the requests, their signatures
//! and the keys for them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use reqwest::{Method, Response, Url};

use self::credential::Keys;
use self::errors::Asked;
use self::signature::Scope;
use self::xml::Elements;
use super::client::{self, Peer, StoreClient};
use super::network::in_time;
use super::query;
use super::register::{
    self, Body, If, Register, RegisterError, Registered, Slot, Tagged, Trials, Written,
};
use super::renewed::Renewed;
use super::{Finding, LeaseAdmin, MOST_LISTED};
use crate::clock;
use crate::config::{AwsCredential, S3Settings};
use crate::http::client::BodyError;

mod credential;
mod doctor;
mod errors;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod identity;
mod profile;
mod signature;
#[cfg(test)]
mod tests;
mod xml;

/// The end of the key on which conditions are tried. No election has an underscore in its name.
const TRIAL: &str = "_trial";

/// The longest answer that is read. An object here has some hundred bytes, and a list some hundred names.
const LONGEST_ANSWER: usize = 1024 * 1024;

/// A bucket.
struct Bucket {
    settings: S3Settings,
    client: StoreClient,
    keys: Renewed<Keys>,
    /// Host and port of the server.
    server: String,
}

/// What a request is for.
#[derive(Clone, Copy)]
enum Place<'a> {
    Object(&'a str),
    Bucket,
}

/// An answer that is a success.
struct Answer {
    headers: HeaderMap,
    body: Vec<u8>,
}

/// Creates the store from its settings. Reaches no network yet, but reads the files of TLS, which blocks.
/// Must be called within a tokio runtime, in which a task renews the keys until the store is dropped.
///
/// # Errors
/// Returns an error if the files of TLS are not usable.
pub fn open(settings: &S3Settings) -> anyhow::Result<Arc<dyn LeaseAdmin>> {
    Ok(Arc::new(Registered::new(Bucket::open(settings, settings.request_timeout)?)))
}

impl Bucket {
    fn open(settings: &S3Settings, request_timeout: Duration) -> anyhow::Result<Self> {
        let mut settings = settings.clone();
        settings.request_timeout = request_timeout;
        let server = &settings.url[url::Position::BeforeHost..url::Position::AfterPort];
        Ok(Self {
            client: StoreClient::open(settings.tls.as_ref(), request_timeout)?,
            keys: credential::open(&settings)?,
            server: server.to_owned(),
            settings,
        })
    }

    /// Returns the key of an object.
    fn key(&self, slot: Slot) -> String {
        match slot {
            Slot::Lease => self.settings.key(),
            Slot::Trial => format!("{}{TRIAL}", self.settings.key()),
        }
    }

    /// Names what a request is for, for messages.
    fn named(&self, place: Place<'_>) -> String {
        let bucket = &self.settings.bucket;
        match place {
            Place::Object(key) => format!("the object s3://{bucket}/{key}"),
            Place::Bucket => format!("the bucket {bucket}"),
        }
    }

    fn url(&self, place: Place<'_>, query: &[(&str, &str)]) -> Url {
        let mut url = self.settings.url.clone();
        if let Place::Object(key) = place {
            let path = format!("{}/{key}", url.path().trim_end_matches('/'));
            url.set_path(&path);
        }
        if !query.is_empty() {
            url.set_query(Some(&query::query(query)));
        }
        url
    }

    /// Sends a request and reads the answer, within request-timeout.
    async fn request(
        &self,
        method: Method,
        place: Place<'_>,
        query: &[(&str, &str)],
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Answer, RegisterError> {
        let bound = self.settings.request_timeout;
        let asked = self.attempt(method, place, query, headers, body);
        match in_time(bound, &self.server, asked).await {
            Err(RegisterError::Credential(why)) => {
                self.keys.distrust();
                Err(RegisterError::Credential(match self.keys.failure() {
                    Some(failure) if !why.contains(&*failure.message) => {
                        format!("{why}; and {failure}")
                    }
                    _ => why,
                }))
            }
            outcome => outcome,
        }
    }

    async fn attempt(
        &self,
        method: Method,
        place: Place<'_>,
        query: &[(&str, &str)],
        mut headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Answer, RegisterError> {
        let keys = self.keys.current().await;
        let keys = keys.map_err(|error| match &self.settings.credential {
            AwsCredential::Keys { .. } | AwsCredential::Profile { .. } => {
                RegisterError::no_credential(error.to_string())
            }
            _ => RegisterError::Credential(error.to_string()),
        })?;
        let client = self.client.current().await.map_err(RegisterError::no_client)?;
        let url = self.url(place, query);
        let scope = Scope { region: &self.settings.region, service: "s3" };
        let now = clock::now().date();
        signature::sign(&method, &url, &mut headers, &body, &keys, &scope, now).ok_or_else(
            || RegisterError::no_credential("the keys have characters that no header may have"),
        )?;
        let request = client.request(method, url).headers(headers).body(body);
        let answer = client.send(request).await.map_err(|error| self.broken(&error))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        if status.is_success() {
            return Ok(Answer { headers, body: self.body(answer).await? });
        }
        // A body that cannot be read says nothing; the status does.
        let body = self.body(answer).await.unwrap_or_default();
        let asked = Asked {
            server: &self.server,
            bucket: &self.settings.bucket,
            place: &self.named(place),
            region: &self.settings.region,
            actual_region: headers.get("x-amz-bucket-region").and_then(|it| it.to_str().ok()),
        };
        Err(asked.refused(status.as_u16(), &body))
    }

    async fn body(&self, answer: Response) -> Result<Vec<u8>, RegisterError> {
        let read = crate::http::client::body(answer, LONGEST_ANSWER).await;
        read.map_err(|error| match error {
            BodyError::Broken(error) => self.broken(&error),
            BodyError::TooLong => RegisterError::Invalid(format!(
                "the answer of {} is longer than {LONGEST_ANSWER} bytes",
                self.server
            )),
        })
    }

    fn broken(&self, error: &reqwest::Error) -> RegisterError {
        let setting = if self.settings.tls.is_some() {
            "--s3-endpoint and --s3-region"
        } else {
            "--s3-endpoint"
        };
        let files = "--store-ca-file,";
        let peer = Peer { name: &self.server, setting, files, kind: "the server" };
        client::broken(error, &peer).into()
    }

    /// Returns the server's name for the state of an object that an answer shows.
    fn tag(&self, headers: &HeaderMap) -> Result<String, RegisterError> {
        let tag = headers.get(ETAG).and_then(|it| it.to_str().ok()).filter(|it| !it.is_empty());
        tag.map(str::to_owned).ok_or_else(|| {
            RegisterError::Invalid(format!(
                "{} answered without an ETag, so it is not a server of S3: check --s3-endpoint",
                self.server
            ))
        })
    }

    /// Writes an object on a condition, of which a tag is sent as it is.
    async fn write(
        &self,
        slot: Slot,
        condition: If<'_>,
        body: &Body,
    ) -> Result<Written, RegisterError> {
        let (name, value): (HeaderName, _) = match condition {
            If::Absent => (IF_NONE_MATCH, "*"),
            If::Tagged(tag) => (IF_MATCH, tag),
        };
        let unfit = |_| RegisterError::Invalid("the object has an unusable ETag".to_owned());
        let value = HeaderValue::from_str(value).map_err(unfit)?;
        let (key, headers) = (self.key(slot), HeaderMap::from_iter([(name, value)]));
        let asked = self.request(Method::PUT, Place::Object(&key), &[], headers, body.encode());
        let headers = asked.await?.headers;
        let (mut tag, date) = (self.tag(&headers)?, client::date(&headers));
        if matches!(condition, If::Tagged(sent) if !sent.contains('"')) {
            // The next write of this bid needs no second request.
            tag.retain(|it| it != '"');
        }
        Ok(Written { tag, date })
    }

    /// Writes on the unquoted form of a tag that was refused, if the object still has it: some servers compare
    /// no other form. A tag in that form is kept as it is, so that the proof tries what is sent later.
    async fn write_unquoted(
        &self,
        slot: Slot,
        tag: &str,
        body: &Body,
        refused: String,
    ) -> Result<Written, RegisterError> {
        let bare = tag.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        let Some(bare) = bare else { return Err(RegisterError::Condition(refused)) };
        match self.get(slot).await {
            Ok(Some(found)) if found.tag == tag => self.write(slot, If::Tagged(bare), body).await,
            // It was refused, whatever this read shows.
            _ => Err(RegisterError::Condition(refused)),
        }
    }

    /// Returns the names of elections in the same place.
    async fn elections(&self) -> Result<Vec<String>, RegisterError> {
        let prefix = self.settings.prefix.as_ref().map(|it| format!("{it}/")).unwrap_or_default();
        let most = (MOST_LISTED * 4).to_string();
        let query = [
            ("list-type", "2"),
            ("delimiter", "/"),
            ("prefix", prefix.as_str()),
            ("max-keys", most.as_str()),
        ];
        let answer =
            self.request(Method::GET, Place::Bucket, &query, HeaderMap::new(), Vec::new()).await?;
        let elements = Elements::read(&answer.body).unwrap_or_default();
        let keys = elements.texts("Key").filter_map(|it| it.strip_prefix(&prefix));
        Ok(register::elections(keys))
    }
}

#[async_trait]
impl Register for Bucket {
    fn kind(&self) -> &'static str {
        "s3"
    }

    fn place(&self, slot: Slot) -> String {
        self.named(Place::Object(&self.key(slot)))
    }

    fn answered(&self) -> String {
        let scheme = if self.settings.tls.is_some() { "TLS" } else { "plain HTTP" };
        format!("{} answered over {scheme}, region {}", self.server, self.settings.region)
    }

    fn credential(&self) -> Option<String> {
        let how = match &self.settings.credential {
            AwsCredential::Keys { .. } => "AWS_ACCESS_KEY_ID".to_owned(),
            AwsCredential::Profile { name, .. } => format!("the profile {name}"),
            AwsCredential::WebIdentity { role, .. } => format!("the role {role}"),
            AwsCredential::Container { .. } => "the role of this task or pod".to_owned(),
            AwsCredential::Machine { .. } => "the role of this machine".to_owned(),
        };
        Some(format!("the key {} of {how}", self.keys.known()?.id))
    }

    fn trials(&self) -> Trials {
        Trials::InARace
    }

    async fn get(&self, slot: Slot) -> Result<Option<Tagged>, RegisterError> {
        let key = self.key(slot);
        let place = Place::Object(&key);
        match self.request(Method::GET, place, &[], HeaderMap::new(), Vec::new()).await {
            Ok(Answer { headers, body }) => {
                let (tag, date) = (self.tag(&headers)?, client::date(&headers));
                Ok(Some(Tagged { tag, body: Body::decode(&body), date }))
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
        let outcome = match (self.write(slot, condition, body).await, condition) {
            (Err(RegisterError::Condition(why)), If::Tagged(tag)) => {
                let asked = self.write_unquoted(slot, tag, body, why);
                in_time(self.settings.request_timeout, &self.server, asked).await
            }
            (outcome, _) => outcome,
        };
        match outcome {
            Ok(written) => Ok(Some(written)),
            Err(RegisterError::Condition(_)) => Ok(None),
            // An object that was deleted has no state that a condition could name.
            Err(RegisterError::Missing(_)) if condition != If::Absent => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn reports(&self) -> &'static str {
        "; public reports of such servers: seaweedfs#8800, rustfs#1659 and versitygw#2288 (atomicity), slatedb#1818 \
         (refusals)"
    }

    async fn others(&self) -> Option<Vec<String>> {
        // The right to list is one that nothing else needs.
        self.elections().await.ok()
    }

    async fn examine(&self) -> Vec<Finding> {
        doctor::examine(self).await
    }
}

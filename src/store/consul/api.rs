//! The requests to Consul's HTTP API.
//!
//! Reads that decide are consistent: the leader confirms with a quorum that it still leads. No redirect is
//! followed, no proxy is used, and no error has a URL.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use time::OffsetDateTime;

use super::errors::{self, broken};
use super::token;
use super::wire::{Done, Entry, Txn, Undone};
use crate::config::ConsulSettings;
use crate::http::client::{self, BodyError};
use crate::store::client::{StoreClient, date};
use crate::store::network::in_time;
use crate::store::register::RegisterError;
use crate::store::renewed::Renewed;
use crate::store::turns::{Turn, Turns};

/// The longest answer that is read. The values here have some hundred bytes.
const LONGEST_ANSWER: usize = 1024 * 1024;

const TOKEN: HeaderName = HeaderName::from_static("x-consul-token");
const INDEX: HeaderName = HeaderName::from_static("x-consul-index");

/// The answer to a blocking query.
pub(super) struct Waited {
    pub(super) entry: Option<Entry>,
    /// The index to wait from next.
    pub(super) index: u64,
}

/// A client of one cluster.
pub(super) struct Api {
    servers: Turns,
    /// The same for watches.
    watched: Turns,
    client: StoreClient,
    token: Option<Renewed<HeaderValue>>,
    /// The bound on one request.
    bound: Duration,
}

impl Api {
    /// Creates a client. Sends no request yet.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub(super) fn open(settings: &ConsulSettings, bound: Duration) -> anyhow::Result<Self> {
        Ok(Self {
            servers: Turns::new(settings.servers.clone()),
            watched: Turns::new(settings.servers.clone()),
            client: StoreClient::open(settings.tls.as_ref(), bound)?,
            token: settings.token.as_ref().map(|it| token::open(it, bound)),
            bound,
        })
    }

    /// Begins a call.
    pub(super) fn call(&self) -> Call<'_> {
        Call { api: self, turn: self.servers.turn(), date: None }
    }

    /// Begins a query of a watch.
    pub(super) fn watch(&self) -> Call<'_> {
        Call { api: self, turn: self.watched.turn(), date: None }
    }

    /// Begins a call to the server of this number.
    pub(super) fn call_to(&self, at: usize) -> Call<'_> {
        Call { api: self, turn: self.servers.turn_of(at), date: None }
    }
}

/// A number of requests, one after the other, to one server or agent.
pub(super) struct Call<'a> {
    api: &'a Api,
    turn: Turn<'a>,
    /// The date of the last answer by the server's clock.
    pub(super) date: Option<OffsetDateTime>,
}

impl Call<'_> {
    /// Reads a key, as a quorum has it now.
    pub(super) async fn get(&mut self, key: &str) -> Result<Option<Entry>, RegisterError> {
        self.present(key).await.map(|it| it.entry)
    }

    /// Reads a key, as a quorum has it now, with the index to wait from.
    pub(super) async fn present(&mut self, key: &str) -> Result<Waited, RegisterError> {
        let got = self.request(Method::GET, &format!("kv/{key}"), "consistent", None).await?;
        self.entry(key, &got)
    }

    /// Waits until a key is written after this index, or for this long, and a sixteenth longer as the server
    /// draws it.
    pub(super) async fn wait(
        &mut self,
        key: &str,
        index: u64,
        time: Duration,
    ) -> Result<Waited, RegisterError> {
        self.turn.set_answered(false);
        let (query, path) =
            (format!("index={index}&wait={}s", time.as_secs()), format!("kv/{key}"));
        let (bound, server) = (time + time / 16 + self.api.bound, self.turn.name());
        let got = in_time(bound, server, self.send(Method::GET, &path, &query, None)).await?;
        self.entry(key, &got)
    }

    /// Lists what follows the prefix in the keys, up to the next slash.
    pub(super) async fn list(&mut self, prefix: &str) -> Result<Vec<String>, RegisterError> {
        let query = "keys&separator=/";
        let got = self.request(Method::GET, &format!("kv/{prefix}"), query, None).await?;
        match got.status {
            StatusCode::NOT_FOUND => Ok(Vec::new()),
            _ => self.success(&got),
        }
    }

    /// Performs all operations in one step, or none of them. Returns the index that the first key has then, or
    /// `None` if it is not as its condition says.
    pub(super) async fn txn(&mut self, operations: &[Value]) -> Result<Option<u64>, RegisterError> {
        let body = Value::from(operations);
        let got = self.request(Method::PUT, "txn", "", Some(&body)).await?;
        if got.status == StatusCode::CONFLICT {
            let answer: Txn = self.decode(&got)?;
            return self.undone(&answer.errors.unwrap_or_default()).map(|()| None);
        }
        let answer: Txn = self.success(&got)?;
        let written = written(operations, &answer.results.unwrap_or_default());
        match written.filter(|_| answer.errors.is_none_or(|it| it.is_empty())) {
            Some(index) => Ok(Some(index)),
            None => Err(self.invalid("answered a transaction with what it was not asked for")),
        }
    }

    /// Returns why a transaction was not performed, unless it is for its condition.
    fn undone(&self, errors: &[Undone]) -> Result<(), RegisterError> {
        match errors {
            [Undone { op_index: 0, what }] if what.contains("index is stale") => Ok(()),
            [Undone { what, .. }, ..] if is_denied(what) => {
                self.distrust();
                Err(errors::refused(403, what.as_bytes(), self.server()))
            }
            errors => {
                let what = errors.first().map_or("", |it| it.what.as_str());
                Err(errors::refused(500, what.as_bytes(), self.server()))
            }
        }
    }

    /// Asks for what needs no leader.
    pub(super) async fn ask<T: DeserializeOwned>(
        &mut self,
        path: &str,
    ) -> Result<T, RegisterError> {
        let got = self.request(Method::GET, path, "", None).await?;
        self.success(&got)
    }

    /// Returns host and port of the server.
    pub(super) fn server(&self) -> &str {
        self.turn.name()
    }

    /// Sends a request and reads the answer, within request-timeout.
    async fn request(
        &mut self,
        method: Method,
        path: &str,
        query: &str,
        body: Option<&Value>,
    ) -> Result<Got, RegisterError> {
        self.turn.set_answered(false);
        let (bound, server) = (self.api.bound, self.turn.name());
        in_time(bound, server, self.send(method, path, query, body)).await
    }

    /// Sends a request and reads the answer, for as long as that takes.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        query: &str,
        body: Option<&Value>,
    ) -> Result<Got, RegisterError> {
        let outcome = self.exchange(method, path, query, body).await;
        self.turn.answered(&outcome);
        if let Ok(Got { date: Some(date), .. }) = &outcome {
            self.date = Some(*date);
        }
        outcome
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        query: &str,
        body: Option<&Value>,
    ) -> Result<Got, RegisterError> {
        let client = self.api.client.current().await;
        let client = client.map_err(RegisterError::no_client)?;
        let mut url = self.turn.url();
        url.set_path(&format!("/v1/{path}"));
        url.set_query(Some(query).filter(|it| !it.is_empty()));
        let mut request = client.request(method, url);
        if let Some(token) = &self.api.token {
            let token = token.current().await;
            let token = token.map_err(|error| RegisterError::no_credential(error.to_string()))?;
            request = request.header(TOKEN, token.as_ref().clone());
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let answer = client.send(request).await.map_err(|error| broken(&error, self.server()))?;
        let status = answer.status();
        let index = answer.headers().get(INDEX).and_then(|it| it.to_str().ok()?.parse().ok());
        let date = date(answer.headers());
        let body = match self.body(answer).await {
            // A body that cannot be read says nothing; such a status does.
            Err(_) if !status.is_success() => Vec::new(),
            body => body?,
        };
        if matches!(status, StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) {
            self.distrust();
        }
        if status.is_server_error() {
            return Err(errors::refused(status.as_u16(), &body, self.server()));
        }
        Ok(Got { status, index, date, body })
    }

    /// Reads the token again for the next request, since this one was refused.
    fn distrust(&self) {
        if let Some(token) = &self.api.token {
            token.distrust();
        }
    }

    async fn body(&self, answer: Response) -> Result<Vec<u8>, RegisterError> {
        client::body(answer, LONGEST_ANSWER).await.map_err(|error| match error {
            BodyError::Broken(error) => broken(&error, self.server()),
            BodyError::TooLong => RegisterError::Invalid(format!(
                "the answer of {} is longer than {LONGEST_ANSWER} bytes",
                self.server()
            )),
        })
    }

    /// Reads the one key that was asked for. Only Consul's own answer says that there is none.
    fn entry(&self, key: &str, got: &Got) -> Result<Waited, RegisterError> {
        let entry = match got.status {
            StatusCode::NOT_FOUND if got.index.is_some() => None,
            _ => {
                let mut found: Vec<Entry> = self.success(got)?;
                match found.pop() {
                    Some(it) if it.key == key && found.is_empty() => Some(it),
                    _ => {
                        return Err(self.invalid("answered with another key than it was asked for"));
                    }
                }
            }
        };
        let index = got.index.ok_or_else(|| self.invalid("sent no index"))?;
        Ok(Waited { entry, index })
    }

    fn success<T: DeserializeOwned>(&self, got: &Got) -> Result<T, RegisterError> {
        if !got.status.is_success() {
            return Err(errors::refused(got.status.as_u16(), &got.body, self.server()));
        }
        self.decode(got)
    }

    fn decode<T: DeserializeOwned>(&self, got: &Got) -> Result<T, RegisterError> {
        serde_json::from_slice(&got.body).map_err(|_| {
            self.invalid("did not answer as Consul does: check the address in --store")
        })
    }

    fn invalid(&self, what: &str) -> RegisterError {
        RegisterError::Invalid(format!("{} {what}", self.server()))
    }
}

/// An answer with its body.
struct Got {
    status: StatusCode,
    index: Option<u64>,
    date: Option<OffsetDateTime>,
    body: Vec<u8>,
}

/// Returns whether an operation of a transaction was refused for its rights.
fn is_denied(what: &str) -> bool {
    what.contains("Permission denied") || what.contains("ACL not found")
}

/// Returns the index of the first key after a transaction, if the results are of these operations, each of the
/// same key; a deletion has none.
pub(super) fn written(operations: &[Value], results: &[Done]) -> Option<u64> {
    let told = operations.iter().map(|it| &it["KV"]).filter(|it| it["Verb"] != "delete");
    let told: Vec<_> = told.collect();
    let of = |(asked, result): (&&Value, &Done)| {
        let index = |it: &Entry| {
            let after = asked["Index"].as_u64().unwrap_or_default();
            (asked["Key"] == it.key.as_str() && it.modify_index > after).then_some(it.modify_index)
        };
        result.kv.as_ref().and_then(index)
    };
    let indexes: Option<Vec<u64>> = told.iter().zip(results).map(of).collect();
    let indexes = indexes.filter(|it| it.len() == told.len() && told.len() == results.len())?;
    Some(indexes.first().copied().unwrap_or_default())
}

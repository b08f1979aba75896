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
use uuid::Uuid;

use super::errors::{self, ConsulError, broken};
use super::token;
use super::wire::{self, Created, Entry, Session, Txn, Undone};
use crate::config::ConsulSettings;
use crate::http::client::{self, BodyError};
use crate::store::client::{StoreClient, date};
use crate::store::network::in_time;
use crate::store::renewed::Renewed;
use crate::store::turns::{Turn, Turns};

/// The longest answer that is read. The values here have some hundred bytes.
const LONGEST_ANSWER: usize = 1024 * 1024;

const TOKEN: HeaderName = HeaderName::from_static("x-consul-token");
const INDEX: HeaderName = HeaderName::from_static("x-consul-index");

/// The outcome of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// Everything was done.
    Done,
    /// Nothing was, since the key is not as it was read.
    Not,
    /// Nothing was, since Consul keeps the lock of a session that has ended from others.
    Delayed,
}

/// The answer to a blocking query.
pub(super) struct Waited {
    pub(super) entry: Option<Entry>,
    /// The index to wait from next.
    pub(super) index: u64,
}

/// A client of one cluster.
pub(super) struct Api {
    servers: Turns,
    client: StoreClient,
    token: Option<Renewed<HeaderValue>>,
    timeout: Duration,
}

impl Api {
    /// Creates a client. Sends no request yet.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub(super) fn open(settings: &ConsulSettings, timeout: Duration) -> anyhow::Result<Self> {
        Ok(Self {
            servers: Turns::new(settings.servers.clone()),
            client: StoreClient::open(settings.tls.as_ref(), timeout)?,
            token: settings.token.as_ref().map(|it| token::open(it, timeout)),
            timeout,
        })
    }

    /// Begins a call.
    pub(super) fn call(&self) -> Call<'_> {
        Call { api: self, turn: self.servers.turn(), date: None }
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
    pub(super) async fn get(&mut self, key: &str) -> Result<Option<Entry>, ConsulError> {
        let got = self.request(Method::GET, &format!("kv/{key}"), "consistent", None).await?;
        self.entry(key, &got).map(|it| it.entry)
    }

    /// Waits until a key is written after this index, or for this long.
    pub(super) async fn wait(
        &mut self,
        key: &str,
        index: u64,
        time: Duration,
    ) -> Result<Waited, ConsulError> {
        let query = format!("index={index}&wait={}s", time.as_secs());
        let got = self.send(Method::GET, &format!("kv/{key}"), &query, None).await?;
        self.entry(key, &got)
    }

    /// Lists what follows the prefix in the keys, up to the next slash.
    pub(super) async fn list(&mut self, prefix: &str) -> Result<Vec<String>, ConsulError> {
        let query = "keys&separator=/";
        let got = self.request(Method::GET, &format!("kv/{prefix}"), query, None).await?;
        match got.status {
            StatusCode::NOT_FOUND => Ok(Vec::new()),
            _ => self.success(&got),
        }
    }

    /// Creates a session.
    pub(super) async fn create_session(
        &mut self,
        name: &str,
        ttl: Duration,
    ) -> Result<Uuid, ConsulError> {
        let body = wire::session(name, ttl);
        let created: Created = self.put("session/create", Some(&body)).await?;
        Ok(created.id)
    }

    /// Counts the TTL of a session anew; returns whether there is such a session, as far as the server knows.
    pub(super) async fn renew_session(&mut self, session: Uuid) -> Result<bool, ConsulError> {
        let path = format!("session/renew/{session}");
        let got = self.request(Method::PUT, &path, "", None).await?;
        if got.status == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        let renewed: Vec<Session> = self.success(&got)?;
        match renewed.as_slice() {
            [it] if it.id == session => Ok(true),
            _ => Err(self.invalid("renewed another session than it was asked for")),
        }
    }

    /// Reads a session.
    pub(super) async fn session(&mut self, session: Uuid) -> Result<Option<Session>, ConsulError> {
        let path = format!("session/info/{session}");
        let got = self.request(Method::GET, &path, "consistent", None).await?;
        let found: Vec<Session> = self.success(&got)?;
        Ok(found.into_iter().find(|it| it.id == session))
    }

    /// Ends a session, which frees what it has locked.
    pub(super) async fn destroy_session(&mut self, session: Uuid) -> Result<(), ConsulError> {
        self.put::<bool>(&format!("session/destroy/{session}"), None).await.map(drop)
    }

    /// Ends a session that has locked nothing. It would end by itself too.
    pub(super) async fn tidy_up(&mut self, session: Uuid) {
        if let Err(error) = self.destroy_session(session).await {
            tracing::debug!("a session of Consul is left to end by itself: {error}");
        }
    }

    /// Performs all operations in one step, or none of them.
    pub(super) async fn txn(&mut self, operations: &[Value]) -> Result<Changed, ConsulError> {
        let body = Value::from(operations);
        let got = self.request(Method::PUT, "txn", "", Some(&body)).await?;
        if got.status == StatusCode::CONFLICT {
            let answer: Txn = self.decode(&got)?;
            return self.undone(&answer.errors.unwrap_or_default());
        }
        let answer: Txn = self.success(&got)?;
        let results = answer.results.unwrap_or_default();
        let unlike = || self.invalid("answered a transaction with what it was not asked for");
        if answer.errors.is_some_and(|it| !it.is_empty()) || !is_of(operations, &results) {
            return Err(unlike());
        }
        Ok(Changed::Done)
    }

    /// Returns why a transaction was not performed.
    fn undone(&self, errors: &[Undone]) -> Result<Changed, ConsulError> {
        const NOT_AS_READ: [&str; 5] = [
            "current modify index",
            "doesn't exist",
            "exists",
            "is already held",
            "isn't held, or is held by another session",
        ];
        let is = |words: &str| errors.iter().any(|it| it.what.contains(words));
        let (what, server) = (errors.first().map_or("", |it| it.what.as_str()), self.server());
        if let Some(denied) = errors.iter().find(|it| is_denied(&it.what)) {
            self.distrust();
            return Err(errors::refused(403, denied.what.as_bytes(), server));
        }
        match () {
            () if is("due to lock delay") => Ok(Changed::Delayed),
            // A session that is needed has ended.
            () if is("invalid session") || NOT_AS_READ.iter().any(|it| is(it)) => Ok(Changed::Not),
            () => Err(errors::refused(500, what.as_bytes(), server)),
        }
    }

    /// Sends a request that changes something, and reads the answer to it.
    pub(super) async fn put<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, ConsulError> {
        let got = self.request(Method::PUT, path, "", body).await?;
        self.success(&got)
    }

    /// Asks for what needs no leader.
    pub(super) async fn ask<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, ConsulError> {
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
    ) -> Result<Got, ConsulError> {
        self.turn.set_answered(false);
        let (bound, server) = (self.api.timeout, self.turn.name());
        in_time(bound, server, self.send(method, path, query, body)).await
    }

    /// Sends a request and reads the answer, for as long as that takes.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        query: &str,
        body: Option<&Value>,
    ) -> Result<Got, ConsulError> {
        let outcome = self.exchange(method, path, query, body).await;
        let is_answered = match &outcome {
            Ok(got) => !got.status.is_server_error(),
            Err(error) => error.is_an_answer(),
        };
        self.turn.set_answered(is_answered);
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
    ) -> Result<Got, ConsulError> {
        let client = self.api.client.current().await;
        let client = client.map_err(|why| ConsulError::Files(why.to_owned()))?;
        let mut url = self.turn.url();
        url.set_path(&format!("/v1/{path}"));
        url.set_query(Some(query).filter(|it| !it.is_empty()));
        let mut request = client.request(method, url);
        if let Some(token) = &self.api.token {
            let token = token.current().await;
            let token = token.map_err(|error| ConsulError::Token(error.to_string()))?;
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
        Ok(Got { status, index, date, body })
    }

    /// Reads the token again for the next request, since this one was refused.
    fn distrust(&self) {
        if let Some(token) = &self.api.token {
            token.distrust();
        }
    }

    async fn body(&self, answer: Response) -> Result<Vec<u8>, ConsulError> {
        client::body(answer, LONGEST_ANSWER).await.map_err(|error| match error {
            BodyError::Broken(error) => broken(&error, self.server()),
            BodyError::TooLong => ConsulError::Invalid(format!(
                "the answer of {} is longer than {LONGEST_ANSWER} bytes",
                self.server()
            )),
        })
    }

    /// Reads the one key that was asked for. Only Consul's own answer says that there is none.
    fn entry(&self, key: &str, got: &Got) -> Result<Waited, ConsulError> {
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

    fn success<T: DeserializeOwned>(&self, got: &Got) -> Result<T, ConsulError> {
        if !got.status.is_success() {
            return Err(errors::refused(got.status.as_u16(), &got.body, self.server()));
        }
        self.decode(got)
    }

    fn decode<T: DeserializeOwned>(&self, got: &Got) -> Result<T, ConsulError> {
        serde_json::from_slice(&got.body).map_err(|_| {
            self.invalid("did not answer as Consul does: check the address in --store")
        })
    }

    fn invalid(&self, what: &str) -> ConsulError {
        ConsulError::Invalid(format!("{} {what}", self.server()))
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

/// Returns whether the results are of these operations, each of the same key, and locked as it was asked for.
fn is_of(operations: &[Value], results: &[wire::Done]) -> bool {
    let of = |operation: &Value, result: &wire::Done| {
        let asked = &operation["KV"];
        result.kv.as_ref().is_some_and(|it| {
            asked["Key"] == it.key.as_str()
                && (asked["Verb"] != "lock" || asked["Session"].as_str() == it.session.as_deref())
        })
    };
    // Neither a deletion nor the check that there is no key has a result.
    let is_silent =
        |it: &&Value| matches!(it["KV"]["Verb"].as_str(), Some("delete" | "check-not-exists"));
    let told: Vec<_> = operations.iter().filter(|it| !is_silent(it)).collect();
    told.len() == results.len() && told.iter().zip(results).all(|(asked, result)| of(asked, result))
}

//! The requests to etcd's JSON gateway.
//!
//! All requests of one [`Call`] go to one member. If the member does not answer the last of them, the
//! next call goes to the next member; nothing is repeated within a call but a request that was refused
//! for its token, since nothing was done then. No redirect is followed, no proxy is used, and no error
//! has a URL.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::access::{Access, Credentials, Login};
use super::errors::{self, broken};
use super::wire::{Answer, Header, Range, SignedIn, Txn};
use crate::config::EtcdSettings;
use crate::http::client::{self, BodyError};
use crate::store::client::date;
use crate::store::network::in_time;
use crate::store::register::RegisterError;
use crate::store::turns::{Turn, Turns};

/// The longest answer, or line of a watch, that is read. The values here have some hundred bytes.
pub(super) const LONGEST_ANSWER: usize = 1024 * 1024;

/// A client of one cluster.
pub(super) struct Gateway {
    members: Turns,
    /// The same for watches.
    watched: Turns,
    access: Access,
    /// The bound on one request.
    pub(super) bound: Duration,
}

impl Gateway {
    /// Creates a client. Sends no request yet.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub(super) fn open(settings: &EtcdSettings, bound: Duration) -> anyhow::Result<Self> {
        let access = Access::open(settings)?;
        let turns = || Turns::new(settings.members.clone());
        Ok(Self { members: turns(), watched: turns(), access, bound })
    }

    /// Begins a call.
    pub(super) fn call(&self) -> Call<'_> {
        Call { gateway: self, turn: self.members.turn(), date: None }
    }

    /// Begins a call to the member of this number.
    pub(super) fn call_to(&self, at: usize) -> Call<'_> {
        Call { gateway: self, turn: self.members.turn_of(at), date: None }
    }

    /// Begins a watch.
    pub(super) fn watch(&self) -> Call<'_> {
        Call { gateway: self, turn: self.watched.turn(), date: None }
    }

    /// Returns the member of this number, which a watch is on.
    pub(super) fn turn_of_watch(&self, at: usize) -> Turn<'_> {
        self.watched.turn_of(at)
    }
}

/// A number of requests, one after the other, to one member.
pub(super) struct Call<'a> {
    gateway: &'a Gateway,
    turn: Turn<'a>,
    /// The date of the last answer by the member's clock.
    pub(super) date: Option<OffsetDateTime>,
}

impl Call<'_> {
    /// Reads the keys of a range, as a quorum has them now.
    pub(super) async fn range(&mut self, range: &Value) -> Result<(Header, Range), RegisterError> {
        self.request("kv/range", range).await
    }

    /// Performs changes if all comparisons hold, in one step.
    pub(super) async fn txn(
        &mut self,
        compare: &[Value],
        changes: &[Value],
    ) -> Result<(Header, Txn), RegisterError> {
        self.request("kv/txn", &json!({"compare": compare, "success": changes})).await
    }

    /// Returns the version of the member, which it tells everyone.
    pub(super) async fn version(&mut self) -> Result<String, RegisterError> {
        self.turn.set_answered(false);
        let asked = async {
            let client = self.gateway.access.client().await?;
            let mut url = self.turn.url();
            url.set_path("/version");
            let answer = client.send(client.request(Method::GET, url)).await;
            let answer = answer.map_err(|error| broken(&error, self.member()))?;
            let Told { etcdserver } = self.decode(&self.body(answer).await?)?;
            Ok(etcdserver)
        };
        let outcome = self.in_time(asked).await;
        self.turn.answered(&outcome);
        outcome
    }

    /// Sends a request and reads the answer, within request-timeout.
    pub(super) async fn request<T: DeserializeOwned>(
        &mut self,
        path: &'static str,
        body: &Value,
    ) -> Result<(Header, T), RegisterError> {
        self.turn.set_answered(false);
        let asked = async {
            let answer = self.sent(path, body).await?;
            let date = date(answer.headers());
            let Answer { header, rest } = self.decode(&self.body(answer).await?)?;
            Ok(((header, rest), date))
        };
        let outcome = self.in_time(asked).await;
        self.turn.answered(&outcome);
        outcome.map(|(answer, date)| {
            self.date = date;
            answer
        })
    }

    /// Sends a request and returns the answer after its head has arrived, within request-timeout.
    pub(super) async fn open_stream(
        &mut self,
        path: &'static str,
        body: &Value,
    ) -> Result<Response, RegisterError> {
        self.turn.set_answered(false);
        let outcome = self.in_time(self.sent(path, body)).await;
        self.turn.answered(&outcome);
        outcome
    }

    /// Returns the number of the member.
    pub(super) fn at(&self) -> usize {
        self.turn.at()
    }

    /// Returns host and port of the member.
    pub(super) fn member(&self) -> &str {
        self.turn.name()
    }

    async fn in_time<T>(
        &self,
        asked: impl Future<Output = Result<T, RegisterError>>,
    ) -> Result<T, RegisterError> {
        in_time(self.gateway.bound, self.member(), asked).await
    }

    /// Sends a request with a token, where a user is set; signs in first if there is none, and once
    /// more if the server does not know it.
    async fn sent(&self, path: &str, body: &Value) -> Result<Response, RegisterError> {
        let access = &self.gateway.access;
        let mut known = access.credentials().await?;
        let is_fresh = self.sign_in(&mut known).await?;
        match self.post(&known, path, body).await {
            Err(RegisterError::Credential(why)) => {
                access.distrust(known.token.as_ref());
                let mut again = access.credentials().await?;
                // A user that has just signed in, or none, gains nothing by another attempt.
                if is_fresh || again.login.is_none() {
                    return Err(RegisterError::Credential(why));
                }
                self.sign_in(&mut again).await?;
                self.post(&again, path, body).await
            }
            outcome => outcome,
        }
    }

    /// Signs in, if there is a login and no token yet; returns whether it did.
    async fn sign_in(&self, known: &mut Credentials) -> Result<bool, RegisterError> {
        let Some(login) = known.login.take() else { return Ok(false) };
        let access = &self.gateway.access;
        let token = match self.token(known, &login).await {
            Ok(token) => Some(token),
            // There are no users.
            Err(RegisterError::Missing(_)) => None,
            Err(error) => {
                // The password may have been replaced meanwhile.
                access.distrust(None);
                return Err(error);
            }
        };
        known.token.clone_from(&token);
        access.signed_in(login, token);
        Ok(true)
    }

    async fn token(
        &self,
        known: &Credentials,
        login: &Login,
    ) -> Result<HeaderValue, RegisterError> {
        let body = json!({"name": login.name, "password": login.password});
        let answer = self.post(known, "auth/authenticate", &body).await?;
        let read = self.body(answer).await?;
        let Answer { rest: SignedIn { token }, .. } = self.decode(&read)?;
        let unfit = |_| RegisterError::Invalid(format!("{} gave an unusable token", self.member()));
        let mut token = HeaderValue::try_from(token).map_err(unfit)?;
        token.set_sensitive(true);
        Ok(token)
    }

    async fn post(
        &self,
        known: &Credentials,
        path: &str,
        body: &Value,
    ) -> Result<Response, RegisterError> {
        let mut url = self.turn.url();
        url.set_path(&format!("/v3/{path}"));
        let mut request =
            known.client.request(Method::POST, url).header(CONTENT_TYPE, "application/json");
        if let Some(token) = &known.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        let request = request.body(body.to_string());
        let answer =
            known.client.send(request).await.map_err(|error| broken(&error, self.member()))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        // A body that cannot be read says nothing; the status does.
        let body = self.body(answer).await.unwrap_or_default();
        Err(errors::refused(status.as_u16(), &body, self.member()))
    }

    async fn body(&self, answer: Response) -> Result<Vec<u8>, RegisterError> {
        client::body(answer, LONGEST_ANSWER).await.map_err(|error| match error {
            BodyError::Broken(error) => broken(&error, self.member()),
            BodyError::TooLong => RegisterError::Invalid(format!(
                "the answer of {} is longer than {LONGEST_ANSWER} bytes",
                self.member()
            )),
        })
    }

    fn decode<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, RegisterError> {
        serde_json::from_slice(body).map_err(|_| {
            RegisterError::Invalid(format!(
                "{} did not answer as etcd does: check the address in --store",
                self.member()
            ))
        })
    }
}

/// The versions that a member tells.
#[derive(Deserialize)]
struct Told {
    etcdserver: String,
}

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
use super::errors::{self, EtcdError, broken};
use super::wire::{LeaseAnswer, Plain, Range, SignedIn, Txn};
use crate::config::EtcdSettings;
use crate::http::client::{self, BodyError};
use crate::store::client::date;
use crate::store::network::in_time;
use crate::store::turns::{Turn, Turns};

/// The longest answer, or line of a watch, that is read. The values here have some hundred bytes.
pub(super) const LONGEST_ANSWER: usize = 1024 * 1024;

/// A client of one cluster.
pub(super) struct Gateway {
    members: Turns,
    access: Access,
    timeout: Duration,
}

impl Gateway {
    /// Creates a client. Sends no request yet.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub(super) fn open(settings: &EtcdSettings, timeout: Duration) -> anyhow::Result<Self> {
        let access = Access::open(settings)?;
        Ok(Self { members: Turns::new(settings.members.clone()), access, timeout })
    }

    /// Begins a call.
    pub(super) fn call(&self) -> Call<'_> {
        Call { gateway: self, turn: self.members.turn(), date: None }
    }

    /// Begins a call to the member of this number.
    pub(super) fn call_to(&self, at: usize) -> Call<'_> {
        Call { gateway: self, turn: self.members.turn_of(at), date: None }
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
    pub(super) async fn range(&mut self, range: &Value) -> Result<Range, EtcdError> {
        self.request("kv/range", range).await
    }

    /// Performs `success` if all comparisons hold, else `failure`, in one step.
    pub(super) async fn txn(
        &mut self,
        compare: &[Value],
        success: &[Value],
        failure: &[Value],
    ) -> Result<Txn, EtcdError> {
        let body = json!({"compare": compare, "success": success, "failure": failure});
        self.request("kv/txn", &body).await
    }

    /// Grants a lease of this many seconds, or more if the server has a longer minimum.
    pub(super) async fn grant(&mut self, lease: i64, ttl: i64) -> Result<LeaseAnswer, EtcdError> {
        let body = json!({"ID": lease.to_string(), "TTL": ttl.to_string()});
        self.request("lease/grant", &body).await
    }

    /// Returns how long a lease lasts, in whole seconds, rounded down.
    pub(super) async fn time_to_live(&mut self, lease: i64) -> Result<LeaseAnswer, EtcdError> {
        self.request("lease/timetolive", &json!({"ID": lease.to_string()})).await
    }

    /// Ends a lease, which deletes its keys.
    pub(super) async fn revoke(&mut self, lease: i64) -> Result<(), EtcdError> {
        let body = json!({"ID": lease.to_string()});
        self.request::<Plain>("lease/revoke", &body).await.map(drop)
    }

    /// Returns the version of the member, which it tells everyone.
    pub(super) async fn version(&mut self) -> Result<String, EtcdError> {
        self.turn.set_answered(false);
        let asked = async {
            let known = self.gateway.access.credentials().await?;
            let mut url = self.turn.url();
            url.set_path("/version");
            let answer = known.client.send(known.client.request(Method::GET, url)).await;
            let answer = answer.map_err(|error| broken(&error, self.member()))?;
            let Told { etcdserver } = self.decode(&self.body(answer).await?)?;
            Ok(etcdserver)
        };
        let outcome = self.in_time(asked).await;
        self.turn.set_answered(is_answer(&outcome));
        outcome
    }

    /// Sends a request and reads the answer, within request-timeout.
    pub(super) async fn request<T: DeserializeOwned>(
        &mut self,
        path: &'static str,
        body: &Value,
    ) -> Result<T, EtcdError> {
        self.turn.set_answered(false);
        let asked = async {
            let answer = self.sent(path, body).await?;
            let date = date(answer.headers());
            Ok((self.decode(&self.body(answer).await?)?, date))
        };
        let outcome = self.in_time(asked).await;
        self.turn.set_answered(is_answer(&outcome));
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
    ) -> Result<Response, EtcdError> {
        self.turn.set_answered(false);
        let outcome = self.in_time(self.sent(path, body)).await;
        self.turn.set_answered(is_answer(&outcome));
        outcome
    }

    /// Returns host and port of the member.
    pub(super) fn member(&self) -> &str {
        self.turn.name()
    }

    async fn in_time<T>(
        &self,
        asked: impl Future<Output = Result<T, EtcdError>>,
    ) -> Result<T, EtcdError> {
        in_time(self.gateway.timeout, self.member(), asked).await
    }

    /// Sends a request with a token, where a user is set; signs in first if there is none, and once
    /// more if the server does not know it.
    async fn sent(&self, path: &str, body: &Value) -> Result<Response, EtcdError> {
        let access = &self.gateway.access;
        let mut known = access.credentials().await?;
        let is_fresh = self.sign_in(&mut known).await?;
        match self.post(&known, path, body).await {
            Err(EtcdError::Token(why)) => {
                access.distrust(known.token.as_ref());
                let mut again = access.credentials().await?;
                // A user that has just signed in, or none, gains nothing by another attempt.
                if is_fresh || again.login.is_none() {
                    return Err(EtcdError::Token(why));
                }
                self.sign_in(&mut again).await?;
                self.post(&again, path, body).await
            }
            outcome => outcome,
        }
    }

    /// Signs in, if there is a login and no token yet; returns whether it did.
    async fn sign_in(&self, known: &mut Credentials) -> Result<bool, EtcdError> {
        let Some(login) = known.login.take() else { return Ok(false) };
        let access = &self.gateway.access;
        let token = match self.token(known, &login).await {
            Ok(token) => Some(token),
            Err(EtcdError::NoAuthentication(_)) => None,
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

    async fn token(&self, known: &Credentials, login: &Login) -> Result<HeaderValue, EtcdError> {
        let body = json!({"name": login.name, "password": login.password});
        let answer = self.post(known, "auth/authenticate", &body).await?;
        let read = self.body(answer).await?;
        let SignedIn { token, .. } = self.decode(&read)?;
        let unfit = |_| EtcdError::Invalid(format!("{} gave an unusable token", self.member()));
        let mut token = HeaderValue::try_from(token).map_err(unfit)?;
        token.set_sensitive(true);
        Ok(token)
    }

    async fn post(
        &self,
        known: &Credentials,
        path: &str,
        body: &Value,
    ) -> Result<Response, EtcdError> {
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

    async fn body(&self, answer: Response) -> Result<Vec<u8>, EtcdError> {
        client::body(answer, LONGEST_ANSWER).await.map_err(|error| match error {
            BodyError::Broken(error) => broken(&error, self.member()),
            BodyError::TooLong => EtcdError::Invalid(format!(
                "the answer of {} is longer than {LONGEST_ANSWER} bytes",
                self.member()
            )),
        })
    }

    fn decode<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, EtcdError> {
        serde_json::from_slice(body).map_err(|_| {
            EtcdError::Invalid(format!(
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

/// Returns whether the member itself gave this answer, so that another would answer alike.
fn is_answer<T>(outcome: &Result<T, EtcdError>) -> bool {
    outcome.as_ref().map_or_else(EtcdError::is_an_answer, |_| true)
}

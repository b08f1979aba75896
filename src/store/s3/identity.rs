//! Services of the platform that give keys for a while: the Security Token Service for a token of
//! Kubernetes, the endpoint of a task in ECS or of a pod in EKS, the metadata service of a machine in
//! EC2. Each is asked once; `renewed` repeats it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use reqwest::{Method, RequestBuilder, Url};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::timeout;

use super::credential::Keys;
use super::xml::Elements;
use crate::config::{AwsCredential, StoreTls};
use crate::files::{SmallFile, reason};
use crate::http::client::{self, BodyError};
use crate::http::reconnecting::Reconnecting;
use crate::lease::text::is_printable;
use crate::lease::{Cause, Failure};
use crate::store::client::StoreClient;
use crate::store::query::query;
use crate::store::secret::Secret;

/// The longest time of a sign-in with the Security Token Service.
const BOUND: Duration = Duration::from_secs(20);

/// The longest time that an endpoint of this machine may take. It is on the machine, or there is none.
const MACHINE_BOUND: Duration = Duration::from_secs(5);

/// The longest time that a read of a token file may take.
const READ_BOUND: Duration = Duration::from_secs(5);

/// The largest token, and the longest answer, in bytes.
const LARGEST: usize = 64 * 1024;

/// For how long the token of the metadata service is asked for, in seconds: its longest.
const MACHINE_SESSION: &str = "21600";

/// The service, and what it is asked with.
pub(super) struct Identity {
    pub(super) client: StoreClient,
    source: IdentitySource,
}

enum IdentitySource {
    WebIdentity { token_file: PathBuf, role: String, session: String, endpoint: Url },
    Container { url: Url, token: Option<Secret> },
    Machine { endpoint: Url },
}

/// What the endpoints of tasks, pods and machines answer.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Given {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: String,
}

impl Identity {
    /// Prepares requests for a credential that such a service gives.
    ///
    /// # Errors
    /// Returns an error if the credential is of another kind, or no client can be made.
    pub(super) fn open(credential: &AwsCredential) -> anyhow::Result<Self> {
        let source = match credential.clone() {
            AwsCredential::WebIdentity { token_file, role, session, endpoint } => {
                IdentitySource::WebIdentity { token_file, role, session, endpoint }
            }
            AwsCredential::Container { url, token } => {
                IdentitySource::Container { url, token: token.as_ref().map(Secret::new) }
            }
            AwsCredential::Machine { endpoint } => IdentitySource::Machine { endpoint },
            AwsCredential::Keys { .. } | AwsCredential::Profile { .. } => {
                anyhow::bail!("keys that are given need no sign-in")
            }
        };
        let url = match &source {
            IdentitySource::WebIdentity { endpoint, .. } | IdentitySource::Machine { endpoint } => {
                endpoint
            }
            IdentitySource::Container { url, .. } => url,
        };
        let tls = (url.scheme() == "https").then_some(StoreTls { ca_file: None, own: None });
        Ok(Self { client: StoreClient::open(tls.as_ref(), BOUND)?, source })
    }

    /// Returns the way to sign in, in words.
    pub(super) fn name(&self) -> &'static str {
        match self.source {
            IdentitySource::WebIdentity { .. } => "the token of AWS_WEB_IDENTITY_TOKEN_FILE",
            IdentitySource::Container { .. } => "the role of this task or pod",
            IdentitySource::Machine { .. } => "the role of this machine",
        }
    }

    /// Asks for keys, once; returns when they expire too.
    pub(super) async fn fetch(&self) -> Result<(Keys, OffsetDateTime), Failure> {
        let bound = match self.source {
            IdentitySource::WebIdentity { .. } => BOUND,
            _ => MACHINE_BOUND,
        };
        let fetched = timeout(bound, self.ask()).await;
        let fetched =
            fetched.unwrap_or_else(|_| Err(format!("no answer within {} s", bound.as_secs())));
        fetched.map_err(|why| {
            let remedy = match self.source {
                IdentitySource::WebIdentity { .. } => {
                    "check AWS_ROLE_ARN, and that the role trusts this service account"
                }
                IdentitySource::Container { .. } => {
                    "check that the task or the service account of the pod has a role"
                }
                IdentitySource::Machine { .. } => {
                    "no other credential was found: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not \
                     set, there is no profile in ~/.aws/credentials, and no role by \
                     AWS_WEB_IDENTITY_TOKEN_FILE or AWS_CONTAINER_CREDENTIALS_RELATIVE_URI; set one of \
                     these, or give the machine a role, and containers on it a hop limit of 2"
                }
            };
            Failure::new(Cause::Auth, format!("sign-in with {} failed: {why}; {remedy}", self.name()))
        })
    }

    async fn ask(&self) -> Result<(Keys, OffsetDateTime), String> {
        let client = self.client.current().await?;
        match &self.source {
            IdentitySource::WebIdentity { token_file, role, session, endpoint } => {
                let token = token(token_file).await?;
                let body = query(&[
                    ("Action", "AssumeRoleWithWebIdentity"),
                    ("RoleArn", role),
                    ("RoleSessionName", session),
                    ("Version", "2011-06-15"),
                    ("WebIdentityToken", &token),
                ]);
                let request = client
                    .request(Method::POST, endpoint.clone())
                    .header("content-type", "application/x-www-form-urlencoded")
                    .header(ACCEPT, "application/xml")
                    .body(body);
                of_role(&answer(&client, request).await?)
            }
            IdentitySource::Container { url, token } => {
                let mut request = client.request(Method::GET, url.clone());
                if let Some(token) = token {
                    let token = token.read(READ_BOUND).await?;
                    let unfit = |_| "its token has characters that no header may have".to_owned();
                    request =
                        request.header(AUTHORIZATION, HeaderValue::try_from(token).map_err(unfit)?);
                }
                given(&answer(&client, request).await?)
            }
            IdentitySource::Machine { endpoint } => {
                let at = |path: &str| {
                    let mut url = endpoint.clone();
                    url.set_path(&format!("/latest/{path}"));
                    url
                };
                let asked = client
                    .request(Method::PUT, at("api/token"))
                    .header("x-aws-ec2-metadata-token-ttl-seconds", MACHINE_SESSION);
                let token = text(answer(&client, asked).await?)?;
                let get = |path: &str| {
                    client
                        .request(Method::GET, at(path))
                        .header("x-aws-ec2-metadata-token", token.as_str())
                };
                let roles = "meta-data/iam/security-credentials/";
                let role = text(answer(&client, get(roles)).await?)?;
                let role = role.lines().next().filter(|it| is_plain(it));
                let role = role.ok_or("this machine has no role")?;
                given(&answer(&client, get(&format!("{roles}{role}"))).await?)
            }
        }
    }
}

fn is_plain(role: &str) -> bool {
    !role.is_empty()
        && role.bytes().all(|it| it.is_ascii_alphanumeric() || b"+=,.@_-".contains(&it))
}

/// Reads the token of the platform, which replaces it before it expires.
async fn token(file: &Path) -> Result<String, String> {
    let fault = |why: &str| format!("failed to read the token file {}: {why}", file.display());
    let read = SmallFile::new(file, LARGEST as u64).read(READ_BOUND).await;
    let read = read.map_err(|error| fault(&reason(&error)))?;
    let text = String::from_utf8(read).map_err(|_| fault("it is not text"))?;
    Ok(text.trim().to_owned())
}

/// Sends a request; returns the body of an answer that is a success.
async fn answer(client: &Reconnecting, request: RequestBuilder) -> Result<Vec<u8>, String> {
    let answer = client.send(request).await.map_err(|error| client::reason(&error))?;
    let status = answer.status();
    let body = client::body(answer, LARGEST).await.map_err(|error| match error {
        BodyError::Broken(error) => client::reason(&error),
        BodyError::TooLong => "the answer is too long".to_owned(),
    })?;
    if status.is_success() {
        return Ok(body);
    }
    let elements = Elements::read(&body).unwrap_or_default();
    let words = [elements.text("Code"), elements.text("Message")];
    let words: String = words.into_iter().flatten().collect::<Vec<_>>().join(": ");
    let words: String = words.chars().filter(|it| is_printable(*it)).take(300).collect();
    Err(format!("the endpoint answered {} {words}", status.as_u16()).trim_end().to_owned())
}

fn text(body: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(body)
        .ok()
        .filter(|it| it.chars().all(|c| c.is_ascii_graphic() || c == '\n'));
    text.map(|it| it.trim().to_owned()).ok_or_else(|| "the answer is not text".to_owned())
}

/// Reads the answer of the Security Token Service.
pub(super) fn of_role(body: &[u8]) -> Result<(Keys, OffsetDateTime), String> {
    let elements = Elements::read(body).ok_or("the answer is not XML")?;
    let of = |name: &str| {
        let found = elements.text(name).map(str::to_owned);
        found.ok_or_else(|| format!("the answer has no {name}"))
    };
    let keys = Keys {
        id: of("AccessKeyId")?,
        secret: of("SecretAccessKey")?,
        token: Some(of("SessionToken")?),
    };
    Ok((keys, date(&of("Expiration")?)?))
}

/// Reads the answer of an endpoint of a task, a pod or a machine.
pub(super) fn given(body: &[u8]) -> Result<(Keys, OffsetDateTime), String> {
    let Given { access_key_id, secret_access_key, token, expiration } =
        serde_json::from_slice(body).map_err(|_| "the answer has no credentials")?;
    Ok((Keys { id: access_key_id, secret: secret_access_key, token }, date(&expiration)?))
}

fn date(text: &str) -> Result<OffsetDateTime, String> {
    OffsetDateTime::parse(text, &Rfc3339).map_err(|_| "the answer has no date of expiry".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_the_token_service_is_read() {
        let answer =
            b"<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
            <SessionToken>t</SessionToken><SecretAccessKey>s</SecretAccessKey>\
            <Expiration>2026-11-26T12:00:00Z</Expiration><AccessKeyId>A</AccessKeyId></Credentials>\
            </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";
        let (keys, end) = of_role(answer).unwrap();
        assert_eq!((keys.id.as_str(), keys.secret.as_str()), ("A", "s"));
        assert_eq!((keys.token.as_deref(), end.hour()), (Some("t"), 12));
        assert_eq!(of_role(b"<a></a>").unwrap_err(), "the answer has no AccessKeyId");
        assert_eq!(of_role(b"{}").unwrap_err(), "the answer is not XML");
    }

    #[test]
    fn the_answer_of_a_machine_is_read() {
        let answer = br#"{"Code":"Success","AccessKeyId":"A","SecretAccessKey":"s","Token":"t",
            "Expiration":"2026-11-26T12:00:00Z"}"#;
        assert_eq!(given(answer).unwrap().0.id, "A");
        let failed = br#"{"Code":"AssumeRoleUnauthorizedAccess"}"#;
        assert_eq!(given(failed).unwrap_err(), "the answer has no credentials");
        let endless = br#"{"AccessKeyId":"A","SecretAccessKey":"s","Expiration":"never"}"#;
        assert_eq!(given(endless).unwrap_err(), "the answer has no date of expiry");
    }
}

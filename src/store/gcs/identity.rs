//! Services that give tokens of Google for a while: its token service for the key of a service account or
//! the login of a user, its Security Token Service for the token of another cloud or cluster, the metadata
//! server of a machine or pod. Each is asked once; `renewed` repeats it.

use std::path::PathBuf;
use std::time::Duration;

use azure_core::base64;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Method, RequestBuilder, Url};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::timeout;

use super::file::{CredentialFile, CredentialSource, ExternalAccount};
use crate::clock;
use crate::config::{GoogleCredential, StoreTls};
use crate::files::{SmallFile, reason};
use crate::http::client::{self, BodyError};
use crate::http::reconnecting::Reconnecting;
use crate::lease::text::is_printable;
use crate::lease::{Cause, Failure};
use crate::store::client::StoreClient;
use crate::store::query::query;

/// The longest time of a sign-in.
const BOUND: Duration = Duration::from_secs(20);

/// The longest time that the metadata server may take. It is on the machine, or there is none.
const MACHINE_BOUND: Duration = Duration::from_secs(5);

/// The longest time that a read of a file may take.
const READ_BOUND: Duration = Duration::from_secs(5);

/// The largest file, and the longest answer, in bytes.
const LARGEST: usize = 64 * 1024;

/// What the token is for: reading and writing objects.
const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";

/// What a token is for with which another identity is asked for.
const CLOUD: &str = "https://www.googleapis.com/auth/cloud-platform";

/// The token service for users.
const TOKENS: &str = "https://oauth2.googleapis.com/token";

/// For how long a signed request for a token is valid, in seconds: its longest.
const SIGNED_FOR: i64 = 3_600;

/// The service, and what it is asked with.
pub(super) struct Identity {
    client: StoreClient,
    source: IdentitySource,
}

enum IdentitySource {
    File(PathBuf),
    Machine(Url),
}

/// What a token service answers.
#[derive(Deserialize)]
struct Given {
    access_token: String,
    expires_in: u32,
}

/// What the service that lends a service account's identity answers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lent {
    access_token: String,
    expire_time: String,
}

impl Identity {
    /// Prepares requests for tokens; `None` if none are needed.
    ///
    /// # Errors
    /// Returns an error if no client can be made.
    pub(super) fn open(credential: &GoogleCredential) -> anyhow::Result<Option<Self>> {
        let source = match credential {
            GoogleCredential::None => return Ok(None),
            GoogleCredential::File(path) => IdentitySource::File(path.clone()),
            GoogleCredential::Machine { endpoint } => IdentitySource::Machine(endpoint.clone()),
        };
        let tls = match source {
            IdentitySource::File(_) => Some(StoreTls { ca_file: None, own: None }),
            IdentitySource::Machine(_) => None,
        };
        Ok(Some(Self { client: StoreClient::open(tls.as_ref(), BOUND)?, source }))
    }

    /// Asks for a token, once; returns when it expires too.
    pub(super) async fn fetch(&self) -> Result<Token, Failure> {
        let bound = match self.source {
            IdentitySource::File(_) => BOUND,
            IdentitySource::Machine(_) => MACHINE_BOUND,
        };
        let fetched = timeout(bound, self.ask()).await;
        let fetched =
            fetched.unwrap_or_else(|_| Err(format!("no answer within {} s", bound.as_secs())));
        fetched.map_err(|why| {
            let message = match &self.source {
                IdentitySource::File(path) => format!(
                    "sign-in with the credential in {} failed: {why}; check the file, or set \
                     GOOGLE_APPLICATION_CREDENTIALS to another",
                    path.display()
                ),
                IdentitySource::Machine(_) => format!(
                    "sign-in with the service account of this machine or pod failed: {why}; no other \
                     credential was found: GOOGLE_APPLICATION_CREDENTIALS is not set, and there is no login of \
                     gcloud; set it, or give the machine or the pod a service account"
                ),
            };
            Failure::new(Cause::Auth, message)
        })
    }

    async fn ask(&self) -> Result<Token, String> {
        let client = self.client.current().await?;
        match &self.source {
            IdentitySource::Machine(endpoint) => {
                let mut url = endpoint.clone();
                url.set_path("/computeMetadata/v1/instance/service-accounts/default/token");
                given(
                    &answer(
                        &client,
                        client.request(Method::GET, url).header("metadata-flavor", "Google"),
                    )
                    .await?,
                )
            }
            IdentitySource::File(path) => {
                let content = SmallFile::new(path, LARGEST as u64).read(READ_BOUND).await;
                let content =
                    content.map_err(|error| format!("cannot read it: {}", reason(&error)))?;
                of_file(&client, CredentialFile::read(&content)?, SCOPE).await
            }
        }
    }
}

/// A token, and when it expires.
type Token = (String, OffsetDateTime);

/// Asks with what a file has, for a token that may be used for this.
async fn of_file(
    client: &Reconnecting,
    file: CredentialFile,
    scope: &str,
) -> Result<Token, String> {
    let form = |url: Url, pairs: &[(&str, &str)]| {
        client
            .request(Method::POST, url)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(query(pairs))
    };
    match file {
        CredentialFile::ServiceAccount { client_email, private_key, private_key_id, token_uri } => {
            let now = clock::now().date().unix_timestamp();
            let claims = json!({
                "iss": client_email, "scope": scope, "aud": token_uri.as_str(),
                "iat": now, "exp": now.saturating_add(SIGNED_FOR),
            });
            let assertion = signed(&private_key, &private_key_id, &claims)?;
            let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
            let pairs = [("grant_type", grant), ("assertion", assertion.as_str())];
            given(&answer(client, form(token_uri, &pairs)).await?)
        }
        CredentialFile::AuthorizedUser { client_id, client_secret, refresh_token, token_uri } => {
            let usual = || Url::parse(TOKENS).map_err(|error| error.to_string());
            let pairs = [
                ("grant_type", "refresh_token"),
                ("client_id", client_id.as_str()),
                ("client_secret", client_secret.as_str()),
                ("refresh_token", refresh_token.as_str()),
            ];
            given(&answer(client, form(token_uri.map_or_else(usual, Ok)?, &pairs)).await?)
        }
        CredentialFile::ExternalAccountAuthorizedUser {
            client_id,
            client_secret,
            refresh_token,
            token_url,
        } => {
            let pairs =
                [("grant_type", "refresh_token"), ("refresh_token", refresh_token.as_str())];
            let asked = form(token_url, &pairs).basic_auth(client_id, Some(client_secret));
            given(&answer(client, asked).await?)
        }
        CredentialFile::ImpersonatedServiceAccount {
            service_account_impersonation_url,
            delegates,
            source_credentials,
        } => {
            let (source, _) = Box::pin(of_file(client, *source_credentials, CLOUD)).await?;
            let wanted = json!({"scope": [scope], "delegates": delegates, "lifetime": "3600s"});
            lent(client, service_account_impersonation_url, &source, &wanted).await
        }
        CredentialFile::ExternalAccount(it) => of_another_cloud(client, *it, scope).await,
    }
}

/// Exchanges the token of another cloud or cluster, and asks for another identity with that, if the file
/// names one.
async fn of_another_cloud(
    client: &Reconnecting,
    account: ExternalAccount,
    scope: &str,
) -> Result<Token, String> {
    let subject = token_of(&account.credential_source, client).await?;
    // Another identity is lent by a service of the whole cloud.
    let exchanged = if account.service_account_impersonation_url.is_some() { CLOUD } else { scope };
    let options = account.workforce_pool_user_project.map(|it| json!({"userProject": it}));
    let options = options.map(|it| it.to_string());
    let mut pairs = vec![
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("audience", account.audience.as_str()),
        ("scope", exchanged),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
        ("subject_token", subject.as_str()),
        ("subject_token_type", account.subject_token_type.as_str()),
    ];
    pairs.extend(
        options.as_deref().filter(|_| account.client_id.is_none()).map(|it| ("options", it)),
    );
    let mut asked = client
        .request(Method::POST, account.token_url)
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(query(&pairs));
    if let Some(id) = account.client_id {
        asked = asked.basic_auth(id, Some(account.client_secret));
    }
    let exchanged = given(&answer(client, asked).await?)?;
    let Some(url) = account.service_account_impersonation_url else { return Ok(exchanged) };
    let lifetime = account.service_account_impersonation.token_lifetime_seconds.unwrap_or(3_600);
    let wanted = json!({"scope": [scope], "lifetime": format!("{lifetime}s")});
    lent(client, url, &exchanged.0, &wanted).await
}

/// Asks for the identity of a service account, which whoever has this token may use.
async fn lent(
    client: &Reconnecting,
    url: Url,
    token: &str,
    wanted: &Value,
) -> Result<Token, String> {
    let asked = client
        .request(Method::POST, url)
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .header(CONTENT_TYPE, "application/json")
        .body(wanted.to_string());
    let Lent { access_token, expire_time } = serde_json::from_slice(&answer(client, asked).await?)
        .map_err(|_| "the answer has no token".to_owned())?;
    let end = OffsetDateTime::parse(&expire_time, &Rfc3339)
        .map_err(|_| "the answer has no date of expiry".to_owned())?;
    Ok((access_token, end))
}

/// Returns the token of another cloud or cluster, which replaces it before it expires.
async fn token_of(source: &CredentialSource, client: &Reconnecting) -> Result<String, String> {
    let content = match (&source.file, &source.url) {
        (Some(path), _) => {
            let read = SmallFile::new(path, LARGEST as u64).read(READ_BOUND).await;
            read.map_err(|error| {
                format!("failed to read the token in {}: {}", path.display(), reason(&error))
            })?
        }
        (None, Some(url)) => {
            let mut asked = client.request(Method::GET, url.clone());
            for (name, value) in &source.headers {
                asked = asked.header(name, value.as_str().unwrap_or_default());
            }
            answer(client, asked).await?
        }
        (None, None) => return Err("its token has no source".to_owned()),
    };
    let text = String::from_utf8(content).map_err(|_| "the token is not text".to_owned())?;
    match &source.format.subject_token_field_name {
        None => Ok(text.trim().to_owned()),
        Some(field) => {
            let json: Value = serde_json::from_str(&text).unwrap_or_default();
            let token = json[field].as_str().map(str::to_owned);
            token.ok_or_else(|| format!("the file of the token has no field {field}"))
        }
    }
}

/// Signs claims with the key of a service account (RFC 7515, RS256).
fn signed(key: &str, key_id: &str, claims: &Value) -> Result<String, String> {
    let unusable = |_| "its private key is not usable".to_owned();
    let der = PrivatePkcs8KeyDer::from_pem_slice(key.as_bytes())
        .map_err(|_| "its private key is not PEM of PKCS #8".to_owned())?;
    let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der())
        .map_err(|_| "its private key is not of RSA".to_owned())?;
    let header = json!({"alg": "RS256", "typ": "JWT", "kid": key_id});
    let part = |text: &[u8]| base64::encode_url_safe(text).trim_end_matches('=').to_owned();
    let text =
        format!("{}.{}", part(header.to_string().as_bytes()), part(claims.to_string().as_bytes()));
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
        .map_err(unusable)?;
    Ok(format!("{text}.{}", part(&signature)))
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
    let json: Value = serde_json::from_slice(&body).unwrap_or_default();
    let error = &json["error"];
    let words = [error.as_str(), error["message"].as_str(), json["error_description"].as_str()];
    let words = words.into_iter().flatten().collect::<Vec<_>>().join(": ");
    let words: String = words.chars().filter(|it| is_printable(*it)).take(300).collect();
    Err(format!("the endpoint answered {} {words}", status.as_u16()).trim_end().to_owned())
}

/// Reads the answer of a token service.
pub(super) fn given(body: &[u8]) -> Result<Token, String> {
    let Given { access_token, expires_in } =
        serde_json::from_slice(body).map_err(|_| "the answer has no token".to_owned())?;
    let life = time::Duration::seconds(i64::from(expires_in));
    Ok((access_token, clock::now().date().saturating_add(life)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_cannot_sign_is_explained() {
        let claims = json!({});
        assert!(signed("key", "1", &claims).unwrap_err().contains("is not PEM"));
        let pem = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert!(signed(pem, "1", &claims).unwrap_err().contains("is not of RSA"));
    }

    #[test]
    fn a_token_ends_so_many_seconds_from_now() {
        let before = clock::now().date();
        let (token, end) = given(br#"{"access_token": "t", "expires_in": 3600}"#).unwrap();
        let hour = time::Duration::HOUR;
        assert_eq!(token, "t");
        assert!(end >= before + hour && end <= clock::now().date() + hour, "{end}");
        assert_eq!(given(b"{}").unwrap_err(), "the answer has no token");
    }
}

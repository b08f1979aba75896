//! Signs in to Entra: exchanges the identity of the machine or the pod for a token, once.
//!
//! `credential` keeps tokens and retries. Each exchange makes a new client-crate credential, since
//! those keep tokens until five minutes before they expire, and the content of a token file for ten
//! minutes.
//!
//! `IDENTITY_ENDPOINT` and `IDENTITY_HEADER` are read by the client crate itself, which offers no
//! other way to set them.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::cloud::{CloudConfiguration, CustomConfiguration};
use azure_core::credentials::{AccessToken, TokenCredential};
use azure_core::error::{Error, ErrorKind};
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{
    AsyncRawResponse, ClientMethodOptions, ClientOptions, Context, HttpClient, Request,
    RetryOptions, Transport,
};
use azure_identity::{
    AzureCliCredential, AzureCliCredentialOptions, ClientAssertion, ClientAssertionCredential,
    ClientAssertionCredentialOptions, Executor, ManagedIdentityCredential,
    ManagedIdentityCredentialOptions, UserAssignedId,
};
use tokio::time::timeout;

use super::transport::TransportError;
use crate::files::{SmallFile, reason};
use crate::lease::text::is_printable;
use crate::lease::{Cause, Failure};
use crate::process::captured;

/// The scope of a token: blobs, in every cloud.
const SCOPE: &str = "https://storage.azure.com/.default";

/// The longest time of a sign-in: the Azure CLI needs some seconds.
const BOUND: Duration = Duration::from_secs(20);

/// The longest time that the identity endpoint of a machine may take. It is on the machine, or there
/// is none.
const MACHINE_BOUND: Duration = Duration::from_secs(5);

/// The longest time that a read of a secret file may take.
pub(super) const READ_BOUND: Duration = Duration::from_secs(5);

/// More bytes than the Azure CLI prints.
const LONGEST_OUTPUT: usize = 1 << 20;

/// More bytes than any secret has.
pub(super) const LARGEST_SECRET: u64 = 64 * 1024;

/// What was tried, in the order in which credentials are chosen.
const NONE_FOUND: &str = "no credential for Azure was found: AZURE_STORAGE_CONNECTION_STRING, \
                          AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN and each of them with _FILE are \
                          not set, nor is AZURE_FEDERATED_TOKEN_FILE of workload identity; the \
                          Azure CLI is not logged in, and this machine has no managed identity";

const SET_ONE: &str = "set one of these variables, assign an identity to the machine, or run \
                       `az login`";

/// The way to sign in.
#[derive(Clone, Debug)]
pub(super) enum SignIn {
    /// A token in a file, which the platform renews.
    Workload {
        token_file: PathBuf,
        client_id: String,
        tenant_id: String,
        authority_host: Option<String>,
        transport: Arc<dyn HttpClient>,
    },
    /// The identity of the machine, or one of those assigned to it.
    Managed {
        client_id: Option<String>,
        /// Whether it is tried since no other credential was found.
        assumed: bool,
        transport: Arc<dyn HttpClient>,
    },
    /// The user of the Azure CLI.
    Cli,
}

impl SignIn {
    /// Requests a token, once, within a time that suits the way.
    pub(super) async fn exchange(&self) -> Result<AccessToken, Failure> {
        let bound = if matches!(self, Self::Managed { .. }) { MACHINE_BOUND } else { BOUND };
        let asking = async { self.credential()?.get_token(&[SCOPE], None).await };
        match timeout(bound, asking).await {
            Ok(token) => token.map_err(|error| self.failure(&why(&error))),
            Err(_) => Err(self.failure(&format!("no answer within {}s", bound.as_secs()))),
        }
    }

    /// Returns the way to sign in, in words.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Workload { .. } => "workload identity",
            Self::Managed { .. } => "managed identity",
            Self::Cli => "the Azure CLI",
        }
    }

    fn credential(&self) -> azure_core::Result<Arc<dyn TokenCredential>> {
        Ok(match self.clone() {
            Self::Workload { token_file, client_id, tenant_id, authority_host, transport } => {
                let mut client_options = client_options(transport);
                if let Some(host) = authority_host {
                    let mut cloud = CustomConfiguration::default();
                    cloud.authority_host = host;
                    client_options.cloud = Some(Arc::new(CloudConfiguration::from(cloud)));
                }
                ClientAssertionCredential::new(
                    tenant_id,
                    client_id,
                    TokenFile(SmallFile::new(&token_file, LARGEST_SECRET)),
                    Some(ClientAssertionCredentialOptions { client_options }),
                )?
            }
            Self::Managed { client_id, transport, .. } => {
                let options = ManagedIdentityCredentialOptions {
                    user_assigned_id: client_id.map(UserAssignedId::ClientId),
                    client_options: client_options(transport),
                };
                ManagedIdentityCredential::new(Some(options))?
            }
            Self::Cli => AzureCliCredential::new(Some(AzureCliCredentialOptions {
                executor: Some(Arc::new(Command)),
                ..AzureCliCredentialOptions::default()
            }))?,
        })
    }

    /// Returns why there is no token, with a remedy.
    fn failure(&self, why: &str) -> Failure {
        let remedy = match self {
            Self::Workload { .. } => {
                "check AZURE_CLIENT_ID, AZURE_TENANT_ID and the federated credential of the identity"
            }
            Self::Managed { assumed: true, .. } => {
                let message = format!("{NONE_FOUND} ({why}); {SET_ONE}");
                return Failure::new(Cause::Auth, message);
            }
            Self::Managed { .. } => {
                "check that an identity is assigned to this machine, and AZURE_CLIENT_ID if there \
                 are several; otherwise set another credential"
            }
            Self::Cli => "run `az login`, or set another credential",
        };
        let how = self.name();
        Failure::new(Cause::Auth, format!("sign-in with {how} failed: {why}; {remedy}"))
    }
}

fn client_options(transport: Arc<dyn HttpClient>) -> ClientOptions {
    ClientOptions {
        per_try_policies: vec![Arc::new(Listen)],
        retry: RetryOptions::none(),
        transport: Some(Transport::new(transport)),
        ..ClientOptions::default()
    }
}

/// Returns the message of the innermost cause that is known to be safe to show. The client crate's
/// own text may contain a whole answer.
fn why(error: &Error) -> String {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut found = None;
    while let Some(error) = next {
        if let Some(words) = error.downcast_ref::<TransportError>().map(ToString::to_string) {
            return words;
        }
        if let Some(words) = error.downcast_ref::<Unreadable>().map(ToString::to_string) {
            return words;
        }
        if let Some(words) = error.downcast_ref::<Declined>().map(ToString::to_string) {
            return words;
        }
        let kind = error.downcast_ref::<Error>().map(Error::kind);
        if matches!(kind, Some(ErrorKind::DataConversion)) {
            found = Some("the endpoint's answer contains no token".to_owned());
        }
        next = error.source();
    }
    found.unwrap_or_else(|| first_line(&error.to_string()))
}

/// The endpoint refused the request.
#[derive(Debug, thiserror::Error)]
#[error("the endpoint answered {status}{words}")]
struct Declined {
    status: u16,
    words: String,
}

/// Reads the endpoint's error message itself: the client crate cannot parse Entra's answers, which
/// all have line breaks, and puts whole answers of other endpoints into its errors.
#[derive(Debug)]
struct Listen;

#[async_trait]
impl Policy for Listen {
    async fn send(
        &self,
        ctx: &Context,
        request: &mut Request,
        next: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        let [first, rest @ ..] = next else {
            return Err(Error::with_message(ErrorKind::Other, "the pipeline has no transport"));
        };
        let answer = first.send(ctx, request, rest).await?;
        let (status, headers, body) = answer.deconstruct();
        let body = body.collect().await?;
        if status.is_success() {
            if !has_lifetime(&body) {
                let words = ": its token has an impossible lifetime".to_owned();
                return Err(Error::new(
                    ErrorKind::Credential,
                    Declined { status: status.into(), words },
                ));
            }
            return Ok(AsyncRawResponse::from_bytes(status, headers, body));
        }
        let status = u16::from(status);
        let words = entra_words(&body).map(|words| format!(": {words}")).unwrap_or_default();
        Err(Error::new(ErrorKind::Credential, Declined { status, words }))
    }
}

/// Returns whether the lifetime of a token is one that the client crate can add to the present date:
/// at most ten years. It panics for a longer one. An answer without a number is for it to judge.
fn has_lifetime(body: &[u8]) -> bool {
    let answer = serde_json::from_slice::<serde_json::Value>(body).unwrap_or_default();
    let seconds = answer.get("expires_in").and_then(serde_json::Value::as_i64);
    seconds.is_none_or(|it| (0..=10 * 366 * 86_400).contains(&it))
}

/// Returns the first line of Entra's error description, such as `AADSTS700024: …`.
pub(super) fn entra_words(body: &[u8]) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    let words = answer.get("error_description")?.as_str()?;
    Some(first_line(words))
}

fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    // Removed first, since such a character may be placed within an address to hide it.
    let line: String = line.chars().filter(|c| is_printable(*c) && *c != '<').collect();
    let words: Vec<&str> =
        line.split(' ').filter(|word| !word.contains("://") && word.len() <= 60).collect();
    words.join(" ").chars().take(200).collect()
}

/// The pod's token, read again for each exchange, since the platform replaces it before it expires.
#[derive(Debug)]
struct TokenFile(SmallFile);

#[derive(Debug, thiserror::Error)]
#[error("failed to read the token file {path}, set by AZURE_FEDERATED_TOKEN_FILE: {why}")]
struct Unreadable {
    path: String,
    why: String,
}

#[async_trait]
impl ClientAssertion for TokenFile {
    async fn secret(&self, _: Option<ClientMethodOptions<'_>>) -> azure_core::Result<String> {
        let read = self.0.read(READ_BOUND).await.map_err(|error| reason(&error));
        let text = read
            .and_then(|token| String::from_utf8(token).map_err(|_| "it is not text".to_owned()));
        text.map(|token| token.trim().to_owned()).map_err(|why| {
            let path = self.0.path().display().to_string();
            Error::new(ErrorKind::Credential, Unreadable { path, why })
        })
    }
}

/// Runs the Azure CLI, and kills it when the future is dropped or its output has no end.
#[derive(Debug)]
struct Command;

#[async_trait]
impl Executor for Command {
    async fn run(&self, program: &OsStr, args: &[&OsStr]) -> std::io::Result<Output> {
        let mut command = tokio::process::Command::new(program);
        command.args(args).stdin(Stdio::null()).stderr(Stdio::piped());
        captured::output(command, LONGEST_OUTPUT).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entra_errors_are_quoted_without_addresses_or_long_words() {
        let body = br#"{"error":"invalid_client","error_description":"AADSTS700024: Client assertion is not within its valid time range. See https://login/x?code=1 eyJhbGciOiJSUzI1NiIsImtpZCI6IjEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MCJ9\r\nTrace ID: 1"}"#;
        assert_eq!(
            entra_words(body).unwrap(),
            "AADSTS700024: Client assertion is not within its valid time range. See"
        );
        assert_eq!(entra_words(b"<html>"), None);
    }

    #[test]
    fn a_lifetime_that_no_date_can_hold_is_refused() {
        for (body, good) in [
            (r#"{"expires_in":3600}"#, true),
            (r#"{"expires_in":"3600"}"#, true),
            (r#"{"access_token":"x"}"#, true),
            ("<html>", true),
            (r#"{"expires_in":0}"#, true),
            (r#"{"expires_in":316224000}"#, true),
            (r#"{"expires_in":316224001}"#, false),
            (r#"{"expires_in":-1}"#, false),
            (r#"{"expires_in":9223372036854775807}"#, false),
            (r#"{"expires_in":-9223372036854775808}"#, false),
        ] {
            assert_eq!(has_lifetime(body.as_bytes()), good, "{body}");
        }
    }

    #[test]
    fn an_address_is_left_out_whatever_stands_between_its_signs() {
        let body = br#"{"error_description":"see http:\u0001//login/x or https:<//y for more"}"#;
        assert_eq!(entra_words(body).unwrap(), "see or for more");
    }

    #[test]
    fn words_of_60_characters_are_quoted_and_200_characters_in_all() {
        let word = |length| "a".repeat(length);
        assert_eq!(first_line(&format!("{} {} b", word(60), word(61))), format!("{} b", word(60)));
        assert_eq!(first_line(&"ab ".repeat(100)), "ab ".repeat(67)[..200]);
    }

    #[test]
    fn of_an_answer_that_cannot_be_read_nothing_is_quoted_and_of_other_errors_the_first_line() {
        for (kind, words) in [
            (ErrorKind::DataConversion, "the endpoint's answer contains no token"),
            (ErrorKind::Other, "eyJhbGciOiJSUzI1NiJ9"),
        ] {
            let error = Error::with_message(kind, "eyJhbGciOiJSUzI1NiJ9\nmore");
            assert_eq!(why(&error), words);
        }
    }

    #[tokio::test]
    async fn a_token_file_that_is_missing_is_named() {
        let file = SmallFile::new("/nonexistent/token".as_ref(), LARGEST_SECRET);
        let error = TokenFile(file).secret(None).await.unwrap_err();
        assert_eq!(
            why(&error),
            "failed to read the token file /nonexistent/token, set by AZURE_FEDERATED_TOKEN_FILE: \
             no such file or directory"
        );
    }
}

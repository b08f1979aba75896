//! The credential for Azure: a secret from the settings or a file, or a token of a sign-in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::http::HttpClient;
use url::Url;

use super::access::Access;
use super::auth::Proof;
use super::token::{LARGEST_SECRET, READ_BOUND, SignIn};
use super::transport::{self, ProxyRoute};
use crate::clock;
use crate::config::{AzureCredential, AzureSettings, SecretSource, is_loopback};
use crate::files::{SmallFile, reason};
use crate::http::resolver::Resolver;
use crate::lease::{Cause, Failure};
use crate::store::renewed::{Next, Renewed, Sessions, Source};

#[cfg(test)]
mod tests;

/// The name of the store in messages.
const AZURE: &str = "Azure";

/// Uses a secret from the settings, or starts the task that reads or fetches one and renews it. Waits for
/// nothing; an invalid secret is reported by the first request.
pub(super) fn open(
    settings: &AzureSettings,
    transport: &Arc<dyn HttpClient>,
    resolver: &Resolver,
) -> Result<Renewed<Access>, Failure> {
    let patience = settings.request_timeout;
    let made = Maker { settings: Arc::new(settings.clone()), transport: Arc::clone(transport) };
    Ok(match &settings.credential {
        AzureCredential::ConnectionString(SecretSource::Value(text))
        | AzureCredential::Key(SecretSource::Value(text))
        | AzureCredential::Sas(SecretSource::Value(text)) => {
            Renewed::fixed(made.of_secret(text, "the settings"))
        }
        AzureCredential::ConnectionString(SecretSource::File(path))
        | AzureCredential::Key(SecretSource::File(path))
        | AzureCredential::Sas(SecretSource::File(path)) => {
            let named = made.named(path);
            let what = format!("the read of {named}");
            let file = SmallFile::new(path, LARGEST_SECRET);
            let source = SecretFile { file, path: path.clone(), named, taken: None, made };
            Renewed::start(source, &what, AZURE, patience)
        }
        _ => {
            let sign_in = sign_in(settings, resolver)?;
            let what = format!("the sign-in with {}", sign_in.name());
            let source = Token { sign_in, sessions: Sessions::new(AZURE), made };
            Renewed::start(source, &what, AZURE, patience)
        }
    })
}

/// Returns the account, if requests are signed with a key.
pub(super) fn account_of_key(credential: &Renewed<Access>) -> Option<String> {
    match &credential.known()?.proof {
        Proof::Key { account, .. } => Some(account.clone()),
        _ => None,
    }
}

/// Chooses the way to sign in, with a transport of its own: a proxy may be used towards Entra,
/// never towards the identity endpoint of this machine.
fn sign_in(settings: &AzureSettings, resolver: &Resolver) -> Result<SignIn, Failure> {
    Ok(match &settings.credential {
        AzureCredential::WorkloadIdentity { token_file, client_id, tenant_id, authority_host } => {
            let local = authority_host.as_deref().and_then(|host| Url::parse(host).ok());
            let route = if local.is_some_and(|url| is_loopback(&url)) {
                ProxyRoute::Direct
            } else {
                ProxyRoute::Proxied {
                    proxy: settings.proxy.as_deref(),
                    except: settings.no_proxy.as_deref(),
                }
            };
            SignIn::Workload {
                token_file: token_file.clone(),
                client_id: client_id.clone(),
                tenant_id: tenant_id.clone(),
                authority_host: authority_host.clone(),
                transport: transport::client(route, true, resolver)?,
            }
        }
        AzureCredential::ManagedIdentity { client_id, assumed } => SignIn::Managed {
            client_id: client_id.clone(),
            assumed: *assumed,
            transport: transport::client(ProxyRoute::Direct, true, resolver)?,
        },
        _ => SignIn::Cli,
    })
}

/// Makes the clients of a secret or a token.
struct Maker {
    settings: Arc<AzureSettings>,
    transport: Arc<dyn HttpClient>,
}

impl Maker {
    /// Returns the variable of the secret.
    fn variable(&self) -> &'static str {
        match self.settings.credential {
            AzureCredential::ConnectionString(_) => "AZURE_STORAGE_CONNECTION_STRING",
            AzureCredential::Key(_) => "AZURE_STORAGE_KEY",
            _ => "AZURE_STORAGE_SAS_TOKEN",
        }
    }

    /// Names a secret file with the variable that set it.
    fn named(&self, path: &Path) -> String {
        format!("the secret file {}, set by {}_FILE", path.display(), self.variable())
    }

    /// Creates the clients from the text of a secret.
    fn of_secret(&self, text: &str, source: &str) -> Result<Access, Failure> {
        let (settings, transport) = (&self.settings, &self.transport);
        let text = text.trim();
        let access = match &settings.credential {
            AzureCredential::ConnectionString(_) => Access::of(settings, transport, text),
            AzureCredential::Key(_) => Proof::key(&settings.account, text)
                .and_then(|proof| Access::new(settings, transport, proof)),
            _ => Proof::sas(text).and_then(|proof| Access::new(settings, transport, proof)),
        };
        let name = self.variable();
        access.map_err(|fault| Failure::new(Cause::Auth, format!("{name} from {source}: {fault}")))
    }
}

/// A secret in a file.
struct SecretFile {
    file: SmallFile,
    path: PathBuf,
    /// The file and its variable, for messages.
    named: String,
    /// What was read last.
    taken: Option<Vec<u8>>,
    made: Maker,
}

#[async_trait]
impl Source<Access> for SecretFile {
    async fn fetch(&mut self) -> (Result<Option<Access>, Failure>, Next) {
        let read = match self.file.read(READ_BOUND).await {
            Ok(bytes) if self.taken.as_ref() == Some(&bytes) => Ok(None),
            Ok(bytes) => {
                let path = self.path.display().to_string();
                if self.taken.is_some() {
                    tracing::info!(file = path, "secret file reloaded");
                }
                let access = self.made.of_secret(&String::from_utf8_lossy(&bytes), &path);
                self.taken = Some(bytes);
                access.map(Some)
            }
            Err(error) => {
                self.taken = None;
                let (named, why, variable) = (&self.named, reason(&error), self.made.variable());
                let message = format!(
                    "failed to read {named}: {why}; make it readable for this user, or set \
                     {variable}_FILE to another file"
                );
                Err(Failure::new(Cause::Auth, message))
            }
        };
        (read, Next::of_file())
    }
}

/// A token of a sign-in.
struct Token {
    sign_in: SignIn,
    sessions: Sessions,
    made: Maker,
}

#[async_trait]
impl Source<Access> for Token {
    async fn fetch(&mut self) -> (Result<Option<Access>, Failure>, Next) {
        let asked = clock::now();
        let token = self.sign_in.exchange().await;
        let life = token.as_ref().ok().map(|it| it.expires_on - asked.date());
        let Maker { settings, transport } = &self.made;
        let access = token.and_then(|it| {
            let made = Access::new(settings, transport, Proof::Token(it.token));
            made.map(Some).map_err(|fault| Failure::new(Cause::Auth, fault))
        });
        (access, self.sessions.next(life))
    }
}

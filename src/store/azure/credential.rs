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
use crate::config::{AzureCredential, AzureSettings, SecretForm, SecretSource, is_loopback, shown};
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
    Ok(match settings.credential.secret() {
        Some((form, SecretSource::Value(text))) => {
            let read = made.read(form, text, "the settings");
            Renewed::fixed(read.map(|(access, _)| access))
        }
        Some((form, SecretSource::File(path))) => {
            let source = SecretFile::new(form, path, made);
            let what = format!("the read of {}", source.named);
            Renewed::start(source, &what, AZURE, patience)
        }
        None => {
            let sign_in = sign_in(settings, resolver)?;
            let what = format!("the sign-in with {}", sign_in.name());
            let source = Token { sign_in, sessions: Sessions::new(AZURE), made };
            Renewed::start(source, &what, AZURE, patience)
        }
    })
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
    /// Creates the clients from the text of a secret; returns too the endpoint that a connection
    /// string means. `source` names where the text is from, for messages.
    fn read(
        &self,
        form: SecretForm,
        text: &str,
        source: &str,
    ) -> Result<(Access, Option<Url>), Failure> {
        let read = self.settings.read_secret(form, text);
        let made = read.map_err(|problems| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; and it ")
        });
        let made = made.and_then(|it| {
            let access = Access::new(&self.settings, &self.transport, it.secret.into())?;
            Ok((access, it.endpoint))
        });
        made.map_err(|fault| {
            Failure::new(Cause::Auth, format!("{} from {source} {fault}", form.variable()))
        })
    }
}

/// A secret in a file.
struct SecretFile {
    form: SecretForm,
    file: SmallFile,
    path: PathBuf,
    /// The file and its variable, for messages.
    named: String,
    /// What was read last, and why it is not used.
    taken: Option<(Vec<u8>, Option<Failure>)>,
    /// The endpoint that the connection string in use means; `None` before the first secret.
    used: Option<Option<Url>>,
    made: Maker,
}

impl SecretFile {
    fn new(form: SecretForm, path: &Path, made: Maker) -> Self {
        let file = SmallFile::new(path, LARGEST_SECRET);
        let named = format!("the secret file {}, set by {}_FILE", path.display(), form.variable());
        Self { form, file, path: path.to_owned(), named, taken: None, used: None, made }
    }

    /// Reads the contents, which must be for the same account and endpoint as those before.
    fn admit(&mut self, bytes: &[u8]) -> Result<Access, Failure> {
        let text = String::from_utf8_lossy(bytes);
        let (access, means) = self.made.read(self.form, &text, &self.path.display().to_string())?;
        let lock = &self.made.settings.endpoint;
        if let (Some(Some(before)), Some(now)) = (&self.used, &means)
            && now != before
            && now != lock
        {
            let (lock, now) = (shown(lock), shown(now));
            let message = format!(
                "{} now means the endpoint {now}, but the lock is at {lock}: put a connection \
                 string for that into it, or restart every instance with --azure-endpoint {now}",
                self.named
            );
            return Err(Failure::new(Cause::Auth, message));
        }
        self.used = Some(means);
        Ok(access)
    }

    /// Adds to a failure what is used instead.
    fn refused(&self, mut failure: Failure) -> Failure {
        if self.used.is_some() {
            failure.message += "; the secret that was read before stays in use";
        }
        failure
    }
}

#[async_trait]
impl Source<Access> for SecretFile {
    async fn fetch(&mut self) -> (Result<Option<Access>, Failure>, Next) {
        let read = match self.file.read(READ_BOUND).await {
            Ok(bytes) if self.taken.as_ref().is_some_and(|(taken, _)| *taken == bytes) => {
                match self.taken.as_ref().and_then(|(_, failure)| failure.clone()) {
                    Some(failure) => Err(failure),
                    None => Ok(None),
                }
            }
            Ok(bytes) => {
                let is_first = self.used.is_none();
                let access = self.admit(&bytes).map_err(|it| self.refused(it));
                if access.is_ok() && !is_first {
                    tracing::info!(file = %self.path.display(), "secret file reloaded");
                }
                self.taken = Some((bytes, access.as_ref().err().cloned()));
                access.map(Some)
            }
            Err(error) => {
                self.taken = None;
                let (named, why, variable) = (&self.named, reason(&error), self.form.variable());
                let message = format!(
                    "failed to read {named}: {why}; make it readable for this user, or set \
                     {variable}_FILE to another file"
                );
                Err(self.refused(Failure::new(Cause::Auth, message)))
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

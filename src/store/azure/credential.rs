//! The credential, renewed in the background: a task reads secret files again when they change, and
//! renews tokens long before they expire, so that no request waits for either while there is a
//! credential to send.
//!
//! Whether a token is still valid is for the store to decide. An old one is sent until there is a
//! new one, since this host's wall clock may be wrong.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use azure_core::http::HttpClient;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use url::Url;

use super::access::Access;
use super::auth::Proof;
use super::token::{LARGEST_SECRET, READ_BOUND, SignIn};
use super::transport::{self, ProxyRoute, is_loopback};
use crate::clock;
use crate::config::{AzureCredential, AzureSettings, SecretSource};
use crate::files::{SmallFile, reason};
use crate::http::resolver::Resolver;
use crate::lease::{Cause, Failure, StoreError};

#[cfg(test)]
mod tests;

/// The time between two reads of a secret file. A longer one delays a new secret, which a 401 or
/// 403 fetches at once anyway; a shorter one gains nothing.
const FILE_PERIOD: Duration = Duration::from_secs(2);

/// The time from a failed sign-in to the next, doubling from the first value to the second.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The time to the next sign-in where a new token has already expired by the clock of this host,
/// which must be wrong then: no cloud issues tokens for less than twice this time. Should the store
/// refuse the token earlier, the next sign-in is earlier.
const CLOCK_AHEAD: Duration = Duration::from_secs(5 * 60);

/// The least time between two sign-ins after a refused token, since the identity endpoints of
/// machines limit the rate of requests.
const DISTRUST: Duration = Duration::from_secs(10);

/// The state of the credential.
#[derive(Clone, Debug, Default)]
struct Standing {
    /// The clients for requests; kept while a newer credential cannot be had.
    access: Option<Arc<Access>>,
    /// Why the last read or sign-in failed; `None` after one that succeeded.
    failure: Option<Failure>,
}

/// The credential of one store. Its task ends when it is dropped.
#[derive(Debug)]
pub(super) struct Credential {
    standing: watch::Receiver<Standing>,
    /// How long a request waits for the first credential, and the reason if there is none by then.
    patience: Duration,
    not_yet: Failure,
    distrusted: Arc<Notify>,
    task: Option<AbortHandle>,
}

impl Drop for Credential {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Credential {
    /// Uses a secret from the settings, or starts the task that reads or fetches one and renews it.
    /// Waits for nothing; an invalid secret is reported by [`access`](Self::access).
    pub(super) fn open(
        settings: &AzureSettings,
        transport: &Arc<dyn HttpClient>,
        resolver: &Resolver,
    ) -> Result<Self, Failure> {
        let settings = Arc::new(settings.clone());
        let (publish, standing) = watch::channel(Standing::default());
        // The rest is for the request itself, or at least for the reason to arrive in time.
        let patience = settings.request_timeout * 3 / 4;
        let mut credential = Self {
            standing,
            patience,
            not_yet: Failure::new(Cause::Auth, "no credential was obtained yet"),
            distrusted: Arc::default(),
            task: None,
        };
        let kept = Kept {
            publish,
            distrusted: Arc::clone(&credential.distrusted),
            settings: Arc::clone(&settings),
            transport: Arc::clone(transport),
        };
        let source = match &settings.credential {
            AzureCredential::ConnectionString(source)
            | AzureCredential::Key(source)
            | AzureCredential::Sas(source) => source.clone(),
            _ => {
                let sign_in = sign_in(&settings, resolver)?;
                credential.not_yet = waits_for(&format!("the sign-in with {}", sign_in.name()));
                credential.task = Some(spawn(kept.keep_token(sign_in)));
                return Ok(credential);
            }
        };
        match source {
            SecretSource::Value(text) => kept.take(&text, "the settings"),
            SecretSource::File(path) => {
                let named = kept.named(&path);
                credential.not_yet = waits_for(&format!("the read of {named}"));
                credential.task = Some(spawn(kept.keep_file(path, named)));
            }
        }
        Ok(credential)
    }

    /// Returns the clients for a request; waits for the first read or sign-in for as long as a
    /// request may.
    pub(super) async fn access(&self) -> Result<Arc<Access>, StoreError> {
        if let Some(access) = &self.standing.borrow().access {
            return Ok(Arc::clone(access));
        }
        let first = timeout(self.patience, self.first_access()).await;
        first.unwrap_or_else(|_| Err(StoreError::Unknown(self.not_yet.clone())))
    }

    /// Returns the clients for requests; waits until the first read or sign-in has ended.
    pub(super) async fn first_access(&self) -> Result<Arc<Access>, StoreError> {
        let mut standing = self.standing.clone();
        // An error means that the task has ended; the last state still counts.
        let _ = standing.wait_for(|it| it.access.is_some() || it.failure.is_some()).await;
        let standing = self.standing.borrow();
        match (&standing.access, &standing.failure) {
            (Some(access), _) => Ok(Arc::clone(access)),
            (None, Some(failure)) => Err(StoreError::Unknown(failure.clone())),
            (None, None) => Err(StoreError::Unknown(self.not_yet.clone())),
        }
    }

    /// Requests another read or sign-in soon, after the store refused the credential.
    pub(super) fn distrust(&self) {
        self.distrusted.notify_one();
    }

    /// Returns the account, if requests are signed with a key.
    pub(super) fn account_of_key(&self) -> Option<String> {
        match &self.standing.borrow().access.as_ref()?.proof {
            Proof::Key { account, .. } => Some(account.clone()),
            _ => None,
        }
    }

    /// Returns why the last read or sign-in failed, if it did.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.standing.borrow().failure.clone()
    }
}

/// Returns the reason of a request that could not wait for the first credential.
fn waits_for(what: &str) -> Failure {
    Failure::new(Cause::Auth, format!("no credential yet: {what} has not ended"))
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    #[allow(clippy::disallowed_methods, reason = "owned by the Credential, which ends it")]
    tokio::spawn(task).abort_handle()
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

/// The state of the task.
struct Kept {
    publish: watch::Sender<Standing>,
    distrusted: Arc<Notify>,
    settings: Arc<AzureSettings>,
    transport: Arc<dyn HttpClient>,
}

impl Kept {
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

    /// Reads a secret file periodically.
    async fn keep_file(self, path: PathBuf, named: String) {
        let file = SmallFile::new(&path, LARGEST_SECRET);
        let mut taken: Option<Vec<u8>> = None;
        loop {
            match file.read(READ_BOUND).await {
                Ok(bytes) if taken.as_ref() == Some(&bytes) => (),
                Ok(bytes) => {
                    if taken.is_some() {
                        tracing::info!(file = %path.display(), "secret file reloaded");
                    }
                    self.take(&String::from_utf8_lossy(&bytes), &path.display().to_string());
                    taken = Some(bytes);
                }
                Err(error) => {
                    taken = None;
                    let (why, variable) = (reason(&error), self.variable());
                    let message = format!(
                        "failed to read {named}: {why}; make it readable for this user, or set \
                         {variable}_FILE to another file"
                    );
                    self.fail(Failure::new(Cause::Auth, message));
                }
            }
            tokio::select! {
                () = sleep(FILE_PERIOD) => (),
                () = self.distrusted.notified() => (),
            }
        }
    }

    /// Fetches a token, and the next when half of its lifetime is over.
    async fn keep_token(self, sign_in: SignIn) {
        let mut retry = RETRY.0;
        loop {
            let asked = clock::now();
            let next = match sign_in.exchange().await {
                Ok(token) => {
                    retry = RETRY.0;
                    let life = token.expires_on - asked.date();
                    tracing::debug!(seconds = life.whole_seconds(), "signed in to Azure");
                    self.admit(Access::new(
                        &self.settings,
                        &self.transport,
                        Proof::Token(token.token),
                    ));
                    lasts(life)
                }
                Err(failure) => {
                    self.fail(failure);
                    let wait = retry;
                    retry = (retry * 2).min(RETRY.1);
                    wait
                }
            };
            self.wait(asked, next).await;
        }
    }

    /// Waits until `length` after `from`, or until the token is distrusted and not new. Timers stop
    /// in suspend, so they only decide when to read the clock.
    async fn wait(&self, from: clock::Moment, length: Duration) {
        loop {
            let rest = length.saturating_sub(from.elapsed_max(clock::now()));
            if rest.is_zero() {
                return;
            }
            tokio::select! {
                () = sleep(rest.min(RETRY.1)) => (),
                () = self.distrusted.notified() => {
                    if from.elapsed_max(clock::now()) >= DISTRUST.min(length) {
                        return;
                    }
                }
            }
        }
    }

    /// Creates the clients from the text of a secret.
    fn take(&self, text: &str, source: &str) {
        let (settings, transport) = (&self.settings, &self.transport);
        let text = text.trim();
        let access = match &settings.credential {
            AzureCredential::ConnectionString(_) => Access::of(settings, transport, text),
            AzureCredential::Key(_) => Proof::key(&settings.account, text)
                .and_then(|proof| Access::new(settings, transport, proof)),
            _ => Proof::sas(text).and_then(|proof| Access::new(settings, transport, proof)),
        };
        let name = self.variable();
        self.admit(access.map_err(|fault| format!("{name} from {source}: {fault}")));
    }

    fn admit(&self, access: Result<Access, String>) {
        match access {
            Ok(access) => {
                self.publish
                    .send_replace(Standing { access: Some(Arc::new(access)), failure: None });
            }
            Err(fault) => self.fail(Failure::new(Cause::Auth, fault)),
        }
    }

    /// Records a failure and keeps the present credential; logs each failure once.
    fn fail(&self, failure: Failure) {
        if self.publish.borrow().failure.as_ref() != Some(&failure) {
            tracing::warn!(error = %failure, "failed to renew the credential for Azure");
        }
        self.publish.send_modify(|standing| standing.failure = Some(failure));
    }
}

/// Returns how long a new token is used before the next is fetched.
fn lasts(life: time::Duration) -> Duration {
    match Duration::try_from(life / 2) {
        Ok(half) if !half.is_zero() => half.max(RETRY.0),
        _ => {
            tracing::warn!(
                "the new token for Azure has already expired by the clock of this host: set the \
                 clock"
            );
            CLOCK_AHEAD
        }
    }
}

//! The credential, renewed in the background: a task reads secret files again when they change, and
//! renews tokens long before they expire, so that no request waits for either while there is a
//! credential to send.
//!
//! Whether a token is still valid is for the store to decide. An old one is sent until there is a
//! new one, since this host's wall clock may be wrong.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use azure_core::http::HttpClient;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use url::Url;

use super::access::Access;
use super::auth::Proof;
use super::token::{SignIn, read};
use super::transport::{self, ProxyRoute, is_loopback};
use crate::clock;
use crate::config::{AzureCredential, AzureSettings, SecretSource};
use crate::lease::{Cause, Failure, StoreError};

/// The time between two reads of a secret file. A longer one delays a new secret, which a 401 or
/// 403 fetches at once anyway; a shorter one gains nothing.
const FILE_PERIOD: Duration = Duration::from_secs(2);

/// The longest time that one read or one sign-in may take: the Azure CLI needs some seconds.
const BOUND: Duration = Duration::from_secs(20);

/// The time from a failed sign-in to the next, doubling from the first value to the second.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

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
    ) -> Result<Self, Failure> {
        let settings = Arc::new(settings.clone());
        let (publish, standing) = watch::channel(Standing::default());
        let mut credential = Self { standing, distrusted: Arc::default(), task: None };
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
                let sign_in = sign_in(&settings)?;
                credential.task = Some(spawn(kept.keep_token(sign_in)));
                return Ok(credential);
            }
        };
        match source {
            SecretSource::Value(text) => kept.take(&text, "the settings"),
            SecretSource::File(path) => credential.task = Some(spawn(kept.keep_file(path))),
        }
        Ok(credential)
    }

    /// Returns the clients for requests; waits only until the first read or sign-in has ended.
    pub(super) async fn access(&self) -> Result<Arc<Access>, StoreError> {
        let mut standing = self.standing.clone();
        // An error means that the task has ended; the last state still counts.
        let _ = standing.wait_for(|it| it.access.is_some() || it.failure.is_some()).await;
        let standing = self.standing.borrow();
        match (&standing.access, &standing.failure) {
            (Some(access), _) => Ok(Arc::clone(access)),
            (None, Some(failure)) => Err(StoreError::Unknown(failure.clone())),
            (None, None) => {
                let failure = Failure::new(Cause::Auth, "no credential was obtained yet");
                Err(StoreError::Unknown(failure))
            }
        }
    }

    /// Requests another read or sign-in soon, after the store refused the credential.
    pub(super) fn distrust(&self) {
        self.distrusted.notify_one();
    }

    /// Returns why the last read or sign-in failed, if it did.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.standing.borrow().failure.clone()
    }
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    #[allow(clippy::disallowed_methods, reason = "owned by the Credential, which ends it")]
    tokio::spawn(task).abort_handle()
}

/// Chooses the way to sign in, with a transport of its own: a proxy may be used towards Entra,
/// never towards the identity endpoint of this machine.
fn sign_in(settings: &AzureSettings) -> Result<SignIn, Failure> {
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
                transport: transport::client(route, true)?,
            }
        }
        AzureCredential::ManagedIdentity { client_id } => SignIn::Managed {
            client_id: client_id.clone(),
            transport: transport::client(ProxyRoute::Direct, true)?,
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
    /// Reads a secret file periodically.
    async fn keep_file(self, path: PathBuf) {
        let name = path.display().to_string();
        let mut taken: Option<String> = None;
        loop {
            match timeout(BOUND, read(path.clone())).await {
                Ok(Ok(text)) if taken.as_ref() == Some(&text) => (),
                Ok(Ok(text)) => {
                    if taken.is_some() {
                        tracing::info!(file = name, "secret file reloaded");
                    }
                    self.take(&text, &name);
                    taken = Some(text);
                }
                Ok(Err(error)) => {
                    taken = None;
                    self.fail(Failure::new(
                        Cause::Auth,
                        format!("failed to read the secret file {name}: {}", error.kind()),
                    ));
                }
                Err(_) => {
                    let message = format!("timed out reading the secret file {name}");
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
            let next = match timeout(BOUND, sign_in.exchange()).await {
                Ok(Ok(token)) => {
                    retry = RETRY.0;
                    let life = token.expires_on - asked.date();
                    tracing::debug!(seconds = life.whole_seconds(), "signed in to Azure");
                    self.admit(Access::new(
                        &self.settings,
                        &self.transport,
                        Proof::Token(token.token),
                    ));
                    Duration::try_from(life / 2).unwrap_or_default().max(RETRY.0)
                }
                failed => {
                    let failure = match failed {
                        Ok(Err(failure)) => failure,
                        _ => Failure::new(
                            Cause::Auth,
                            format!("sign-in took longer than {} s", BOUND.as_secs()),
                        ),
                    };
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
        let (name, access) = match &settings.credential {
            AzureCredential::ConnectionString(_) => {
                ("AZURE_STORAGE_CONNECTION_STRING", Access::of(settings, transport, text))
            }
            AzureCredential::Key(_) => (
                "AZURE_STORAGE_KEY",
                Proof::key(&settings.account, text)
                    .and_then(|proof| Access::new(settings, transport, proof)),
            ),
            _ => (
                "AZURE_STORAGE_SAS_TOKEN",
                Proof::sas(text).and_then(|proof| Access::new(settings, transport, proof)),
            ),
        };
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

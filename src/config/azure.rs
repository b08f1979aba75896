//! Settings of `azure:`: the endpoint and the credential.
//!
//! Files of secrets are not read here, and no credential is tried; the backend does that, again and
//! again while it runs. No message contains a secret.

use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

use super::endpoint::{below, is_remote_plain_http};
use super::environment::Environment;
use super::faults::{Fault, Problem, Source, Warning, without_secrets};
use super::reader::Reader;
use super::secret::{SecretSource, given};
use super::store_url::DEVELOPMENT_ACCOUNT;
use super::table::AZURE_CREDENTIALS;
use super::values;

mod connection_string;
mod endpoint;
mod secret;
#[cfg(test)]
mod tests;

pub(crate) use secret::{AzureSecret, SecretForm, shown};
use secret::{Place, ReadSecret};

/// Settings of `azure:`.
#[derive(Clone, Debug)]
pub struct AzureSettings {
    /// The endpoint of the account, without a trailing slash.
    pub endpoint: Url,
    /// Whether `azure-endpoint` was given, which may be the endpoint of another account.
    pub is_endpoint_given: bool,
    /// The account in `store`.
    pub account: String,
    /// The container.
    pub container: String,
    /// The name of the blob: PREFIX/ELECTION.
    pub blob: String,
    /// The credential.
    pub credential: AzureCredential,
    /// The bound on one request.
    pub request_timeout: Duration,
    /// The value of `HTTPS_PROXY`, if set.
    pub proxy: Option<String>,
    /// The value of `NO_PROXY`, if set.
    pub no_proxy: Option<String>,
}

impl AzureSettings {
    /// Returns the URL of the container.
    pub(crate) fn container_url(&self) -> Url {
        below(&self.endpoint, &self.container)
    }

    /// Returns the URL of a blob in the container, with one path segment for each part between
    /// slashes.
    pub(crate) fn blob_url(&self, name: &str) -> Url {
        below(&self.container_url(), name)
    }

    /// Returns the URL of the blob with the lease and the record, without any secret. It follows
    /// from `store`, `azure-endpoint`, `azure-blob-prefix` and `election`; no secret changes it.
    #[must_use]
    pub fn lock_url(&self) -> Url {
        self.blob_url(&self.blob)
    }

    /// Reads a secret, which must be for this account and endpoint.
    ///
    /// # Errors
    /// Returns all that is wrong, as the ends of sentences about the secret.
    pub(crate) fn read_secret(
        &self,
        form: SecretForm,
        text: &str,
    ) -> Result<ReadSecret, Vec<Problem>> {
        let Self { endpoint, account, is_endpoint_given, .. } = self;
        Place { account, endpoint, is_given: *is_endpoint_given }.read(form, text)
    }
}

/// Credentials for Azure, in the order of preference.
#[derive(Clone, Debug)]
pub enum AzureCredential {
    /// `AZURE_STORAGE_CONNECTION_STRING` or `…_FILE`.
    ConnectionString(SecretSource),
    /// `AZURE_STORAGE_KEY` or `…_FILE`.
    Key(SecretSource),
    /// `AZURE_STORAGE_SAS_TOKEN` or `…_FILE`.
    Sas(SecretSource),
    /// Workload identity: `AZURE_FEDERATED_TOKEN_FILE` with `AZURE_CLIENT_ID`, `AZURE_TENANT_ID`,
    /// `AZURE_AUTHORITY_HOST`.
    WorkloadIdentity {
        /// `AZURE_FEDERATED_TOKEN_FILE`.
        token_file: PathBuf,
        /// `AZURE_CLIENT_ID`.
        client_id: String,
        /// `AZURE_TENANT_ID`.
        tenant_id: String,
        /// `AZURE_AUTHORITY_HOST`.
        authority_host: Option<String>,
    },
    /// Managed identity; user-assigned if `AZURE_CLIENT_ID` is set.
    ManagedIdentity {
        /// `AZURE_CLIENT_ID`.
        client_id: Option<String>,
        /// Whether nothing indicates that there is one: it is tried since no other credential was
        /// found.
        assumed: bool,
    },
    /// The login of the Azure CLI.
    AzureCli,
}

impl AzureCredential {
    /// Returns the source of a secret; `None` for a sign-in.
    pub(crate) fn secret(&self) -> Option<(SecretForm, &SecretSource)> {
        match self {
            Self::ConnectionString(source) => Some((SecretForm::ConnectionString, source)),
            Self::Key(source) => Some((SecretForm::Key, source)),
            Self::Sas(source) => Some((SecretForm::Sas, source)),
            _ => None,
        }
    }
}

/// The domain of the public cloud.
const PUBLIC_DOMAIN: &str = "core.windows.net";

/// Azurite's key, which Microsoft documents; it is not secret.
const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Returns the default endpoint of an account.
fn default_endpoint(account: &str) -> Option<Url> {
    let text = if account == DEVELOPMENT_ACCOUNT {
        format!("http://127.0.0.1:10000/{DEVELOPMENT_ACCOUNT}")
    } else {
        format!("https://{account}.blob.{PUBLIC_DOMAIN}")
    };
    Url::parse(&text).ok()
}

/// Parses the endpoint of an account. Plain http is allowed beyond loopback only if `insecure`.
pub(super) fn endpoint(text: &str, insecure: bool) -> Result<Url, Problem> {
    let url = endpoint::read(text)?;
    match !insecure && is_remote_plain_http(&url) {
        true => Err(Problem::new(PLAIN, ALLOW)),
        false => Ok(url),
    }
}

const PLAIN: &str = "is plain http to another machine: anyone on the network path can read and \
                     change everything";
const ALLOW: &str = "write https://…, or allow it with --azure-insecure-http";

/// The settings that say where the lock is, besides `store` and `election`; `None` after a fault.
pub(super) struct AzureGiven {
    endpoint: Option<Option<Url>>,
    prefix: Option<Option<String>>,
    insecure: bool,
}

impl Reader<'_> {
    /// Reads the settings that are judged whatever the store is.
    pub(super) fn azure_given(&mut self) -> AzureGiven {
        // An invalid switch is a fault of its own, and must not cause one of the endpoint.
        let insecure = self.one("azure-insecure-http", values::switch).unwrap_or(true);
        let endpoint = self.optional("azure-endpoint", |it| endpoint(it, insecure));
        let prefix = self.optional("azure-blob-prefix", values::blob_prefix);
        AzureGiven { endpoint, prefix, insecure }
    }

    /// Reads the settings of an account.
    pub(super) fn azure(
        &mut self,
        account: String,
        container: String,
        given: AzureGiven,
        election: Option<&str>,
        request_timeout: Option<Duration>,
    ) -> Option<AzureSettings> {
        let faults = &mut self.layers.faults;
        let credential = credential(&account, self.environment, faults);
        let (proxy, no_proxy) = proxy(self.environment, faults);
        let endpoint = self.azure_endpoint(&account, &credential, &given)?;
        let (is_endpoint_given, election) = (given.endpoint?.is_some(), election?);
        Some(AzureSettings {
            endpoint,
            is_endpoint_given,
            account,
            container,
            blob: match given.prefix? {
                Some(prefix) => format!("{prefix}/{election}"),
                None => election.to_owned(),
            },
            credential,
            request_timeout: request_timeout?,
            proxy,
            no_proxy,
        })
    }

    /// Returns the endpoint of the lock, and judges the secret by it if there is one.
    fn azure_endpoint(
        &mut self,
        account: &str,
        credential: &AzureCredential,
        given: &AzureGiven,
    ) -> Option<Url> {
        let value = match credential.secret() {
            Some((form, SecretSource::Value(text))) => Some((form, text)),
            _ => None,
        };
        // A container of Azurite has a name of its own in each setup, which only the string says.
        let named = value.filter(|_| account == DEVELOPMENT_ACCOUNT).and_then(azurite);
        let usual = default_endpoint(account)?;
        let setting = given.endpoint.as_ref().and_then(Option::as_ref);
        let endpoint = setting.or(named.as_ref()).unwrap_or(&usual);
        // With a fault in the setting, the secret is judged by itself.
        let is_given = given.endpoint.as_ref().is_none_or(Option::is_some);
        let place = Place { account, endpoint, is_given };
        if let Some((form, text)) = value {
            let mut problems = place.read(form, text).err().unwrap_or_default();
            if !is_given && !given.insecure && is_remote_plain_http(endpoint) {
                let problem = format!("names the endpoint {}, which {PLAIN}", shown(endpoint));
                problems.push(Problem::new(problem, ALLOW));
            }
            let name = form.variable();
            let fault = |it| Fault::new(name, None, Source::Variable(name.to_owned()), it);
            self.layers.faults.extend(problems.into_iter().map(fault));
        } else if credential.secret().is_none() && is_remote_plain_http(endpoint) {
            let problem = "is plain http to another machine, and a token is never sent over it";
            let remedy = "write https://…, or sign in with a key or a signature";
            let source = self.source("azure-endpoint");
            let problem = Problem::new(problem, remedy);
            self.fault("azure-endpoint", Some(shown(endpoint)), source, problem);
        }
        self.warnings.extend(apart(&place, &usual));
        Some(endpoint.clone())
    }
}

/// Returns the endpoint that a connection string names for Azurite.
fn azurite((form, text): (SecretForm, &String)) -> Option<Url> {
    let text = secret::bare(text, form).ok().filter(|_| form == SecretForm::ConnectionString)?;
    let read = connection_string::parse(text).ok()?;
    (read.account == DEVELOPMENT_ACCOUNT).then_some(read.endpoint)
}

/// Warns of a lock that is elsewhere than `store` alone says.
fn apart(place: &Place<'_>, usual: &Url) -> Option<Warning> {
    let (endpoint, account) = (shown(place.endpoint), place.account());
    let problem = if account != place.account {
        format!(
            "it is the endpoint of the account {account}, but --store names {}: the lock is at \
             {endpoint}",
            place.account
        )
    } else if !place.is_given && place.endpoint != usual {
        format!(
            "it is not set, and the connection string names {endpoint}: an instance whose string \
             names another has a lock of its own"
        )
    } else {
        return None;
    };
    let remedy = format!("set azure-endpoint to {endpoint} for every instance");
    Some(Warning { subject: "azure-endpoint", problem, remedy })
}

/// Chooses the credential, in the order of preference.
///
/// Whether a machine has a managed identity can only be determined by a request to its endpoint. It
/// is assumed to have one unless the Azure CLI is logged in and nothing indicates a managed
/// identity: an endpoint or a client id in the environment, a pod, an Azure virtual machine.
fn credential(
    account: &str,
    environment: &Environment,
    faults: &mut Vec<Fault>,
) -> AzureCredential {
    type Make = fn(SecretSource) -> AzureCredential;
    let makes: [Make; 3] =
        [AzureCredential::ConnectionString, AzureCredential::Key, AzureCredential::Sas];
    // All are read before one is chosen, so that every fault is reported.
    let found = AZURE_CREDENTIALS.map(|name| given(name, environment, faults));
    if let Some(credential) = found.into_iter().zip(makes).find_map(|(it, make)| it.map(make)) {
        return credential;
    }
    if account == DEVELOPMENT_ACCOUNT {
        return AzureCredential::Key(SecretSource::Value(DEVELOPMENT_KEY.to_owned()));
    }
    let client_id = environment.get("AZURE_CLIENT_ID").map(str::to_owned);
    if let Some(token_file) = environment.get("AZURE_FEDERATED_TOKEN_FILE") {
        return AzureCredential::WorkloadIdentity {
            token_file: token_file.into(),
            client_id: required("AZURE_CLIENT_ID", environment, faults),
            tenant_id: required("AZURE_TENANT_ID", environment, faults),
            authority_host: environment.get("AZURE_AUTHORITY_HOST").map(str::to_owned),
        };
    }
    let managed = client_id.is_some()
        || environment.in_kubernetes()
        || environment.on_azure
        || ["IDENTITY_ENDPOINT", "MSI_ENDPOINT"].iter().any(|it| environment.get(it).is_some());
    if !managed && has_cli_sign_in(environment) {
        return AzureCredential::AzureCli;
    }
    AzureCredential::ManagedIdentity { client_id, assumed: !managed }
}

fn required(name: &str, environment: &Environment, faults: &mut Vec<Fault>) -> String {
    environment.get(name).map(str::to_owned).unwrap_or_else(|| {
        let problem = Problem::new(
            "is not set, and AZURE_FEDERATED_TOKEN_FILE is: workload identity needs both",
            format!(
                "set {name}; in AKS the webhook does it for pods with the label \
                 azure.workload.identity/use: \"true\" and an annotated service account"
            ),
        );
        faults.push(Fault::new(name, None, Source::Variable(name.to_owned()), problem));
        String::new()
    })
}

fn has_cli_sign_in(environment: &Environment) -> bool {
    let home = environment.get("HOME").map(|it| Path::new(it).join(".azure"));
    let directory = environment.get("AZURE_CONFIG_DIR").map(Path::new).map(Path::to_owned).or(home);
    directory.is_some_and(|it| it.join("azureProfile.json").is_file())
}

/// Returns the proxy for https and its exceptions.
fn proxy(environment: &Environment, faults: &mut Vec<Fault>) -> (Option<String>, Option<String>) {
    let either = |names: [&'static str; 2]| {
        names.into_iter().find_map(|name| environment.get(name).map(|it| (name, it)))
    };
    let proxy = either(["HTTPS_PROXY", "https_proxy"]);
    if let Some((name, value)) = proxy {
        let with_scheme =
            if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
        let usable = Url::parse(&with_scheme).is_ok_and(|url| url.has_host());
        if !usable {
            let shown = without_secrets(value);
            let problem = Problem::new("is not the address of a proxy", "write http://host:port");
            faults.push(Fault::new(name, Some(&shown), Source::Variable(name.to_owned()), problem));
        }
    }
    let no_proxy = either(["NO_PROXY", "no_proxy"]);
    (proxy.map(|(_, it)| it.to_owned()), no_proxy.map(|(_, it)| it.to_owned()))
}

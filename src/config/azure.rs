//! Settings of `azure:`: the endpoint and the credential.
//!
//! Files of secrets are not read here, and no credential is tried; the backend does that, again and
//! again while it runs. No message contains a secret.

use std::path::{Path, PathBuf};
use std::time::Duration;

use url::{Host, Url};

use super::endpoint;
use super::environment::Environment;
use super::faults::{Fault, Problem, Source, without_secrets};
use super::lock_url::below;
use super::secret::{self, SecretSource};
use super::store_url::DEVELOPMENT_ACCOUNT;
use super::table::AZURE_CREDENTIALS;

/// Settings of `azure:`.
#[derive(Clone, Debug)]
pub struct AzureSettings {
    /// The endpoint of the account, without a trailing slash.
    pub endpoint: Url,
    /// The name of the account.
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

    /// Returns the URL of the blob with the lease and the record, without any secret.
    #[must_use]
    pub fn lock_url(&self) -> Url {
        self.blob_url(&self.blob)
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

/// Azurite's key, which Microsoft documents; it is not secret.
const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Returns the default endpoint of an account.
pub(super) fn default_endpoint(account: &str) -> Option<Url> {
    let text = if account == DEVELOPMENT_ACCOUNT {
        format!("http://127.0.0.1:10000/{DEVELOPMENT_ACCOUNT}")
    } else {
        format!("https://{account}.blob.core.windows.net")
    };
    Url::parse(&text).ok()
}

/// Parses the endpoint of an account. Plain http is allowed beyond loopback only if `insecure`.
pub(super) fn endpoint(text: &str, insecure: bool) -> Result<Url, Problem> {
    const WRITE: &str = "write https://ACCOUNT.blob.DOMAIN, or http://127.0.0.1:10000/ACCOUNT for \
                         Azurite";
    const SECRETS: &str = "pass credentials in the environment, such as AZURE_STORAGE_SAS_TOKEN";
    let url = endpoint::read(text, WRITE, SECRETS)?;
    let is_address = !matches!(url.host(), Some(Host::Domain(_)));
    if is_address && url.path() == "/" {
        return Err(Problem::new(
            "names no account in its host or its path",
            format!("write {}/ACCOUNT", text.trim_end_matches('/')),
        ));
    }
    if !insecure && endpoint::is_remote_plain_http(&url) {
        return Err(Problem::new(
            "is plain http to another machine: anyone on the network path can read and change \
             everything",
            "write https://…, or allow it with --azure-insecure-http",
        ));
    }
    Ok(url)
}

/// Chooses the credential, in the order of preference.
///
/// Whether a machine has a managed identity can only be determined by a request to its endpoint. It
/// is assumed to have one unless the Azure CLI is logged in and nothing indicates a managed
/// identity: an endpoint or a client id in the environment, a pod, an Azure virtual machine.
pub(super) fn credential(
    account: &str,
    environment: &Environment,
    faults: &mut Vec<Fault>,
) -> AzureCredential {
    type Make = fn(SecretSource) -> AzureCredential;
    let makes: [Make; 3] =
        [AzureCredential::ConnectionString, AzureCredential::Key, AzureCredential::Sas];
    // All are read before one is chosen, so that every fault is reported.
    let found = AZURE_CREDENTIALS.map(|name| secret::given(name, environment, faults));
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
pub(super) fn proxy(
    environment: &Environment,
    faults: &mut Vec<Fault>,
) -> (Option<String>, Option<String>) {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn picked(variables: &[(&str, &str)]) -> (String, Vec<Fault>) {
        let mut faults = Vec::new();
        let credential =
            credential("acct", &Environment::of(variables.iter().copied()), &mut faults);
        (format!("{credential:?}"), faults)
    }

    #[test]
    fn credentials_are_chosen_in_the_documented_order() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".azure")).unwrap();
        std::fs::write(home.path().join(".azure/azureProfile.json"), "{}").unwrap();
        let mut variables = vec![
            ("HOME", home.path().to_str().unwrap()),
            ("IDENTITY_ENDPOINT", "http://127.0.0.1"),
            ("AZURE_FEDERATED_TOKEN_FILE", "/token"),
            ("AZURE_STORAGE_SAS_TOKEN", "sas"),
            ("AZURE_STORAGE_KEY_FILE", "/key"),
            ("AZURE_STORAGE_CONNECTION_STRING", "string"),
            ("AZURE_TENANT_ID", "tenant"),
            ("AZURE_CLIENT_ID", "client"),
        ];
        for (expected, next) in [
            ("ConnectionString(Value(…))", "AZURE_STORAGE_CONNECTION_STRING"),
            ("Key(File(\"/key\"))", "AZURE_STORAGE_KEY_FILE"),
            ("Sas(Value(…))", "AZURE_STORAGE_SAS_TOKEN"),
            ("WorkloadIdentity", "AZURE_FEDERATED_TOKEN_FILE"),
            ("ManagedIdentity { client_id: Some(\"client\"), assumed: false }", "AZURE_CLIENT_ID"),
            ("ManagedIdentity { client_id: None, assumed: false }", "IDENTITY_ENDPOINT"),
            ("AzureCli", "HOME"),
            ("ManagedIdentity { client_id: None, assumed: true }", ""),
        ] {
            let (credential, faults) = picked(&variables);
            assert!(credential.starts_with(expected), "{expected}: {credential}");
            assert_eq!(faults, []);
            variables.retain(|(name, _)| *name != next);
        }
    }

    #[test]
    fn a_secret_given_twice_is_a_fault_that_shows_no_secret() {
        let (_, faults) =
            picked(&[("AZURE_STORAGE_KEY", "hidden"), ("AZURE_STORAGE_KEY_FILE", "/key")]);
        let text = super::super::Faults(faults).to_string();
        assert!(text.contains("set twice") && !text.contains("hidden"), "{text}");
    }

    #[test]
    fn workload_identity_without_client_and_tenant_is_two_faults() {
        let (_, faults) = picked(&[("AZURE_FEDERATED_TOKEN_FILE", "/token")]);
        let names: Vec<_> = faults.iter().map(|it| it.setting.as_str()).collect();
        assert_eq!(names, ["AZURE_CLIENT_ID", "AZURE_TENANT_ID"]);
    }

    #[test]
    fn the_account_of_azurite_means_its_default_address_and_key() {
        let endpoint = default_endpoint(DEVELOPMENT_ACCOUNT).unwrap();
        assert_eq!(endpoint.as_str(), "http://127.0.0.1:10000/devstoreaccount1");
        let credential =
            credential(DEVELOPMENT_ACCOUNT, &Environment::of([("", "")]), &mut Vec::new());
        assert!(
            matches!(credential, AzureCredential::Key(SecretSource::Value(it)) if it == DEVELOPMENT_KEY)
        );
    }

    #[test]
    fn plain_http_stays_on_this_machine_unless_allowed() {
        for near in ["http://127.0.0.1:1/a", "http://[::1]:1/a", "http://localhost:1/a"] {
            assert!(endpoint(near, false).is_ok(), "{near}");
        }
        let far = "http://azurite.test:10000/a/";
        assert!(endpoint(far, false).unwrap_err().remedy.contains("--azure-insecure-http"));
        assert_eq!(endpoint(far, true).unwrap().as_str(), "http://azurite.test:10000/a");
        for bad in [
            "ftp://a/b",
            "https://",
            "x",
            "https://u:p@h",
            "https://h/?sig=x",
            "http://127.0.0.1:1",
        ] {
            assert!(endpoint(bad, true).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_endpoint_never_ends_with_a_slash() {
        for text in
            ["https://h/a", "https://h/a/", "https://h/a//", "https://h/a//.", "https://h/a/b/.."]
        {
            assert_eq!(endpoint(text, false).unwrap().as_str(), "https://h/a", "{text}");
        }
        assert_eq!(endpoint("https://h//.", false).unwrap().as_str(), "https://h/");
    }

    #[test]
    fn a_proxy_variable_has_either_case_and_must_be_valid() {
        let mut faults = Vec::new();
        let environment = Environment::of([("https_proxy", "proxy:3128"), ("NO_PROXY", "a,b")]);
        let (proxy_url, no_proxy) = proxy(&environment, &mut faults);
        assert_eq!((proxy_url.as_deref(), no_proxy.as_deref()), (Some("proxy:3128"), Some("a,b")));
        assert_eq!(faults, []);
        proxy(&Environment::of([("HTTPS_PROXY", "http://me:hidden@:x")]), &mut faults);
        let text = super::super::Faults(faults).to_string();
        assert!(text.contains("not the address") && !text.contains("hidden"), "{text}");
    }

    proptest! {
        #[test]
        fn no_endpoint_panics(text in "(https?://)?.{0,60}", insecure: bool) {
            let _ = endpoint(&text, insecure);
        }
    }
}

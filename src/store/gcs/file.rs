//! The files of credentials that `gcloud` writes, by the formats of AIP-4110 to AIP-4117 at google.aip.dev.
//! What Tenure does not use is refused by its kind.

use std::path::PathBuf;

use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;
use url::Host;

/// The types that are used.
const TYPES: [&str; 5] = [
    "service_account",
    "authorized_user",
    "external_account",
    "external_account_authorized_user",
    "impersonated_service_account",
];

/// The cloud whose servers are asked.
const UNIVERSE: &str = "googleapis.com";

/// Where clouds give machines and containers their tokens: by http, since nobody is between.
const METADATA: [&str; 5] =
    ["169.254.169.254", "169.254.170.2", "[fd00:ec2::254]", "metadata.google.internal", "metadata"];

/// The file of a credential.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum CredentialFile {
    ServiceAccount {
        client_email: String,
        private_key: String,
        #[serde(default)]
        private_key_id: String,
        token_uri: Url,
    },
    AuthorizedUser {
        client_id: String,
        client_secret: String,
        refresh_token: String,
        #[serde(default)]
        token_uri: Option<Url>,
    },
    ExternalAccount(Box<ExternalAccount>),
    /// The login of a user of a workforce pool.
    ExternalAccountAuthorizedUser {
        client_id: String,
        client_secret: String,
        refresh_token: String,
        token_url: Url,
    },
    ImpersonatedServiceAccount {
        service_account_impersonation_url: Url,
        #[serde(default)]
        delegates: Vec<String>,
        source_credentials: Box<Self>,
    },
}

/// An identity of another cloud or cluster.
#[derive(Deserialize)]
pub(super) struct ExternalAccount {
    pub(super) audience: String,
    pub(super) subject_token_type: String,
    pub(super) token_url: Url,
    #[serde(default)]
    pub(super) service_account_impersonation_url: Option<Url>,
    #[serde(default)]
    pub(super) service_account_impersonation: Lifetime,
    /// The client that the token service knows, where there is one.
    #[serde(default)]
    pub(super) client_id: Option<String>,
    #[serde(default)]
    pub(super) client_secret: String,
    /// The project that requests count for, of a user of a workforce pool.
    #[serde(default)]
    pub(super) workforce_pool_user_project: Option<String>,
    pub(super) credential_source: CredentialSource,
}

/// For how long another identity is lent.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Lifetime {
    pub(super) token_lifetime_seconds: Option<u32>,
}

/// Where the token of another cloud or cluster is.
#[derive(Deserialize)]
pub(super) struct CredentialSource {
    #[serde(default)]
    pub(super) file: Option<PathBuf>,
    #[serde(default)]
    pub(super) url: Option<Url>,
    #[serde(default)]
    pub(super) headers: serde_json::Map<String, Value>,
    #[serde(default)]
    pub(super) format: Format,
    #[serde(default)]
    environment_id: Option<String>,
    #[serde(default)]
    executable: Option<Value>,
    #[serde(default)]
    certificate: Option<Value>,
}

/// Whether it is there as it is, or in a field of JSON.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Format {
    pub(super) subject_token_field_name: Option<String>,
}

impl CredentialFile {
    /// Reads a file, or returns what is wrong with it.
    pub(super) fn read(content: &[u8]) -> Result<Self, String> {
        let json: Value =
            serde_json::from_slice(content).map_err(|_| "it is not JSON".to_owned())?;
        let kind = json["type"].as_str().unwrap_or_default().to_owned();
        if let Some(other) = json["universe_domain"].as_str().filter(|it| *it != UNIVERSE) {
            return Err(format!(
                "it belongs to the cloud {other:?}, and Tenure reaches {UNIVERSE} alone"
            ));
        }
        let file: Self =
            serde_json::from_value(json).map_err(|error| match TYPES.contains(&kind.as_str()) {
                true => format!("a credential of the type {kind} is incomplete: {error}"),
                false => format!("its type {kind:?} is none of {}", TYPES.join(", ")),
            })?;
        file.check()?;
        match file.servers().into_iter().find(|it| !is_private(it)) {
            Some(url) => Err(format!(
                "it names {}, which is not reached by https",
                url.host_str().unwrap_or("no host")
            )),
            None => Ok(file),
        }
    }

    /// Checks that the source of a token is of a kind that is used.
    fn check(&self) -> Result<(), String> {
        let source = match self {
            Self::ExternalAccount(it) => &it.credential_source,
            Self::ImpersonatedServiceAccount { source_credentials, .. } => {
                return source_credentials.check();
            }
            _ => return Ok(()),
        };
        let (what, remedy) = match source {
            CredentialSource { environment_id: Some(_), .. } => (
                "is signed by a key of AWS (create-cred-config --aws)",
                "use --credential-source-file or --credential-source-url with a token of OpenID Connect, such \
                 as that of a pod in EKS",
            ),
            CredentialSource { executable: Some(_), .. } => (
                "is what a command prints (create-cred-config --executable-command)",
                "let the command write a file, and use --credential-source-file",
            ),
            CredentialSource { certificate: Some(_), .. } => (
                "is a certificate (create-cred-config --credential-cert-path)",
                "use --credential-source-file or --credential-source-url",
            ),
            CredentialSource { file: None, url: None, .. } => {
                ("has an unknown source", "use --credential-source-file or --credential-source-url")
            }
            _ => return Ok(()),
        };
        Err(format!("its token {what}, which Tenure does not use: {remedy}"))
    }

    /// Returns the servers that it names.
    pub(super) fn servers(&self) -> Vec<&Url> {
        match self {
            Self::ServiceAccount { token_uri, .. } => vec![token_uri],
            Self::AuthorizedUser { token_uri, .. } => token_uri.iter().collect(),
            Self::ExternalAccount(it) => {
                let lent = it.service_account_impersonation_url.iter();
                // What is asked there has no secret: a machine gets its own token.
                let source = it.credential_source.url.iter().filter(|it| !is_metadata(it));
                std::iter::once(&it.token_url).chain(lent).chain(source).collect()
            }
            Self::ExternalAccountAuthorizedUser { token_url, .. } => vec![token_url],
            Self::ImpersonatedServiceAccount {
                service_account_impersonation_url,
                source_credentials,
                ..
            } => {
                let mut servers = source_credentials.servers();
                servers.push(service_account_impersonation_url);
                servers
            }
        }
    }
}

fn is_metadata(url: &Url) -> bool {
    url.scheme() == "http" && url.host_str().is_some_and(|it| METADATA.contains(&it))
}

/// Returns whether nobody between can read what is sent there: by https, or to this machine.
fn is_private(url: &Url) -> bool {
    let is_near = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || url.scheme() == "http" && is_near
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A file of each kind that gcloud writes, as far as it is told apart.
    fn external(source: Value) -> Value {
        json!({
            "universe_domain": "googleapis.com", "type": "external_account", "audience": "pool",
            "subject_token_type": "jwt", "token_url": "https://sts.googleapis.com/v1/token",
            "credential_source": source,
        })
    }

    #[test]
    fn each_kind_of_file_is_read_or_refused_by_its_name() {
        let user = json!({
            "type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r",
        });
        let workforce = json!({
            "type": "external_account_authorized_user", "audience": "pool", "client_id": "i",
            "client_secret": "s", "refresh_token": "r",
            "token_url": "https://sts.googleapis.com/v1/oauthtoken",
        });
        let impersonated = |source: &Value| {
            json!({
                "type": "impersonated_service_account", "delegates": [],
                "service_account_impersonation_url": "https://iamcredentials.googleapis.com/x",
                "source_credentials": source,
            })
        };
        let aws = external(json!({
            "environment_id": "aws1", "url": "http://169.254.169.254/latest/x",
            "regional_cred_verification_url": "https://sts.{region}.amazonaws.com",
        }));
        let azure = json!({
            "url": "http://169.254.169.254/metadata/identity/oauth2/token?resource=x",
            "headers": {"Metadata": "True"},
            "format": {"type": "json", "subject_token_field_name": "access_token"},
        });
        for (file, refused) in [
            (user.clone(), ""),
            (workforce.clone(), ""),
            (impersonated(&user), ""),
            (impersonated(&workforce), ""),
            (external(json!({"file": "/token"})), ""),
            (external(json!({"url": "https://h/token"})), ""),
            (external(azure), ""),
            (
                external(json!({"url": "http://h/token"})),
                "it names h, which is not reached by https",
            ),
            (external(json!({"executable": {"command": "x"}})), "--executable-command"),
            (external(json!({"certificate": {}})), "is a certificate"),
            (external(json!({})), "unknown source"),
            (impersonated(&aws), "signed by a key of AWS"),
            (aws, "signed by a key of AWS"),
            (
                json!({"type": "gdch_service_account"}),
                "is none of service_account, authorized_user",
            ),
            (json!({"type": "service_account"}), "of the type service_account is incomplete"),
            (
                json!({"type": "authorized_user", "universe_domain": "x.test"}),
                "the cloud \"x.test\"",
            ),
        ] {
            match CredentialFile::read(file.to_string().as_bytes()) {
                Ok(_) => assert_eq!(refused, "", "{file}"),
                Err(why) => assert!(!refused.is_empty() && why.contains(refused), "{file}: {why}"),
            }
        }
        assert!(CredentialFile::read(b"").err().unwrap().contains("it is not JSON"));
    }

    #[test]
    fn secrets_are_sent_by_https_or_to_this_machine_alone() {
        for (url, expected) in [
            ("https://h/t", true),
            ("http://localhost:1/t", true),
            ("http://127.0.0.2/t", true),
            ("http://[::1]/t", true),
            ("http://h/t", false),
            ("http://10.0.0.1/t", false),
            ("http://169.254.169.254/t", false),
            ("http://[fe80::1]/t", false),
            ("ftp://localhost/t", false),
        ] {
            assert_eq!(is_private(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}

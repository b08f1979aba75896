//! The variables that CMD, hooks and probes do not inherit from Tenure: those that address Tenure
//! alone, and unless `pass-credentials` is set, those that hold a secret of Tenure's. The credentials of a
//! store that it does not use are none of its secrets.
//!
//! A variable with the path of a secret's file is inherited, since withholding it would protect
//! nothing: a child process runs as the same user and can read the same files.

use super::environment::{Environment, OURS_ALONE};
use super::store_url::StoreUrl;
use super::table::{
    AWS_CREDENTIALS, AZURE_CREDENTIALS, CONSUL_CREDENTIALS, ETCD_CREDENTIALS, Kind,
    MONGODB_CREDENTIALS, POSTGRES_CREDENTIALS, REDIS_CREDENTIALS, SETTINGS, Setting,
    ZOOKEEPER_CREDENTIALS,
};

/// The secrets with which Azure's managed identity is asked for tokens, where it has any.
const IDENTITY: [&str; 2] = ["IDENTITY_HEADER", "MSI_SECRET"];

/// The secret with which the identity of a task or a pod is asked for credentials of AWS.
const CONTAINER: [&str; 1] = ["AWS_CONTAINER_AUTHORIZATION_TOKEN"];

/// The variables with the secrets of a store.
pub(super) type StoreSecrets = [&'static [&'static str]; 2];

/// Returns those of a store; `None` stands for the default store.
pub(super) fn of_store(store: Option<&StoreUrl>) -> StoreSecrets {
    match store {
        Some(StoreUrl::Azure { .. }) => [&AZURE_CREDENTIALS, &IDENTITY],
        Some(StoreUrl::Consul { .. }) => [&CONSUL_CREDENTIALS, &[]],
        Some(StoreUrl::Etcd { .. }) => [&ETCD_CREDENTIALS, &[]],
        Some(StoreUrl::Mongo { .. }) => [&MONGODB_CREDENTIALS, &[]],
        Some(StoreUrl::Postgres { .. }) => [&POSTGRES_CREDENTIALS, &[]],
        Some(StoreUrl::Redis { .. }) => [&REDIS_CREDENTIALS, &[]],
        Some(StoreUrl::S3 { .. }) => [&AWS_CREDENTIALS, &CONTAINER],
        Some(StoreUrl::Zookeeper { .. }) => [&ZOOKEEPER_CREDENTIALS, &[]],
        Some(
            StoreUrl::File(_)
            | StoreUrl::Kubernetes { .. }
            | StoreUrl::Gcs { .. }
            | StoreUrl::Memory,
        )
        | None => [&[], &[]],
    }
}

/// The variables of proxies, whose URLs may have a user and password.
const PROXIES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// How the environment of a child process differs from Tenure's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Withheld(Vec<(String, Option<String>)>);

impl Withheld {
    /// Returns what is withheld of these variables.
    pub(super) fn of(
        environment: &Environment,
        store: StoreSecrets,
        pass_credentials: bool,
    ) -> Self {
        let mut changes: Vec<_> = OURS_ALONE.iter().map(|it| ((*it).to_owned(), None)).collect();
        if pass_credentials {
            return Self(changes);
        }
        let settings = SETTINGS.iter().filter(|it| may_hold_secret(it)).map(Setting::variable);
        let secrets = store.into_iter().flatten().map(|it| (*it).to_owned());
        changes.extend(secrets.chain(settings).map(|it| (it, None)));
        for name in PROXIES {
            let without = environment.get(name).map(without_user);
            if environment.is_not_utf8(name) || without.as_deref() != environment.get(name) {
                changes.push((name.to_owned(), without));
            }
        }
        Self(changes)
    }

    /// Returns the variables to change: to another value, or `None` to remove them.
    pub fn changes(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_deref()))
    }

    /// Returns the names of the variables that hold a secret in this environment.
    pub(super) fn secrets_in(&self, environment: &Environment) -> Vec<&str> {
        let is_secret =
            |it: &&str| !OURS_ALONE.contains(it) && environment.names().any(|name| name == *it);
        self.changes().map(|it| it.0).filter(is_secret).collect()
    }
}

/// Returns whether values of a setting may contain a secret: in the URL of a webhook or a probe, or
/// in the arguments of a command.
fn may_hold_secret(setting: &Setting) -> bool {
    matches!(setting.kind, Kind::Text("HOOK" | "PROBE", _))
}

/// Returns the URL of a proxy without user and password.
fn without_user(url: &str) -> String {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + 3));
    // The last @, since a password may contain another.
    format!("{scheme}{}", &rest[rest.rfind('@').map_or(0, |at| at + 1)..])
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::super::{Flags, Verb, load};

    /// The store, and the variables of its secrets.
    const SECRETS: &[(&str, &[&str])] = &[
        ("consul://127.0.0.1:1/x", &["CONSUL_HTTP_TOKEN"]),
        #[cfg(feature = "mongodb")]
        ("mongodb://127.0.0.1/x", &["MONGODB_USERNAME", "MONGODB_PASSWORD"]),
        ("etcd://127.0.0.1:1/x", &["ETCD_USERNAME", "ETCD_PASSWORD"]),
        ("postgres://127.0.0.1/x", &["PGUSER", "PGPASSWORD"]),
        ("redis://127.0.0.1", &["REDIS_USERNAME", "REDIS_PASSWORD"]),
        ("zookeeper://127.0.0.1:1/x", &["ZOOKEEPER_AUTH"]),
        (
            "azure://acct/leases",
            &["AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "IDENTITY_HEADER", "MSI_SECRET"],
        ),
        (
            "s3://leases",
            &[
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
                "AWS_SESSION_TOKEN",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN",
            ],
        ),
    ];

    /// The settings that may hold a secret.
    const SETTINGS: [(&str, &str); 2] = [
        ("TENURE_ON_ACTIVE", "https://hooks.test/hidden"),
        ("TENURE_HEALTH", "http://127.0.0.1/?key=hidden"),
    ];

    #[test]
    fn every_secret_of_the_store_in_use_is_withheld_and_no_other() {
        for &(url, names) in SECRETS {
            let all = SECRETS.iter().flat_map(|it| it.1).map(|it| (*it, "hiddenhidden"));
            let all = all.chain([("ZOOKEEPER_AUTH", "digest:me:hidden")]);
            let others = [("TENURE_ELECTION", "orders"), ("AWS_REGION", "eu-west-1")];
            let environment = Environment::of(all.chain(SETTINGS).chain(others));
            let flags = Flags::from_iter([("store", vec![url.to_owned()])]);
            let loaded = load(&flags, &environment, Verb::Run).expect("they are valid");
            let mut secrets = loaded.settings.withheld.secrets_in(&environment);
            secrets.sort_unstable();
            let mut expected = [names, &SETTINGS.map(|it| it.0)].concat();
            expected.sort_unstable();
            assert_eq!(secrets, expected, "{url}");
            assert!(loaded.settings.withheld.changes().all(|it| it.1.is_none()));
            let passed = Withheld::of(&environment, [names, &[]], true);
            assert_eq!(passed.changes().map(|it| it.0).collect::<Vec<_>>(), OURS_ALONE);
        }
    }

    #[test]
    fn a_proxy_is_inherited_without_its_password() {
        for (given, inherited) in [
            ("http://me:hidden@proxy:3128", "http://proxy:3128"),
            ("me:hid@den@proxy:3128/", "proxy:3128/"),
            ("http://me:hid/den@proxy", "http://proxy"),
        ] {
            for name in PROXIES {
                let withheld = Withheld::of(&Environment::of([(name, given)]), [&[], &[]], false);
                let changed: Vec<_> = withheld.changes().filter(|it| it.1.is_some()).collect();
                assert_eq!(changed, [(name, Some(inherited))]);
            }
        }
        let plain = Environment::of([("HTTPS_PROXY", "http://proxy:3128")]);
        assert!(Withheld::of(&plain, [&[], &[]], false).secrets_in(&plain).is_empty());
    }
}

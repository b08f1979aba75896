//! The variables that the clients of each store's own maker read. Each is used, or a warning says that it is set
//! and not used: none is ignored in silence. `tests/generate` makes the table of docs/variables.md of it.

use super::environment::Environment;
use super::faults::Warning;
use super::settings::StoreSettings;

/// What Tenure makes of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Tenure reads it: what it is.
    Read(&'static str),
    /// Tenure does not read it; a warning says what to set instead.
    Instead(&'static str),
    /// It changes nothing that a lease depends on: how a client prints or names itself. Nothing is said.
    Nothing,
}

use Use::{Instead, Nothing, Read};

/// The variables of one kind of store.
#[derive(Debug)]
pub struct Variables {
    /// The scheme of the store's URL.
    pub store: &'static str,
    /// Whose clients read them.
    pub clients: &'static str,
    /// The variables, by name, and what Tenure makes of them.
    pub all: &'static [(&'static str, Use)],
}

const CA: Use = Instead("set `--store-ca-file`");
const CERT: Use = Instead("set `--store-cert`");
const KEY: Use = Instead("set `--store-key`");
const STORE: Use = Instead("`--store` names the servers");
const TIMEOUT: Use = Instead("set `--request-timeout`");
const RETRIES: Use = Instead("set `--retry-period`: each request is sent once");
const PROXY: Use =
    Instead("requests to this store use no proxy: let this host reach the server itself");

/// All of them, by store.
pub const VARIABLES: &[Variables] = &[
    Variables { store: "azure", clients: "Azure's SDKs and `az`", all: AZURE },
    Variables { store: "consul", clients: "`consul`", all: CONSUL },
    Variables { store: "etcd", clients: "`etcdctl`", all: ETCD },
    Variables { store: "gs", clients: "Google's SDKs and `gcloud`", all: GOOGLE },
    Variables { store: "kubernetes", clients: "client-go and `kubectl`", all: KUBERNETES },
    Variables { store: "mongodb", clients: "MongoDB's tools", all: MONGODB },
    Variables { store: "postgres", clients: "libpq", all: POSTGRES },
    Variables { store: "redis", clients: "`redis-cli` and `valkey-cli`", all: REDIS },
    Variables { store: "s3", clients: "AWS's SDKs and `aws`", all: AWS },
    Variables { store: "zookeeper", clients: "`zkCli.sh`", all: ZOOKEEPER },
];

const AZURE: &[(&str, Use)] = &[
    ("AZURE_STORAGE_CONNECTION_STRING", Read("connection string; also `…_FILE`")),
    ("AZURE_STORAGE_KEY", Read("account key; also `…_FILE`")),
    ("AZURE_STORAGE_SAS_TOKEN", Read("shared access signature; also `…_FILE`")),
    ("AZURE_FEDERATED_TOKEN_FILE", Read("token of workload identity")),
    ("AZURE_CLIENT_ID", Read("application, or user-assigned identity")),
    ("AZURE_TENANT_ID", Read("tenant of workload identity")),
    ("AZURE_AUTHORITY_HOST", Read("where workload identity signs in")),
    ("AZURE_CONFIG_DIR", Read("directory of the sign-in of `az`")),
    ("IDENTITY_ENDPOINT", Read("endpoint of a managed identity")),
    ("IDENTITY_HEADER", Read("secret of that endpoint")),
    ("MSI_ENDPOINT", Read("older name of that endpoint")),
    ("MSI_SECRET", Read("older name of its secret")),
    ("HTTPS_PROXY", Read("proxy; also in lower case")),
    ("NO_PROXY", Read("hosts without the proxy; also in lower case")),
    ("AZURE_STORAGE_ACCOUNT", Instead("`--store` names the account")),
    ("AZURE_STORAGE_SERVICE_ENDPOINT", Instead("set `--azure-endpoint`")),
    ("AZURE_STORAGE_BLOB_ENDPOINT", Instead("set `--azure-endpoint`")),
    ("AZURE_STORAGE_AUTH_MODE", Instead("the credential that is set decides")),
    ("AZURE_CLIENT_SECRET", Instead(SECRET)),
    ("AZURE_CLIENT_CERTIFICATE_PATH", Instead(SECRET)),
    ("AZURE_CLIENT_CERTIFICATE_PASSWORD", Instead(SECRET)),
    ("AZURE_CLIENT_SEND_CERTIFICATE_CHAIN", Instead(SECRET)),
    ("AZURE_USERNAME", Instead(SECRET)),
    ("AZURE_PASSWORD", Instead(SECRET)),
    ("AZURE_TOKEN_CREDENTIALS", Instead("the credential that is set decides")),
    ("AZURE_ADDITIONALLY_ALLOWED_TENANTS", Instead("set `AZURE_TENANT_ID`")),
    ("AZURE_REGIONAL_AUTHORITY_NAME", Instead("set `AZURE_AUTHORITY_HOST`")),
    ("AZURE_POD_IDENTITY_AUTHORITY_HOST", Instead("use workload identity")),
    ("AZURE_SUBSCRIPTION_ID", Nothing),
    ("AZURE_RESOURCE_GROUP", Nothing),
];

const SECRET: &str = "use a managed identity, workload identity, or `AZURE_STORAGE_SAS_TOKEN`";

const CONSUL: &[(&str, Use)] = &[
    ("CONSUL_HTTP_TOKEN", Read("token")),
    ("CONSUL_HTTP_TOKEN_FILE", Read("file with the token")),
    ("CONSUL_HTTP_ADDR", STORE),
    ("CONSUL_HTTP_SSL", Instead("TLS is on beyond loopback, and with `--store-ca-file` there too")),
    ("CONSUL_HTTP_SSL_VERIFY", Instead("certificates are always verified; set `--store-ca-file`")),
    ("CONSUL_HTTP_AUTH", Instead("use a token: HTTP's own sign-in is not sent")),
    ("CONSUL_CACERT", CA),
    ("CONSUL_CAPATH", Instead("set `--store-ca-file` to one file with all authorities")),
    ("CONSUL_CLIENT_CERT", CERT),
    ("CONSUL_CLIENT_KEY", KEY),
    ("CONSUL_TLS_SERVER_NAME", Instead("name the host in `--store` as the certificate does")),
    ("CONSUL_NAMESPACE", Instead("keys are in the token's own namespace")),
    ("CONSUL_PARTITION", Instead("keys are in the partition of the agent")),
    ("CONSUL_GRPC_ADDR", Nothing),
    ("CONSUL_GRPC_CACERT", Nothing),
    ("CONSUL_GRPC_CAPATH", Nothing),
];

const ETCD: &[(&str, Use)] = &[
    ("ETCD_USERNAME", Read("user; also `…_FILE`")),
    ("ETCD_PASSWORD", Read("its password; also `…_FILE`")),
    ("ETCDCTL_USER", Instead("set `ETCD_USERNAME` and `ETCD_PASSWORD`")),
    ("ETCDCTL_PASSWORD", Instead("set `ETCD_PASSWORD`")),
    ("ETCDCTL_AUTH_JWT_TOKEN", Instead("set `ETCD_USERNAME` and `ETCD_PASSWORD`")),
    ("ETCDCTL_ENDPOINTS", STORE),
    ("ETCDCTL_CACERT", CA),
    ("ETCDCTL_CERT", CERT),
    ("ETCDCTL_KEY", KEY),
    (
        "ETCDCTL_INSECURE_SKIP_TLS_VERIFY",
        Instead("certificates are always verified; set `--store-ca-file`"),
    ),
    (
        "ETCDCTL_INSECURE_TRANSPORT",
        Instead("TLS is on beyond loopback; `--store-insecure` turns it off"),
    ),
    ("ETCDCTL_DISCOVERY_SRV", STORE),
    ("ETCDCTL_DISCOVERY_SRV_NAME", STORE),
    ("ETCDCTL_INSECURE_DISCOVERY", STORE),
    ("ETCDCTL_DIAL_TIMEOUT", TIMEOUT),
    ("ETCDCTL_COMMAND_TIMEOUT", TIMEOUT),
    ("ETCDCTL_KEEPALIVE_TIME", TIMEOUT),
    ("ETCDCTL_KEEPALIVE_TIMEOUT", TIMEOUT),
    ("ETCDCTL_API", Nothing),
    ("ETCDCTL_DEBUG", Nothing),
    ("ETCDCTL_HEX", Nothing),
    ("ETCDCTL_WRITE_OUT", Nothing),
];

const GOOGLE: &[(&str, Use)] = &[
    ("GOOGLE_APPLICATION_CREDENTIALS", Read("file of a credential")),
    ("CLOUDSDK_CONFIG", Read("directory of the login of `gcloud`")),
    (
        "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES",
        Instead("a credential that names a command is not used"),
    ),
    ("GCE_METADATA_HOST", Read("metadata server")),
    ("GCE_METADATA_ROOT", Read("older name of it")),
    ("NO_GCE_CHECK", Read("`true` excludes the metadata server")),
    ("STORAGE_EMULATOR_HOST", Read("emulator")),
    ("GCE_METADATA_IP", Instead("set `GCE_METADATA_HOST`")),
    ("GCE_METADATA_TIMEOUT", Instead("the metadata server has 5 seconds for its answer")),
    ("GOOGLE_CLOUD_QUOTA_PROJECT", Instead("requests count for the project of the credential")),
    ("GOOGLE_CLOUD_UNIVERSE_DOMAIN", Instead("Tenure reaches `storage.googleapis.com` alone")),
    ("GOOGLE_API_USE_CLIENT_CERTIFICATE", Instead("requests carry no client certificate")),
    ("GOOGLE_API_USE_MTLS_ENDPOINT", Instead("requests carry no client certificate")),
    ("GOOGLE_API_CERTIFICATE_CONFIG", Instead("requests carry no client certificate")),
    ("CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", Instead("set `GOOGLE_APPLICATION_CREDENTIALS`")),
    ("CLOUDSDK_AUTH_ACCESS_TOKEN", Instead("set `GOOGLE_APPLICATION_CREDENTIALS`")),
    ("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", Instead("set `GOOGLE_APPLICATION_CREDENTIALS`")),
    ("CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT", Instead(IMPERSONATE)),
    ("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", Instead("set `STORAGE_EMULATOR_HOST`")),
    ("CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", CA),
    ("BOTO_CONFIG", Instead("set `GOOGLE_APPLICATION_CREDENTIALS`")),
    ("HTTPS_PROXY", PROXY),
    ("https_proxy", PROXY),
    ("CLOUDSDK_CORE_PROJECT", Nothing),
    ("CLOUDSDK_ACTIVE_CONFIG_NAME", Nothing),
    ("GOOGLE_CLOUD_PROJECT", Nothing),
    ("GCLOUD_PROJECT", Nothing),
];

const IMPERSONATE: &str = "run `gcloud auth application-default login --impersonate-service-account=…`, whose file is read";

const KUBERNETES: &[(&str, Use)] = &[
    ("KUBERNETES_SERVICE_HOST", Read("API server of a pod")),
    ("KUBERNETES_SERVICE_PORT", Read("its port")),
    ("KUBECONFIG", Instead("set `--kube-api`, `--kube-token-file` and `--kube-ca-file`")),
    ("KUBERNETES_MASTER", Instead("set `--kube-api`")),
];

const MONGODB: &[(&str, Use)] = &[
    ("MONGODB_USERNAME", Read("user; also `…_FILE`")),
    ("MONGODB_PASSWORD", Read("its password; also `…_FILE`")),
    ("MONGODB_URI", STORE),
    ("MONGODB_URL", STORE),
    ("MONGODB_CONNECTION_STRING", STORE),
    ("MONGO_URL", STORE),
    ("MONGO_URI", STORE),
];

const POSTGRES: &[(&str, Use)] = &[
    ("PGUSER", Read("user; also `…_FILE`")),
    ("PGPASSWORD", Read("its password; also `…_FILE`")),
    ("PGPASSFILE", Read("file of passwords")),
    ("PGSSLMODE", Read("whether TLS is used")),
    ("PGHOST", STORE),
    ("PGHOSTADDR", STORE),
    ("PGPORT", STORE),
    ("PGDATABASE", Instead("`--store` names the database")),
    ("PGSERVICE", STORE),
    ("PGSERVICEFILE", STORE),
    ("PGSYSCONFDIR", STORE),
    ("PGSSLROOTCERT", CA),
    ("PGSSLCERT", CERT),
    ("PGSSLKEY", KEY),
    ("PGSSLCRL", Instead(REVOKED)),
    ("PGSSLCRLDIR", Instead(REVOKED)),
    ("PGSSLCERTMODE", Instead("a certificate is presented where `--store-cert` is set")),
    ("PGSSLMINPROTOCOLVERSION", Instead("TLS is 1.2 or 1.3")),
    ("PGSSLMAXPROTOCOLVERSION", Instead("TLS is 1.2 or 1.3")),
    ("PGSSLNEGOTIATION", Instead("TLS begins after the server has agreed to it")),
    ("PGSSLSNI", Instead("the server is told the host in `--store`")),
    ("PGREQUIRESSL", Instead("set `PGSSLMODE=verify-full`")),
    (
        "PGREQUIREAUTH",
        Instead("the server chooses the method: use TLS, so that it is the right server"),
    ),
    ("PGCHANNELBINDING", Instead("use TLS: the server is known by its certificate")),
    ("PGREQUIREPEER", Instead("sockets are not used")),
    ("PGGSSENCMODE", Instead("GSSAPI is not used: set a password or `--store-cert`")),
    ("PGGSSLIB", Instead("GSSAPI is not used: set a password or `--store-cert`")),
    ("PGGSSDELEGATION", Instead("GSSAPI is not used: set a password or `--store-cert`")),
    ("PGKRBSRVNAME", Instead("GSSAPI is not used: set a password or `--store-cert`")),
    ("PGCONNECT_TIMEOUT", TIMEOUT),
    ("PGOPTIONS", Instead("set it for the user: `ALTER ROLE … SET …`")),
    ("PGTARGETSESSIONATTRS", Instead("the primary is found among the servers in `--store`")),
    ("PGLOADBALANCEHOSTS", Instead("the primary is found among the servers in `--store`")),
    ("PGMINPROTOCOLVERSION", Instead("the protocol is 3.0")),
    ("PGMAXPROTOCOLVERSION", Instead("the protocol is 3.0")),
    ("PGAPPNAME", Nothing),
    ("PGCLIENTENCODING", Nothing),
    ("PGDATESTYLE", Nothing),
    ("PGGEQO", Nothing),
    ("PGLOCALEDIR", Nothing),
    ("PGTZ", Nothing),
];

const REVOKED: &str =
    "no list of revoked certificates is read: give `--store-ca-file` an authority of its own";

const REDIS: &[(&str, Use)] = &[
    ("REDIS_USERNAME", Read("user; also `…_FILE`")),
    ("REDIS_PASSWORD", Read("its password; also `…_FILE`")),
    ("REDISCLI_AUTH", Instead("set `REDIS_PASSWORD`")),
    ("VALKEYCLI_AUTH", Instead("set `REDIS_PASSWORD`")),
    ("REDIS_URL", STORE),
    ("VALKEY_URL", STORE),
    ("REDISCLI_CLUSTER_YES", Nothing),
    ("REDISCLI_HISTFILE", Nothing),
    ("REDISCLI_RCFILE", Nothing),
];

const AWS: &[(&str, Use)] = &[
    ("AWS_ACCESS_KEY_ID", Read("id of a key; also `…_FILE`")),
    ("AWS_SECRET_ACCESS_KEY", Read("the key; also `…_FILE`")),
    ("AWS_SESSION_TOKEN", Read("its session; also `…_FILE`")),
    ("AWS_PROFILE", Read("profile")),
    ("AWS_DEFAULT_PROFILE", Read("profile, where `AWS_PROFILE` is not set")),
    ("AWS_SHARED_CREDENTIALS_FILE", Read("file of profiles with keys")),
    ("AWS_CONFIG_FILE", Read("file of profiles with settings")),
    ("AWS_REGION", Read("region")),
    ("AWS_DEFAULT_REGION", Read("region, where `AWS_REGION` is not set")),
    ("AWS_ENDPOINT_URL_S3", Read("server")),
    ("AWS_ENDPOINT_URL", Read("server, where none is set for the service")),
    ("AWS_ENDPOINT_URL_STS", Read("token service")),
    ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", Read("`true`: variables and profiles name no server")),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", Read("token of a pod (IRSA)")),
    ("AWS_ROLE_ARN", Read("its role")),
    ("AWS_ROLE_SESSION_NAME", Read("the name of its session")),
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", Read("role of a task")),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", Read("role of a task or a pod")),
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN", Read("secret of that; also `…_FILE`")),
    ("AWS_EC2_METADATA_DISABLED", Read("`true` excludes the role of the machine")),
    ("AWS_EC2_METADATA_SERVICE_ENDPOINT", Read("metadata service")),
    ("AWS_SECURITY_TOKEN", Instead("set `AWS_SESSION_TOKEN`")),
    ("AWS_CA_BUNDLE", CA),
    ("AWS_USE_FIPS_ENDPOINT", Instead("set `--s3-endpoint https://s3-fips.REGION.amazonaws.com`")),
    (
        "AWS_USE_DUALSTACK_ENDPOINT",
        Instead("set `--s3-endpoint https://s3.dualstack.REGION.amazonaws.com`"),
    ),
    ("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", Instead("set `AWS_EC2_METADATA_SERVICE_ENDPOINT`")),
    ("AWS_METADATA_SERVICE_TIMEOUT", Instead("the metadata service has 5 seconds for its answer")),
    ("AWS_METADATA_SERVICE_NUM_ATTEMPTS", RETRIES),
    ("AWS_MAX_ATTEMPTS", RETRIES),
    ("AWS_RETRY_MODE", RETRIES),
    (
        "AWS_STS_REGIONAL_ENDPOINTS",
        Instead("the token service of the region is asked; set `AWS_ENDPOINT_URL_STS`"),
    ),
    ("AWS_S3_USE_ARN_REGION", Instead("`--store` names the bucket by its name")),
    ("HTTPS_PROXY", PROXY),
    ("https_proxy", PROXY),
    ("AWS_CLI_AUTO_PROMPT", Nothing),
    ("AWS_CREDENTIAL_EXPIRATION", Nothing),
    ("AWS_DEFAULT_OUTPUT", Nothing),
    ("AWS_EC2_METADATA_V1_DISABLED", Nothing),
    ("AWS_EXECUTION_ENV", Nothing),
    ("AWS_PAGER", Nothing),
    ("AWS_REQUEST_CHECKSUM_CALCULATION", Nothing),
    ("AWS_RESPONSE_CHECKSUM_VALIDATION", Nothing),
    ("AWS_SDK_UA_APP_ID", Nothing),
];

const ZOOKEEPER: &[(&str, Use)] = &[
    ("ZOOKEEPER_AUTH", Read("sign-in, `digest:USER:PASSWORD`; also `…_FILE`")),
    (
        "CLIENT_JVMFLAGS",
        Instead("set `--store-ca-file`, `--store-cert`, `--store-key` and `ZOOKEEPER_AUTH`"),
    ),
    ("JVMFLAGS", Nothing),
    ("ZOOCFGDIR", Nothing),
];

/// Returns the warnings of variables of a store's own clients that are set and not used.
pub(super) fn warnings(store: &StoreSettings, environment: &Environment) -> Vec<Warning> {
    let url = store.to_string();
    let scheme = url.split(':').next().unwrap_or_default();
    let all = VARIABLES.iter().filter(|it| it.store == scheme).flat_map(|it| it.all);
    let unused = all.filter_map(|(name, of)| match of {
        Instead(remedy) if environment.get(name).is_some() => Some((*name, *remedy)),
        _ => None,
    });
    unused.map(|(name, remedy)| unused_variable(name, remedy)).collect()
}

fn unused_variable(name: &'static str, remedy: &str) -> Warning {
    Warning {
        subject: name,
        problem: "is set, and Tenure does not use it".to_owned(),
        remedy: format!("{}; unset it to end this warning", remedy.replace('`', "")),
    }
}

#[cfg(all(test, feature = "s3", feature = "redis", feature = "postgres", feature = "etcd"))]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{Flags, Verb, load};
    use super::*;

    #[test]
    fn each_variable_of_the_store_that_is_not_used_is_warned_of_and_no_other() {
        for (url, variables, warned) in [
            (
                "etcd://127.0.0.1:1/x",
                &["ETCDCTL_ENDPOINTS", "ETCDCTL_WRITE_OUT"][..],
                &["ETCDCTL_ENDPOINTS"][..],
            ),
            (
                "redis://127.0.0.1",
                &["REDISCLI_AUTH", "ETCDCTL_ENDPOINTS"],
                &["redis", "REDISCLI_AUTH"],
            ),
            (
                "postgres://127.0.0.1/x",
                &["PGUSER", "PGHOST", "PGSSLROOTCERT", "PGTZ"],
                &["PGHOST", "PGSSLROOTCERT"],
            ),
            ("memory:", &["REDISCLI_AUTH", "AWS_CA_BUNDLE"], &[]),
        ] {
            let flags = Flags::from_iter([("store", vec![url.to_owned()])]);
            let environment = Environment::of(variables.iter().map(|it| (*it, "hidden")));
            let found = load(&flags, &environment, Verb::Run).expect("they are valid").warnings;
            let subjects: Vec<_> = found.iter().map(|it| it.subject).collect();
            let expected: Vec<_> =
                warned.iter().map(|it| if *it == "redis" { "store" } else { it }).collect();
            assert_eq!(subjects, expected, "{url}");
            assert!(!format!("{found:?}").contains("hidden"), "{found:?}");
        }
    }

    #[test]
    fn a_variable_that_is_read_is_one_that_the_code_names_and_none_is_there_twice() {
        let sources = [
            include_str!("azure.rs"),
            include_str!("aws_files.rs"),
            include_str!("gcs.rs"),
            include_str!("kubernetes/access.rs"),
            include_str!("postgres.rs"),
            include_str!("s3.rs"),
            include_str!("table.rs"),
            include_str!("withheld.rs"),
        ]
        .concat();
        for Variables { store, all, .. } in VARIABLES {
            let names: BTreeSet<_> = all.iter().map(|it| it.0).collect();
            assert_eq!(names.len(), all.len(), "{store}");
            for (name, of) in *all {
                let name = name.trim_end_matches("_FILE");
                let is_named = sources.contains(&format!("\"{name}"));
                assert!(is_named || !matches!(of, Read(_)), "{name} is said to be read");
            }
        }
    }
}

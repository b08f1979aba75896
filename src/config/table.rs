//! The table of all settings. Of it are made the flags and their help, the variables, the keys of
//! the file, the settings of the library, and by `tests/generate` the README's table and the values
//! of the charts.

pub use super::setting::{Kind, Setting, UnderExec, Verb};

impl Setting {
    /// Returns the setting of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|it| it.name == name)
    }

    /// Returns the name of the setting that was most likely meant, among those of a kind.
    pub fn nearest(misspelt: &str, of: impl Fn(&Self) -> bool) -> Option<&'static str> {
        nearest(misspelt, SETTINGS.iter().filter(|it| of(it)).map(|it| it.name))
    }

    /// Returns whether it can be in a settings file.
    #[must_use]
    pub fn is_key(&self) -> bool {
        self.name != CONFIG
    }
}

/// Returns the name that was most likely meant, if one is near enough.
pub fn nearest<'a>(misspelt: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = names.into_iter().map(|it| (strsim::damerau_levenshtein(misspelt, it), it));
    let near = distances.filter(|(distance, name)| *distance <= name.len().div_ceil(3).min(4));
    near.min().map(|(_, name)| name)
}

/// The setting that names the settings file.
pub(super) const CONFIG: &str = "config";

/// The variables of credentials for Azure, in the order of preference.
pub(super) const AZURE_CREDENTIALS: [&str; 3] =
    ["AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"];

/// The variable of the token of Consul, as its own clients have it.
pub(super) const CONSUL_CREDENTIALS: [&str; 1] = ["CONSUL_HTTP_TOKEN"];

/// The variables of the user and its password in etcd.
pub(super) const ETCD_CREDENTIALS: [&str; 2] = ["ETCD_USERNAME", "ETCD_PASSWORD"];

/// The variables of the user and its password in MongoDB.
pub(super) const MONGODB_CREDENTIALS: [&str; 2] = ["MONGODB_USERNAME", "MONGODB_PASSWORD"];

/// The variables of the user and its password in PostgreSQL, as its own clients have them.
pub(super) const POSTGRES_CREDENTIALS: [&str; 2] = ["PGUSER", "PGPASSWORD"];

/// The variables of the user and its password in Redis.
pub(super) const REDIS_CREDENTIALS: [&str; 2] = ["REDIS_USERNAME", "REDIS_PASSWORD"];

/// The variables of the keys of AWS, as its own clients have them.
pub(super) const AWS_CREDENTIALS: [&str; 3] =
    ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// The variable of the sign-in to ZooKeeper.
pub(super) const ZOOKEEPER_CREDENTIALS: [&str; 1] = ["ZOOKEEPER_AUTH"];

// What the settings of one heading have in common.
const ELECTION: Setting = Setting {
    name: "",
    heading: "Election",
    kind: Kind::Switch,
    is_list: false,
    default: None,
    otherwise: "",
    under_exec: UnderExec::Same,
    in_library: true,
    help: "",
};
const STORE: Setting = Setting { heading: "Store", ..ELECTION };
const TIMING: Setting = Setting { heading: "Timings", kind: Kind::Duration, ..ELECTION };
const SIDECAR: Setting = Setting { in_library: false, ..ELECTION };
const KUBERNETES: Setting = Setting { heading: "Kubernetes", kind: Kind::Path, ..SIDECAR };
const STATUS: Setting = Setting { heading: "Status", ..SIDECAR };
const OPERATING: Setting = Setting { heading: "Operating", kind: Kind::Path, ..SIDECAR };
const HEALTH: Setting = Setting { heading: "Health", ..SIDECAR };
const PEERS: Setting = Setting { heading: "Peers", ..SIDECAR };
const DRAIN: Setting = Setting { heading: "Drain", kind: Kind::Duration, ..SIDECAR };
const HOOK: Setting = Setting { heading: "Hooks", kind: Kind::Text("HOOK", ""), ..SIDECAR };
const LOG: Setting = Setting { heading: "Logs", ..SIDECAR };

/// All settings of `tenure run` and `tenure exec`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "election",
        kind: Kind::Text("NAME", "^[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?$"),
        default: Some("default"),
        help: "Name that candidates compete for: 1 to 63 of `a-z 0-9 - .`",
        ..ELECTION
    },
    Setting {
        name: "identity",
        kind: Kind::Text("NAME", "^[ -~]{1,128}$"),
        otherwise: "`POD_NAME`, else the host name",
        help: "Name of this instance, for operators",
        ..ELECTION
    },
    Setting {
        name: "advertise",
        kind: Kind::Text("ADDRESS", "^[!-~]{1,128}$"),
        help: "Address of the service, published while this instance leads; an IPv6 address in \
               brackets",
        ..ELECTION
    },
    Setting {
        name: "observe",
        default: Some("false"),
        help: "Never compete, only report who leads",
        ..ELECTION
    },
    Setting {
        name: "store",
        kind: Kind::Text("URL", "^[a-z][a-z0-9]*:"),
        otherwise: "`file:` in `/run/tenure`, else in `/var/tmp/tenure-UID`; in Kubernetes none: it must be named",
        help: "Where the lease is kept: `file:///DIRECTORY`, `azure://ACCOUNT/CONTAINER`, \
               `kubernetes:[NAMESPACE/]NAME`, `consul://HOST:PORT[,HOST:PORT]/PREFIX`, `etcd://HOST:PORT[,HOST:PORT]/PREFIX`, \
               `postgres://HOST[:PORT][,HOST[:PORT]]/DATABASE`, `redis://HOST[:PORT][,HOST[:PORT]][/DATABASE]`, `s3://BUCKET[/PREFIX]`, `gs://BUCKET[/PREFIX]`, \
               `mongodb://HOST[:PORT][,HOST[:PORT]]/DATABASE`, \
               `zookeeper://HOST:PORT[,HOST:PORT]/PATH` or `memory:`",
        ..STORE
    },
    Setting {
        name: "store-ca-file",
        kind: Kind::Path,
        otherwise: "those of the system",
        help: "File with the CA certificates that authenticate the servers of `consul:`, `etcd:`, `mongodb:`, `postgres:`, `redis:`, `s3:`, `gs:` and `zookeeper:`, read \
               again when it changes; for `consul:`, `etcd:`, `mongodb:`, `postgres:`, `redis:` and `zookeeper:` on loopback it asks for TLS",
        ..STORE
    },
    Setting {
        name: "store-cert",
        kind: Kind::Path,
        help: "File with the certificate that this instance presents to the servers of `consul:`, `etcd:`, `mongodb:`, `postgres:`, `redis:` and `zookeeper:`, \
               followed by the intermediate ones, read again when it changes; on loopback it asks for TLS",
        ..STORE
    },
    Setting {
        name: "store-key",
        kind: Kind::Path,
        help: "File with the private key of `store-cert`, read again when it changes",
        ..STORE
    },
    Setting {
        name: "store-insecure",
        default: Some("false"),
        help: "Allow connections without TLS to servers of `consul:`, `etcd:`, `mongodb:`, `postgres:`, `redis:`, `s3:`, `zookeeper:` and an emulator of `gs:` on other machines",
        ..STORE
    },
    Setting {
        name: "mongodb-collection",
        kind: Kind::Text("COLLECTION", "^[A-Za-z_][A-Za-z0-9_.-]{0,99}$"),
        default: Some("tenure"),
        help: "Collection of the leases in MongoDB; a document for each election",
        ..STORE
    },
    Setting {
        name: "mongodb-auth-source",
        kind: Kind::Text("DATABASE", "^[A-Za-z0-9_-]{1,63}$"),
        otherwise: "the database of `store`",
        help: "Database that the user of `mongodb:` belongs to, such as `admin`",
        ..STORE
    },
    Setting {
        name: "mongodb-compatible",
        default: Some("false"),
        help: "Accept a server of `mongodb:` that is not MongoDB. Of two candidates that write at the same time both \
               may win there, as on FerretDB 1",
        ..STORE
    },
    Setting {
        name: "postgres-table",
        kind: Kind::Text("TABLE", "^([a-z_][a-z0-9_]{0,62}\\.)?[a-z_][a-z0-9_]{0,62}$"),
        default: Some("tenure"),
        help: "Table of the leases in PostgreSQL, `[SCHEMA.]TABLE`; a row for each election",
        ..STORE
    },
    Setting {
        name: "s3-endpoint",
        kind: Kind::Text("URL", "^https?://"),
        otherwise: "`AWS_ENDPOINT_URL_S3`, else `AWS_ENDPOINT_URL`, else that of the profile, else AWS",
        help: "Server of `s3:` that is not AWS's, such as `https://minio.example:9000`",
        ..STORE
    },
    Setting {
        name: "s3-region",
        kind: Kind::Text("REGION", "^[a-z0-9-]{1,63}$"),
        otherwise: "`AWS_REGION`, else `AWS_DEFAULT_REGION`, else that of the profile, else with an endpoint `us-east-1`",
        help: "Region of the bucket, for which requests to `s3:` are signed",
        ..STORE
    },
    Setting {
        name: "s3-path-style",
        otherwise: "`true` with an endpoint, else `false`",
        help: "Name the bucket in the path of requests to `s3:`, not in the host",
        ..STORE
    },
    Setting {
        name: "azure-endpoint",
        kind: Kind::Text("URL", "^https?://"),
        otherwise: "`https://ACCOUNT.blob.core.windows.net`",
        help: "Endpoint of the storage account, for other clouds and for Azurite",
        ..STORE
    },
    Setting {
        name: "azure-blob-prefix",
        kind: Kind::Text("PREFIX", "^[A-Za-z0-9._/-]+$"),
        help: "Prefix of the blob's name, which is then `PREFIX/ELECTION`",
        ..STORE
    },
    Setting {
        name: "azure-insecure-http",
        default: Some("false"),
        help: "Allow plain http to an endpoint on another machine",
        ..STORE
    },
    Setting {
        name: "kube-api",
        kind: Kind::Text("URL", "^https?://"),
        otherwise: "the pod's own cluster",
        in_library: true,
        help: "URL of the API server, for the store and the route: `https://HOST:PORT`, or plain \
               http to a `kubectl proxy` on this machine",
        ..KUBERNETES
    },
    Setting {
        name: "kube-token-file",
        otherwise: "the service account's; with `kube-api` none",
        in_library: true,
        help: "File with the token for the API server, read again when it changes",
        ..KUBERNETES
    },
    Setting {
        name: "kube-ca-file",
        otherwise: "the service account's; with `kube-api` those of the system",
        in_library: true,
        help: "File with the CA certificates that authenticate the API server",
        ..KUBERNETES
    },
    Setting {
        name: "kube-route",
        kind: Kind::Choice("ROUTE", &["label", "endpointslice"]),
        help: "How a Service follows the leader: `label` (each pod is labelled active or passive) \
               or `endpointslice` (only the leader is behind `kube-service`); needs `POD_NAME`, \
               and `POD_NAMESPACE` or a service account",
        ..KUBERNETES
    },
    Setting {
        name: "kube-label",
        kind: Kind::Text(
            "KEY",
            "^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        ),
        default: Some("tenure.dev/role"),
        help: "Key of the pods' label for the route `label`; its value is `active` or `passive`",
        ..KUBERNETES
    },
    Setting {
        name: "kube-service",
        kind: Kind::Text("NAME", "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"),
        help: "Service without a selector for the route `endpointslice`; its endpoint is `POD_IP`, \
               else the host of `advertise`",
        ..KUBERNETES
    },
    Setting {
        name: "lease-duration",
        default: Some("15s"),
        help: "How long the store keeps the lease after each grant. Shorter: a dead leader is \
               replaced sooner. Longer: leadership survives longer outages of the store",
        ..TIMING
    },
    Setting {
        name: "renew-deadline",
        default: Some("10s"),
        help: "How long the leader reports active after it sent the last granted request; at least \
               2 × `retry-period` + `request-timeout`. The rest of `lease-duration` is the margin \
               for clock drift and pauses",
        ..TIMING
    },
    Setting {
        name: "retry-period",
        default: Some("2s"),
        help: "Time between renewals of the leader; mean time between reads of a standby",
        ..TIMING
    },
    Setting {
        name: "request-timeout",
        default: Some("2s"),
        help: "Time limit for one request to the store",
        ..TIMING
    },
    Setting {
        name: "activation-delay",
        default: Some("0s"),
        help: "How long a new leader holds the lease before it reports active, for resources that \
               cannot check a term",
        ..TIMING
    },
    Setting {
        name: "listen",
        kind: Kind::Text("ADDRESS", "^(off|unix:/.+|.+:[0-9]{1,5})$"),
        is_list: true,
        default: Some("127.0.0.1:4040"),
        under_exec: UnderExec::Default("127.0.0.1:0"),
        help: "Address of the status listener: `IP:PORT`, `unix:/PATH`, or `off`",
        ..STATUS
    },
    Setting {
        name: "max-connections",
        kind: Kind::Count,
        default: Some("512"),
        help: "Maximum number of connections to the status listener; for a further one, one of the \
               address that has most is closed, an idle one first",
        ..STATUS
    },
    Setting {
        name: "max-connections-per-peer",
        kind: Kind::Count,
        default: Some("64"),
        help: "Maximum number of connections of one address beyond loopback; a tenth of \
               `max-connections` is kept for addresses that have none",
        ..STATUS
    },
    Setting {
        name: "allowed-hosts",
        kind: Kind::Text("NAME", r"^[A-Za-z0-9.\[\]:-]+$"),
        is_list: true,
        otherwise: "loopback names on a loopback address, any elsewhere",
        help: "Host that requests to the status listener may name in their `Host` header, without \
               a port; loopback names are always allowed",
        ..STATUS
    },
    Setting {
        name: "agent-check",
        kind: Kind::Text("ADDRESS", "^.+:[0-9]{1,5}$"),
        help: "Address that answers HAProxy's agent checks, `IP:PORT`: `ready` for the leader, `drain` \
               while it drains, else `maint`",
        ..STATUS
    },
    Setting {
        name: "tls-cert",
        kind: Kind::Path,
        help: "File with the certificate of the status listener, followed by the intermediate ones, \
               read again when it changes: each TCP address of `listen` beyond loopback then requires \
               TLS",
        ..STATUS
    },
    Setting {
        name: "tls-key",
        kind: Kind::Path,
        help: "File with the private key of `tls-cert`, read again when it changes",
        ..STATUS
    },
    Setting {
        name: "tls-client-ca",
        kind: Kind::Path,
        otherwise: "clients need no certificate",
        help: "File with the CA certificates, read again when it changes, one of which must have \
               signed the certificate of each client where TLS is required",
        ..STATUS
    },
    Setting {
        name: "status-file",
        kind: Kind::Text("PATH", r"\.(json|env)$"),
        is_list: true,
        help: "File that always contains the current status, `.json` or `.env`",
        ..STATUS
    },
    Setting {
        name: "admin",
        kind: Kind::Text("ADDRESS", r"^(unix:/.+|(127\.[0-9.]+|\[::1\]|localhost):[0-9]{1,5})$"),
        help: "Address of the admin listener: `unix:/PATH` for the same user, or a loopback \
               address with `admin-token-file`",
        ..OPERATING
    },
    Setting {
        name: "admin-token-file",
        help: "File with the token for an `admin` that is a loopback address: one line of at least \
               16 characters, not readable by others",
        ..OPERATING
    },
    Setting {
        name: "pass-credentials",
        kind: Kind::Switch,
        default: Some("false"),
        help: "Leave Tenure's own secrets in the environment of hooks, `exec:` probes and the command \
               of `tenure exec`: the store's credentials, passwords of proxies, hooks and probes",
        ..OPERATING
    },
    Setting {
        name: "health",
        kind: Kind::Text("PROBE", "^(https?://|tcp:|file:|exec:)"),
        is_list: true,
        help: "Probe that must succeed for this instance to compete: `http://HOST/PATH` or \
               `https://HOST/PATH` (answers 2xx), `tcp://HOST:PORT` (accepts a connection), \
               `file:/PATH?max_age=30s` (exists and is no older), `exec:CMD` (exits with 0); all \
               probes must succeed",
        ..HEALTH
    },
    Setting {
        name: "health-interval",
        kind: Kind::Duration,
        default: Some("2s"),
        help: "Time between two runs of each probe",
        ..HEALTH
    },
    Setting {
        name: "health-timeout",
        kind: Kind::Duration,
        otherwise: "the smaller of `1s` and `health-interval`",
        help: "Time limit for one run of a probe; at most `health-interval`",
        ..HEALTH
    },
    Setting {
        name: "health-failures",
        kind: Kind::Count,
        default: Some("3"),
        help: "Failures in a row after which a leader drains and resigns, and a standby stops \
               competing",
        ..HEALTH
    },
    Setting {
        name: "health-successes",
        kind: Kind::Count,
        default: Some("2"),
        help: "Successes in a row after which an instance competes, also at start",
        ..HEALTH
    },
    Setting {
        name: "scheduled-events",
        kind: Kind::Text("SOURCE", "^(off|azure|azure:http://.+)$"),
        otherwise: "`off`",
        help: "Hand over before maintenance of this machine, and do not compete until it is over: \
               `azure` asks its Instance Metadata Service for scheduled events, \
               `azure:http://HOST:PORT` a relay of it",
        ..HEALTH
    },
    Setting {
        name: "peers",
        default: Some("false"),
        help: "Connect the candidates: the leader tells its standbys at once when it releases the \
               lease, and they read the store less often; needs a status listener that they reach",
        ..PEERS
    },
    Setting {
        name: "peer-address",
        kind: Kind::Text("IP:PORT", r"^(\[[0-9a-fA-F.:]+\]|[0-9.]+):[0-9]{1,5}$"),
        otherwise: "`POD_IP`, else the host of `advertise` or of the listener if it is an IP \
                    address, with the port of the first `listen` beyond loopback",
        help: "Address at which the other candidates reach the status listener of this instance",
        ..PEERS
    },
    Setting {
        name: "peer-ca",
        kind: Kind::Path,
        otherwise: "those of the system, for certificates that name the address",
        help: "File with the CA certificates that authenticate a leader with TLS, whatever its \
               address; read again when it changes",
        ..PEERS
    },
    Setting {
        name: "priority",
        kind: Kind::Percent,
        default: Some("50"),
        help: "Rank of this instance, 0 to 100: with `peers`, the healthy standby with the highest is \
               next in line",
        ..PEERS
    },
    Setting {
        name: "zone",
        kind: Kind::Text("NAME", "^[ -~]{1,128}$"),
        help: "Zone of this instance, shown in the table of candidates",
        ..PEERS
    },
    Setting {
        name: "preempt-after",
        kind: Kind::Text("DURATION", "^(off|[0-9].*)$"),
        default: Some("off"),
        help: "A leader hands over to a standby of higher `priority` that has been connected and \
               healthy for this long, at most once in ten minutes; or `off`",
        ..PEERS
    },
    Setting {
        name: "drain-timeout",
        default: Some("0s"),
        under_exec: UnderExec::Default("10s"),
        in_library: true,
        help: "Longest time from reporting passive to releasing the lease, for the service to \
               finish its work; ends early with `tenure drained`, or when `on-drain` or the \
               command of `tenure exec` has ended",
        ..DRAIN
    },
    Setting {
        name: "stop-timeout",
        default: Some("3s"),
        under_exec: UnderExec::Alone,
        help: "Time from the command's SIGTERM to its SIGKILL when renewals fail; SIGKILL is sent \
               when this instance stops reporting active",
        ..DRAIN
    },
    Setting {
        name: "on-active",
        help: "Hook that runs when this instance becomes active: a command line, run without a \
               shell, or an `http://` or `https://` URL that receives the status document by POST",
        ..HOOK
    },
    Setting {
        name: "on-passive",
        help: "Hook that runs when this instance becomes passive",
        ..HOOK
    },
    Setting {
        name: "on-drain",
        help: "Hook that runs when a drain begins; the lease is released when it has ended",
        ..HOOK
    },
    Setting {
        name: "on-leader-change",
        help: "Hook that runs when another holder or term is seen, on standbys too",
        ..HOOK
    },
    Setting {
        name: "hook-timeout",
        kind: Kind::Duration,
        default: Some("10s"),
        help: "Time limit for one run of a hook",
        ..HOOK
    },
    Setting {
        name: "log-format",
        kind: Kind::Choice("FORMAT", &["text", "json"]),
        otherwise: "`text` on a terminal, else `json`",
        help: "Format of log lines: `text` or `json`",
        ..LOG
    },
    Setting {
        name: "log-level",
        kind: Kind::Text("FILTER", ""),
        default: Some("info"),
        under_exec: UnderExec::Default("warn"),
        help: "Log level: `error`, `warn`, `info`, `debug`, `trace` or `off`, also for a target: \
               `info,tenure::store=debug`",
        ..LOG
    },
    // Last, because it names the file of the others.
    Setting {
        name: CONFIG,
        heading: "Settings file",
        kind: Kind::Text("PATH", r"\.(toml|ya?ml)$"),
        help: "TOML or YAML file with the settings above, by its ending",
        ..SIDECAR
    },
];

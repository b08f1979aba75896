//! Parses store URLs, which name the store that keeps the lease. Credentials are rejected, since a
//! URL ends up in logs and process lists.

use std::fmt;
use std::path::{Component, PathBuf};

use super::faults::Problem;
use super::kubernetes_names as names;
use super::values;

mod address;
mod bucket;
mod consul;
mod etcd;
mod mongodb;
mod optional;
mod pasted;
mod postgres;
mod redis;
mod zookeeper;

pub use address::Address;
pub(super) use mongodb::is_database;
use optional::{OPTIONAL, Optional};

/// The default account of Azurite.
pub(super) const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";

/// A parsed store URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreUrl {
    /// `file:///dir`.
    File(PathBuf),
    /// `azure://ACCOUNT/CONTAINER`.
    Azure {
        /// The account.
        account: String,
        /// The container.
        container: String,
    },
    /// `kubernetes:[NAMESPACE/]NAME`.
    Kubernetes {
        /// The namespace, if named.
        namespace: Option<String>,
        /// The Lease.
        name: String,
    },
    /// `consul://HOST:PORT[,HOST:PORT…]/PREFIX`.
    Consul {
        /// The addresses of servers or agents of one cluster, each with its port.
        addresses: Vec<Address>,
        /// The prefix of the keys, without a slash at either end.
        prefix: String,
    },
    /// `etcd://HOST:PORT[,HOST:PORT…]/PREFIX`.
    Etcd {
        /// The addresses of members, each with its port.
        addresses: Vec<Address>,
        /// The prefix of the keys, without a slash at either end.
        prefix: String,
    },
    /// `postgres://HOST[:PORT][,HOST[:PORT]…]/DATABASE`.
    Postgres {
        /// The addresses of one server and its standbys, or of their poolers.
        addresses: Vec<Address>,
        /// The database.
        database: String,
    },
    /// `redis://HOST[:PORT][,HOST[:PORT]…][/DATABASE]`.
    Redis {
        /// The addresses of one server and its replicas.
        addresses: Vec<Address>,
        /// The number of the database.
        database: u16,
    },
    /// `s3://BUCKET[/PREFIX]`.
    S3 {
        /// The bucket.
        bucket: String,
        /// The prefix of the keys, without a slash at either end.
        prefix: Option<String>,
    },
    /// `gs://BUCKET[/PREFIX]`.
    Gcs {
        /// The bucket.
        bucket: String,
        /// The prefix of the names, without a slash at either end.
        prefix: Option<String>,
    },
    /// `mongodb://HOST[:PORT][,HOST[:PORT]…]/DATABASE`.
    Mongo {
        /// The addresses of one server, or of members of one replica set.
        addresses: Vec<Address>,
        /// The database.
        database: String,
    },
    /// `zookeeper://HOST:PORT[,HOST:PORT…]/PATH`.
    Zookeeper {
        /// The addresses of the servers of one ensemble, each with its port.
        addresses: Vec<Address>,
        /// The path of the nodes, without a slash at either end.
        path: String,
    },
    /// `memory:`.
    Memory,
}

impl StoreUrl {
    /// Returns the addresses of the servers, of a store that is named by them.
    pub(super) fn addresses(&self) -> Option<&[Address]> {
        match self {
            Self::Consul { addresses, .. }
            | Self::Etcd { addresses, .. }
            | Self::Mongo { addresses, .. }
            | Self::Postgres { addresses, .. }
            | Self::Redis { addresses, .. }
            | Self::Zookeeper { addresses, .. } => Some(addresses),
            Self::File(_)
            | Self::Azure { .. }
            | Self::Kubernetes { .. }
            | Self::S3 { .. }
            | Self::Gcs { .. }
            | Self::Memory => None,
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(directory) => match url::Url::from_file_path(directory) {
                Ok(url) => url.fmt(f),
                Err(()) => write!(f, "file:{}", directory.display()),
            },
            Self::Azure { account, container } => write!(f, "azure://{account}/{container}"),
            Self::Kubernetes { namespace: Some(namespace), name } => {
                write!(f, "kubernetes:{namespace}/{name}")
            }
            Self::Kubernetes { namespace: None, name } => write!(f, "kubernetes:{name}"),
            Self::Consul { addresses, prefix } => {
                write!(f, "consul://{}/{prefix}", all(addresses))
            }
            Self::Etcd { addresses, prefix } => write!(f, "etcd://{}/{prefix}", all(addresses)),
            Self::Postgres { addresses, database } => {
                write!(f, "postgres://{}/{database}", all(addresses))
            }
            Self::Redis { addresses, database } => {
                write!(f, "redis://{}/{database}", all(addresses))
            }
            Self::S3 { bucket, prefix: Some(prefix) } => write!(f, "s3://{bucket}/{prefix}"),
            Self::S3 { bucket, prefix: None } => write!(f, "s3://{bucket}"),
            Self::Gcs { bucket, prefix: Some(prefix) } => write!(f, "gs://{bucket}/{prefix}"),
            Self::Gcs { bucket, prefix: None } => write!(f, "gs://{bucket}"),
            Self::Zookeeper { addresses, path } => {
                write!(f, "zookeeper://{}/{path}", all(addresses))
            }
            Self::Mongo { addresses, database } => {
                write!(f, "mongodb://{}/{database}", all(addresses))
            }
            Self::Memory => f.write_str("memory:"),
        }
    }
}

fn all(addresses: &[Address]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The forms of a store URL, for remedies.
const KINDS: &str = "file:///DIRECTORY, azure://ACCOUNT/CONTAINER, kubernetes:[NAMESPACE/]NAME, \
                     consul://HOST:PORT/PREFIX, etcd://HOST:PORT/PREFIX, postgres://HOST:PORT/DATABASE, redis://HOST:PORT, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, \
                     mongodb://HOST:PORT/DATABASE, \
                     zookeeper://HOST:PORT/PATH or memory:";

/// The problem of a text without a scheme.
const NO_URL: &str = "is not a URL";

/// The problem of a scheme that is of no store.
const UNKNOWN: &str = "names an unknown kind of store";

/// Parses a store URL.
///
/// # Errors
/// Returns what is wrong and what to write, without the text itself.
pub(super) fn parse(text: &str) -> Result<StoreUrl, Problem> {
    parse_in(|store| store.is_built, text)
}

/// Parses a store URL in a build that has these stores.
fn parse_in(is_built: impl Fn(&Optional) -> bool, text: &str) -> Result<StoreUrl, Problem> {
    let parse = |text: &str| attempt(&is_built, text);
    parse(text).map_err(|problem| pasted::explained(text, problem, &parse))
}

/// Parses a store URL, or says what is wrong with it.
fn attempt(is_built: &impl Fn(&Optional) -> bool, text: &str) -> Result<StoreUrl, Problem> {
    let Some((scheme, rest)) = text.split_once(':') else {
        let remedy = if text.starts_with('/') {
            format!("write file://{text}")
        } else {
            format!("write {KINDS}")
        };
        return Err(Problem::new(NO_URL, remedy));
    };
    match scheme {
        "file" => file(text, rest),
        "azure" => azure(rest),
        "kubernetes" => kubernetes(rest),
        "memory" if rest.is_empty() => Ok(StoreUrl::Memory),
        "memory" => Err(Problem::new("has text after memory:", "write memory: alone")),
        _ => match OPTIONAL.iter().find(|it| it.scheme == scheme) {
            Some(store) if is_built(store) => (store.parse)(rest),
            Some(store) => Err(store.absent()),
            None => Err(Problem::new(UNKNOWN, format!("write {KINDS}"))),
        },
    }
}

fn file(text: &str, rest: &str) -> Result<StoreUrl, Problem> {
    const WRITE: &str = "write an absolute path, with three slashes: file:///var/lib/tenure";
    let Some(path) = rest.strip_prefix("//").filter(|it| it.starts_with('/')) else {
        return Err(Problem::new("is not an absolute path", WRITE));
    };
    if path.contains(['?', '#']) {
        return Err(Problem::new(
            "has a query or fragment, which file: does not accept",
            "write ? as %3F and # as %23 if they belong to the directory's name",
        ));
    }
    let directory = url::Url::parse(text).ok().and_then(|it| it.to_file_path().ok());
    // Parsing removes dot segments, except those next to an escaped slash. Formatted as a URL
    // again, these would lead to another directory.
    let is_plain = |it: &PathBuf| {
        !it.as_os_str().as_encoded_bytes().contains(&0)
            && !it.components().any(|part| part == Component::ParentDir)
    };
    match directory.filter(is_plain) {
        Some(directory) => Ok(StoreUrl::File(directory)),
        None => Err(Problem::new("names no directory", WRITE)),
    }
}

fn azure(rest: &str) -> Result<StoreUrl, Problem> {
    const WRITE: &str = "write azure://ACCOUNT/CONTAINER";
    if rest.contains(['?', '#', '@']) {
        return Err(Problem::new(
            "has more than account and container",
            format!(
                "{WRITE}; pass credentials in the environment, such as AZURE_STORAGE_SAS_TOKEN_FILE"
            ),
        ));
    }
    let parts: Option<Vec<&str>> =
        rest.strip_prefix("//").map(|it| it.strip_suffix('/').unwrap_or(it).split('/').collect());
    let (account, container) = match parts.as_deref() {
        Some([account, container]) => (*account, *container),
        Some([_, _, _, ..]) => {
            return Err(Problem::new(
                "names more than account and container",
                format!(
                    "{WRITE}; the blob is named after the election, behind --azure-blob-prefix"
                ),
            ));
        }
        _ => return Err(Problem::new("names no account and container", WRITE)),
    };
    if account.contains('.') {
        let remedy = format!("{WRITE}, and --azure-endpoint for other clouds");
        return Err(Problem::new("names the account by its host", remedy));
    }
    if !is_account(account) {
        return Err(Problem::new(
            format!("names the account {account:?}, which is not a valid name"),
            "accounts are 3 to 24 lower-case letters and digits",
        ));
    }
    if !is_container(container) {
        return Err(Problem::new(
            format!("names the container {container:?}, which is not a valid name"),
            "containers are 3 to 63 lower-case letters, digits and single dashes, and begin and \
             end with no dash",
        ));
    }
    Ok(StoreUrl::Azure { account: account.to_owned(), container: container.to_owned() })
}

fn kubernetes(rest: &str) -> Result<StoreUrl, Problem> {
    const WRITE: &str = "write kubernetes:NAME, or kubernetes:NAMESPACE/NAME";
    if rest.contains(['?', '#', '@']) {
        return Err(Problem::new(
            "has more than namespace and name",
            format!("{WRITE}; set the API server with --kube-api, a token with --kube-token-file"),
        ));
    }
    if let Some(path) = rest.strip_prefix("//") {
        let remedy = match path.trim_end_matches('/') {
            "" => WRITE.to_owned(),
            path => format!("write kubernetes:{path}, without slashes before it"),
        };
        return Err(Problem::new("names a host, which kubernetes: does not accept", remedy));
    }
    let (namespace, name) = match rest.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, rest),
    };
    if name.contains('/') {
        return Err(Problem::new("names more than namespace and name", WRITE));
    }
    let parts = [("namespace", namespace), ("name", Some(name))];
    if let Some((part, _)) = parts.iter().find(|(_, it)| *it == Some("")) {
        return Err(Problem::new(format!("has an empty {part}"), WRITE));
    }
    if let Some(namespace) = namespace
        && let Err(problem) = names::label(namespace)
    {
        let words = format!("names the namespace {namespace:?}, which {}", problem.problem);
        return Err(Problem::new(words, problem.remedy));
    }
    if let Err(problem) = names::subdomain(name) {
        let words = format!("names the Lease {name:?}, which {}", problem.problem);
        return Err(Problem::new(words, problem.remedy));
    }
    Ok(StoreUrl::Kubernetes { namespace: namespace.map(str::to_owned), name: name.to_owned() })
}

/// Returns whether an account of Azure can have this name.
pub(super) fn is_account(name: &str) -> bool {
    (3..=24).contains(&name.len())
        && name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit())
}

fn is_container(name: &str) -> bool {
    (3..=63).contains(&name.len())
        && name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

/// Parses the prefix of the names of a store, which a message calls `part`.
fn prefix(text: &str, part: &str) -> Result<String, Problem> {
    values::blob_prefix(text)
        .map_err(|it| Problem::new(format!("has a {part} that {}", it.problem), it.remedy))
}

#[cfg(test)]
mod tests;

//! The URL that names the lock of an instance, without secrets. Two instances have the same URL exactly if
//! they compete for one lease, as far as their settings tell: it has everything that selects the lock, and
//! nothing that merely leads to it, such as credentials, TLS, or the order of the servers.

use std::fmt;

use url::Url;

use super::endpoint::below;
use super::kubernetes::KubernetesSettings;
use super::mongodb::MongoSettings;
use super::postgres::PostgresSettings;
use super::redis::RedisSettings;
use super::s3::S3Settings;
use super::settings::StoreSettings;
use super::store_url::StoreUrl;
use super::zookeeper::ZookeeperSettings;

impl fmt::Display for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(it) => StoreUrl::File(it.directory.join(it.lock_file())).fmt(f),
            Self::Azure(it) => it.lock_url().fmt(f),
            Self::Kubernetes(it) => {
                let KubernetesSettings { access, namespace, name, .. } = it;
                let leases = format!("apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
                below(&below(&access.api, &leases), name).fmt(f)
            }
            Self::Consul(it) => {
                write!(f, "consul://{}/{}/{}", hosts(&it.servers), it.prefix, it.election)
            }
            Self::Etcd(it) => {
                write!(f, "etcd://{}/{}/{}", hosts(&it.members), it.prefix, it.election)
            }
            Self::Postgres(it) => {
                let PostgresSettings { servers, database, table, election, .. } = it.as_ref();
                write!(f, "postgres://{}/{database}/{table}/{election}", sorted(servers))
            }
            Self::Redis(it) => {
                let RedisSettings { servers, database, election, .. } = it.as_ref();
                write!(f, "redis://{}/{database}/{election}", sorted(servers))
            }
            Self::S3(it) => below(&below(&server(it), &it.bucket), &it.key()).fmt(f),
            Self::Gcs(it) => below(&below(&it.server, &it.bucket), &it.name()).fmt(f),
            Self::Zookeeper(it) => {
                let ZookeeperSettings { servers, path, election, .. } = it.as_ref();
                write!(f, "zookeeper://{}/{path}/{election}", sorted(servers))
            }
            Self::Mongo(it) => {
                let MongoSettings { servers, database, collection, election, .. } = it.as_ref();
                write!(f, "mongodb://{}/{database}/{collection}/{election}", sorted(servers))
            }
            Self::Memory => StoreUrl::Memory.fmt(f),
        }
    }
}

/// Returns the URL of the server of a bucket, whose name may be in the host or in the path.
fn server(it: &S3Settings) -> Url {
    let mut url = it.url.clone();
    url.set_path("");
    let host = it.url.host_str().and_then(|host| host.strip_prefix(&format!("{}.", it.bucket)));
    if let (Some(host), "/") = (host, it.url.path()) {
        // It remains a host without its first part.
        let _ = url.set_host(Some(host));
    }
    url
}

/// Lists the addresses of servers, which are the same store in any order.
fn sorted<T: ToString>(servers: &[T]) -> String {
    let mut all: Vec<_> = servers.iter().map(ToString::to_string).collect();
    all.sort_unstable();
    all.join(",")
}

/// Lists the addresses in URLs, with their ports, whether they are those of http, of https or others.
fn hosts(servers: &[Url]) -> String {
    let address = |it: &Url| {
        let port = it.port_or_known_default().unwrap_or_default();
        format!("{}:{port}", it.host_str().unwrap_or_default())
    };
    sorted(&servers.iter().map(address).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;

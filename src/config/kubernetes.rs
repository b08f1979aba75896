//! Settings of Kubernetes: the API server, the Lease, the route of a Service to the leader, and the
//! object of Events. Of the files that Kubernetes mounts into a pod, only the namespace is read
//! here.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use route::Kind;

use super::faults::{Problem, Source, Warning};
use super::kubernetes_names as names;
use super::reader::Reader;
use super::store_url::StoreUrl;
use super::values;

mod access;
mod route;

/// How to reach the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeAccess {
    /// The base URL, without a trailing slash.
    pub api: Url,
    /// The file that holds the bearer token, read again when it changes; without one, requests are
    /// anonymous.
    pub token_file: Option<PathBuf>,
    /// The file of the CA certificates; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
}

/// Settings of `kubernetes:`.
#[derive(Clone, Debug)]
pub struct KubernetesSettings {
    /// How to reach the API server.
    pub access: KubeAccess,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// The bound on one request.
    pub request_timeout: Duration,
}

/// What is written to Kubernetes besides the lease: Events and the route.
#[derive(Clone, Debug)]
pub struct KubePublishing {
    /// How to reach the API server.
    pub access: KubeAccess,
    /// The namespace of the pod; outside of a pod, that of the Lease.
    pub namespace: String,
    /// The name of this pod, which Events refer to; always known if there is a route.
    pub pod: Option<String>,
    /// The Lease, which Events refer to outside of a pod; `None` if another store keeps the lease,
    /// or if it is in another namespace than the pod.
    pub lease: Option<String>,
    /// Name of the election.
    pub election: String,
    /// How a Service follows the leader.
    pub route: Option<Route>,
    /// The bound on one request.
    pub request_timeout: Duration,
}

/// How a Service follows the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// By a label of each pod, active or passive, in the Service's selector.
    Label {
        /// The key of the label.
        key: String,
    },
    /// By an `EndpointSlice` that the leader writes, for a Service without selector.
    EndpointSlice {
        /// The Service.
        service: String,
        /// The endpoint's address while this instance leads.
        address: IpAddr,
    },
}

impl Route {
    /// Returns the kind of route, as in `--kube-route`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Label { .. } => "label",
            Self::EndpointSlice { .. } => "endpointslice",
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label { key } => write!(f, "label:{key}"),
            Self::EndpointSlice { service, address } => {
                write!(f, "endpointslice:{service}:{address}")
            }
        }
    }
}

/// The settings of Kubernetes, each checked on its own.
#[derive(Debug)]
pub(super) struct Cluster {
    /// Whether the store or a route is in Kubernetes.
    is_used: bool,
    /// How to reach the API server, if known.
    access: Option<KubeAccess>,
    /// The namespace of this pod, if known; `None` if it is invalid.
    namespace: Option<Option<String>>,
    route: Option<Kind>,
    /// `None` if it is invalid.
    label: Option<String>,
    /// The Service, if named; `None` if it is invalid.
    service: Option<Option<String>>,
}

impl Reader<'_> {
    /// Reads the settings of Kubernetes, and determines the API server if the store or a route
    /// needs it.
    pub(super) fn cluster(&mut self, store: Option<&StoreUrl>) -> Cluster {
        let api = self.optional("kube-api", access::api);
        let token_file = self.optional("kube-token-file", values::path);
        let ca_file = self.optional("kube-ca-file", values::path);
        let route = self.optional("kube-route", route::kind);
        let label = self.one("kube-label", names::label_key);
        let service = self.optional("kube-service", names::label);
        // An invalid one is a fault already, and must not hide others.
        let route = route.flatten();
        self.warn_unused(store, route);
        let requester = match store {
            Some(StoreUrl::Kubernetes { .. }) => Some("store"),
            _ => route.map(|_| "kube-route"),
        };
        // Without access, or with an invalid name, the route may have further faults; all are
        // reported.
        let (access, namespace) = match requester {
            Some(requester) => {
                let access = match (api, token_file, ca_file) {
                    (Some(api), Some(token_file), Some(ca_file)) => {
                        self.access(requester, api, token_file, ca_file)
                    }
                    _ => None,
                };
                (access, self.own_namespace())
            }
            None => (None, Some(None)),
        };
        let is_used = requester.is_some();
        Cluster { is_used, access, namespace, route, label, service }
    }

    /// Returns the Lease that a store URL names.
    pub(super) fn lease(
        &mut self,
        cluster: &Cluster,
        namespace: Option<String>,
        name: String,
        request_timeout: Option<Duration>,
    ) -> Option<KubernetesSettings> {
        let namespace = match namespace {
            Some(namespace) => Some(namespace),
            None => cluster.namespace.clone()?,
        };
        let Some(namespace) = namespace else {
            let problem = Problem::new(
                "names no namespace, POD_NAMESPACE is not set, and there is no service account",
                format!("write kubernetes:NAMESPACE/{name}"),
            );
            self.fault_of("store", problem);
            return None;
        };
        Some(KubernetesSettings {
            access: cluster.access.clone()?,
            namespace,
            name,
            request_timeout: request_timeout?,
        })
    }

    /// Returns what is written besides the lease; `Some(None)` if neither the store nor a route is
    /// in Kubernetes.
    pub(super) fn publishing(
        &mut self,
        cluster: Cluster,
        lease: Option<&KubernetesSettings>,
        advertise: Option<&str>,
        election: Option<&str>,
        request_timeout: Option<Duration>,
    ) -> Option<Option<KubePublishing>> {
        let route = self.route(&cluster, advertise)?;
        if !cluster.is_used {
            return Some(None);
        }
        if let (Some(Route::EndpointSlice { service, .. }), Some(election)) = (&route, election) {
            self.check_slice(service, election)?;
        }
        let pod = self.environment.get("POD_NAME").filter(|it| names::subdomain(it).is_ok());
        let (namespace, pod) = match (cluster.namespace?, pod) {
            (Some(namespace), Some(pod)) => (namespace, Some(pod.to_owned())),
            _ => (lease?.namespace.clone(), None),
        };
        let lease = lease.filter(|it| it.namespace == namespace).map(|it| it.name.clone());
        Some(Some(KubePublishing {
            access: cluster.access?,
            namespace,
            pod,
            lease,
            election: election?.to_owned(),
            route,
            request_timeout: request_timeout?,
        }))
    }

    /// Warns of settings that have no effect.
    fn warn_unused(&mut self, store: Option<&StoreUrl>, route: Option<Kind>) {
        let in_cluster = matches!(store, Some(StoreUrl::Kubernetes { .. })) || route.is_some();
        let no_cluster = "neither store nor route is in Kubernetes";
        let in_azure = matches!(store, Some(StoreUrl::Azure { .. }));
        let no_azure = "the store is not azure:";
        let in_postgres = matches!(store, Some(StoreUrl::Postgres { .. }));
        let in_s3 = matches!(store, Some(StoreUrl::S3 { .. }));
        let in_mongodb = matches!(store, Some(StoreUrl::Mongo { .. }));
        let with_certificate = in_postgres
            || in_mongodb
            || matches!(
                store,
                Some(
                    StoreUrl::Consul { .. }
                        | StoreUrl::Etcd { .. }
                        | StoreUrl::Zookeeper { .. }
                        | StoreUrl::Redis { .. }
                )
            );
        let no_certificate =
            "the store is none of consul:, etcd:, mongodb:, postgres:, redis: and zookeeper:";
        let no_mongodb = "the store is not mongodb:";
        let in_gcs = matches!(store, Some(StoreUrl::Gcs { .. }));
        let on_servers = in_s3 || in_gcs || with_certificate;
        let no_servers = "the store is none of consul:, etcd:, mongodb:, postgres:, redis:, s3:, gs: and zookeeper:";
        let no_s3 = "the store is not s3:";
        for (subject, used, why) in [
            ("azure-endpoint", in_azure, no_azure),
            ("azure-blob-prefix", in_azure, no_azure),
            ("azure-insecure-http", in_azure, no_azure),
            ("mongodb-collection", in_mongodb, no_mongodb),
            ("mongodb-auth-source", in_mongodb, no_mongodb),
            ("mongodb-compatible", in_mongodb, no_mongodb),
            ("postgres-table", in_postgres, "the store is not postgres:"),
            ("store-ca-file", on_servers, no_servers),
            ("store-cert", with_certificate, no_certificate),
            ("store-key", with_certificate, no_certificate),
            ("store-insecure", on_servers, no_servers),
            ("s3-endpoint", in_s3, no_s3),
            ("s3-region", in_s3, no_s3),
            ("s3-path-style", in_s3, no_s3),
            ("kube-api", in_cluster, no_cluster),
            ("kube-token-file", in_cluster, no_cluster),
            ("kube-ca-file", in_cluster, no_cluster),
            ("kube-label", route == Some(Kind::Label), "there is no --kube-route label"),
            ("kube-service", route.is_some(), "there is no --kube-route endpointslice"),
        ] {
            let is_given = self.raw(subject).is_some_and(|it| {
                // A switch that is off asks for nothing.
                it.source != Source::Default && it.values.first().is_some_and(|it| it != "false")
            });
            if !used && is_given {
                self.warn(subject, format!("it has no effect, since {why}"), "remove it");
            }
        }
    }

    /// Records a warning.
    fn warn(&mut self, subject: &'static str, problem: impl Into<String>, remedy: &str) {
        let (problem, remedy) = (problem.into(), remedy.to_owned());
        self.warnings.push(Warning { subject, problem, remedy });
    }
}

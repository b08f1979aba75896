//! Determines how to reach the API server: by the flags, else as a pod reaches that of its cluster.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use url::{Host, Url};

use super::super::endpoint;
use super::super::faults::{Problem, Source};
use super::super::kubernetes_names as names;
use super::super::reader::Reader;
use super::KubeAccess;

impl Reader<'_> {
    /// Returns `--kube-api`, else the API server of this pod's cluster with the credentials of its
    /// service account. The token of a service account is valid for its own cluster only, so no
    /// other API server is sent it unless its file is named.
    pub(super) fn access(
        &mut self,
        requester: &'static str,
        api: Option<Url>,
        token_file: Option<PathBuf>,
        ca_file: Option<PathBuf>,
    ) -> Option<KubeAccess> {
        if let Some(api) = api {
            if api.scheme() == "http" && ca_file.is_some() {
                self.warn(
                    "kube-ca-file",
                    "it has no effect, since kube-api is plain http",
                    "remove it",
                );
            }
            if api.scheme() == "https" && token_file.is_none() {
                self.warn(
                    "kube-api",
                    "requests to it are anonymous: a service account's token is for its own \
                     cluster only, and no other token is set",
                    "set --kube-token-file",
                );
            }
            return Some(KubeAccess { api, token_file, ca_file });
        }
        if !self.environment.in_kubernetes() {
            let problem = Problem::new(
                "needs an API server, and this is not a pod: KUBERNETES_SERVICE_HOST is not set",
                "set it: --kube-api https://HOST:6443 --kube-token-file PATH --kube-ca-file PATH, \
                 or --kube-api http://127.0.0.1:8001 with a `kubectl proxy`",
            );
            self.fault_of(requester, problem);
            return None;
        }
        let api = self.in_cluster();
        let account = self.environment.service_account.clone();
        let token = account.join("token");
        if token_file.is_none() && !token.is_file() {
            let problem = Problem::new(
                format!("needs a service account's token, and there is no {}", token.display()),
                "set automountServiceAccountToken: true for the pod (or its ServiceAccount), or \
                 set --kube-token-file",
            );
            self.fault_of(requester, problem);
            return None;
        }
        Some(KubeAccess {
            api: api?,
            token_file: Some(token_file.unwrap_or(token)),
            ca_file: Some(ca_file.unwrap_or_else(|| account.join("ca.crt"))),
        })
    }

    /// Returns the API server of this pod's cluster.
    fn in_cluster(&mut self) -> Option<Url> {
        const HOST: &str = "KUBERNETES_SERVICE_HOST";
        const PORT: &str = "KUBERNETES_SERVICE_PORT";
        let host = self.environment.get(HOST).unwrap_or_default().to_owned();
        let port = self.environment.get(PORT).unwrap_or("443").to_owned();
        if !port.parse::<u16>().is_ok_and(|it| it > 0) {
            let problem = Problem::new("is not a port", "unset it for 443, or set --kube-api");
            self.fault(PORT, Some(&port), Source::Variable(PORT.to_owned()), problem);
            return None;
        }
        let in_url =
            if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host.clone() };
        let is_host = Host::parse(&in_url).is_ok();
        let url = Url::parse(&format!("https://{in_url}:{port}")).ok().filter(|_| is_host);
        if url.is_none() {
            let problem = Problem::new(
                "is neither an address nor a host name",
                "leave it as Kubernetes sets it, or set --kube-api",
            );
            self.fault(HOST, Some(&host), Source::Variable(HOST.to_owned()), problem);
        }
        url
    }

    /// Returns `POD_NAMESPACE`, else the namespace of the service account.
    pub(super) fn own_namespace(&mut self) -> Option<Option<String>> {
        const VARIABLE: &str = "POD_NAMESPACE";
        if let Some(value) = self.environment.get(VARIABLE).map(str::to_owned) {
            return match names::label(&value) {
                Ok(value) => Some(Some(value)),
                Err(mut problem) => {
                    problem.remedy =
                        format!("set it with {}", names::downward(VARIABLE, "metadata.namespace"));
                    let source = Source::Variable(VARIABLE.to_owned());
                    self.fault(VARIABLE, Some(&value), source, problem);
                    None
                }
            };
        }
        let file = self.environment.service_account.join("namespace");
        let content = std::fs::read_to_string(file).unwrap_or_default();
        Some(names::label(content.trim()).ok())
    }
}

/// Parses the URL of an API server. Plain http is allowed on loopback only: elsewhere an
/// eavesdropper could read the token and produce two leaders.
pub(super) fn api(text: &str) -> Result<Url, Problem> {
    const WRITE: &str = "write https://HOST:6443, or http://127.0.0.1:8001 with a `kubectl proxy`";
    let url = endpoint::read(text, WRITE, "pass a token with --kube-token-file")?;
    if endpoint::is_remote_plain_http(&url) {
        return Err(Problem::new(
            "is plain http to another machine: anyone on the network path can read the token and \
             change everything",
            "write https://…, with --kube-ca-file for its CA certificates",
        ));
    }
    Ok(url)
}

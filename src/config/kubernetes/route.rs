//! Settings of the route of a Service to the leader, and the facts that it needs: the pod, its
//! namespace and, for an `EndpointSlice`, its address.

use std::net::IpAddr;

use super::super::faults::{Problem, Source};
use super::super::kubernetes_names as names;
use super::super::reader::Reader;
use super::{Cluster, Route};

/// The kinds of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `label`
    Label,
    /// `endpointslice`
    EndpointSlice,
}

/// Parses a kind of route.
pub(super) fn kind(text: &str) -> Result<Kind, Problem> {
    match text {
        "label" => Ok(Kind::Label),
        "endpointslice" => Ok(Kind::EndpointSlice),
        _ => Err(Problem::new(
            "is not a kind of route",
            "write label or endpointslice, or leave it out for none",
        )),
    }
}

impl Reader<'_> {
    /// Returns the route, if this pod is known.
    pub(super) fn route(
        &mut self,
        cluster: &Cluster,
        advertise: Option<&str>,
    ) -> Option<Option<Route>> {
        let Some(kind) = cluster.route else { return Some(None) };
        let pod = self.own_pod(cluster);
        let route = match (kind, cluster.service.clone()) {
            (Kind::Label, None | Some(None)) => {
                cluster.label.clone().map(|key| Route::Label { key })
            }
            (Kind::Label, Some(Some(_))) => {
                let problem = Problem::new(
                    format!(
                        "applies only to --kube-route endpointslice{}",
                        self.sources(&["kube-route"])
                    ),
                    format!(
                        "remove it: with --kube-route label the Service selects its pods by {}: \
                         active",
                        cluster.label.as_deref().unwrap_or("kube-label")
                    ),
                );
                self.fault_of("kube-service", problem);
                None
            }
            (Kind::EndpointSlice, service) => {
                let address = self.pod_address(advertise);
                if service == Some(None) {
                    let problem = Problem::new(
                        "needs a Service, and kube-service is not set",
                        "set --kube-service to a Service without a selector",
                    );
                    self.fault_of("kube-route", problem);
                }
                Some(Route::EndpointSlice { service: service??, address: address? })
            }
        };
        pod?;
        Some(Some(route?))
    }

    /// Checks that Service and election make a valid name of an `EndpointSlice`.
    pub(super) fn check_slice(&mut self, service: &str, election: &str) -> Option<()> {
        let name = names::slice(service, election);
        let Err(problem) = names::subdomain(&name) else { return Some(()) };
        let problem = Problem::new(
            format!("gives the EndpointSlice the name {name}, which {}", problem.problem),
            "begin and end each part between dots with a-z or 0-9",
        );
        self.fault_of("election", problem);
        None
    }

    /// Checks that the name and the namespace of this pod are known.
    fn own_pod(&mut self, cluster: &Cluster) -> Option<()> {
        let pod = self.environment.get("POD_NAME").map(str::to_owned);
        let named = match pod {
            None => {
                let problem = Problem::new(
                    "needs the pod's name, and POD_NAME is not set",
                    format!(
                        "add to the container: {}",
                        names::downward("POD_NAME", "metadata.name")
                    ),
                );
                self.fault_of("kube-route", problem);
                None
            }
            Some(pod) => names::subdomain(&pod)
                .map_err(|mut problem| {
                    problem.remedy =
                        format!("set it with {}", names::downward("POD_NAME", "metadata.name"));
                    let source = Source::Variable("POD_NAME".to_owned());
                    self.fault("POD_NAME", Some(&pod), source, problem);
                })
                .ok(),
        };
        if cluster.namespace == Some(None) {
            let add = names::downward("POD_NAMESPACE", "metadata.namespace");
            let problem = Problem::new(
                "needs the pod's namespace, and there is neither POD_NAMESPACE nor a service \
                 account",
                format!("add to the container: {add}"),
            );
            self.fault_of("kube-route", problem);
            return None;
        }
        cluster.namespace.as_ref()?;
        named.map(|_| ())
    }

    /// Returns `POD_IP`, else the host of `--advertise`.
    fn pod_address(&mut self, advertise: Option<&str>) -> Option<IpAddr> {
        const VARIABLE: &str = "POD_IP";
        let add = || format!("add to the container: {}", names::downward(VARIABLE, "status.podIP"));
        if let Some(value) = self.environment.get(VARIABLE).map(str::to_owned) {
            return names::address(&value)
                .map_err(|problem| {
                    let source = Source::Variable(VARIABLE.to_owned());
                    self.fault(VARIABLE, Some(&value), source, Problem::new(problem, add()));
                })
                .ok();
        }
        let (name, problem) = match advertise.map(|it| names::address(&names::host(it))) {
            Some(Ok(address)) => return Some(address),
            Some(Err(problem)) => (
                "advertise",
                format!("{problem}, and without POD_IP it is the address for the EndpointSlice"),
            ),
            None => (
                "kube-route",
                "needs the pod's address, and neither POD_IP nor --advertise is set".to_owned(),
            ),
        };
        self.fault_of(name, Problem::new(problem, add()));
        None
    }
}

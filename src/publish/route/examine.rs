//! Findings of `tenure doctor` about the route: whether the required permissions are granted,
//! whether this pod exists, and whether the Service can follow the leader. Nothing is changed in
//! the cluster.

use std::time::Duration;

use super::endpointslice::ports;
use crate::config::{KubePublishing, Route, slice_name};
use crate::kube::objects::{AccessSpec, EndpointSlice, Pod, SelfSubjectAccessReview, Service};
use crate::kube::rights::{Purpose, RIGHTS, Right};
use crate::kube::{Kube, KubeError};
use crate::store::{Finding, Verdict};

/// The bound on the whole examination.
const PATIENCE: Duration = Duration::from_secs(25);

/// Returns all findings; none if there is neither a route nor a Lease.
pub async fn examine(beside: &KubePublishing) -> Vec<Finding> {
    let kube = match Kube::open(&beside.access, beside.request_timeout) {
        Ok(kube) => kube,
        Err(error) => return vec![failed("route", format!("{error:#}"), "check --kube-api")],
    };
    let looking = async {
        let mut findings = Vec::new();
        match &beside.route {
            None => {}
            Some(Route::Label { key }) => {
                findings.extend(rights(&kube, beside, Purpose::Label).await);
                findings.push(pod(&kube, beside, key).await);
            }
            Some(Route::EndpointSlice { service, .. }) => {
                findings.extend(rights(&kube, beside, Purpose::EndpointSlice).await);
                findings.push(service_of(&kube, beside, service).await);
                findings.push(slice(&kube, beside, service).await);
            }
        }
        findings.extend(rights(&kube, beside, Purpose::Events).await);
        findings
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| {
        let remedy = "check for a firewall between this host and the API server";
        vec![failed("route", "the API server does not answer".to_owned(), remedy)]
    })
}

fn passed(subject: &'static str, detail: String) -> Finding {
    Finding { subject: subject.into(), verdict: Verdict::Passed, detail, remedy: None }
}

fn failed(subject: &'static str, detail: String, remedy: impl Into<String>) -> Finding {
    let remedy = Some(remedy.into());
    Finding { subject: subject.into(), verdict: Verdict::Failed, detail, remedy }
}

/// Checks the permissions for a purpose; returns one finding for all, or one for each that is
/// missing.
async fn rights(kube: &Kube, beside: &KubePublishing, purpose: Purpose) -> Vec<Finding> {
    let subject = match purpose {
        Purpose::Events => "events",
        _ => "route",
    };
    // Events need the permission for the pod or for the Lease, whichever they are about.
    let about = |it: &&Right| {
        purpose != Purpose::Events
            || match it.resource.plural {
                "pods" => beside.pod.is_some(),
                "leases" => beside.pod.is_none(),
                _ => true,
            }
    };
    let mut missing = Vec::new();
    let mut had = 0;
    for right in RIGHTS.iter().filter(|it| it.purpose == purpose).filter(about) {
        match is_allowed(kube, beside, right).await {
            Ok(true) => had += 1,
            Ok(false) => missing.push(lacks(subject, beside, right)),
            Err(error) => {
                let remedy = "fix the connection to the API server first";
                return vec![failed(
                    subject,
                    format!("failed to read the permissions: {error}"),
                    remedy,
                )];
            }
        }
    }
    if missing.is_empty() {
        let detail =
            format!("all {had} permissions in the namespace {} are granted", beside.namespace);
        missing.push(passed(subject, detail));
    }
    missing
}

fn lacks(subject: &'static str, beside: &KubePublishing, right: &Right) -> Finding {
    let Right { verb, resource, needed, why, .. } = right;
    let group = if resource.group.is_empty() { "\"\"" } else { resource.group };
    Finding {
        verdict: if *needed { Verdict::Failed } else { Verdict::Warning },
        ..failed(
            subject,
            format!("cannot {verb} {} in the namespace {}", resource.plural, beside.namespace),
            format!(
                "needed to {why}; add to the Role: apiGroups [{group}], resources [{}], verbs \
                 [{verb}]",
                resource.plural
            ),
        )
    }
}

async fn is_allowed(
    kube: &Kube,
    beside: &KubePublishing,
    right: &Right,
) -> Result<bool, KubeError> {
    let name = match (right.resource.plural, right.named, &beside.route) {
        ("endpointslices", true, Some(Route::EndpointSlice { service, .. })) => {
            slice_name(service, &beside.election)
        }
        ("services", true, Some(Route::EndpointSlice { service, .. })) => service.clone(),
        ("leases", true, _) => beside.lease.clone().unwrap_or_default(),
        ("pods", _, _) if right.verb != "list" => beside.pod.clone().unwrap_or_default(),
        _ => String::new(),
    };
    let attributes = [
        ("verb", right.verb),
        ("group", right.resource.group),
        ("resource", right.resource.plural),
        ("namespace", &beside.namespace),
        ("name", &name),
    ];
    let filled = attributes.into_iter().filter(|(_, value)| !value.is_empty());
    let resource_attributes =
        filled.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let review =
        SelfSubjectAccessReview { spec: AccessSpec { resource_attributes }, ..<_>::default() };
    Ok(kube.create(&review).await?.object.status.allowed)
}

async fn pod(kube: &Kube, beside: &KubePublishing, key: &str) -> Finding {
    const SUBJECT: &str = "pod";
    let name = beside.pod.as_deref().unwrap_or_default();
    match kube.get::<Pod>(&beside.namespace, name).await {
        Ok(found) => {
            let said = found.object.metadata.labels.get(key).map_or("not set", String::as_str);
            passed(SUBJECT, format!("{name} exists; its label {key} is {said}"))
        }
        Err(error) => failed(
            SUBJECT,
            error.to_string(),
            "POD_NAME and POD_NAMESPACE must be those of the pod: set them by fieldRef from \
             metadata.name and metadata.namespace",
        ),
    }
}

async fn service_of(kube: &Kube, beside: &KubePublishing, service: &str) -> Finding {
    const SUBJECT: &str = "service";
    match kube.get::<Service>(&beside.namespace, service).await {
        Ok(found) => match ports(&found.object) {
            Ok(ports) => {
                let ports: Vec<String> =
                    ports.iter().filter_map(|it| it.port).map(|it| it.to_string()).collect();
                passed(
                    SUBJECT,
                    format!("{service} has no selector; it routes to port {}", ports.join(", ")),
                )
            }
            Err(why) => failed(SUBJECT, why, "change the Service, or the kind of route"),
        },
        Err(error) => {
            failed(SUBJECT, error.to_string(), "create a Service without selector, with its ports")
        }
    }
}

async fn slice(kube: &Kube, beside: &KubePublishing, service: &str) -> Finding {
    const SUBJECT: &str = "endpointslice";
    let name = slice_name(service, &beside.election);
    match kube.get::<EndpointSlice>(&beside.namespace, &name).await {
        Ok(found) => {
            let addresses: Vec<String> =
                found.object.endpoints.into_iter().flat_map(|it| it.addresses).collect();
            let to = if addresses.is_empty() { "nobody".to_owned() } else { addresses.join(", ") };
            passed(SUBJECT, format!("{name} routes to {to}"))
        }
        Err(KubeError::Missing(_)) => {
            passed(SUBJECT, format!("{name} does not exist; the first leader creates it"))
        }
        Err(error) => failed(SUBJECT, error.to_string(), "see the permissions above"),
    }
}

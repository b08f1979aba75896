//! Findings of `tenure doctor` about the route: whether the required permissions are granted,
//! whether this pod exists, and whether the Service follows the leader alone. Nothing is changed in
//! the cluster.

use std::time::Duration;

use super::endpointslice::{MANAGER, SERVICE, is_ready, ports};
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
                findings.extend(slices(&kube, beside, service).await);
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

/// Examines the slice that the leaders write, and every other endpoint behind the Service.
async fn slices(kube: &Kube, beside: &KubePublishing, service: &str) -> Vec<Finding> {
    const SUBJECT: &str = "endpointslice";
    let own = slice_name(service, &beside.election);
    let selector = format!("{SERVICE}={service}");
    let listed = match kube.list::<EndpointSlice>(&beside.namespace, &selector).await {
        Ok(listed) => listed,
        Err(error) => return vec![failed(SUBJECT, error.to_string(), "see the permissions above")],
    };
    let mut findings = Vec::new();
    if !listed.iter().any(|it| it.metadata.name == own) {
        let detail = format!("{own} does not exist; the first leader creates it");
        findings.push(passed(SUBJECT, detail));
    }
    for slice in &listed {
        if slice.metadata.name == own {
            findings.push(leaders_slice(kube, beside, slice).await);
        } else {
            findings.extend(foreign_slice(beside, service, slice));
        }
    }
    findings
}

/// Examines the slice that the leaders write: the pods behind it must exist.
async fn leaders_slice(kube: &Kube, beside: &KubePublishing, slice: &EndpointSlice) -> Finding {
    const SUBJECT: &str = "endpointslice";
    let name = &slice.metadata.name;
    for endpoint in slice.endpoints.iter().filter(|it| is_ready(it)) {
        let Some(pod) = endpoint.target_ref.as_ref().filter(|it| !it.uid.is_empty()) else {
            continue;
        };
        let fault = match kube.get::<Pod>(&beside.namespace, &pod.name).await {
            Ok(found) if found.object.metadata.uid != pod.uid => "was replaced by another",
            Ok(found) if found.object.has_ended() => "has ended",
            Err(KubeError::Missing(_)) => "does not exist",
            _ => continue,
        };
        let detail = format!(
            "{name} routes to {}, but its pod {} {fault}: the address may be another pod's",
            endpoint.addresses.join(", "),
            pod.name
        );
        let remedy = format!(
            "start a candidate, which removes the endpoint, or run: {}",
            delete(beside, "endpointslice", name)
        );
        return failed(SUBJECT, detail, remedy);
    }
    let addresses: Vec<&str> =
        slice.endpoints.iter().flat_map(|it| it.addresses.iter().map(String::as_str)).collect();
    let to = if addresses.is_empty() { "nobody".to_owned() } else { addresses.join(", ") };
    passed(SUBJECT, format!("{name} routes to {to}"))
}

/// Returns a finding if a slice that no leader writes routes requests to anybody.
fn foreign_slice(beside: &KubePublishing, service: &str, slice: &EndpointSlice) -> Option<Finding> {
    let name = &slice.metadata.name;
    let ready = slice.endpoints.iter().filter(|it| is_ready(it));
    let addresses: Vec<&str> =
        ready.flat_map(|it| it.addresses.iter().map(String::as_str)).collect();
    let manager = slice.metadata.labels.get(MANAGER.0).map_or("", String::as_str);
    let detail = format!(
        "{name} routes the Service {service} to {} too, which is not the leader's endpoint{}",
        addresses.join(", "),
        if manager.is_empty() { String::new() } else { format!(" (managed by {manager})") }
    );
    let remedy = match manager {
        // The controller would create the slice again.
        "endpointslicemirroring-controller.k8s.io" => format!(
            "Kubernetes copies it from the Endpoints {service}: run {}",
            delete(beside, "endpoints", service)
        ),
        us if us == MANAGER.1 => format!(
            "if no other election uses this Service, run {}; otherwise give each its own Service",
            delete(beside, "endpointslice", name)
        ),
        _ => format!(
            "if nothing writes it any more, as after a change of the route, run {}",
            delete(beside, "endpointslice", name)
        ),
    };
    (!addresses.is_empty()).then(|| failed("endpointslice", detail, remedy))
}

/// Returns the command that deletes an object.
fn delete(beside: &KubePublishing, kind: &str, name: &str) -> String {
    format!("kubectl -n {} delete {kind} {name}", beside.namespace)
}

//! The tests' control plane itself: real RBAC, real conflicts, real watches, and a restart without
//! a loss of data.

use testkit::kubernetes::control_plane;

use std::time::Duration;

use control_plane::ControlPlane;

const ACCOUNT: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: orders, namespace: default}
spec: {holderIdentity: web-1}
";

#[test]
fn a_service_account_has_the_rights_of_its_role_and_no_others() {
    let plane = ControlPlane::shared();
    plane.kubectl.apply(ACCOUNT);
    let token = plane.token("default", "reader", Duration::from_secs(600));
    let token = std::fs::read_to_string(token).unwrap();
    let by = |verb: &str| {
        let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/orders";
        let output = std::process::Command::new("curl")
            .args(["--silent", "--output", "/dev/null", "--write-out", "%{http_code}"])
            .args(["--request", verb, "--header", &format!("Authorization: Bearer {token}")])
            .arg("--cacert")
            .arg(plane.ca_file())
            .arg(format!("{}{path}", plane.url()))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(by("GET"), "200");
    assert_eq!(by("DELETE"), "403");
    assert_eq!(plane.kubectl.get("default", "leases", "orders")["spec"]["holderIdentity"], "web-1");
}

#[test]
fn the_api_server_restarts_with_its_state() {
    let mut plane = ControlPlane::stoppable();
    plane.kubectl.apply(ACCOUNT);
    plane.stop_api();
    assert!(!plane.is_ready());
    plane.continue_api();
    plane.kill_api();
    assert!(!plane.is_ready());
    plane.restart_api();
    assert_eq!(plane.kubectl.get("default", "leases", "orders")["spec"]["holderIdentity"], "web-1");
}

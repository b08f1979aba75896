//! The image next to a service, in pods that podman creates from Kubernetes manifests: the service
//! sends requests to its sidecar, and an init container copies the binary for an image without
//! Tenure.

use testkit::tools::{containers, image};

use containers::{Engine, until};
use image::{STAGE, image, stdout_of};

/// A service whose image has neither Tenure nor curl: it uses the copied binary, and works while
/// its sidecar reports active.
const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: orders
spec:
  restartPolicy: Never
  volumes:
    - name: bin
      emptyDir: {}
  initContainers:
    - name: install
      image: IMAGE
      args: [install, /shared]
      volumeMounts: [{name: bin, mountPath: /shared}]
      securityContext: &tight
        readOnlyRootFilesystem: true
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
  containers:
    - name: tenure
      image: IMAGE
      args: [run, --store, "memory:", --election, orders]
      securityContext: *tight
    - name: service
      image: SERVICE
      command: [/bin/sh, -c]
      args:
        - >-
          /shared/tenure wait --for active && echo working;
          while /shared/tenure check --min-remaining 1s; do sleep 0.1; done;
          echo resting;
          exec sleep 600
      volumeMounts: [{name: bin, mountPath: /shared, readOnly: true}]
"#;

#[test]
fn in_a_pod_the_service_queries_its_sidecar_with_the_installed_binary() {
    let engine = Engine::new();
    let file = engine.path().join("pod.yaml");
    std::fs::write(&file, POD.replace("IMAGE", &image().name).replace("SERVICE", STAGE)).unwrap();
    stdout_of(engine.podman(&["play", "kube", "--network=none", file.to_str().unwrap()]));

    let log = |container: &str| stdout_of(engine.podman(&["logs", container]));
    until("the service works", || log("orders-service").contains("working").then_some(()));
    let status = ["exec", "orders-tenure", "/tenure", "status", "--json"];
    let status: serde_json::Value =
        serde_json::from_str(&stdout_of(engine.podman(&status))).unwrap();
    assert_eq!((&status["role"], &status["identity"]), (&"active".into(), &"orders".into()));

    stdout_of(engine.podman(&["stop", "--time=10", "orders-tenure"]));
    let code = ["inspect", "--format", "{{.State.ExitCode}}", "orders-tenure"];
    assert_eq!(stdout_of(engine.podman(&code)), "0");
    until("the service rests", || log("orders-service").contains("resting").then_some(()));
}

#[test]
fn in_another_image_exec_is_process_1_and_leaves_no_zombies() {
    let engine = Engine::new();
    let bin = format!("--volume={}:/shared", engine.volume("bin").display());
    let installed = engine.run(&[&bin], &image().name, &["install", "/shared"]);
    assert!(installed.status.success(), "{installed:?}");
    assert!(installed.stderr.is_empty(), "it runs without a C library: {installed:?}");

    // An orphan that exits while the work continues.
    let work = "(sleep 0.1 & echo orphan) && echo term $TENURE_TERM && exec sleep 600";
    let command = [
        "/shared/tenure",
        "exec",
        "--store",
        "memory:",
        "--drain-timeout",
        "1s",
        "--",
        "sh",
        "-c",
        work,
    ];
    let mut service = engine.start("service", &[&bin], STAGE, &command);
    until("it works in a term", || service.log().contains("term 1").then_some(()));
    let first = service.exec(&["cat", "/proc/1/cmdline"]).stdout;
    assert!(first.starts_with(b"/shared/tenure\0exec"), "{}", String::from_utf8_lossy(&first));
    until("all zombies are reaped", || {
        let states = service.exec(&["sh", "-c", "cat /proc/[0-9]*/stat"]).stdout;
        let states = String::from_utf8(states).unwrap();
        let orphan = states.contains("sleep) S") && states.matches("(sleep)").count() == 1;
        (orphan && !states.contains(") Z ")).then_some(())
    });
    stdout_of(engine.podman(&["kill", "--signal=TERM", "service"]));
    assert_eq!(service.ended(), 0);
}

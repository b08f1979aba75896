//! `deploy/`: the output of Kustomize and the files to copy are valid, hardened, equal to what the
//! chart renders, and accepted by Tenure.

use testkit::kubernetes::{chart_values, manifests, rights, yaml};

use std::process::Command;

use serde_json::{Value, json};

use chart_values::with;
use manifests::{
    Manifests, assert_plain_probes, assert_restricted, assert_valid, place, render, run, text,
};
use tenure::config::{self, Ending, Environment, Flags, SETTINGS, Verb};
use tenure::kube::rights::Purpose;

/// Builds a kustomization of the repository.
fn build(folder: &str) -> Manifests {
    try_build(folder).unwrap_or_else(|error| panic!("{folder}: {error}"))
}

fn try_build(folder: &str) -> Result<Manifests, String> {
    let ran = run("kustomize", &["build", folder], "");
    if !ran.status.success() {
        return Err(String::from_utf8(ran.stderr).unwrap());
    }
    Ok(Manifests::of(String::from_utf8(ran.stdout).unwrap()))
}

/// Builds a custom kustomization next to `deploy/`.
fn build_own(kustomization: &str, files: &[(&str, &str)]) -> Manifests {
    try_build_own(kustomization, files).unwrap_or_else(|error| panic!("{error}"))
}

/// Like [`build_own`], but returns the error of kustomize.
fn try_build_own(kustomization: &str, files: &[(&str, &str)]) -> Result<Manifests, String> {
    let folder = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-r").arg(place("deploy")).arg(folder.path()).status();
    assert!(copied.unwrap().success());
    let own = folder.path().join("own");
    std::fs::create_dir(&own).unwrap();
    std::fs::write(own.join("kustomization.yaml"), kustomization).unwrap();
    for (name, text) in files {
        std::fs::write(own.join(name), text).unwrap();
    }
    try_build(own.to_str().unwrap())
}

/// Parses flags and variables with Tenure's own code, with a directory and token that exist on this
/// host.
fn read(arguments: &[Value], variables: &Value, verb: Verb) -> config::Loaded {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "token").unwrap();
    let mut flags = Flags::new();
    flags.insert("kube-token-file", vec![token.to_str().unwrap().to_owned()]);
    for argument in arguments {
        let Some(flag) = argument.as_str().unwrap().strip_prefix("--") else { continue };
        let Some((name, value)) = flag.split_once('=') else { continue };
        let setting = SETTINGS.iter().find(|it| it.name == name).unwrap();
        let value = value.replace("/run/tenure", folder.path().to_str().unwrap());
        flags.entry(setting.name).or_default().push(value);
    }
    let pod = [
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ("KUBERNETES_SERVICE_PORT", "443"),
        ("POD_NAME", "orders-1"),
        ("POD_NAMESPACE", "shop"),
        ("POD_IP", "10.1.2.3"),
    ];
    let variables = variables.as_object().into_iter().flatten();
    let variables = variables.map(|(name, value)| (name.as_str(), value.as_str().unwrap()));
    let environment = Environment::of(pod.into_iter().chain(variables));
    config::load(&flags, &environment, verb).unwrap_or_else(|faults| panic!("{faults}"))
}

/// Returns the URL of a Lease in the namespace of the pod.
fn lease(name: &str) -> String {
    format!("https://10.0.0.1/apis/coordination.k8s.io/v1/namespaces/shop/leases/{name}")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// Returns the only ConfigMap with the settings.
fn settings(built: &Manifests) -> &Value {
    let all = built.each("ConfigMap");
    let found: Vec<&&Value> =
        all.iter().filter(|it| it["data"]["TENURE_STORE"].is_string()).collect();
    assert_eq!(found.len(), 1);
    found[0]
}

#[test]
fn the_whole_example_is_valid_restricted_and_has_the_rights_for_its_lease() {
    for (example, name) in [("singleton-worker", "worker"), ("exec", "batch")] {
        let built = build(&format!("deploy/examples/{example}"));
        assert_valid(&built.text);
        let pods = built.pods();
        assert_eq!(pods.len(), 1);
        assert_restricted(pods[0]);
        assert_plain_probes(pods[0]);
        let purposes = [Purpose::Store, Purpose::Events];
        let of = rights::Of { namespace: "", lease: ("", name), service: "", election: name };
        assert_eq!(built.granted(), rights::needed(&purposes, &of), "{example}");
        let account = &built.pod()["serviceAccountName"];
        assert_eq!(*account, format!("{name}-tenure"));
        assert_eq!(built.each("ServiceAccount")[0]["metadata"]["name"], *account);
        let subject = &built.each("RoleBinding")[0]["subjects"][0]["name"];
        assert_eq!(subject, account);
    }
}

#[test]
fn the_examples_on_servers_have_their_secrets_and_need_no_rights() {
    for (example, store, credentials) in [
        ("worker-on-consul", "consul://consul-server.consul:8501/", "worker-consul"),
        ("worker-on-etcd", "etcd://etcd-0.etcd:2379,", "worker-etcd"),
        ("worker-on-mongodb", "mongodb://db-0.db,", "worker-db"),
        ("worker-on-postgres", "postgres://db-0.db,", "worker-db"),
        ("worker-on-redis", "redis://redis-0.redis,", "worker-redis"),
        ("worker-on-s3", "s3://leases/team", "worker-s3"),
        ("worker-on-zookeeper", "zookeeper://zk-0.zk:2281,", "worker-zk"),
    ] {
        has_its_secrets(&format!("deploy/examples/{example}"), store, credentials);
    }
}

#[test]
fn the_example_on_google_cloud_storage_has_its_key() {
    let built = build("deploy/examples/worker-on-gcs");
    assert_valid(&built.text);
    assert_restricted(built.pods()[0]);
    let data = &settings(&built)["data"];
    assert_eq!(data["TENURE_STORE"], "gs://leases/team");
    let file = data["GOOGLE_APPLICATION_CREDENTIALS"].as_str().unwrap();
    let mounts = built.container("tenure")["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|it| it["name"] == "store-key").unwrap();
    assert_eq!(file.strip_suffix("/key.json"), mount["mountPath"].as_str());
}

fn has_its_secrets(example: &str, store: &str, credentials: &str) {
    let built = build(example);
    assert_valid(&built.text);
    assert_restricted(built.pods()[0]);
    assert!(built.each("Role").is_empty() && built.each("RoleBinding").is_empty());
    let data = &settings(&built)["data"];
    assert!(data["TENURE_STORE"].as_str().unwrap().starts_with(store));
    let sidecar = built.container("tenure");
    let secret = json!({"secretRef": {"name": credentials}});
    assert!(sidecar["envFrom"].as_array().unwrap().contains(&secret), "{sidecar}");
    let file = data["TENURE_STORE_CA_FILE"].as_str().unwrap();
    let mounts = sidecar["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|it| it["name"] == "store-tls").unwrap();
    assert_eq!(file.strip_suffix("/ca.crt"), mount["mountPath"].as_str());
}

#[test]
fn the_component_adds_the_sidecar_that_the_chart_renders() {
    let built = build("deploy/examples/singleton-worker");
    let (ours, charts) = (built.container("tenure").clone(), render(&json!({})));
    let chart = charts.container("tenure");
    for key in ["image", "restartPolicy", "ports", "resources", "terminationMessagePolicy"] {
        assert_eq!(ours[key], chart[key], "{key}");
    }
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        for how in ["exec", "httpGet"] {
            assert_eq!(ours[probe][how], chart[probe][how], "{probe}");
        }
        assert_eq!(ours[probe]["periodSeconds"], chart[probe]["periodSeconds"], "{probe}");
    }
    for mount in list(&chart["volumeMounts"]) {
        assert!(list(&ours["volumeMounts"]).contains(mount), "{mount}");
    }
    for volume in list(&charts.pod()["volumes"]) {
        assert!(list(&built.pod()["volumes"]).contains(volume), "{volume}");
    }
    for flag in &list(&ours["args"])[1..] {
        assert!(charts.flags().contains(&flag.as_str().unwrap().to_owned()), "{flag}");
    }
    // The ServiceAccount of the base turns the token of the other containers off.
    assert!(built.pod()["automountServiceAccountToken"].is_null());
    assert_eq!(built.each("ServiceAccount")[0]["automountServiceAccountToken"], false);
    assert_eq!(ours["envFrom"][0]["configMapRef"]["name"], settings(&built)["metadata"]["name"]);

    let loaded = read(list(&ours["args"]), &settings(&built)["data"], Verb::Run);
    assert_eq!(loaded.warnings, []);
    assert_eq!(loaded.settings.store.to_string(), lease("worker"));
    assert_eq!(loaded.settings.election, "worker");
    let grace = built.pod()["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace >= Ending::of(&loaded.settings).seconds() + 25);
}

#[test]
fn the_kustomization_of_the_readme_has_sidecar_settings_and_monitoring() {
    let readme = text("deploy/README.md");
    let own = readme.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let own = own.replace("../tenure/deploy", "../deploy");
    let deployment = text("deploy/examples/singleton-worker/worker.yaml");
    let set = deployment
        .replace("kind: Deployment", "kind: StatefulSet")
        .replace("  strategy:", "  updateStrategy:")
        .replace("rollingUpdate: {maxSurge: 1, maxUnavailable: 0}", "type: RollingUpdate")
        .replace("  replicas: 2", "  replicas: 2\n  serviceName: orders");
    for (kind, workload) in [("Deployment", deployment), ("StatefulSet", set)] {
        let built = build_own(&own, &[("deployment.yaml", &workload)]);
        assert_valid(&built.text);
        assert_eq!(built.workload()["kind"], kind);
        assert_eq!(built.container("tenure")["restartPolicy"], "Always", "{kind}");
        let loaded =
            read(list(&built.container("tenure")["args"]), &settings(&built)["data"], Verb::Run);
        assert_eq!(loaded.settings.store.to_string(), lease("orders"));
        assert_eq!(loaded.settings.timings.lease_duration.as_secs(), 30);
        let rule = built.the("PrometheusRule", "orders-tenure");
        assert_eq!(rule["spec"], yaml::document(&text("monitoring/rules.yaml")));
        let board = built.the("ConfigMap", "orders-tenure-dashboard");
        let shown: Value =
            serde_json::from_str(board["data"]["tenure.json"].as_str().unwrap()).unwrap();
        let source: Value = serde_json::from_str(&text("monitoring/dashboard.json")).unwrap();
        assert_eq!(shown, source);
        let monitor = &built.the("PodMonitor", "orders-tenure")["spec"];
        let port = &built.container("tenure")["ports"][0]["name"];
        assert_eq!(monitor["podMetricsEndpoints"][0]["port"], *port);
    }
    let unlabelled = text("deploy/examples/singleton-worker/worker.yaml")
        .replace("    tenure.dev/sidecar: native\n", "");
    let built = build_own(&own, &[("deployment.yaml", &unlabelled)]);
    assert!(built.pod()["initContainers"].is_null(), "nobody asked for a sidecar");
}

#[test]
fn the_component_adds_to_a_pod_and_replaces_nothing() {
    let kustomization = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamePrefix: \
        o-\nresources: [../deploy/base, pod.yaml]\ncomponents: [../deploy/components/native-sidecar]\n";
    let workload = |kind: &str, labels: Value, pod: Value| {
        let spec = with(
            pod,
            json!({
                "initContainers": [{"name": "migrate", "image": "x:1"}, {"name": "fetch", "image": "x:1"}],
                "containers": [{"name": "service", "image": "x:1"}],
            }),
        );
        let mut it = json!({
            "apiVersion": "apps/v1", "kind": kind,
            "metadata": {"name": "shop", "labels": with(json!({"tenure.dev/sidecar": "native"}), labels)},
            "spec": {"selector": {"matchLabels": {"app": "shop"}},
                     "template": {"metadata": {"labels": {"app": "shop"}}, "spec": spec}},
        });
        if kind == "StatefulSet" {
            it["spec"]["serviceName"] = json!("shop");
        }
        it.to_string()
    };
    let own = json!({"automountServiceAccountToken": true, "enableServiceLinks": true});
    for kind in ["Deployment", "StatefulSet", "DaemonSet"] {
        let pod = workload(kind, json!({}), own.clone());
        let built = build_own(kustomization, &[("pod.yaml", &pod)]);
        assert_valid(&built.text);
        assert_eq!(built.workload()["kind"], kind);
        let first = list(&built.pod()["initContainers"]);
        let names: Vec<&Value> = first.iter().map(|it| &it["name"]).collect();
        assert_eq!(names, ["migrate", "fetch", "tenure"], "it does not compete while they run");
        for (key, value) in own.as_object().unwrap() {
            assert_eq!(built.pod()[key], *value, "{key}");
        }
        assert_eq!(built.pod()["serviceAccountName"], "o-tenure");
    }

    let account = json!({"serviceAccountName": "mine"});
    let pod = workload("Deployment", json!({}), account.clone());
    let refused = try_build_own(kustomization, &[("pod.yaml", &pod)]).unwrap_err();
    assert!(refused.contains("spec/serviceAccountName"), "{refused}");
    // The page says how to keep it.
    let readme = text("deploy/README.md");
    let bind = readme.split("```yaml\n").nth(2).unwrap().split("```").next().unwrap();
    let pod = workload("Deployment", json!({"tenure.dev/service-account": "own"}), account);
    let built = build_own(&format!("{kustomization}{bind}"), &[("pod.yaml", &pod)]);
    assert_eq!(built.pod()["serviceAccountName"], "mine");
    assert_eq!(built.each("RoleBinding")[0]["subjects"][0]["name"], "mine");
}

#[test]
fn the_snippet_is_short_and_complete() {
    let snippet = text("deploy/snippet.yaml");
    assert!(snippet.lines().count() <= 25, "{}", snippet.lines().count());
    let mut pod = yaml::document(&snippet);
    let container = pod["initContainers"][0].clone();
    assert_eq!(container["restartPolicy"], "Always");
    assert_eq!(container["image"], render(&json!({})).container("tenure")["image"]);
    assert!(container["resources"]["limits"]["cpu"].is_null());
    let loaded = read(list(&container["args"]), &json!({}), Verb::Run);
    assert_eq!(loaded.warnings, []);
    assert_eq!(loaded.settings.store.to_string(), lease("orders"));
    // The operators' commands find the admin socket, in a volume of this container.
    let admin = list(&container["env"]).iter().find(|it| it["name"] == "TENURE_ADMIN").unwrap();
    let socket = admin["value"].as_str().unwrap().strip_prefix("unix:").unwrap();
    let mount = &container["volumeMounts"][0];
    assert!(socket.starts_with(&format!("{}/", mount["mountPath"].as_str().unwrap())), "{socket}");
    assert_eq!(mount["name"], pod["volumes"][0]["name"]);

    pod["enableServiceLinks"] = json!(false);
    assert_restricted(&pod);
    assert_plain_probes(&pod);
    pod["containers"] = json!([{"name": "service", "image": "x:1"}]);
    let whole = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod});
    assert_valid(&whole.to_string());
}

#[test]
fn exec_runs_in_another_image_from_the_copy_of_the_init_container() {
    let built = build("deploy/examples/exec");
    let install = built.container("install-tenure");
    let [verb, folder] = list(&install["args"]) else { panic!("{install}") };
    assert_eq!(verb, "install");
    let job = built.container("job");
    let command = list(&job["command"]);
    assert_eq!(command[0], format!("{}/tenure", folder.as_str().unwrap()));
    assert_eq!(command[1], "exec");
    assert_eq!(*command.last().unwrap(), "--");
    for (container, is_read_only) in [(install, false), (job, true)] {
        let mounts = list(&container["volumeMounts"]);
        let shared = mounts.iter().find(|it| it["mountPath"] == *folder).unwrap();
        assert_eq!(shared["readOnly"] == true, is_read_only);
    }
    let loaded = read(&command[2..], &settings(&built)["data"], Verb::Exec);
    assert_eq!(loaded.warnings, []);
    assert_eq!(loaded.settings.store.to_string(), lease("batch"));
    let grace = built.pod()["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace >= Ending::of(&loaded.settings).seconds());

    // The command line is a valid shell script.
    let args: Vec<&str> = list(&job["args"]).iter().map(|it| it.as_str().unwrap()).collect();
    let checked = Command::new("sh").args(["-n", args[1], args[2]]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

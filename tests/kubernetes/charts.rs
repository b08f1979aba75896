//! The charts: what they render for each kind of pod, store and route is valid, hardened, and
//! accepted by Tenure.

use testkit::generated::camel_case;
use testkit::kubernetes::{chart_values as values, manifests};

use std::sync::LazyLock;

use serde_json::{Value, json};

use manifests::{
    Manifests, assert_all_valid, assert_plain_probes, assert_restricted, containers, render, run,
};
use tenure::config::{
    self, Ending, Environment, Flags, Kind, SETTINGS, Setting, StoreSettings, Verb,
};
use values::{azure, everything, port, with};

const LIBRARY: &str = "helm/tenure-lib";
const APPLICATION: &str = "helm/tenure";

/// Returns values for each valid combination of kind, sidecar, route and store.
fn matrix() -> Vec<Value> {
    let mut all = Vec::new();
    for kind in ["Deployment", "StatefulSet"] {
        for native in [true, false] {
            for mode in ["none", "label", "endpointslice", "probe"] {
                if (kind, mode) == ("StatefulSet", "probe") {
                    continue;
                }
                for store in [json!({}), azure(), json!({"store": "kubernetes:locks/orders"})] {
                    let shape = json!({
                        "kind": kind, "sidecar": {"native": native}, "routing": {"mode": mode},
                        "container": port(),
                    });
                    all.push(with(shape, store));
                }
            }
        }
    }
    all
}

/// The matrix with what each of its values renders, once for all tests.
static RENDERED: LazyLock<Vec<(Value, Manifests)>> = LazyLock::new(|| {
    matrix().into_iter().map(|values| (values.clone(), render(&values))).collect()
});

#[test]
fn helm_lint_accepts_the_charts() {
    let least = json!({"container": {"image": "x:1"}});
    for values in [least, with(json!({"container": {"image": "x:1"}}), everything())] {
        let flags = ["lint", "--strict", APPLICATION, "--values", "-"];
        let ran = run("helm", &flags, &values.to_string());
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    }
    let ran = run("helm", &["lint", "--strict", LIBRARY], "");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}

#[test]
fn each_combination_is_valid_restricted_and_probed_by_number() {
    let whole = render(&everything());
    let all = || RENDERED.iter().map(|(_, it)| it).chain([&whole]);
    for rendered in all() {
        let pods = rendered.pods();
        assert_eq!(pods.len(), 2, "the pods, and the pod of the test");
        for pod in pods {
            assert_restricted(pod);
            assert_plain_probes(pod);
        }
    }
    assert_all_valid(all());
}

#[test]
fn a_native_sidecar_is_the_last_init_container_and_a_classic_one_stays_for_the_service() {
    let native = render(&json!({"initContainers": [{"name": "migrate", "image": "x:1"}]}));
    let first = native.pod()["initContainers"].as_array().unwrap();
    let names: Vec<&Value> = first.iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["migrate", "tenure"]);
    assert_eq!(native.container("tenure")["restartPolicy"], "Always");
    assert!(native.container("tenure")["lifecycle"].is_null());

    let classic = json!({"sidecar": {"native": false, "serviceStopSeconds": 40}});
    let classic = render(&classic);
    assert!(classic.pod()["initContainers"].is_null());
    let sidecar = classic.container("tenure");
    assert!(sidecar["restartPolicy"].is_null());
    let command = &sidecar["lifecycle"]["preStop"]["exec"]["command"];
    assert_eq!(*command, json!(["/tenure", "wait", "--for=passive", "--at-most=40s"]));
    assert_eq!(classic.pod()["terminationGracePeriodSeconds"], 45);
    let default = "kubectl.kubernetes.io/default-container";
    let template = &classic.workload()["spec"]["template"];
    assert_eq!(template["metadata"]["annotations"][default], "service");
}

#[test]
fn the_sidecar_has_no_cpu_limit() {
    let rendered = render(&json!({}));
    let resources = &rendered.container("tenure")["resources"];
    assert!(resources["limits"]["cpu"].is_null());
    assert!(resources["requests"]["cpu"].is_string());
    assert!(resources["limits"]["memory"].is_string());
}

#[test]
fn readiness_is_health_and_not_leadership_unless_configured() {
    for mode in ["none", "label", "endpointslice", "probe"] {
        let rendered = render(&json!({"routing": {"mode": mode}, "container": port()}));
        let sidecar = rendered.container("tenure");
        let path = |probe: &str| sidecar[probe]["httpGet"]["path"].clone();
        assert_eq!(path("readinessProbe"), if mode == "probe" { "/leader" } else { "/readyz" });
        assert_eq!(path("livenessProbe"), "/livez");
        let startup = &sidecar["startupProbe"]["exec"]["command"];
        let live = json!(["/tenure", "check", "--for=live"]);
        assert_eq!(*startup, live, "the service starts without a store too");
    }
}

/// Parses the flags of a sidecar with Tenure's own code, with a directory and token file that exist
/// on this host.
fn read(flags: &[String]) -> Result<config::Loaded, config::Faults> {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "token").unwrap();
    let mut all = Flags::new();
    if flags.iter().any(|it| it.starts_with("--store=kube") || it.starts_with("--kube-route")) {
        all.insert("kube-token-file", vec![token.to_str().unwrap().to_owned()]);
    }
    for flag in flags {
        let (name, value) = flag.strip_prefix("--").unwrap().split_once('=').unwrap();
        let value = value.replace("/run/tenure", folder.path().to_str().unwrap());
        let setting = Setting::named(name).unwrap();
        assert!(setting.is_flag_of(Verb::Run), "{name}");
        all.entry(setting.name).or_default().push(value);
    }
    let pod = [
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ("KUBERNETES_SERVICE_PORT", "443"),
        ("POD_NAME", "orders-1"),
        ("POD_NAMESPACE", "shop"),
        ("POD_IP", "10.1.2.3"),
        ("AZURE_FEDERATED_TOKEN_FILE", "/var/run/secrets/azure/tokens/azure-identity-token"),
        ("AZURE_TENANT_ID", "6c7d2c1e-0000-4000-8000-1234567890ab"),
        ("AZURE_CLIENT_ID", "6c7d2c1e-0000-4000-8000-1234567890ab"),
    ];
    config::load(&all, &Environment::of(pod), Verb::Run)
}

#[test]
fn tenure_accepts_the_flags_of_the_chart_without_a_warning() {
    for (values, rendered) in RENDERED.iter() {
        let flags = rendered.flags();
        let loaded = read(&flags).unwrap_or_else(|faults| panic!("{flags:?}: {faults}"));
        assert_eq!(loaded.warnings, [], "{flags:?}");
        let settings = loaded.settings;
        assert_eq!(settings.election, "orders-tenure");
        let leases = "https://10.0.0.1/apis/coordination.k8s.io/v1/namespaces";
        let expected = match values["store"].as_str() {
            None => format!("{leases}/shop/leases/orders-tenure"),
            Some("azure") => {
                "https://orders.blob.core.windows.net/locks/shop/orders-tenure".to_owned()
            }
            Some("kubernetes:locks/orders") => format!("{leases}/locks/leases/orders"),
            Some(other) => panic!("the URL of {other} is not known here"),
        };
        assert_eq!(settings.store.to_string(), expected);
        let is_lease = matches!(settings.store, StoreSettings::Kubernetes(_));
        let route = settings.kubernetes.as_ref().and_then(|it| it.route.as_ref());
        let route = route.map(ToString::to_string);
        let expected = match values["routing"]["mode"].as_str().unwrap() {
            "label" => Some("label:tenure.dev/role"),
            "endpointslice" => Some("endpointslice:orders-tenure-leader-ip:10.1.2.3"),
            _ => None,
        };
        assert_eq!(route.as_deref(), expected);
        assert_eq!(settings.kubernetes.is_some(), is_lease || expected.is_some());
    }
}

/// Returns a value for a setting that is not its default.
fn sample(setting: &Setting) -> Value {
    match (setting.name, setting.kind) {
        ("lease-duration", _) => json!("1m"),
        ("renew-deadline", _) => json!("28s"),
        ("max-connections", _) => json!(1_000_000),
        ("allowed-hosts", _) => json!(["tenure.internal"]),
        ("listen", _) => json!(["127.0.0.1:4041", "0.0.0.0:4042"]),
        ("status-file", _) => json!(["/run/tenure/a.json", "/run/tenure/b.env"]),
        ("health", _) => json!(["tcp://127.0.0.1:1", "exec:/bin/a 'b,c'"]),
        ("admin", _) => json!("127.0.0.1:4043"),
        ("store", _) => json!("azure://orders/other"),
        ("s3-region", _) => json!("eu-west-1"),
        ("config", _) => json!("/etc/tenure.toml"),
        ("agent-check", _) => json!("0.0.0.0:4044"),
        ("scheduled-events", _) => json!("azure"),
        ("peer-address", _) => json!("[$(POD_IP)]:4042"),
        ("preempt-after", _) => json!("30s"),
        (_, Kind::Text("URL", _)) => json!("https://other.example"),
        (_, Kind::Text("HOOK", _)) => json!("http://127.0.0.1:8080/hook"),
        (_, Kind::Text(..)) => json!("other"),
        (_, Kind::Choice(_, words)) => json!(words[0]),
        (_, Kind::Switch) => json!(true),
        (_, Kind::Count | Kind::Percent) => json!(7),
        (_, Kind::Duration) => json!("1500ms"),
        (_, Kind::Path) => json!("/etc/a"),
    }
}

#[test]
fn each_setting_of_run_is_a_value_of_its_name() {
    let settings = SETTINGS.iter().filter(|it| it.is_flag_of(Verb::Run));
    let mut election = json!({});
    for setting in settings.clone() {
        election[camel_case(setting.name)] = sample(setting);
    }
    let mut values = with(azure(), json!({"container": port(), "replicas": 1}));
    values["election"] = election;
    for (mode, unused) in [("label", "kube-service"), ("endpointslice", "kube-label")] {
        values["routing"] = json!({"mode": mode});
        values["election"]["kubeRoute"] = json!(mode);
        let flags = render(&values).flags();
        // These are of use to other stores alone.
        let unused = [
            unused,
            "mongodb-collection",
            "mongodb-auth-source",
            "mongodb-compatible",
            "postgres-table",
            "s3-endpoint",
            "s3-region",
            "s3-path-style",
        ];
        for setting in settings.clone().filter(|it| !unused.contains(&it.name)) {
            let value = &values["election"][camel_case(setting.name)];
            let list = if setting.is_list { value.clone() } else { json!([value]) };
            for value in list.as_array().unwrap() {
                let value = value.as_str().map_or(value.to_string(), str::to_owned);
                let flag = format!("--{}={value}", setting.name);
                assert!(flags.contains(&flag), "{flag} in {flags:#?}");
            }
        }
        for unused in unused {
            assert!(!flags.iter().any(|it| it.starts_with(&format!("--{unused}"))), "{flags:?}");
        }
    }
}

#[test]
fn the_grace_period_is_the_services_time_plus_the_shutdown_time_of_tenure() {
    let hook = "http://127.0.0.1:8080/hook";
    for election in [
        json!({}),
        json!({"drainTimeout": "20s"}),
        json!({"drainTimeout": "1m30s", "requestTimeout": "1500ms"}),
        json!({"drainTimeout": "1h1ms", "hookTimeout": "3s"}),
        json!({"onActive": hook}),
        json!({"onPassive": hook, "hookTimeout": "2s500ms"}),
        json!({"onDrain": hook, "drainTimeout": "10s"}),
        json!({"onActive": hook, "onLeaderChange": hook, "requestTimeout": "100ms"}),
    ] {
        let values = json!({"election": election, "sidecar": {"serviceStopSeconds": 7}});
        let rendered = render(&values);
        let settings = read(&rendered.flags()).unwrap().settings;
        let seconds = 7 + Ending::of(&settings).seconds();
        assert_eq!(rendered.pod()["terminationGracePeriodSeconds"], seconds, "{values}");
    }
    let longer = render(&json!({"terminationGracePeriodSeconds": 300}));
    assert_eq!(longer.pod()["terminationGracePeriodSeconds"], 300);
    assert_eq!(render(&json!({})).pod()["terminationGracePeriodSeconds"], 30);
}

#[test]
fn the_port_follows_the_listener_everywhere() {
    let values =
        json!({"election": {"listen": ["127.0.0.1:1", "unix:/run/tenure/s", "0.0.0.0:9"]}});
    let rendered = render(&values);
    let sidecar = rendered.container("tenure");
    assert_eq!(
        sidecar["ports"],
        json!([{"name": "tenure", "containerPort": 9, "protocol": "TCP"}])
    );
    for probe in ["readinessProbe", "livenessProbe"] {
        assert_eq!(sidecar[probe]["httpGet"]["port"], 9);
    }
    let service = rendered.the("Service", "orders-tenure-pods");
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 9);
    let policy = rendered.the("NetworkPolicy", "orders-tenure");
    assert_eq!(policy["spec"]["ingress"][0]["ports"][0]["port"], 9);
    let url = json!({"name": "TENURE_URL", "value": "http://127.0.0.1:9"});
    for name in ["tenure", "service"] {
        assert!(rendered.container(name)["env"].as_array().unwrap().contains(&url), "{name}");
    }
    let test = rendered.the("Pod", "orders-tenure-exactly-one");
    let url = "--url=http://orders-tenure-pods.shop.svc:9";
    assert!(test["spec"]["containers"][0]["args"].as_array().unwrap().contains(&json!(url)));
}

#[test]
fn the_pod_sets_the_identity_of_the_sidecar() {
    let rendered = render(&json!({}));
    let env = rendered.container("tenure")["env"].as_array().unwrap();
    for (name, path) in [
        ("POD_NAME", "metadata.name"),
        ("POD_NAMESPACE", "metadata.namespace"),
        ("POD_IP", "status.podIP"),
    ] {
        let from = json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        assert!(env.contains(&from), "{name}");
    }
    let listen = "--listen=[::]:4040".to_owned();
    assert!(rendered.flags().contains(&listen));
}

#[test]
fn the_advertised_address_of_a_pod_is_right_for_both_families() {
    for (advertise, bracketed) in [
        ("$(POD_IP):8080", "[$(POD_IP)]:8080"),
        ("http://$(POD_IP):8080/x", "http://[$(POD_IP)]:8080/x"),
        ("[$(POD_IP)]:8080", "[$(POD_IP)]:8080"),
        ("orders.example:8080", "orders.example:8080"),
    ] {
        let flags = render(&json!({"election": {"advertise": advertise}})).flags();
        let flag = format!("--advertise={bracketed}");
        assert!(flags.contains(&flag), "{flag} in {flags:?}");
        for (address, read_as) in [("10.1.2.3", "10.1.2.3"), ("fd00::1", "[fd00::1]")] {
            let flags: Vec<String> =
                flags.iter().map(|it| it.replace("$(POD_IP)", address)).collect();
            let settings = read(&flags).unwrap_or_else(|it| panic!("{it}")).settings;
            let expected = advertise.replace("[$(POD_IP)]", read_as).replace("$(POD_IP)", read_as);
            assert_eq!(settings.advertise.as_deref(), Some(expected.as_str()));
        }
    }
}

#[test]
fn status_files_are_read_by_the_service_and_written_by_the_sidecar_alone() {
    let mounts = |rendered: &Manifests, name: &str| {
        let all = rendered.container(name)["volumeMounts"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|it| it["mountPath"] == "/run/tenure")
    };
    let plain = render(&json!({}));
    assert!(mounts(&plain, "service").is_none());
    let rendered = render(&json!({"election": {"statusFile": ["/run/tenure/status.json"]}}));
    assert_eq!(mounts(&rendered, "service").unwrap()["readOnly"], true);
    assert!(mounts(&rendered, "tenure").unwrap()["readOnly"].is_null());
}

#[test]
fn containers_of_a_pod_have_names_of_their_own() {
    for (_, rendered) in RENDERED.iter() {
        let mut names: Vec<&str> =
            containers(rendered.pod()).iter().map(|it| it["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["service", "tenure"]);
    }
}

#[test]
fn candidates_are_connected_where_the_store_cannot_notify_them() {
    let on = |values: Value| {
        let flags = render(&with(json!({"container": port()}), values)).flags();
        flags.iter().any(|it| it == "--peers=true")
    };
    assert!(on(azure()));
    assert!(!on(json!({})), "a Lease has a watch");
    assert!(on(json!({"election": {"peers": true}})));
    assert!(!on(with(azure(), json!({"election": {"peers": false}}))));
}

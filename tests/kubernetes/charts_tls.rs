//! The charts with a certificate: who needs TLS, who asks without it, and what Prometheus and
//! `helm test` present.

use testkit::faults::tls_front::Authority;
use testkit::http::mounted::{FAR, Mounted};
use testkit::kubernetes::{chart_values as values, manifests};

use serde_json::{Value, json};

use manifests::{Manifests, assert_all_valid, assert_plain_probes, assert_restricted, render};
use tenure::config::{self, Environment, Flags, Listen, Setting, Verb};
use values::{port, with};

/// Returns values with a Secret.
fn tls(asks_clients: bool) -> Value {
    json!({
        "tls": {"secretName": "orders-tls", "clientCertificates": asks_clients},
        "podMonitor": {"enabled": true}, "container": port(), "routing": {"mode": "label"},
    })
}

fn variable(container: &Value, name: &str) -> Option<String> {
    let all = container["env"].as_array().expect("variables");
    let found = all.iter().find(|it| it["name"] == name)?;
    found["value"].as_str().map(str::to_owned)
}

fn arguments(container: &Value) -> Vec<&str> {
    container["args"].as_array().expect("arguments").iter().filter_map(Value::as_str).collect()
}

fn test_container(rendered: &Manifests) -> &Value {
    &rendered.the("Pod", "orders-tenure-exactly-one")["spec"]["containers"][0]
}

fn scrapes(rendered: &Manifests) -> &Value {
    &rendered.the("PodMonitor", "orders-tenure")["spec"]["podMetricsEndpoints"][0]
}

#[test]
fn the_secret_is_mounted_by_the_sidecar_and_by_the_pod_of_the_test_alone() {
    let rendered = render(&tls(false));
    let mount = |container: &Value| {
        let all = container["volumeMounts"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|it| it["name"] == "tenure-tls")
    };
    let expected = json!({"name": "tenure-tls", "mountPath": "/run/tenure-tls", "readOnly": true});
    assert_eq!(mount(rendered.container("tenure")), Some(expected.clone()));
    assert_eq!(mount(test_container(&rendered)), Some(expected));
    assert_eq!(mount(rendered.container("service")), None);
    for pod in rendered.pods() {
        let volumes = pod["volumes"].as_array().unwrap();
        let secret = json!({"name": "tenure-tls", "secret": {"secretName": "orders-tls"}});
        assert!(volumes.contains(&secret), "{volumes:?}");
    }
    assert!(!render(&json!({})).text.contains("tenure-tls"));
}

#[test]
fn other_pods_need_tls_and_what_is_in_the_pod_does_not() {
    let rendered = render(&tls(false));
    let sidecar = rendered.container("tenure");
    assert_eq!(arguments(sidecar)[1..], ["--listen=[::]:4040", "--listen=127.0.0.1:4041"]);
    for name in ["tenure", "service"] {
        let url = variable(rendered.container(name), "TENURE_URL");
        assert_eq!(url.as_deref(), Some("http://127.0.0.1:4041"), "{name}");
    }
    for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/livez")] {
        let get = json!({"path": path, "port": 4040, "scheme": "HTTPS"});
        assert_eq!(sidecar[probe]["httpGet"], get, "{probe}");
    }
    let url = "--url=https://orders-tenure-pods.shop.svc:4040";
    let test = arguments(test_container(&rendered));
    assert!(test.contains(&url) && test.contains(&"--ca-file=/run/tenure-tls/ca.crt"), "{test:?}");
    assert!(!test.iter().any(|it| it.starts_with("--cert")), "{test:?}");
    let own = with(tls(false), json!({"election": {"listen": ["127.0.0.1:9", "0.0.0.0:10"]}}));
    let own = render(&own);
    let own = own.container("tenure");
    assert_eq!(arguments(own)[1..], ["--listen=127.0.0.1:9", "--listen=0.0.0.0:10"]);
    assert_eq!(variable(own, "TENURE_URL").as_deref(), Some("http://127.0.0.1:9"));
}

#[test]
fn with_certificates_of_clients_probes_are_commands_and_clients_present_the_secret() {
    let rendered = render(&tls(true));
    let sidecar = rendered.container("tenure");
    for (probe, check) in [("readinessProbe", "--for=ready"), ("livenessProbe", "--for=live")] {
        let command = json!(["/tenure", "check", check]);
        assert_eq!(sidecar[probe]["exec"]["command"], command, "{probe}");
        assert!(sidecar[probe]["httpGet"].is_null(), "the kubelet has no certificate");
    }
    let test = arguments(test_container(&rendered));
    for flag in ["--cert=/run/tenure-tls/tls.crt", "--key=/run/tenure-tls/tls.key"] {
        assert!(test.contains(&flag), "{test:?}");
    }
    let key = |key: &str| json!({"name": "orders-tls", "key": key});
    let expected = json!({
        "serverName": "orders-tenure-pods.shop.svc",
        "ca": {"secret": key("ca.crt")}, "cert": {"secret": key("tls.crt")},
        "keySecret": key("tls.key"),
    });
    assert_eq!(scrapes(&rendered)["scheme"], "https");
    assert_eq!(scrapes(&rendered)["tlsConfig"], expected);
}

#[test]
fn a_known_authority_needs_no_key_of_the_secret_and_own_files_need_own_settings() {
    let rendered = render(&with(tls(false), json!({"tls": {"caKey": ""}})));
    assert_eq!(
        scrapes(&rendered)["tlsConfig"],
        json!({"serverName": "orders-tenure-pods.shop.svc"})
    );
    let test = arguments(test_container(&rendered));
    assert!(!test.iter().any(|it| it.starts_with("--ca-file")), "{test:?}");

    let config = json!({"insecureSkipVerify": true});
    let own = render(&json!({
        "election": {"tlsCert": "/pki/a.crt", "tlsKey": "/pki/a.key", "tlsClientCa": "/pki/ca"},
        "podMonitor": {"enabled": true, "tlsConfig": config},
    }));
    assert_eq!(scrapes(&own)["tlsConfig"], config);
    assert!(own.each("Pod").is_empty(), "it would not have the files");
    assert!(!own.container("tenure")["readinessProbe"]["exec"].is_null());
    let plain = render(&json!({"podMonitor": {"enabled": true}}));
    assert!(scrapes(&plain)["scheme"].is_null() && scrapes(&plain)["tlsConfig"].is_null());
}

#[test]
fn tenure_accepts_the_settings_and_the_manifests_are_valid() {
    let mounted = Mounted::new(&Authority::new("ours"), FAR);
    let both = [tls(false), tls(true)].map(|it| render(&it));
    for (rendered, asks_clients) in both.iter().zip([false, true]) {
        let mut flags = Flags::new();
        for flag in rendered.flags() {
            let (name, value) = flag.strip_prefix("--").unwrap().split_once('=').unwrap();
            let value = value.replace("/run/tenure-tls", mounted.path("").to_str().unwrap());
            flags.entry(Setting::named(name).unwrap().name).or_default().push(value);
        }
        for (name, value) in [("store", "memory:"), ("admin", "unix:/tmp/none")] {
            flags.insert(name, vec![value.to_owned()]);
        }
        flags.remove("kube-route");
        flags.remove("kube-label");
        let loaded = config::load(&flags, &Environment::of([("A", "")]), Verb::Run);
        let loaded = loaded.unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(loaded.warnings, []);
        let remote: Vec<bool> = loaded.settings.listen.iter().map(Listen::is_remote).collect();
        assert_eq!(remote, [true, false]);
        let files = loaded.settings.tls.expect("there is a certificate");
        assert_eq!(files.client_ca.is_some(), asks_clients);
        for pod in rendered.pods() {
            assert_restricted(pod);
            assert_plain_probes(pod);
        }
    }
    assert_all_valid(both.iter());
}

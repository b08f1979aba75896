//! Tests of the settings of Kubernetes: API server, Lease, routes, and their faults.

use std::path::{Path, PathBuf};

use super::super::{KubePublishing, Route};
use std::time::Duration;

use super::*;

mod route;

/// A typical pod: it has a service account, and its manifest passes name and namespace.
struct Pod {
    account: tempfile::TempDir,
    variables: Vec<(&'static str, &'static str)>,
}

impl Pod {
    fn new() -> Self {
        let account = tempfile::tempdir().unwrap();
        for (name, content) in [("token", "t"), ("ca.crt", "c"), ("namespace", "account")] {
            std::fs::write(account.path().join(name), content).unwrap();
        }
        let variables = vec![
            ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
            ("KUBERNETES_SERVICE_PORT", "443"),
            ("POD_NAME", "orders-1"),
            ("POD_NAMESPACE", "prod"),
            ("POD_IP", "10.1.0.7"),
        ];
        Self { account, variables }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.account.path().join(name)
    }

    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.retain(|it| it.0 != name);
        self.variables.push((name, value));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.variables.retain(|it| it.0 != name);
        self
    }

    fn load(&self, flags: &[(&'static str, &str)]) -> Result<Loaded, Faults> {
        let flags = flags.iter().map(|(name, value)| (*name, vec![(*value).to_owned()])).collect();
        let mut environment = Environment::of(self.variables.iter().copied());
        environment.service_account = self.account.path().to_owned();
        load(&flags, &environment, Verb::Run)
    }

    fn settings(&self, flags: &[(&'static str, &str)]) -> Settings {
        self.load(flags).unwrap().settings
    }

    fn publishing(&self, flags: &[(&'static str, &str)]) -> KubePublishing {
        self.settings(flags).kubernetes.unwrap()
    }

    fn faults(&self, flags: &[(&'static str, &str)]) -> Vec<Fault> {
        self.load(flags).unwrap_err().0
    }
}

/// An environment outside of a pod.
fn outside() -> Pod {
    let pod = Pod { variables: Vec::new(), ..Pod::new() };
    for name in ["token", "ca.crt", "namespace"] {
        std::fs::remove_file(pod.path(name)).unwrap();
    }
    pod
}

fn lease(settings: &Settings) -> &KubernetesSettings {
    match &settings.store {
        StoreSettings::Kubernetes(it) => it,
        other => panic!("{other:?}"),
    }
}

const STORE: (&str, &str) = ("store", "kubernetes:orders");
const LABEL: (&str, &str) = ("kube-route", "label");
const SLICE: (&str, &str) = ("kube-route", "endpointslice");
const SERVICE: (&str, &str) = ("kube-service", "orders");

#[test]
fn a_pod_reaches_its_own_cluster_as_its_service_account() {
    let pod = Pod::new();
    let settings = pod.settings(&[STORE]);
    let lease = lease(&settings);
    assert_eq!(lease.access.api.as_str(), "https://10.0.0.1/");
    assert_eq!(lease.access.token_file, Some(pod.path("token")));
    assert_eq!(lease.access.ca_file, Some(pod.path("ca.crt")));
    assert_eq!((lease.namespace.as_str(), lease.name.as_str()), ("prod", "orders"));
    assert_eq!(lease.request_timeout, Duration::from_secs(2));
    let summary = settings.summary();
    let lease = "https://10.0.0.1/apis/coordination.k8s.io/v1/namespaces/prod/leases/orders";
    assert_eq!(settings.store.to_string(), lease);
    assert!(
        summary.contains(&format!("store={lease} kube-api=https://10.0.0.1/ kube-route=none")),
        "{summary}"
    );
}

#[test]
fn the_api_server_is_found_by_address_of_either_kind_and_by_name() {
    for (host, port, url) in [
        ("10.0.0.1", "6443", "https://10.0.0.1:6443/"),
        ("fd00::1", "443", "https://[fd00::1]/"),
        ("[fd00::1]", "8443", "https://[fd00::1]:8443/"),
        ("me.hcp.region.azmk8s.io", "443", "https://me.hcp.region.azmk8s.io/"),
        ("10.0.0.1", "", "https://10.0.0.1/"),
    ] {
        let pod =
            Pod::new().with("KUBERNETES_SERVICE_HOST", host).with("KUBERNETES_SERVICE_PORT", port);
        assert_eq!(pod.publishing(&[STORE]).access.api.as_str(), url);
    }
    for (name, value, words) in [
        ("KUBERNETES_SERVICE_HOST", "a b", "neither an address"),
        ("KUBERNETES_SERVICE_HOST", "user@host/path?", "neither an address"),
        ("KUBERNETES_SERVICE_PORT", "tcp://10.0.0.1:443", "not a port"),
        ("KUBERNETES_SERVICE_PORT", "0", "not a port"),
    ] {
        let faults = Pod::new().with(name, value).faults(&[STORE]);
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert_eq!((fault.setting.as_str(), fault.value.as_deref()), (name, Some(value)));
        assert!(fault.problem.contains(words) && fault.remedy.contains("--kube-api"), "{fault:?}");
    }
}

#[test]
fn the_token_of_a_pod_is_sent_to_its_own_cluster_only() {
    let pod = Pod::new();
    let access = pod.publishing(&[STORE, ("kube-api", "https://other.test:6443/")]).access;
    assert_eq!(access.api.as_str(), "https://other.test:6443/");
    assert_eq!((access.token_file, access.ca_file), (None, None));
    let named = [("kube-token-file", "/t"), ("kube-ca-file", "/c")];
    let access = pod.publishing(&[STORE, named[0], named[1]]).access;
    assert_eq!(access.api.as_str(), "https://10.0.0.1/");
    assert_eq!(access.token_file.as_deref(), Some(Path::new("/t")));
    assert_eq!(access.ca_file.as_deref(), Some(Path::new("/c")));
}

#[test]
fn without_a_token_the_remedy_is_in_the_pod_s_manifest() {
    for user in [STORE, LABEL] {
        let pod = Pod::new();
        std::fs::remove_file(pod.path("token")).unwrap();
        let mut flags = vec![user];
        if user == LABEL {
            flags.push(("store", "memory:"));
        }
        let faults = pod.faults(&flags);
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert_eq!(fault.setting, user.0);
        assert!(fault.remedy.contains("automountServiceAccountToken: true"), "{fault:?}");
        flags.push(("kube-token-file", "/t"));
        assert!(pod.load(&flags).is_ok());
    }
}

#[test]
fn outside_of_a_cluster_the_api_server_must_be_named() {
    let shell = outside();
    for user in [STORE, ("store", "kubernetes:prod/orders"), LABEL] {
        let faults = shell.faults(&[user]);
        let of_access = faults.iter().find(|it| it.problem.contains("needs an API server"));
        assert_eq!(of_access.unwrap().setting, user.0, "{faults:?}");
        assert!(of_access.unwrap().remedy.contains("--kube-token-file"), "{faults:?}");
        let count = faults.iter().filter(|it| it.problem.contains("needs an API server")).count();
        assert_eq!(count, 1, "{faults:?}");
    }
    let publishing =
        shell.publishing(&[("store", "kubernetes:a/b"), ("kube-api", "http://[::1]:8001")]);
    assert_eq!(
        (publishing.namespace.as_str(), publishing.pod, publishing.route),
        ("a", None, None)
    );
    assert_eq!(publishing.lease.as_deref(), Some("b"));
}

#[test]
fn the_namespace_is_of_the_url_then_of_the_pod_then_of_the_service_account() {
    let of = |pod: &Pod, url: &str| lease(&pod.settings(&[("store", url)])).namespace.clone();
    let pod = Pod::new();
    assert_eq!(of(&pod, "kubernetes:other/orders"), "other");
    assert_eq!(of(&pod, "kubernetes:orders"), "prod");
    let pod = pod.without("POD_NAMESPACE");
    assert_eq!(of(&pod, "kubernetes:orders"), "account");
    std::fs::write(pod.path("namespace"), "\n").unwrap();
    let faults = pod.faults(&[STORE]);
    let [fault] = &faults[..] else { panic!("{faults:?}") };
    assert_eq!(fault.remedy, "write kubernetes:NAMESPACE/orders");

    let faults = Pod::new().with("POD_NAMESPACE", "$(NS)").faults(&[STORE]);
    let [fault] = &faults[..] else { panic!("{faults:?}") };
    assert_eq!(fault.subject(), "POD_NAMESPACE = \"$(NS)\" (variable POD_NAMESPACE)");
    assert!(fault.remedy.contains("metadata.namespace"), "{fault:?}");
}

#[test]
fn events_are_about_the_pod_else_about_the_lease() {
    let azure = ("store", "azure://acct/box");
    let object_of = |pod: &Pod, flags: &[(&'static str, &str)]| {
        let KubePublishing { namespace, pod, lease, .. } = pod.publishing(flags);
        (namespace, pod, lease)
    };
    let some = |it: &str| Some(it.to_owned());
    let pod = Pod::new();
    assert_eq!(object_of(&pod, &[STORE]), ("prod".into(), some("orders-1"), some("orders")));
    assert_eq!(
        object_of(&pod, &[("store", "kubernetes:other/x")]),
        ("prod".into(), some("orders-1"), None)
    );
    assert_eq!(object_of(&pod, &[azure, LABEL]), ("prod".into(), some("orders-1"), None));
    let pod = pod.without("POD_NAME");
    assert_eq!(
        object_of(&pod, &[("store", "kubernetes:other/x")]),
        ("other".into(), None, some("x"))
    );
    assert!(pod.settings(&[azure]).kubernetes.is_none());
    let publishing =
        Pod::new().publishing(&[STORE, ("election", "e.u"), ("request-timeout", "1s")]);
    assert_eq!(
        (publishing.election.as_str(), publishing.request_timeout),
        ("e.u", Duration::from_secs(1))
    );
}

#[test]
fn plain_http_stays_on_this_machine() {
    let pod = Pod::new();
    let with = |api: &str| pod.load(&[STORE, ("kube-api", api), ("kube-token-file", "/t")]);
    for (good, url) in [
        ("http://127.0.0.1:8001", "http://127.0.0.1:8001/"),
        ("http://[::1]:8001/", "http://[::1]:8001/"),
        ("http://localhost:8001", "http://localhost:8001/"),
        ("https://host/k8s/clusters/c-1/", "https://host/k8s/clusters/c-1"),
        ("https://host//.", "https://host/"),
    ] {
        let found = with(good).unwrap().settings.kubernetes.unwrap();
        assert_eq!(found.access.api.as_str(), url);
    }
    for (bad, words) in [
        ("http://10.0.0.1:8080", "plain http to another machine"),
        ("http://api.test", "plain http to another machine"),
        ("https://user:hidden@host", "has more than"),
        ("https://host/?token=hidden", "has more than"),
        ("10.0.0.1:6443", "is not a URL"),
        ("ftp://host", "neither https nor http"),
        ("https://", "is not a URL"),
    ] {
        let faults = with(bad).unwrap_err();
        let [fault] = &faults.0[..] else { panic!("{faults}") };
        assert_eq!(fault.setting, "kube-api");
        assert!(fault.problem.contains(words), "{fault:?}");
        assert!(!faults.to_string().contains("hidden"), "{faults}");
    }
}

#[test]
fn a_lease_lasts_whole_seconds_and_at_least_one() {
    let times = |lease: &'static str| {
        let short = [("renew-deadline", "700ms"), ("retry-period", "200ms")];
        let all = [STORE, short[0], short[1], ("request-timeout", "200ms")];
        Pod::new().load(&[&all[..], &[("lease-duration", lease)]].concat())
    };
    for good in ["1s", "2s", "15s", "1h"] {
        assert!(times(good).is_ok(), "{good}");
    }
    for (bad, words, remedy) in [
        ("1s500ms", "not a whole number", "set lease-duration to 1s"),
        ("15s1ms", "not a whole number", "set lease-duration to 15s"),
        ("999ms", "shorter than 1s", "set lease-duration to 1s"),
    ] {
        let faults = times(bad).unwrap_err().0;
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert_eq!((fault.setting.as_str(), fault.value.as_deref()), ("lease-duration", Some(bad)));
        assert!(fault.problem.contains(words) && fault.remedy == remedy, "{fault:?}");
    }
}

#[test]
fn a_setting_without_effect_is_warned_of() {
    let warnings = |flags: &[(&'static str, &str)]| Pod::new().load(flags).unwrap().warnings;
    let subjects = |found: &[Warning]| -> Vec<&str> { found.iter().map(|it| it.subject).collect() };
    let memory = ("store", "memory:");
    let named = [("kube-api", "https://a.test"), ("kube-token-file", "/t"), ("kube-ca-file", "/c")];
    let label = ("kube-label", "role");
    assert_eq!(warnings(&[STORE, named[0], named[1], named[2]]), []);
    assert_eq!(warnings(&[memory, LABEL, named[0], named[1], named[2], label]), []);
    assert_eq!(
        subjects(&warnings(&[memory, named[0], named[1], named[2], label, SERVICE])),
        ["kube-api", "kube-token-file", "kube-ca-file", "kube-label", "kube-service"]
    );
    assert_eq!(subjects(&warnings(&[STORE, SLICE, SERVICE, label])), ["kube-label"]);
    let anonymous = warnings(&[STORE, named[0]]);
    assert_eq!(subjects(&anonymous), ["kube-api"]);
    assert!(anonymous[0].remedy.contains("--kube-token-file"), "{anonymous:?}");
    let plain = warnings(&[STORE, ("kube-api", "http://127.0.0.1:8001"), named[2]]);
    assert_eq!(subjects(&plain), ["kube-ca-file"]);
}

#[test]
fn the_default_store_of_a_pod_names_a_lease_to_use_instead() {
    let faults = Pod::new().faults(&[("election", "billing")]);
    let [fault] = &faults[..] else { panic!("{faults:?}") };
    assert_eq!((fault.setting.as_str(), &fault.source), ("store", &Source::Default));
    assert!(fault.remedy.contains("--store kubernetes:billing "), "{fault:?}");
    assert!(Pod::new().load(&[("store", "kubernetes:billing")]).is_ok());
    let faults = Pod::new().faults(&[]);
    assert!(faults[0].remedy.contains("--store kubernetes:orders "), "{faults:?}");
}

#[test]
fn variables_that_kubernetes_creates_for_services_are_not_settings() {
    let pod = Pod::new()
        .with("TENURE_KUBE_API_SERVICE_HOST", "10.0.0.9")
        .with("TENURE_KUBE_API_PORT", "tcp://10.0.0.9:80");
    let loaded = pod.load(&[STORE]).unwrap();
    assert_eq!(loaded.notes.len(), 2, "{:?}", loaded.notes);
    assert_eq!(loaded.settings.kubernetes.unwrap().access.api.as_str(), "https://10.0.0.1/");
}

//! Values that are rejected: by the schema, or by a guard if two of them conflict. Each message
//! names the value, and that of a guard also the remedy.

use testkit::generated::camel_case;
use testkit::kubernetes::{chart_values as values, manifests};

use std::fs;

use serde_json::{Value, json};

use manifests::{assert_valid, helm, place, text, try_render};
use tenure::config::{Kind, SETTINGS, Verb};
use values::{azure, consul, etcd, gcs, mongodb, port, postgres, redis, s3, with, zookeeper};

fn refusal(values: &Value) -> String {
    match try_render(values) {
        Ok(_) => panic!("{values} is taken"),
        // helm does not wrap lines, but indents them.
        Err(error) => error,
    }
}

/// Returns values with the message of their guard.
fn guarded() -> Vec<(Value, &'static str)> {
    [
        of_the_store(),
        of_consul(),
        of_etcd(),
        of_mongodb(),
        of_postgres(),
        of_redis(),
        of_s3(),
        of_gcs(),
        of_zookeeper(),
        of_the_route(),
        of_the_previous_mode(),
        of_the_listener(),
        of_tls(),
        of_the_timings(),
        of_the_pod(),
        of_the_labels_and_variables(),
        of_the_alerts(),
        of_the_budget(),
    ]
    .concat()
}

fn of_the_store() -> Vec<(Value, &'static str)> {
    vec![
        (
            json!({"container": {"image": ""}}),
            "container.image is empty: set it to the image of your service",
        ),
        (
            json!({"container": {"image": "x:1"}, "image": {"tag": "2"}}),
            "container.image is x:1, and image.repository, image.tag or image.digest is set too: set \
             container.image alone, or image.repository and image.tag",
        ),
        (
            json!({"container": {"image": ""}, "image": {"repository": "x"}}),
            "image.tag and image.digest are empty, and image.repository is x: set one of them",
        ),
        (
            with(azure(), json!({"azure": {"storageAccount": ""}})),
            "azure.storageAccount is empty, and store is azure: set it to the name of the storage \
             account",
        ),
        (
            with(azure(), json!({"azure": {"container": ""}})),
            "azure.container is empty, and store is azure: set it to the name of the blob \
             container",
        ),
        (
            json!({"store": "azure://orders/locks"}),
            "azure.clientId is empty, and no other Azure sign-in is configured: set it to the \
             client id",
        ),
        (
            json!({"store": "memory:"}),
            "store is memory:, where each of the 2 replicas would have its own leader: set \
             store=kubernetes, or replicas=1",
        ),
        (
            json!({"store": "memory:", "replicaCount": 4}),
            "store is memory:, where each of the 4 replicas",
        ),
        (
            json!({"store": "memory:", "replicas": 1, "autoscaling": {"enabled": true}}),
            "store is memory:, where each of the 5 replicas",
        ),
        (
            json!({"store": "memory:", "kind": "DaemonSet"}),
            "store is memory:, where each of the 2 replicas",
        ),
        (
            json!({"election": {"store": "memory:"}, "replicas": 3}),
            "store is memory:, where each of the 3 replicas",
        ),
        (
            json!({"election": {"identity": "web"}}),
            "election.identity is web for each of the 2 replicas: leave it empty",
        ),
    ]
}

fn of_zookeeper() -> Vec<(Value, &'static str)> {
    vec![
        (
            with(zookeeper(), json!({"zookeeper": {"servers": []}})),
            "zookeeper.servers is empty, and store is zookeeper: set it to the addresses of the ensemble",
        ),
        (
            with(zookeeper(), json!({"zookeeper": {"tlsSecret": ""}})),
            "zookeeper.clientCertificate is true, and zookeeper.tlsSecret is empty: set it to the Secret",
        ),
    ]
}

fn of_gcs() -> Vec<(Value, &'static str)> {
    vec![
        (
            with(gcs(), json!({"gcs": {"bucket": ""}})),
            "gcs.bucket is empty, and store is gcs: set it to the name of the bucket",
        ),
        (
            with(gcs(), json!({"election": {"retryPeriod": "1s"}})),
            "election.retryPeriod is 1s, and Google Cloud Storage throttles writes of one object",
        ),
    ]
}

fn of_s3() -> Vec<(Value, &'static str)> {
    vec![
        (
            with(s3(), json!({"s3": {"bucket": ""}})),
            "s3.bucket is empty, and store is s3: set it to the name of the bucket",
        ),
        (
            with(s3(), json!({"election": {"s3Region": null}})),
            "election.s3Region is empty, and store is s3: set it to the region of the bucket",
        ),
        (
            with(s3(), json!({"s3": {"tlsSecret": "ca"}, "election": {"storeCaFile": "/ca.crt"}})),
            "s3.tlsSecret is ca, and election.storeCaFile, storeCert or storeKey is set",
        ),
    ]
}

fn of_mongodb() -> Vec<(Value, &'static str)> {
    vec![
        (
            with(mongodb(), json!({"mongodb": {"hosts": []}})),
            "mongodb.hosts is empty, and store is mongodb: set it to the members",
        ),
        (
            with(mongodb(), json!({"mongodb": {"database": ""}})),
            "mongodb.database is empty, and store is mongodb: set it to the name",
        ),
        (
            with(mongodb(), json!({"mongodb": {"tlsSecret": ""}})),
            "mongodb.clientCertificate is true, and mongodb.tlsSecret is empty",
        ),
        (
            with(
                mongodb(),
                json!({"sidecar": {"image": {"repository": "ghcr.io/tenure-dev/tenure"}}}),
            ),
            "store is mongodb, and sidecar.image.repository is ghcr.io/tenure-dev/tenure, which does not have it",
        ),
    ]
}

fn of_postgres() -> Vec<(Value, &'static str)> {
    vec![
        (
            with(postgres(), json!({"postgres": {"hosts": []}})),
            "postgres.hosts is empty, and store is postgres: set it to the addresses of the server",
        ),
        (
            with(postgres(), json!({"postgres": {"database": ""}})),
            "postgres.database is empty, and store is postgres: set it to the name",
        ),
        (
            with(postgres(), json!({"postgres": {"credentialsSecret": ""}})),
            "postgres.credentialsSecret is empty, and nothing else sets PGUSER",
        ),
        (
            with(postgres(), json!({"postgres": {"tlsSecret": ""}})),
            "postgres.clientCertificate is true, and postgres.tlsSecret is empty",
        ),
        (
            with(postgres(), json!({"election": {"storeCaFile": "/ca.crt"}})),
            "postgres.tlsSecret is orders-db-tls, and election.storeCaFile, storeCert or storeKey is set",
        ),
    ]
}

fn of_redis() -> Vec<(Value, &'static str)> {
    vec![
        (
            with(redis(), json!({"redis": {"hosts": []}})),
            "redis.hosts is empty, and store is redis: set it to the addresses of the server",
        ),
        (
            with(redis(), json!({"redis": {"tlsSecret": ""}})),
            "redis.clientCertificate is true, and redis.tlsSecret is empty",
        ),
        (
            with(redis(), json!({"election": {"storeCaFile": "/ca.crt"}})),
            "redis.tlsSecret is orders-redis-tls, and election.storeCaFile, storeCert or storeKey is set",
        ),
    ]
}

fn of_consul() -> Vec<(Value, &'static str)> {
    vec![
        (
            with(consul(), json!({"consul": {"addresses": []}})),
            "consul.addresses is empty, and store is consul: set it to the addresses of servers or agents",
        ),
        (
            with(consul(), json!({"consul": {"tlsSecret": ""}})),
            "consul.clientCertificate is true, and consul.tlsSecret is empty: set it to the Secret",
        ),
    ]
}

fn of_etcd() -> Vec<(Value, &'static str)> {
    vec![
        (
            with(etcd(), json!({"etcd": {"endpoints": []}})),
            "etcd.endpoints is empty, and store is etcd: set it to the addresses of the members",
        ),
        (
            with(etcd(), json!({"etcd": {"tlsSecret": ""}})),
            "etcd.clientCertificate is true, and etcd.tlsSecret is empty: set it to the Secret",
        ),
        (
            with(etcd(), json!({"election": {"storeCaFile": "/ca.crt"}})),
            "etcd.tlsSecret is orders-etcd-tls, and election.storeCaFile, storeCert or storeKey is \
             set: set only one of them",
        ),
    ]
}

fn of_the_route() -> Vec<(Value, &'static str)> {
    let probe =
        |more: Value| with(json!({"routing": {"mode": "probe"}, "container": port()}), more);
    vec![
        (
            json!({"election": {"kubeRoute": "label"}}),
            "election.kubeRoute is label and routing.mode none: leave election.kubeRoute empty \
             and set routing.mode=label",
        ),
        (
            json!({"election": {"kubeService": "first"}}),
            "election.kubeService is first, and routing.mode none has no Service for the leader",
        ),
        (
            json!({"routing": {"mode": "label"}}),
            "container.ports is empty, and routing.mode label routes a Service to the leader's \
             ports: list them, or set routing.mode=none",
        ),
        (
            json!({"routing": {"mode": "endpointslice"}}),
            "container.ports is empty, and routing.mode endpointslice",
        ),
        (
            json!({"routing": {"mode": "label"}, "container": port(),
                   "election": {"kubeLabel": "app.kubernetes.io/instance"}}),
            "election.kubeLabel is app.kubernetes.io/instance, which the chart sets on each pod: set \
             it to another label",
        ),
        (
            json!({"routing": {"mode": "label"}, "container": port(),
                   "election": {"kubeService": "1st"}}),
            "a Service cannot be named 1st: set fullnameOverride or election.kubeService to a name",
        ),
        (
            probe(json!({"kind": "StatefulSet"})),
            "kind is StatefulSet, and routing.mode probe leaves all pods but one unready, for \
             which a StatefulSet waits forever: set kind=Deployment",
        ),
        (
            probe(json!({"kind": "DaemonSet"})),
            "kind is DaemonSet, and routing.mode probe leaves all pods but one unready, for \
             which a DaemonSet waits forever: set kind=Deployment",
        ),
        (
            probe(json!({"pdb": {"enabled": true}})),
            "pdb.enabled is true, but with routing.mode probe the only ready pod could never be \
             evicted: set pdb.enabled=false",
        ),
        (
            probe(json!({"strategy": {"rollingUpdate": {"maxUnavailable": 1}}})),
            "strategy waits for pods to be ready, but with routing.mode probe no new pod is ready \
             while an old one leads: leave strategy empty",
        ),
        (
            probe(json!({"strategy": {"type": "RollingUpdate"}})),
            "strategy waits for pods to be ready",
        ),
        (
            probe(json!({"minReadySeconds": 5})),
            "minReadySeconds is set, but with routing.mode probe a rollout does not wait for \
             ready pods: set minReadySeconds=0",
        ),
    ]
}

fn of_the_previous_mode() -> Vec<(Value, &'static str)> {
    vec![
        (
            json!({"routing": {"mode": "label", "previousMode": "label"}, "container": port()}),
            "routing.previousMode is label, as routing.mode is: remove it, or change routing.mode",
        ),
        (
            json!({"routing": {"mode": "label", "previousMode": "endpointslice"},
                   "container": port(), "election": {"kubeService": "first"}}),
            "routing.previousMode is endpointslice, and election.kubeService may name its Service, \
             whose endpoints the other mode would inherit: set routing.previousService to the name \
             of that Service, and election.kubeService to another or to null",
        ),
        (
            json!({"routing": {"mode": "label", "previousMode": "endpointslice",
                               "previousService": "first"},
                   "container": port(), "election": {"kubeService": "first"}}),
            "routing.previousMode is endpointslice, and election.kubeService may name its Service",
        ),
    ]
}

fn of_the_listener() -> Vec<(Value, &'static str)> {
    vec![
        (
            json!({"election": {"listen": ["off"]}}),
            "election.listen is [\"off\"], but the kubelet's probes cannot reach any of these \
             addresses: add \"[::]:4040\"",
        ),
        (
            json!({"election": {"listen": ["127.0.0.1:1", "unix:/run/tenure/a", "[::1]:1"]}}),
            "election.listen is [\"127.0.0.1:1\",\"unix:/run/tenure/a\",\"[::1]:1\"]",
        ),
        (
            json!({"election": {"admin": "127.0.0.1:4041"}}),
            "election.adminTokenFile is empty, and election.admin is the address 127.0.0.1:4041: \
             set it to a file mounted by sidecar.volumeMounts, or election.admin to \
             unix:/run/tenure/admin.sock",
        ),
        (
            json!({"container": {"ports": [{"name": "http", "containerPort": 4040}]}}),
            "container.ports has 4040, where the sidecar listens: set election.listen to another",
        ),
        (
            json!({"election": {"listen": ["$(POD_IP):4040"]}}),
            "election.listen is [\"$(POD_IP):4040\"], but your container and the sidecar's own \
             probes use 127.0.0.1:4040: add \"127.0.0.1:4040\"",
        ),
        (
            json!({"election": {"listen": ["127.0.0.1:4040", "[::1]:4041", "10.0.0.9:4041"]}}),
            "election.listen is [\"127.0.0.1:4040\",\"[::1]:4041\",\"10.0.0.9:4041\"], but your \
             container and the sidecar's own probes use 127.0.0.1:4041",
        ),
    ]
}

fn of_tls() -> Vec<(Value, &'static str)> {
    let secret = json!({"tls": {"secretName": "orders-tls"}});
    let of_secret = |more: Value| with(secret.clone(), more);
    vec![
        (
            of_secret(json!({"election": {"tlsCert": "/a"}})),
            "tls.secretName is orders-tls, and election.tlsCert is /a: set only one of them",
        ),
        (
            json!({"tls": {"clientCertificates": true}}),
            "tls.clientCertificates is true, and tls.secretName is empty: set it, or \
             tls.clientCertificates=false",
        ),
        (
            of_secret(json!({"tls": {"clientCertificates": true, "caKey": ""}})),
            "tls.clientCertificates is true, and tls.caKey is empty: set it",
        ),
        (
            of_secret(json!({"tls": {"localPort": 4040}})),
            "election.listen has port 4040 for other pods, which requires TLS, and 127.0.0.1 has the \
             same port without: set tls.localPort or election.listen to another",
        ),
        (
            of_secret(json!({"container": {"ports": [{"name": "http", "containerPort": 4041}]}})),
            "container.ports has 4041, where the sidecar listens on 127.0.0.1: set tls.localPort or \
             election.listen to another port",
        ),
        (
            json!({"election": {"tlsCert": "/a"}, "podMonitor": {"enabled": true}}),
            "podMonitor.tlsConfig is empty, and election.tlsCert is set: set podMonitor.tlsConfig",
        ),
        (
            of_secret(json!({"podMonitor": {"enabled": true, "namespace": "monitoring"}})),
            "podMonitor.tlsConfig is empty, and podMonitor.namespace is monitoring, where there is no \
             Secret orders-tls: set podMonitor.tlsConfig, or leave podMonitor.namespace empty",
        ),
    ]
}

fn of_the_timings() -> Vec<(Value, &'static str)> {
    let election = |it: Value| json!({"election": it});
    vec![
        (
            election(json!({"renewDeadline": "5s"})),
            "election.renewDeadline is 5s, shorter than 2 × retryPeriod + requestTimeout = 6000ms",
        ),
        (
            election(json!({"renewDeadline": "14s"})),
            "election.renewDeadline is 14s, which leaves less than 1500ms until the end of \
             election.leaseDuration, 15s: lower it to at most 13500ms",
        ),
        (
            election(json!({"leaseDuration": "15s500ms"})),
            "election.leaseDuration is 15s500ms, but the store kubernetes accepts only whole seconds: \
             set it to 16s",
        ),
        (
            with(azure(), election(json!({"leaseDuration": "61s"}))),
            "election.leaseDuration is 61s, but Azure accepts 15s to 60s: set it within this range",
        ),
        (
            election(json!({"health": ["tcp://127.0.0.1:1"], "healthTimeout": "3s"})),
            "election.healthTimeout is 3s, longer than election.healthInterval, 2s: lower it",
        ),
        (
            json!({"terminationGracePeriodSeconds": 29}),
            "terminationGracePeriodSeconds is 29, but shutdown can take 30: leave it empty, or \
             raise it",
        ),
        (
            json!({"terminationGracePeriodSeconds": 0}),
            "terminationGracePeriodSeconds is 0, but shutdown can take 30",
        ),
    ]
}

fn of_the_pod() -> Vec<(Value, &'static str)> {
    vec![
        (
            json!({"container": {"readinessProbe": {"httpGet": {"host": "a", "port": 1}}}}),
            "container.readinessProbe.httpGet.host is set, and the probe would query that host \
             instead of the pod: remove it",
        ),
        (
            json!({"container": {"livenessProbe": {"tcpSocket": {"host": "a", "port": 1}}}}),
            "container.livenessProbe.tcpSocket.host is set",
        ),
        (
            json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}),
            "volumeClaimTemplates is set, and kind is Deployment: set kind=StatefulSet",
        ),
        (
            json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}}], "kind": "DaemonSet"}),
            "volumeClaimTemplates is set, and kind is DaemonSet: set kind=StatefulSet",
        ),
        (
            json!({"strategy": {"type": "Recreate"}, "kind": "StatefulSet"}),
            "strategy is set, and kind is StatefulSet: you mean updateStrategy",
        ),
        (
            json!({"election": {"moved": true}, "kind": "StatefulSet"}),
            "election.moved is true, and a StatefulSet replaces its pods one by one, so that old \
             and new ones would have a leader each: set replicas=0 for this upgrade, wait until \
             the pods are gone, and upgrade again without election.moved",
        ),
        (
            json!({"election": {"moved": true}, "kind": "StatefulSet", "replicas": 0,
                   "autoscaling": {"enabled": true}}),
            "election.moved is true, and a StatefulSet replaces its pods one by one",
        ),
        (
            json!({"election": {"moved": true}, "kind": "DaemonSet"}),
            "election.moved is true, and a DaemonSet replaces its pods one by one, so that old and \
             new ones would have a leader each: uninstall the release, wait until the pods are \
             gone, and install it again without election.moved",
        ),
        (
            json!({"updateStrategy": {"type": "OnDelete"}}),
            "updateStrategy is set, and kind is Deployment: you mean strategy",
        ),
        (
            json!({"resources": {"limits": {"cpu": 1}}}),
            "this chart has no value resources: you mean container.resources, or \
             sidecar.resources for Tenure",
        ),
    ]
}

fn of_the_labels_and_variables() -> Vec<(Value, &'static str)> {
    vec![
        (
            json!({"podLabels": {"tenure.dev/election": "x"}}),
            "commonLabels or podLabels has tenure.dev/election: x, but the chart selects pods by \
             orders-tenure there: remove it, or set nameOverride or election.election",
        ),
        (
            json!({"podLabels": {"tenure.dev/role": "active"}, "routing": {"mode": "label"},
                   "container": port()}),
            "commonLabels and podLabels must not have tenure.dev/role, which Tenure sets on each \
             pod and a rollout would reset: remove it",
        ),
        (
            json!({"container": {"env": [{"name": "TENURE_URL", "value": "x"}]}}),
            "container.env has TENURE_URL, which the chart sets: remove it, or set \
             election.listen to another port",
        ),
        (
            json!({"sidecar": {"env": [{"name": "TENURE_LOG_LEVEL", "value": "debug"}]}}),
            "sidecar.env has TENURE_LOG_LEVEL, which the chart sets: remove it, and set the value \
             under election, azure, consul, etcd, mongodb, postgres, redis, s3, gcs or zookeeper",
        ),
        (
            json!({"sidecar": {"env": [{"name": "POD_NAME", "value": "x"}]}}),
            "sidecar.env has POD_NAME, which the chart sets",
        ),
    ]
}

fn of_the_alerts() -> Vec<(Value, &'static str)> {
    vec![
        (
            json!({"prometheusRule": {"enabled": true, "disabled": ["TenureFlaping"]}}),
            "prometheusRule.disabled and prometheusRule.severities have no alert TenureFlaping: \
             name one of TenureNoLeader, ",
        ),
        (
            json!({"prometheusRule": {"enabled": true, "severities": {"page": "critical"}}}),
            "prometheusRule.disabled and prometheusRule.severities have no alert page",
        ),
        (
            json!({"prometheusRule": {"enabled": true, "disabled": ["critical"]}}),
            "prometheusRule.disabled and prometheusRule.severities have no alert critical",
        ),
        (
            json!({"podMonitor": {"enabled": true, "interval": "5s"}}),
            "podMonitor.scrapeTimeout is 10s, longer than podMonitor.interval, 5s, and the Prometheus \
             operator ignores such a PodMonitor: lower it",
        ),
        (
            json!({"extraContainers": [{"name": "tenure", "image": "x"}]}),
            "initContainers and extraContainers have a second container named tenure: give it \
             another name",
        ),
        (
            json!({"initContainers": [{"name": "service", "image": "x"}]}),
            "initContainers and extraContainers have a second container named service",
        ),
        (
            json!({"container": {"ports": [{"name": "tenure", "containerPort": 1}]}}),
            "container.ports has a second port named tenure: give it another name",
        ),
        (
            json!({"container": {"ports": [{"name": "http", "containerPort": 80},
                                           {"name": "web", "containerPort": 80, "servicePort": 81}]}}),
            "container.ports has a second containerPort 80/TCP: remove it",
        ),
        (
            json!({"container": {"ports": [{"name": "http", "containerPort": 8080, "servicePort": 80},
                                           {"name": "web", "containerPort": 80}]}}),
            "container.ports has a second servicePort 80/TCP: give it another servicePort",
        ),
        (
            json!({"volumes": [{"name": "tenure-run"}]}),
            "volumes has tenure-run, but names with tenure- are reserved for the sidecar: give it \
             another name",
        ),
    ]
}

fn of_the_budget() -> Vec<(Value, &'static str)> {
    let pdb = |it: Value| json!({"pdb": it});
    vec![
        (
            pdb(json!({"minAvailable": 1})),
            "pdb.minAvailable and pdb.maxUnavailable are both set: set one of them to null",
        ),
        (
            pdb(json!({"maxUnavailable": 0})),
            "pdb.maxUnavailable is 0, so no node could ever be drained: set it to 1",
        ),
        (pdb(json!({"maxUnavailable": "0%"})), "pdb.maxUnavailable is 0%"),
        (
            pdb(json!({"maxUnavailable": null})),
            "pdb.minAvailable and pdb.maxUnavailable are both null: set one of them, or \
             pdb.enabled=false",
        ),
        (
            pdb(json!({"maxUnavailable": null, "minAvailable": 2})),
            "pdb.minAvailable is 2 of 2 replicas, so no node could ever be drained: lower it, or \
             raise replicas",
        ),
        (
            json!({"pdb": {"maxUnavailable": null, "minAvailable": 2},
                   "autoscaling": {"enabled": true}, "replicas": 4}),
            "pdb.minAvailable is 2 of 2 replicas",
        ),
        (
            json!({"pdb": {"enabled": true}, "kind": "DaemonSet"}),
            "pdb.enabled is true, and kind is DaemonSet, whose pods a drain does not evict: leave \
             pdb.enabled empty, or set kind=Deployment",
        ),
        (
            json!({"autoscaling": {"enabled": true}, "kind": "DaemonSet"}),
            "autoscaling.enabled is true, and kind is DaemonSet, which has one pod on each node: \
             set autoscaling.enabled=false, or kind=Deployment",
        ),
        (
            json!({"autoscaling": {"enabled": true, "minReplicas": 9}}),
            "autoscaling.minReplicas is 9, more than autoscaling.maxReplicas, 5: raise \
             autoscaling.maxReplicas",
        ),
        (
            pdb(json!({"maxUnavailable": null, "minAvailable": "100%"})),
            "pdb.minAvailable is 100% of 2 replicas",
        ),
    ]
}

#[test]
fn conflicting_values_are_refused_with_the_value_and_the_remedy() {
    for (values, expected) in guarded() {
        let error = refusal(&values);
        assert!(error.contains(expected), "{values}: {error}");
    }
}

/// Returns the messages of the guards, up to the first placeholder.
fn messages() -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["helm/tenure-lib/templates", "helm/tenure/templates"] {
        for entry in fs::read_dir(place(folder)).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = fs::read_to_string(&path) else { continue };
            for after in text.split("fail ").skip(1) {
                let after = after.strip_prefix("(printf ").unwrap_or(after);
                let Some(message) = after.strip_prefix('"') else { continue };
                let end = message.find(['%', '"', '\\']).unwrap();
                found.push(message[..end].to_owned());
            }
        }
    }
    found
}

/// The guards whose cases are elsewhere: in `charts_names`, with another chart, and in the ring
/// `control_plane`.
const CASES_ELSEWHERE: [&str; 2] = ["the context has no Parent", "this upgrade moves the election"];

#[test]
fn every_guard_has_a_case_above() {
    let all = messages();
    assert!(all.len() > 25, "{all:?}");
    for message in all {
        // A text without a space is too short to identify a guard.
        if message.contains(' ') {
            let known = CASES_ELSEWHERE.iter().any(|it| message.starts_with(it));
            let known = known
                || guarded().iter().any(|(_, error)| {
                    let length = error.len().min(message.len());
                    error.is_char_boundary(length) && error[..length] == message[..length]
                });
            assert!(known, "no case for: {message}");
        }
    }
}

fn schema() -> Value {
    serde_json::from_str(&text("helm/tenure/values.schema.json")).unwrap()
}

fn is_of(schema: &Value, kind: &str) -> bool {
    match &schema["type"] {
        Value::Array(all) => all.iter().any(|it| it == kind),
        one => one == kind,
    }
}

/// Returns values that violate a leaf of the schema in each possible way.
fn bad(schema: &Value) -> Vec<Value> {
    let mut all = vec![];
    if !is_of(schema, "object") {
        all.push(json!({"bad": true}));
    }
    if !is_of(schema, "string") {
        all.push(json!("!bad"));
    } else if ["pattern", "enum"].iter().any(|it| !schema[it].is_null()) {
        all.push(json!("!\u{1}bad "));
    } else if !schema["minLength"].is_null() {
        all.push(json!(""));
    }
    if !schema["maxLength"].is_null() {
        let long = schema["maxLength"].as_u64().unwrap() + 1;
        all.push(json!("a".repeat(usize::try_from(long).unwrap())));
    }
    if let Some(least) = schema["minimum"].as_i64() {
        all.push(json!(least - 1));
    }
    if let Some(most) = schema["maximum"].as_i64() {
        all.push(json!(most + 1));
    }
    if schema["minItems"] == 1 {
        all.push(json!([]));
    }
    if is_of(schema, "array") && !schema["items"].is_null() {
        all.extend(bad(&schema["items"]).into_iter().map(|it| json!([it])));
    }
    all
}

/// Collects the leaves of the schema with their paths, and the objects that permit no other keys.
fn walk(schema: &Value, path: &str, leaves: &mut Vec<(String, Value)>, closed: &mut Vec<String>) {
    let Some(inner) = schema["properties"].as_object() else {
        leaves.push((path.to_owned(), schema.clone()));
        return;
    };
    assert_eq!(schema["additionalProperties"], false, "{path}");
    closed.push(path.to_owned());
    for (key, it) in inner {
        if !["global", "tenure-lib"].contains(&key.as_str()) {
            walk(it, &format!("{path}/{key}"), leaves, closed);
        }
    }
}

fn put(values: &mut Value, path: &str, value: Value) {
    let mut at = values;
    for key in path.split('/').skip(1) {
        at = &mut at[key];
    }
    *at = value;
}

#[test]
fn the_schema_refuses_each_value_of_a_wrong_form_by_its_name() {
    let (mut leaves, mut closed) = (Vec::new(), Vec::new());
    walk(&schema(), "", &mut leaves, &mut closed);
    assert!(leaves.len() > 120, "{}", leaves.len());
    let most = leaves.iter().map(|(_, it)| bad(it).len()).max().unwrap();
    for round in 0..most {
        let mut values = json!({});
        let mut broken = Vec::new();
        for (path, leaf) in &leaves {
            if let Some(value) = bad(leaf).into_iter().nth(round) {
                put(&mut values, path, value);
                broken.push(path);
            }
        }
        let error = helm("helm/tenure", &values, &[]).unwrap_err();
        for path in broken {
            let named =
                error.contains(&format!("at '{path}'")) || error.contains(&format!("at '{path}/"));
            assert!(named, "{path} with {} in:\n{error}", values.pointer(path).unwrap());
        }
    }
}

/// Returns whether an error names a value that is missing, because it is null.
fn is_named(error: &str, path: &str) -> bool {
    let (section, key) = path.rsplit_once('/').unwrap();
    let head = format!("at '{section}': missing propert");
    error.lines().any(|it| it.contains(&head) && it.contains(&format!("'{key}'")))
}

#[test]
fn a_null_is_refused_by_its_name_or_changes_no_promise() {
    let schema = schema();
    let (mut leaves, mut closed) = (Vec::new(), Vec::new());
    walk(&schema, "", &mut leaves, &mut closed);
    let sections: Vec<&String> = closed.iter().filter(|it| !it.is_empty()).collect();
    // A section hides those in it.
    for depth in 1..=2 {
        let mut values = json!({});
        let these = sections.iter().filter(|it| it.matches('/').count() == depth);
        these.clone().for_each(|it| put(&mut values, it, Value::Null));
        let error = refusal(&values);
        for path in these {
            assert!(is_named(&error, path), "{path} in:\n{error}");
        }
    }

    let defaults = testkit::kubernetes::yaml::document(&text("helm/tenure/values.yaml"));
    let is_required = |path: &str| {
        let (section, key) = path.rsplit_once('/').unwrap();
        let section = schema.pointer(&section.replace('/', "/properties/")).unwrap();
        section["required"].as_array().is_some_and(|all| all.iter().any(|it| it == key))
    };
    // Nulls that guards refuse.
    leaves.retain(|(path, _)| !["/container/image", "/pdb/maxUnavailable"].contains(&&**path));
    leaves.retain(|(path, _)| defaults.pointer(path).is_some_and(|it| !it.is_null()));
    let (required, rest): (Vec<_>, Vec<_>) =
        leaves.iter().map(|(path, _)| path).partition(|it| is_required(it));
    let mut nulls = json!({});
    required.iter().for_each(|it| put(&mut nulls, it, Value::Null));
    let error = refusal(&nulls);
    for path in required {
        assert!(is_named(&error, path), "{path} in:\n{error}");
    }
    let mut nulls = json!({"autoscaling": {"enabled": true}});
    for path in rest {
        let is_switch = path.ends_with("/enabled");
        put(&mut nulls, path, if is_switch { json!(true) } else { Value::Null });
    }
    let rendered = manifests::render(&nulls);
    assert_valid(&rendered.text);
    assert_eq!(rendered.pod()["terminationGracePeriodSeconds"], 30);
    assert_eq!(rendered.container("tenure")["restartPolicy"], "Always");
}

#[test]
fn entries_that_say_nothing_and_secrets_in_another_form_are_refused() {
    let error = refusal(&json!({
        "global": {"imagePullSecrets": "registry"}, "imagePullSecrets": [7],
        "prometheusRule": {"severities": {"critical": ""},
                           "extraRules": [{}, {"expr": "vector(1)"}, {"alert": "Own"}]},
    }));
    for path in [
        "/global/imagePullSecrets",
        "/imagePullSecrets/0",
        "/prometheusRule/severities/critical",
        "/prometheusRule/extraRules/0",
        "/prometheusRule/extraRules/1",
        "/prometheusRule/extraRules/2",
    ] {
        assert!(error.contains(&format!("at '{path}'")), "{path} in:\n{error}");
    }
}

#[test]
fn the_schema_has_every_key() {
    let (mut leaves, mut closed) = (Vec::new(), Vec::new());
    walk(&schema(), "", &mut leaves, &mut closed);
    let mut values = json!({});
    for path in &closed {
        put(&mut values, &format!("{path}/nonsense"), json!(1));
    }
    let error = helm("helm/tenure", &values, &[]).unwrap_err();
    for path in closed {
        let named = format!("at '{path}': additional properties 'nonsense' not allowed");
        assert!(error.contains(&named), "{named} in:\n{error}");
    }
}

#[test]
fn the_schema_accepts_durations_and_names_as_tenure_does() {
    // helm reports all values that do not match: each duration goes to a setting of its own.
    let durations = |keys: &[&str], values: &[&str]| {
        let election: serde_json::Map<String, Value> =
            keys.iter().zip(values).map(|(key, it)| ((*key).to_owned(), json!(it))).collect();
        try_render(&json!({"election": election}))
    };
    let good =
        ["15s", "1m", "1m30s", "0s", "1h2m3s4ms", "1500ms", "90s", "1.5m", "0.25s", "1m9.5s"];
    let free = ["activationDelay", "drainTimeout", "hookTimeout"];
    for good in good.chunks(free.len()) {
        assert!(good.iter().all(|it| tenure::config::duration::parse(it).is_ok()), "{good:?}");
        assert!(durations(&free, good).is_ok(), "{good:?}");
    }
    let bad = [
        "", "15", "1.5", "1.s", ".5s", "1.0005s", "0.5ms", "1,5s", "-1s", "s", "1s1m", "1s1s",
        "1d", " 1s", "1 s", "1ms1s",
    ];
    let all = SETTINGS.iter().filter(|it| it.is_flag_of(Verb::Run) && it.kind == Kind::Duration);
    let all: Vec<String> = all.map(|it| camel_case(it.name)).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    for bad in bad.chunks(all.len()) {
        assert!(bad.iter().all(|it| tenure::config::duration::parse(it).is_err()), "{bad:?}");
        let error = durations(&all, bad).unwrap_err();
        for (key, bad) in all.iter().zip(bad) {
            assert!(error.contains(&format!("at '/election/{key}'")), "{key}={bad}: {error}");
        }
    }
    for bad in ["Orders", "-a", "a-", "a_b", "a/b", &"a".repeat(64)] {
        let error = refusal(&json!({"election": {"election": bad}}));
        assert!(error.contains("at '/election/election'"), "{bad}: {error}");
    }
}

#[test]
fn library_values_set_by_the_application_are_validated() {
    let error = refusal(&json!({"tenure-lib": {"election": {"leaseDuration": 15}}}));
    assert!(
        error.contains("tenure-lib") && error.contains("at '/election/leaseDuration'"),
        "{error}"
    );
}

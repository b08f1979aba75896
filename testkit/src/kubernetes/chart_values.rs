//! Values for the chart `tenure`, composed by tests.

use serde_json::{Value, json};

use crate::kubernetes::manifests::lay_over;

/// Returns values with a port, so that Services have one.
pub fn port() -> Value {
    json!({"ports": [{"name": "http", "containerPort": 8080, "servicePort": 80}]})
}

/// Returns values merged with others, which take precedence.
pub fn with(mut below: Value, above: Value) -> Value {
    lay_over(&mut below, &above);
    below
}

/// Returns values for a lease on a blob, with the workload identity of AKS.
pub fn azure() -> Value {
    let client = "6c7d2c1e-0000-4000-8000-1234567890ab";
    json!({
        "store": "azure",
        "azure": {"storageAccount": "orders", "container": "locks", "clientId": client},
    })
}

/// Returns values for a lease in Consul, with a token, TLS and a client certificate.
pub fn consul() -> Value {
    json!({
        "store": "consul",
        "consul": {
            "addresses": ["consul-0.consul:8501", "consul-1.consul:8502"],
            "credentialsSecret": "orders-consul",
            "tlsSecret": "orders-consul-tls",
            "clientCertificate": true,
        },
    })
}

/// Returns values for a lease in etcd, with a password, TLS and a client certificate.
pub fn etcd() -> Value {
    json!({
        "store": "etcd",
        "etcd": {
            "endpoints": ["etcd-0.etcd:2379", "etcd-1.etcd:2380"],
            "credentialsSecret": "orders-etcd",
            "tlsSecret": "orders-etcd-tls",
            "clientCertificate": true,
        },
    })
}

/// Returns values for a lease in a bucket of Google's, with a service account.
pub fn gcs() -> Value {
    json!({
        "store": "gcs",
        "gcs": {"bucket": "leases", "serviceAccount": "leases@project.iam.gserviceaccount.com"},
    })
}

/// Returns values for a lease in MongoDB, with a password, TLS and a client certificate.
pub fn mongodb() -> Value {
    json!({
        "store": "mongodb",
        "mongodb": {
            "hosts": ["db-0.db", "db-1.db:27018"],
            "database": "app",
            "credentialsSecret": "orders-db",
            "tlsSecret": "orders-db-tls",
            "clientCertificate": true,
        },
        "sidecar": {"image": {"repository": "ghcr.io/tenure-dev/tenure-full"}},
    })
}

/// Returns values for a lease in a bucket, with a role.
pub fn s3() -> Value {
    json!({
        "store": "s3",
        "s3": {"bucket": "leases", "roleArn": "arn:aws:iam::123456789012:role/leases"},
        "election": {"s3Region": "eu-west-1"},
    })
}

/// Returns values for a lease in PostgreSQL, with a password, TLS and a client certificate.
pub fn postgres() -> Value {
    json!({
        "store": "postgres",
        "postgres": {
            "hosts": ["db-0.db", "db-1.db:5433"],
            "database": "app",
            "credentialsSecret": "orders-db",
            "tlsSecret": "orders-db-tls",
            "clientCertificate": true,
        },
    })
}

/// Returns values for a lease in Redis, with a password, TLS and a client certificate.
pub fn redis() -> Value {
    json!({
        "store": "redis",
        "redis": {
            "hosts": ["redis-0.redis", "redis-1.redis:6380"],
            "database": 3,
            "credentialsSecret": "orders-redis",
            "tlsSecret": "orders-redis-tls",
            "clientCertificate": true,
        },
    })
}

/// Returns values for a lease in ZooKeeper, with a user, TLS and a client certificate.
pub fn zookeeper() -> Value {
    json!({
        "store": "zookeeper",
        "zookeeper": {
            "servers": ["zk-0.zk:2281", "zk-1.zk:2282"],
            "credentialsSecret": "orders-zk",
            "tlsSecret": "orders-zk-tls",
            "clientCertificate": true,
        },
    })
}

/// Returns values that enable everything that is off by default.
pub fn everything() -> Value {
    json!({
        "container": with(port(), json!({
            "command": ["/orders"], "args": ["--serve"],
            "env": [{"name": "A", "value": "b"}], "envFrom": [{"secretRef": {"name": "orders"}}],
            "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
            "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
            "resources": {"requests": {"cpu": "100m"}},
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        })),
        "initContainers": [{"name": "migrate", "image": "x:1", "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]}}}],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "podLabels": {"team": "shop"}, "podAnnotations": {"note": "x"},
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"pool": "a"}, "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}}, "priorityClassName": "high",
        "serviceAccount": {"annotations": {"a": "b"}},
        "service": {"annotations": {"a": "b"}},
        "networkPolicy": {
            "serviceFrom": [{"podSelector": {}}],
            "egress": {"enabled": true, "rules": [{"ports": [{"port": 5432}]}]},
        },
        "podMonitor": {"enabled": true}, "prometheusRule": {"enabled": true},
        "dashboard": {"enabled": true, "annotations": {"grafana_folder": "Tenure"}},
        "election": {"statusFile": ["/run/tenure/status.json"]},
        "sidecar": {
            "env": [{"name": "RUST_BACKTRACE", "value": "1"}],
            "envFrom": [{"configMapRef": {"name": "tenure"}}],
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        },
        "extraObjects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-a"}},
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-b\n",
        ],
    })
}

//! The chart with its lease on servers: the URL, the Secrets, the table and the ports. The buckets have files of
//! their own.

use testkit::kubernetes::{chart_values, manifests};

use chart_values::{consul, etcd, mongodb, port, postgres, redis, with, zookeeper};
use manifests::{Manifests, assert_valid, render};
use serde_json::{Value, json};

use super::charts_moved::lease;

/// A store on servers, and what the chart makes of its values.
struct Store {
    /// Values with two servers, the Secret of a user, TLS and a client certificate.
    values: Value,
    /// The beginning of the URL: the scheme and both servers.
    servers: &'static str,
    /// The rest of the URL, by default the namespace.
    path: &'static str,
    /// The key of the path in the values.
    path_key: &'static str,
    /// The key of the servers in the values.
    servers_key: &'static str,
}

fn stores() -> [Store; 6] {
    [
        Store {
            values: consul(),
            servers: "consul://consul-0.consul:8501,consul-1.consul:8502",
            path: "tenure/shop",
            path_key: "prefix",
            servers_key: "addresses",
        },
        Store {
            values: etcd(),
            servers: "etcd://etcd-0.etcd:2379,etcd-1.etcd:2380",
            path: "tenure/shop",
            path_key: "prefix",
            servers_key: "endpoints",
        },
        Store {
            values: mongodb(),
            servers: "mongodb://db-0.db:27017,db-1.db:27018",
            path: "app",
            path_key: "database",
            servers_key: "hosts",
        },
        Store {
            values: postgres(),
            servers: "postgres://db-0.db:5432,db-1.db:5433",
            path: "app",
            path_key: "database",
            servers_key: "hosts",
        },
        Store {
            values: redis(),
            servers: "redis://redis-0.redis:6379,redis-1.redis:6380",
            path: "3",
            path_key: "database",
            servers_key: "hosts",
        },
        Store {
            values: zookeeper(),
            servers: "zookeeper://zk-0.zk:2281,zk-1.zk:2282",
            path: "tenure/shop",
            path_key: "path",
            servers_key: "servers",
        },
    ]
}

impl Store {
    fn name(&self) -> &str {
        self.values["store"].as_str().unwrap()
    }

    /// Returns the addresses of both servers.
    fn addresses(&self) -> Vec<&str> {
        self.servers.split_once("://").unwrap().1.split(',').collect()
    }

    /// Returns its values with these under its own name, and a port.
    fn values_with(&self, own: Value) -> Value {
        let own = json!({self.name(): own, "container": port()});
        with(self.values.clone(), own)
    }

    /// Returns another path: a number for the databases of Redis.
    fn another_path(&self) -> Value {
        if self.name() == "redis" { json!(4) } else { json!("team") }
    }
}

/// Returns a variable of the sidecar.
pub(super) fn variable(rendered: &Manifests, name: &str) -> Option<String> {
    let container = rendered.container("tenure");
    let found = container["env"].as_array().unwrap().iter().find(|it| it["name"] == name);
    found.map(|it| it["value"].as_str().unwrap().to_owned())
}

/// Asserts that the policy opens a port for the sidecar, once.
pub(super) fn assert_opens(rendered: &Manifests, port: u16) {
    let policy = &rendered.the("NetworkPolicy", "orders-tenure")["spec"];
    let rules = policy["egress"].as_array().unwrap();
    let ports: Vec<&Value> = rules.iter().flat_map(|it| it["ports"].as_array().unwrap()).collect();
    let rule = json!({"protocol": "TCP", "port": port});
    assert_eq!(ports.iter().filter(|it| ***it == rule).count(), 1, "{port}: {ports:?}");
}

#[test]
fn the_sidecar_has_the_servers_the_user_and_the_files() {
    for store in stores() {
        let name = store.name();
        let rendered = render(&store.values_with(json!({})));
        assert_valid(&rendered.text);
        let url = format!("{}/{}", store.servers, store.path);
        assert_eq!(variable(&rendered, "TENURE_STORE"), Some(url));
        for (variable_name, file) in [
            ("TENURE_STORE_CA_FILE", "ca.crt"),
            ("TENURE_STORE_CERT", "tls.crt"),
            ("TENURE_STORE_KEY", "tls.key"),
        ] {
            let path = format!("/run/tenure-store-tls/{file}");
            assert_eq!(variable(&rendered, variable_name), Some(path), "{name}");
        }
        let container = rendered.container("tenure");
        let secret = &store.values[name]["credentialsSecret"];
        assert_eq!(container["envFrom"], json!([{"secretRef": {"name": secret}}]));
        let mounts = container["volumeMounts"].as_array().unwrap();
        assert!(mounts.iter().any(|it| it["mountPath"] == "/run/tenure-store-tls"), "{mounts:?}");
        let service = rendered.container("service");
        assert!(service["envFrom"].is_null(), "{name}: the service gets no password");
    }
}

#[test]
fn without_secrets_there_are_none_and_the_policy_opens_the_ports_of_the_servers() {
    for store in stores() {
        let name = store.name();
        let path = store.another_path();
        let bare = store.values_with(json!({
            "credentialsSecret": "", "tlsSecret": "", "clientCertificate": false,
            store.path_key: path,
        }));
        let more = json!({
            "networkPolicy": {"egress": {"enabled": true}},
            // PostgreSQL alone requires a user.
            "sidecar": {"env": [{"name": "PGUSER", "value": "elections"}]},
        });
        let rendered = render(&with(bare, more));
        let url = format!("{}/{}", store.servers, path.to_string().trim_matches('"'));
        assert_eq!(variable(&rendered, "TENURE_STORE"), Some(url));
        assert_eq!(variable(&rendered, "TENURE_STORE_CA_FILE"), None, "{name}");
        assert!(rendered.container("tenure")["envFrom"].is_null(), "{name}");
        for address in store.addresses() {
            assert_opens(&rendered, address.rsplit_once(':').unwrap().1.parse().unwrap());
        }
    }
}

#[test]
fn other_servers_of_a_store_do_not_move_the_election_and_another_first_one_or_path_does() {
    for store in stores() {
        let on = |servers| lease(&store.values_with(json!({store.servers_key: servers})));
        let addresses = store.addresses();
        // The databases have a default port.
        let one = on(json!([store.values[store.name()][store.servers_key][0]]));
        assert_eq!(one, on(json!([addresses[0], addresses[1], "another.db:1"])));
        assert_ne!(one, on(json!([addresses[1]])));
        assert_ne!(one, lease(&store.values_with(json!({store.path_key: store.another_path()}))));
    }
}

#[test]
fn a_table_is_a_variable_of_its_store_alone_and_another_one_moves_the_election() {
    for (values, setting, name) in [
        (mongodb(), "mongodbCollection", "TENURE_MONGODB_COLLECTION"),
        (postgres(), "postgresTable", "TENURE_POSTGRES_TABLE"),
    ] {
        let values = with(values, json!({"container": port()}));
        assert_eq!(variable(&render(&values), name).as_deref(), Some("tenure"));
        let other = render(&json!({"container": port()}));
        assert_eq!(variable(&other, name), None, "of no use to another store");
        let moved = with(values.clone(), json!({"election": {setting: "ops.tenure"}}));
        assert_ne!(lease(&values), lease(&moved));
    }
}

//! The in-process API server compared with a real kube-apiserver: the same requests get the same
//! answers, except for values that are generated.

use testkit::kubernetes::{kube_server, raw_client as kube_raw, real_lease};

use std::collections::HashMap;
use std::time::Duration;

use kube_raw::{LEASES, Raw, taken, version};
use kube_server::{KubeServer, TOKEN};
use reqwest::Method;
use serde_json::{Value, json};

/// The fields with generated values: random, counters, or times.
const DRAWN: [&str; 8] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "time",
    "managedFields",
    "remainingItemCount",
    "continue",
    "generation",
];

/// The requests to one server and its answers.
struct Talk {
    raw: Raw,
    said: Vec<(String, u16, Value)>,
    /// The returned uids, each with its replacement in the recorded answers.
    drawn: HashMap<String, String>,
}

impl Talk {
    fn new(raw: Raw) -> Self {
        Self { raw, said: Vec::new(), drawn: HashMap::new() }
    }

    /// Records an answer without generated values, and returns it unchanged.
    fn note(&mut self, what: String, (status, told): (u16, Value)) -> Value {
        if let Some(uid) = told["metadata"]["uid"].as_str() {
            let number = self.drawn.len();
            self.drawn.entry(uid.to_owned()).or_insert_with(|| format!("uid-{number}"));
        }
        let mut plain = told.clone();
        self.plain(&mut plain);
        self.said.push((what, status, plain));
        told
    }

    fn plain(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| !DRAWN.contains(&name.as_str()));
                fields.values_mut().for_each(|it| self.plain(it));
            }
            Value::Array(values) => values.iter_mut().for_each(|it| self.plain(it)),
            Value::String(text) => {
                for (uid, name) in &self.drawn {
                    *text = text.replace(uid, name);
                }
                *text = text.trim_end().to_owned();
            }
            _ => (),
        }
    }

    /// Returns a body without generated values.
    fn normalized(&self, mut body: Value) -> Value {
        self.plain(&mut body);
        body
    }

    async fn get(&mut self, path: &str) -> Value {
        let answer = self.raw.get(path).await;
        self.note(format!("GET {path}"), answer)
    }

    async fn post(&mut self, path: &str, body: Value) -> Value {
        let answer = self.raw.post(path, body.clone()).await;
        let what = format!("POST {path} {}", self.normalized(body));
        self.note(what, answer)
    }

    async fn put(&mut self, what: &str, body: &Value) -> Value {
        let answer = self.raw.put(LEASES, body).await;
        self.note(format!("PUT {what}"), answer)
    }

    async fn patch(&mut self, path: &str, body: Value) -> Value {
        let answer = self.raw.patch(path, body.clone()).await;
        let what = format!("PATCH {path} {}", self.normalized(body));
        self.note(what, answer)
    }

    async fn delete(&mut self, path: &str, options: Value) -> Value {
        let answer = self.raw.delete(path, options.clone()).await;
        self.note(format!("DELETE {path} {options}"), answer)
    }

    /// Records the events of a watch until it ends.
    async fn watch(&mut self, collection: &str, query: &str) {
        let mut lines = self.raw.watch(collection, &format!("timeoutSeconds=1&{query}")).await;
        while let Some(event) = lines.next().await {
            // The server sends bookmarks at times of its own choice.
            if event["type"] != "BOOKMARK" {
                self.note("an event".to_owned(), (200, event));
            }
        }
        self.note("the end of a watch".to_owned(), (200, Value::Null));
    }
}

fn with(object: &Value, field: &str, value: Value) -> Value {
    let mut it = object.clone();
    it["metadata"][field] = value;
    it
}

/// Requests for Leases with all permissions.
async fn about_leases(talk: &mut Talk) {
    let orders = format!("{LEASES}/orders");
    talk.get(&orders).await;
    let made = talk.post(LEASES, json!({"metadata": {"name": "orders"}})).await;
    talk.post(LEASES, json!({"metadata": {"name": "orders"}})).await;
    let mut mine = made.clone();
    mine["spec"] = json!({"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                          "renewTime": "2026-11-20T09:00:00.123456Z"});
    let replaced = talk.put("for the first version", &mine).await;
    talk.put("for it again", &mine).await;
    let same = talk.put("what is there", &replaced).await;
    assert_eq!(version(&same), version(&replaced), "nothing was changed");
    talk.put("for no version", &with(&replaced, "resourceVersion", Value::Null)).await;
    talk.put("for a version that is none", &with(&replaced, "resourceVersion", json!("x"))).await;
    talk.put("for another uid", &with(&replaced, "uid", json!("x"))).await;
    talk.put("of another namespace", &with(&replaced, "namespace", json!("other"))).await;
    let misnamed = with(&replaced, "name", json!("others"));
    let answer = talk.raw.ask(Method::PUT, &orders, misnamed).await;
    talk.note("PUT under another name".to_owned(), answer);

    talk.patch(&orders, json!({"metadata": {"annotations": {"a": "1", "b": "2"}}})).await;
    let old = made["metadata"]["resourceVersion"].clone();
    let stale = json!({"metadata": {"resourceVersion": old, "labels": {"a": "1"}}});
    talk.patch(&orders, stale).await;
    talk.patch(&orders, json!({"metadata": {"annotations": {"a": null}}})).await;
    talk.patch(&orders, json!({"metadata": {"uid": "x"}})).await;
    talk.patch(&format!("{LEASES}/none"), json!({})).await;
    let plain = talk.raw.send_as("application/json", Method::PATCH, &orders, json!({})).await;
    let (status, _) = taken(plain.unwrap()).await;
    talk.note("PATCH as plain JSON".to_owned(), (status, Value::Null));

    let wanted = json!({"preconditions": {"uid": "x"}});
    talk.delete(&orders, wanted).await;
    talk.delete(&orders, Value::Null).await;
    talk.delete(&orders, Value::Null).await;
    talk.put("of what was deleted", &replaced).await;
    let nameless = with(&replaced, "uid", Value::Null);
    let again = talk.put("of what was deleted, without its uid", &nameless).await;
    assert_ne!(again["metadata"]["uid"], made["metadata"]["uid"]);
    let late = with(&replaced, "resourceVersion", again["metadata"]["resourceVersion"].clone());
    talk.put("of the one before", &late).await;
    talk.post(&format!("{LEASES}?dryRun=All"), json!({"metadata": {"name": "tried"}})).await;
    talk.get(&format!("{LEASES}/tried")).await;
    talk.post(LEASES, with(&again, "name", json!("copied"))).await;
    talk.get(LEASES).await;
}

/// Requests with Leases that cannot be decoded, and fields that are ignored.
async fn about_nonsense(talk: &mut Talk) {
    let lease = |spec: Value| json!({"metadata": {"name": "x"}, "spec": spec});
    for body in [
        lease(json!({"leaseTransitions": 2_147_483_648_u64})),
        lease(json!({"leaseTransitions": "7"})),
        lease(json!({"holderIdentity": 7})),
        lease(json!({"renewTime": "2026-11-20T09:00:00Z"})),
        lease(json!({"renewTime": "yesterday"})),
        lease(json!({"renewTime": 7})),
        json!({"metadata": {}}),
        json!({"metadata": {"name": "x", "annotations": {"a": 1}}}),
        json!({"apiVersion": "v1", "metadata": {"name": "x"}}),
        json!({"metadata": {"name": "x", "namespace": "other"}}),
        json!({"metadata": {"name": "x", "resourceVersion": "7"}}),
    ] {
        talk.post(LEASES, body).await;
    }
    // Null and unknown fields are ignored.
    let spec = json!({"renewTime": "2026-11-20T10:00:00.000001+01:00", "acquireTime": null,
                      "unheard": 1, "holderIdentity": ""});
    talk.post(LEASES, lease(spec)).await;
    talk.get(&format!("{LEASES}/x")).await;
}

/// Requests for objects other than Leases.
async fn about_others(talk: &mut Talk) {
    let elsewhere = "/apis/coordination.k8s.io/v1/namespaces/nowhere/leases";
    talk.post(elsewhere, json!({"metadata": {"name": "orders"}})).await;
    talk.get(&format!("{elsewhere}/orders")).await;
    talk.get(elsewhere).await;
    talk.get("/apis/coordination.k8s.io/v1/namespaces/team/leases?fieldSelector=spec.x%3Db").await;
    talk.get("/nothing/here").await;
    talk.get("/apis/nothing.example.com/v1/namespaces/team/things").await;

    let slices = "/apis/discovery.k8s.io/v1/namespaces/team/endpointslices";
    let slice = |name: &str, address: &str| {
        json!({"metadata": {"name": name}, "addressType": "IPv4",
               "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
               "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]})
    };
    talk.post(slices, slice("s", "10.0.0.7")).await;
    let put = talk.raw.put(slices, &slice("none", "10.0.0.7")).await;
    talk.note("PUT of a slice that is missing".to_owned(), put);

    let event = json!({
        "metadata": {"name": "web-1.1"},
        "eventTime": "2026-11-20T09:00:00.000000Z",
        "reportingController": "tenure.dev/sidecar",
        "reportingInstance": "web-1",
        "action": "Elect",
        "reason": "BecameLeader",
        "type": "Normal",
        "note": "became leader",
        "regarding": {"kind": "Pod", "namespace": "team", "name": "web-1"},
    });
    let events = "/apis/events.k8s.io/v1/namespaces/team/events";
    talk.post(events, event).await;
    let selected = "fieldSelector=involvedObject.name%3Dweb-1";
    talk.get(&format!("/api/v1/namespaces/team/events?{selected}")).await;
}

/// Watches and lists.
async fn about_watches(talk: &mut Talk) {
    let first = talk.post(LEASES, json!({"metadata": {"name": "w-a"}})).await;
    talk.post(LEASES, json!({"metadata": {"name": "w-b"}})).await;
    let from = version(&first);
    talk.patch(&format!("{LEASES}/w-a"), json!({"metadata": {"labels": {"role": "active"}}})).await;
    talk.patch(&format!("{LEASES}/w-b"), json!({"spec": {"holderIdentity": "b"}})).await;
    talk.patch(&format!("{LEASES}/w-a"), json!({"metadata": {"labels": {"role": "passive"}}}))
        .await;
    talk.delete(&format!("{LEASES}/w-a"), Value::Null).await;
    talk.watch(LEASES, &format!("resourceVersion={from}&fieldSelector=metadata.name%3Dw-a")).await;
    talk.watch(LEASES, &format!("resourceVersion={from}&labelSelector=role%3Dactive")).await;
    talk.watch(LEASES, "fieldSelector=metadata.name%3Dw-b").await;
    talk.watch(LEASES, "fieldSelector=metadata.name%3Dw-b&resourceVersion=0").await;
    for selector in ["role", "!role", "role%20in%20(a,b)", "role%20notin%20(a,b)", "role!%3Da"] {
        talk.get(&format!("{LEASES}?labelSelector={selector}")).await;
    }
    let nonsense = format!("{LEASES}?watch=true&resourceVersion=x");
    let (status, _) = talk.raw.get(&nonsense).await;
    talk.note("a watch from no version".to_owned(), (status, Value::Null));
}

/// Requests with few permissions or none.
async fn about_rights(talk: &mut Talk, account: &str) {
    let all = talk.raw.clone();
    talk.raw = all.with_token(Some(account));
    for name in ["orders", "other"] {
        talk.get(&format!("{LEASES}/{name}")).await;
        talk.patch(&format!("{LEASES}/{name}"), json!({})).await;
        talk.delete(&format!("{LEASES}/{name}"), Value::Null).await;
    }
    talk.post(LEASES, json!({"metadata": {"name": "orders"}})).await;
    let lease = json!({"metadata": {"name": "other"}});
    talk.put("without the right", &lease).await;
    talk.get(LEASES).await;
    talk.get(&format!("{LEASES}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dother"))
        .await;
    talk.get("/api/v1/pods").await;
    talk.get("/api/v1/namespaces/team").await;
    talk.watch(LEASES, "fieldSelector=metadata.name%3Dorders").await;
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, name) in [("get", "orders"), ("get", "other"), ("create", ""), ("update", "orders")]
    {
        let asked = json!({"spec": {"resourceAttributes": {"namespace": "team", "verb": verb,
                           "group": "coordination.k8s.io", "resource": "leases", "name": name}}});
        let (status, told) = talk.raw.post(review, asked).await;
        let allowed = told["status"]["allowed"].clone();
        talk.note(format!("may {verb} {name:?}"), (status, allowed));
    }
    for token in [Some("of-nobody"), None] {
        talk.raw = all.with_token(token);
        talk.get(&format!("{LEASES}/orders")).await;
        talk.post(review, json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}))
            .await;
    }
    talk.raw = all;
}

/// Creates an account on both servers that may only read, watch and create the Lease `orders`, and
/// returns the tokens for the real and the in-process server.
fn accounts(ours: &KubeServer) -> (String, &'static str) {
    let plane = real_lease::plane();
    plane.kubectl.apply(
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: little, namespace: team}}\n\
         ---\n\
         {apiVersion: rbac.authorization.k8s.io/v1, kind: Role,\n\
         metadata: {name: little, namespace: team},\n\
         rules: [{apiGroups: [coordination.k8s.io], resources: [leases],\n\
         resourceNames: [orders], verbs: [get, watch, create]}]}\n\
         ---\n\
         {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding,\n\
         metadata: {name: little, namespace: team}, roleRef: {apiGroup: rbac.authorization.k8s.io,\n\
         kind: Role, name: little},\n\
         subjects: [{kind: ServiceAccount, name: little, namespace: team}]}\n",
    );
    let file = plane.token("team", "little", Duration::from_secs(3600));
    ours.account("little", "team", "little");
    ours.allow_named("little", "team", "leases", &["get", "watch", "create"], &["orders"]);
    (std::fs::read_to_string(file).unwrap(), "little")
}

#[tokio::test]
async fn the_fake_api_server_answers_as_the_real_one() {
    let plane = real_lease::plane();
    plane.kubectl.run(&["create", "namespace", "team"]);
    let ours = KubeServer::start_secure();
    let (real_token, our_token) = accounts(&ours);
    let mut real = Talk::new(plane.kubectl.api.clone());
    let authority = ours.ca_file();
    let mut own = Talk::new(Raw::new(&ours.url(), Some(&authority), TOKEN));
    for (talk, token) in [(&mut real, real_token.as_str()), (&mut own, our_token)] {
        about_leases(talk).await;
        about_nonsense(talk).await;
        about_others(talk).await;
        about_watches(talk).await;
        about_rights(talk, token).await;
    }
    assert_eq!(real.said.len(), own.said.len());
    let mut apart = Vec::new();
    for (real, own) in real.said.iter().zip(&own.said) {
        if real != own {
            apart.push(format!(
                "{}\n  real: {} {}\n  ours: {} {}",
                real.0, real.1, real.2, own.1, own.2
            ));
        }
    }
    assert!(
        apart.is_empty(),
        "{} of {} answers differ:\n{}",
        apart.len(),
        own.said.len(),
        apart.join("\n")
    );
}

//! The stand-in for the API server compared with a real kube-apiserver: the requests that Tenure
//! sends get the same answers, except for values that are generated and for words.

use testkit::kubernetes::{kube_server, raw_client, real_lease};

use std::collections::HashMap;
use std::time::Duration;

use kube_server::{KubeServer, TOKEN};
use raw_client::{LEASES, Raw, version};
use serde_json::{Value, json};

/// The fields with generated values: random, counters, or times.
const GENERATED: [&str; 5] =
    ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"];

/// The requests to one server and its answers.
struct Exchange<'a> {
    raw: Raw,
    /// The stand-in, if this is about it: it serves no DELETE, which Tenure never sends.
    stand_in: Option<&'a KubeServer>,
    answers: Vec<(String, u16, Value)>,
    /// The returned uids, each with its replacement in the recorded answers.
    uids: HashMap<String, String>,
}

impl<'a> Exchange<'a> {
    fn new(raw: Raw, stand_in: Option<&'a KubeServer>) -> Self {
        Self { raw, stand_in, answers: Vec::new(), uids: HashMap::new() }
    }

    /// Records an answer without generated values, and returns it unchanged.
    fn note(&mut self, request: String, (status, answer): (u16, Value)) -> Value {
        if let Some(uid) = answer["metadata"]["uid"].as_str() {
            let number = self.uids.len();
            self.uids.entry(uid.to_owned()).or_insert_with(|| format!("uid-{number}"));
        }
        let plain = if answer["kind"] == "Status" {
            error_as_tenure_reads_it(&answer)
        } else {
            self.without_generated(answer.clone())
        };
        self.answers.push((request, status, plain));
        answer
    }

    fn without_generated(&self, value: Value) -> Value {
        match value {
            Value::Object(fields) => fields
                .into_iter()
                .filter(|(name, _)| !GENERATED.contains(&name.as_str()))
                .map(|(name, it)| (name, self.without_generated(it)))
                .collect(),
            Value::Array(values) => {
                values.into_iter().map(|it| self.without_generated(it)).collect()
            }
            Value::String(text) => {
                let named =
                    self.uids.iter().fold(text, |text, (uid, name)| text.replace(uid, name));
                named.trim_end().into()
            }
            _ => value,
        }
    }

    async fn get(&mut self, path: &str) -> Value {
        let answer = self.raw.get(path).await;
        self.note(format!("GET {path}"), answer)
    }

    /// Records only the names in a list.
    async fn list(&mut self, path: &str) {
        let (status, list) = self.raw.get(path).await;
        let items = list["items"].as_array().into_iter().flatten();
        let names = items.map(|it| it["metadata"]["name"].clone()).collect();
        self.note(format!("GET {path}"), (status, names));
    }

    async fn post(&mut self, path: &str, body: Value) -> Value {
        let answer = self.raw.post(path, body.clone()).await;
        let request = format!("POST {path} {}", self.without_generated(body));
        self.note(request, answer)
    }

    async fn put(&mut self, what: &str, body: &Value) -> Value {
        let answer = self.raw.put(LEASES, body).await;
        self.note(format!("PUT {what}"), answer)
    }

    async fn patch(&mut self, path: &str, body: Value) -> Value {
        let answer = self.raw.patch(path, body.clone()).await;
        let request = format!("PATCH {path} {}", self.without_generated(body));
        self.note(request, answer)
    }

    async fn delete(&self, name: &str) {
        match self.stand_in {
            Some(server) => server.delete("leases", "team", name),
            None => {
                let (status, answer) =
                    self.raw.delete(&format!("{LEASES}/{name}"), Value::Null).await;
                assert_eq!(status, 200, "{answer}");
            }
        }
    }

    /// Records the events of a watch until it ends.
    async fn watch(&mut self, query: &str) {
        let mut lines = self.raw.watch(LEASES, &format!("timeoutSeconds=1&{query}")).await;
        while let Some(event) = lines.next().await {
            // The server sends bookmarks at times of its own choice.
            if event["type"] != "BOOKMARK" {
                self.note("an event".to_owned(), (200, event));
            }
        }
        self.note("the end of a watch".to_owned(), (200, Value::Null));
    }
}

/// Returns the fields of an error that Tenure's client reads. It finds the user in the message of a
/// missing permission; it only shows the messages of other errors.
fn error_as_tenure_reads_it(status: &Value) -> Value {
    let message = if status["reason"] == "Forbidden" { &status["message"] } else { &Value::Null };
    let details = &status["details"];
    json!({"code": status["code"], "reason": status["reason"], "message": message,
           "kind": details["kind"], "name": details["name"]})
}

fn lease(name: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
           "spec": {}})
}

fn with(object: &Value, field: &str, value: Value) -> Value {
    let mut it = object.clone();
    it["metadata"][field] = value;
    it
}

/// Requests for Leases with all permissions.
async fn about_leases(exchange: &mut Exchange<'_>) {
    let orders = format!("{LEASES}/orders");
    exchange.get(&orders).await;
    let made = exchange.post(LEASES, lease("orders")).await;
    exchange.post(LEASES, lease("orders")).await;
    let mut held = made.clone();
    held["spec"] = json!({"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                          "renewTime": "2026-11-20T09:00:00.123456Z"});
    let replaced = exchange.put("for the first version", &held).await;
    exchange.put("for it again", &held).await;
    let same = exchange.put("what is there", &replaced).await;
    assert_eq!(version(&same), version(&replaced), "nothing was changed");
    exchange.put("for another uid", &with(&replaced, "uid", json!("x"))).await;

    exchange.patch(&orders, json!({"metadata": {"annotations": {"a": "1", "b": "2"}}})).await;
    let old = made["metadata"]["resourceVersion"].clone();
    let stale = json!({"metadata": {"resourceVersion": old, "labels": {"a": "1"}}});
    exchange.patch(&orders, stale).await;
    exchange.patch(&orders, json!({"metadata": {"annotations": {"a": null}}})).await;
    exchange.patch(&orders, json!({"metadata": {"uid": "x"}})).await;
    exchange.patch(&format!("{LEASES}/none"), json!({})).await;

    exchange.delete("orders").await;
    exchange.put("of what was deleted", &replaced).await;
    let nameless = with(&replaced, "uid", Value::Null);
    let again = exchange.put("of what was deleted, without its uid", &nameless).await;
    assert_ne!(again["metadata"]["uid"], made["metadata"]["uid"]);
    let late = with(&replaced, "resourceVersion", again["metadata"]["resourceVersion"].clone());
    exchange.put("of the one before", &late).await;
    exchange.post(&format!("{LEASES}?dryRun=All"), lease("tried")).await;
    exchange.get(&format!("{LEASES}/tried")).await;
    exchange.list(LEASES).await;
}

/// Requests for objects other than Leases, and for what is not there.
async fn about_others(exchange: &mut Exchange<'_>) {
    let elsewhere = "/apis/coordination.k8s.io/v1/namespaces/nowhere/leases";
    exchange.post(elsewhere, lease("orders")).await;
    exchange.get(&format!("{elsewhere}/orders")).await;
    exchange.list(elsewhere).await;
    exchange.get("/nothing/here").await;

    let slices = "/apis/discovery.k8s.io/v1/namespaces/team/endpointslices";
    let slice = |name: &str| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
               "metadata": {"name": name}, "addressType": "IPv4",
               "endpoints": [{"addresses": ["10.0.0.7"], "conditions": {"ready": true}}],
               "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]})
    };
    exchange.post(slices, slice("s")).await;
    let put = exchange.raw.put(slices, &slice("none")).await;
    exchange.note("PUT of a slice that is missing".to_owned(), put);
}

/// Watches and selected lists.
async fn about_watches(exchange: &mut Exchange<'_>) {
    let first = exchange.post(LEASES, lease("w-a")).await;
    exchange.post(LEASES, lease("w-b")).await;
    let from = version(&first);
    let role = |role: &str| json!({"metadata": {"labels": {"role": role, "app": "web"}}});
    exchange.patch(&format!("{LEASES}/w-a"), role("active")).await;
    exchange.patch(&format!("{LEASES}/w-b"), json!({"spec": {"holderIdentity": "b"}})).await;
    for selector in ["role%3Dactive", "role%3Dactive,app%3Dweb", "role%3Dpassive"] {
        exchange.list(&format!("{LEASES}?labelSelector={selector}")).await;
    }
    exchange.patch(&format!("{LEASES}/w-a"), role("passive")).await;
    exchange.delete("w-a").await;
    exchange.watch(&format!("resourceVersion={from}&fieldSelector=metadata.name%3Dw-a")).await;
    exchange.watch("fieldSelector=metadata.name%3Dw-b").await;
}

/// Requests with few permissions or none.
async fn about_rights(exchange: &mut Exchange<'_>, account: &str) {
    let all = exchange.raw.clone();
    exchange.raw = all.with_token(Some(account));
    let orders = format!("{LEASES}/orders");
    exchange.get(&orders).await;
    exchange.patch(&orders, json!({})).await;
    exchange.post(LEASES, lease("orders")).await;
    exchange.put("without the right", &lease("orders")).await;
    exchange.get(LEASES).await;
    exchange.watch("fieldSelector=metadata.name%3Dorders").await;
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for verb in ["get", "create", "update"] {
        let question = json!({"spec": {"resourceAttributes": {"namespace": "team", "verb": verb,
                           "group": "coordination.k8s.io", "resource": "leases"}}});
        let (status, answer) = exchange.raw.post(review, question).await;
        exchange.note(format!("may {verb}"), (status, answer["status"]["allowed"].clone()));
    }
    for token in [Some("of-nobody"), None] {
        exchange.raw = all.with_token(token);
        exchange.get(&orders).await;
    }
}

/// Creates an account on both servers that may only read and watch Leases, and returns the tokens
/// for the real server and the stand-in.
fn accounts(stand_in: &KubeServer) -> (String, &'static str) {
    let plane = real_lease::plane();
    plane.kubectl.apply(
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: little, namespace: team}}\n\
         ---\n\
         {apiVersion: rbac.authorization.k8s.io/v1, kind: Role,\n\
         metadata: {name: little, namespace: team},\n\
         rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, watch]}]}\n\
         ---\n\
         {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding,\n\
         metadata: {name: little, namespace: team}, roleRef: {apiGroup: rbac.authorization.k8s.io,\n\
         kind: Role, name: little},\n\
         subjects: [{kind: ServiceAccount, name: little, namespace: team}]}\n",
    );
    let file = plane.token("team", "little", Duration::from_secs(3600));
    stand_in.account("little", "team", "little");
    stand_in.allow("little", "team", "leases", &["get", "watch"]);
    (std::fs::read_to_string(file).unwrap(), "little")
}

#[tokio::test]
async fn the_stand_in_for_the_api_server_answers_as_the_real_one() {
    let plane = real_lease::plane();
    plane.kubectl.run(&["create", "namespace", "team"]);
    let server = KubeServer::start_secure();
    let (real_token, stand_in_token) = accounts(&server);
    let mut real = Exchange::new(plane.kubectl.api.clone(), None);
    let authority = server.ca_file();
    let administrator = Raw::new(&server.url(), Some(&authority), TOKEN);
    let mut stand_in = Exchange::new(administrator, Some(&server));
    for (exchange, token) in [(&mut real, real_token.as_str()), (&mut stand_in, stand_in_token)] {
        about_leases(exchange).await;
        about_others(exchange).await;
        about_watches(exchange).await;
        about_rights(exchange, token).await;
    }
    assert_eq!(real.answers.len(), stand_in.answers.len());
    let pairs = real.answers.iter().zip(&stand_in.answers).filter(|(real, it)| real != it);
    let different: Vec<String> = pairs
        .map(|((request, status, answer), (_, stand_in_status, stand_in_answer))| {
            format!(
                "{request}\n  real:     {status} {answer}\n  stand-in: {stand_in_status} \
                 {stand_in_answer}"
            )
        })
        .collect();
    assert!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.join("\n"));
}

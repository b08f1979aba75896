//! The doctor's examination of a cluster, by the store and by the command: it finds nothing wrong
//! in a healthy cluster, and reports each problem with its remedy.

use testkit::kubernetes::{kube_server, lease_lock};
use testkit::processes::process;

use std::time::Duration;

use kube_server::answers::Answer;
use kube_server::{Fault, KubeServer, TOKEN, Tls};
use lease_lock::{A, client_go, lead, lease, open, settings, soon};
use process::{Ran, run_verb};
use serde_json::json;
use tenure::store::kubernetes::Kubernetes;
use tenure::store::{Finding, LeaseAdmin, LeaseStore, MOST_LISTED, Presence, Verdict};

fn lines(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|it| {
        let remedy = it.remedy.as_deref().unwrap_or_default();
        format!("{}: {:?} {} -> {remedy}", it.subject, it.verdict, it.detail)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Asserts that all is well, except for the time of requests on a busy machine.
fn assert_well(findings: &[Finding]) {
    let others = |it: &&Finding| it.subject != "timings";
    let well = findings.iter().filter(others).all(|it| it.verdict == Verdict::Passed);
    assert!(well, "{}", lines(findings));
}

fn worst(findings: &[Finding], subject: &str) -> Verdict {
    let found = findings.iter().find(|it| it.subject == subject);
    found.unwrap_or_else(|| panic!("nothing of {subject}: {}", lines(findings))).verdict
}

/// Runs the doctor on a server.
fn doctor(server: &KubeServer, store: &str, more: &[&str]) -> Ran {
    let given = server.arguments();
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    run_verb(&[&["doctor", "--store", store], &*given, more].concat(), &[])
}

#[tokio::test]
async fn a_healthy_lease_has_no_findings() {
    for server in [KubeServer::start(), KubeServer::start_secure()] {
        let store = open(&server);
        let (bid, term) = lead(&store, A).await;
        let before = lease(&server);
        let findings = soon(store.examine()).await;
        assert_well(&findings);
        assert!(
            lines(&findings).contains(&format!("team/orders: term {term}")),
            "{}",
            lines(&findings)
        );
        assert_eq!(lease(&server), before, "it was left alone");
        assert_eq!(server.objects("leases", "team").len(), 1, "nothing was made");
        soon(store.renew(&bid)).await.unwrap();
    }
}

#[tokio::test]
async fn each_missing_right_is_named_with_the_command_that_gives_it() {
    let server = KubeServer::start();
    server.account("t", "team", "app");
    server.write_token("t");
    let store = open(&server);
    for given in [&[][..], &["get"], &["get", "create"], &["get", "create", "update"]] {
        server.forbid("t");
        server.allow("t", "team", "leases", given);
        let findings = soon(store.examine()).await;
        let text = lines(&findings);
        let verdict = worst(&findings, "permissions");
        // Without a watch standbys poll, which is slower but not wrong.
        let expected = if given.len() == 3 { Verdict::Warning } else { Verdict::Failed };
        assert_eq!(verdict, expected, "{given:?}: {text}");
        for verb in ["get", "create", "update", "watch"] {
            let named = format!("not allowed on leases in team: {verb}");
            let missing = text.split("not allowed on leases in team: ").nth(1).unwrap();
            let missing = missing.split(" -> ").next().unwrap();
            assert_eq!(missing.contains(verb), !given.contains(&verb), "{named}: {text}");
        }
        assert!(text.contains("kubectl create role"), "{text}");
    }
    server.allow("t", "team", "leases", &["watch"]);
    let findings = soon(store.examine()).await;
    assert_eq!(worst(&findings, "permissions"), Verdict::Passed, "{}", lines(&findings));
}

#[test]
fn doctor_reports_problems_and_exits_with_their_code() {
    let server = KubeServer::start_secure();
    let lease = "kubernetes:team/orders";
    let missing = doctor(&server, lease, &[]);
    assert_eq!(missing.code, 0, "{}{}", missing.out, missing.err);
    assert!(missing.out.contains("--create"), "{}", missing.out);
    let wrong = |store: &str, words: &[&str]| {
        let ran = doctor(&server, store, &[]);
        assert_eq!(ran.code, 1, "{words:?}: {}{}", ran.out, ran.err);
        for it in words {
            assert!(ran.out.contains(it), "{it}: {}", ran.out);
        }
        assert!(!ran.out.contains(TOKEN) && !ran.err.contains(TOKEN));
    };
    wrong("kubernetes:shop/orders", &["namespace", "shop does not exist"]);
    let right = std::fs::read(server.ca_file()).unwrap();
    std::fs::write(server.ca_file(), Tls::new("127.0.0.1").authority).unwrap();
    wrong(lease, &["certificate", "--kube-ca-file"]);
    std::fs::write(server.ca_file(), right).unwrap();
    server.write_token("of-another-cluster");
    wrong(lease, &["token", "--kube-token-file"]);
    server.write_token("");
    wrong(lease, &["token", &server.token_file().display().to_string()]);
    server.account("t", "team", "app");
    server.write_token("t");
    wrong(lease, &["permissions", "get, create, update, watch", "kubectl create rolebinding"]);
    server.write_token(TOKEN);
    server.impose("any", Fault::Answer(Answer::etcd_timed_out()));
    wrong(lease, &["etcdserver: request timed out"]);
    server.heal();
    server.put("leases", "team", "orders", json!({"spec": {"holderIdentity": "x"}}));
    wrong(lease, &["leaseDurationSeconds"]);
    server.put(
        "leases",
        "team",
        "orders",
        json!({"metadata": {"annotations": {"tenure.dev/term": "seven"}}}),
    );
    wrong(lease, &["tenure.dev/term"]);
    server.delete("leases", "team", "orders");
    server.stop();
    wrong(lease, &["API server", &server.address.to_string()]);
    server.resume();
    let made = doctor(&server, lease, &["--create", "--yes"]);
    assert_eq!(made.code, 0, "{}{}", made.out, made.err);
    let stands = server.object("leases", "team", "orders").unwrap();
    assert!(stands["metadata"]["annotations"]["tenure.dev/term"].is_string(), "{stands}");
    let again = doctor(&server, lease, &["--create", "--yes"]);
    assert_eq!(again.code, 0, "{}", again.out);
    assert_eq!(server.object("leases", "team", "orders").unwrap(), stands, "and never again");
}

#[tokio::test]
async fn a_skewed_clock_is_reported_as_a_warning() {
    let server = KubeServer::start();
    let store = open(&server);
    lead(&store, A).await;
    for seconds in [3600, -3600] {
        server.skew(seconds);
        let findings = soon(store.examine()).await;
        assert_eq!(worst(&findings, "clock skew"), Verdict::Warning, "{}", lines(&findings));
    }
}

#[tokio::test]
async fn a_slow_server_is_reported_with_its_latency() {
    let server = KubeServer::start();
    let store = open(&server);
    lead(&store, A).await;
    server.impose("get leases", Fault::Late(Duration::from_millis(1_200)));
    let findings = soon(store.examine()).await;
    assert_eq!(worst(&findings, "timings"), Verdict::Failed, "{}", lines(&findings));
}

#[test]
fn an_endpoint_that_does_not_lead_is_named_with_its_remedy() {
    let server = KubeServer::start();
    let pod = |name: &str| {
        server.put("pods", "team", name, json!({"spec": {"containers": []}}));
        server.object("pods", "team", name).unwrap()["metadata"]["uid"].clone()
    };
    let uid = pod("web-1");
    server.put("services", "team", "web", json!({"spec": {"ports": [{"port": 80}]}}));
    let slice = |manager: &str, address: &str, pod: &str, uid: &serde_json::Value| {
        json!({
            "metadata": {"labels": {
                "kubernetes.io/service-name": "web",
                "endpointslice.kubernetes.io/managed-by": manager,
            }},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}, "targetRef":
                {"kind": "Pod", "namespace": "team", "name": pod, "uid": uid}}],
        })
    };
    let own = |pod: &str, uid| {
        server.put(
            "endpointslices",
            "team",
            "web.orders",
            slice("tenure.dev", "10.0.0.1", pod, uid),
        );
    };
    let route = || {
        let arguments = server.arguments();
        let mut all = vec!["doctor", "--store=kubernetes:team/orders", "--election=orders"];
        all.extend(["--kube-route=endpointslice", "--kube-service=web"]);
        all.extend(arguments.iter().map(String::as_str));
        let variables = [("POD_NAME", "web-1"), ("POD_NAMESPACE", "team"), ("POD_IP", "10.0.0.1")];
        run_verb(&all, &variables)
    };
    own("web-1", &uid);
    let well = route();
    assert_eq!(well.code, 0, "{}{}", well.out, well.err);
    assert!(well.out.contains("web.orders routes to 10.0.0.1"), "{}", well.out);
    let named = |words: &[&str]| {
        let ran = route();
        assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
        words.iter().for_each(|it| assert!(ran.out.contains(it), "{it}: {}", ran.out));
    };
    let old = slice("endpointslice-controller.k8s.io", "10.0.0.77", "web-9", &uid);
    server.put("endpointslices", "team", "web-x7k2p", old);
    named(&["web-x7k2p", "10.0.0.77", "kubectl -n team delete endpointslice web-x7k2p"]);
    let mirrored = slice("endpointslicemirroring-controller.k8s.io", "10.0.0.77", "web-9", &uid);
    server.put("endpointslices", "team", "web-x7k2p", mirrored);
    named(&["web-x7k2p", "10.0.0.77", "kubectl -n team delete endpoints web"]);
    server.delete("endpointslices", "team", "web-x7k2p");
    own("web-8", &uid);
    named(&["web.orders", "10.0.0.1", "web-8", "kubectl -n team delete endpointslice web.orders"]);
    let replaced = json!("11111111-2222-4333-8444-555555555555");
    own("web-1", &replaced);
    named(&["web.orders", "10.0.0.1", "web-1"]);
}

#[tokio::test]
async fn a_misspelt_lease_is_found_beside_the_others_of_tenure() {
    let server = KubeServer::start();
    let open = |name: &str| Kubernetes::open(&settings(&server, "team", name)).unwrap();
    server.put("leases", "team", "a-controller", client_go("web-1", 15, 3));
    for number in (0..=MOST_LISTED).rev() {
        let store = open(&format!("e{number:02}"));
        soon(store.create(1)).await.unwrap();
        assert_eq!(soon(store.presence()).await.unwrap(), Presence::Exists);
    }
    let found = soon(open("oders").presence()).await.unwrap();
    let Presence::Missing { missing, others: Some(others) } = found else { panic!("{found:?}") };
    assert!(missing.contains("no Lease \"oders\" in the namespace team"), "{missing}");
    let listed: Vec<_> = (0..MOST_LISTED).map(|it| format!("e{it:02}")).collect();
    assert_eq!(others, listed, "sorted, and no more than that");
}

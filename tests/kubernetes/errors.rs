//! Each kind of problem with a cluster, with a real sidecar: it stays up and passive, reports the
//! problem in its status, log and metrics, and leads once it is fixed.

use testkit::kubernetes::kube_server;
use testkit::processes::process;

use std::time::Duration;

use kube_server::answers::Answer;
use kube_server::{Fault, KubeServer, TOKEN, Tls};
use process::{Process, until};
use serde_json::json;
use tempfile::TempDir;

/// The timeout for any expected change, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A sidecar on `kubernetes:STORE`.
struct Sidecar {
    candidate: Process,
    _directory: TempDir,
}

fn start(server: &KubeServer, store: &str, variables: &[(&str, &str)]) -> Sidecar {
    let directory = tempfile::tempdir().unwrap();
    let mut arguments = vec!["--store".to_owned(), format!("kubernetes:{store}")];
    arguments.extend(server.arguments());
    let timings = [
        ("--lease-duration", "4s"),
        ("--renew-deadline", "3s"),
        ("--retry-period", "500ms"),
        ("--request-timeout", "900ms"),
    ];
    arguments.extend(timings.into_iter().flat_map(|(name, it)| [name.to_owned(), it.to_owned()]));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let candidate = Process::run("web-1", &arguments, variables);
    Sidecar { candidate, _directory: directory }
}

impl Sidecar {
    /// Waits for words in the store's error, and asserts that the sidecar is up, passive, and
    /// reports them everywhere.
    fn reports(&self, words: &[&str], outcome: &str) {
        let it = &self.candidate;
        let error = until(PATIENCE, &format!("its status has {words:?}"), || {
            let error = it.status()?["store"]["last_error"].as_str()?.to_owned();
            words.iter().all(|it| error.contains(it)).then_some(error)
        });
        assert!(!error.contains(TOKEN) && !it.log().contains(TOKEN));
        let (code, _) = it.get("/livez").unwrap();
        assert_eq!(code, 200, "trouble with a store is no reason to be restarted");
        until(PATIENCE, "it is passive", || (!it.is_leader()).then_some(()));
        until(PATIENCE, "its log has it too", || {
            words.iter().all(|word| it.log().contains(word)).then_some(())
        });
        until(PATIENCE, &format!("its metrics count {outcome}"), || {
            let (_, text) = it.get("/metrics")?;
            let counted = |line: &&str| {
                line.starts_with("tenure_store_requests_total")
                    && line.contains(&format!("outcome=\"{outcome}\""))
            };
            let counts = text.lines().filter(counted);
            counts.filter_map(|it| it.rsplit(' ').next()?.parse::<u64>().ok()).find(|it| *it > 0)
        });
    }

    fn leads(&self) {
        until(PATIENCE, "it leads", || self.candidate.is_leader().then_some(()));
    }
}

#[test]
fn without_an_rbac_rule_it_reports_the_rule_and_leads_once_it_is_granted() {
    let server = KubeServer::start();
    server.account("t", "team", "app");
    server.write_token("t");
    let sidecar = start(&server, "team/orders", &[]);
    sidecar.reports(
        &["system:serviceaccount:team:app", "get", "leases", "team", "kubectl create role"],
        "auth",
    );
    server.allow("t", "team", "leases", &["get"]);
    sidecar.reports(&["cannot create leases"], "auth");
    server.allow("t", "team", "leases", &["create", "update"]);
    sidecar.leads();
    let warned = |it: &Sidecar| it.candidate.log().contains("failed to watch the Lease");
    until(PATIENCE, "it reports that it cannot watch", || warned(&sidecar).then_some(()));
    server.forbid("t");
    sidecar.reports(&["kubectl create role"], "auth");
    server.allow("t", "team", "leases", &["get", "create", "update", "watch"]);
    sidecar.leads();
}

#[test]
fn a_missing_namespace_is_reported_and_it_leads_once_that_is_created() {
    let server = KubeServer::start();
    let sidecar = start(&server, "shop/orders", &[]);
    sidecar.reports(&["the namespace shop does not exist"], "settings");
    server.namespace("shop");
    sidecar.leads();
}

#[test]
fn a_token_that_is_rotated_costs_no_term() {
    let server = KubeServer::start();
    let sidecar = start(&server, "team/orders", &[]);
    sidecar.leads();
    let term = sidecar.candidate.status().unwrap()["term"].clone();
    let mut old = TOKEN.to_owned();
    for number in 0..3 {
        let next = format!("token-{number}");
        server.account(&next, "team", "app");
        server.allow(&next, "team", "leases", &["get", "create", "update", "watch"]);
        server.write_token(&next);
        server.expire(&old);
        old = next;
        until(PATIENCE, "it renews with the new one", || {
            let log = server.take_log();
            log.iter().any(|it| it.op == "update leases" && it.status == 200).then_some(())
        });
    }
    assert_eq!(sidecar.candidate.status().unwrap()["term"], term);
}

#[test]
fn an_untrusted_authority_is_reported_and_gets_no_token() {
    let server = KubeServer::start_secure();
    let right = std::fs::read(server.ca_file()).unwrap();
    std::fs::write(server.ca_file(), Tls::new("127.0.0.1").authority).unwrap();
    let sidecar = start(&server, "team/orders", &[]);
    sidecar.reports(&["certificate"], "network");
    assert!(server.take_log().is_empty());
    std::fs::write(server.ca_file(), right).unwrap();
    sidecar.leads();
}

#[test]
fn it_runs_without_its_api_server_and_leads_once_that_is_reachable() {
    let server = KubeServer::start();
    server.stop();
    let sidecar = start(&server, "team/orders", &[]);
    sidecar.reports(&[&server.address.to_string()], "network");
    assert_eq!(sidecar.candidate.get("/readyz").unwrap().0, 503, "its store has never answered");
    server.resume();
    sidecar.leads();
    server.stop();
    sidecar.reports(&[&server.address.to_string()], "network");
    assert_eq!(sidecar.candidate.get("/readyz").unwrap().0, 200, "an outage is for alerts");
    server.resume();
    sidecar.leads();
}

#[test]
fn transient_errors_cost_no_term_and_permanent_ones_are_reported() {
    let server = KubeServer::start();
    let sidecar = start(&server, "team/orders", &[]);
    sidecar.leads();
    let term = sidecar.candidate.status().unwrap()["term"].clone();
    for fault in [
        Fault::Answer(Answer::throttled()),
        Fault::Answer(Answer::etcd_timed_out()),
        Fault::DropAfter,
        Fault::DropBefore,
    ] {
        server.inject("update leases", [fault]);
        server.take_log();
        until(PATIENCE, "it has renewed again", || {
            let log = server.take_log();
            log.iter().any(|it| it.op == "update leases" && it.status == 200).then_some(())
        });
    }
    assert_eq!(sidecar.candidate.status().unwrap()["term"], term);
    for (fault, words, outcome) in [
        (Fault::Answer(Answer::throttled()), "throttles requests", "throttled"),
        (Fault::Answer(Answer::etcd_timed_out()), "etcdserver: request timed out", "unavailable"),
        (Fault::Hang, "900ms", "timeout"),
        (Fault::Html, "", "settings"),
    ] {
        server.impose("any", fault);
        sidecar.reports(&[words], outcome);
        server.heal();
        sidecar.leads();
    }
}

#[test]
fn a_foreign_lease_is_reported_and_left_alone() {
    let server = KubeServer::start();
    let theirs = json!({"metadata": {"annotations": {"tenure.dev/term": "seven"}}, "spec": {}});
    server.put("leases", "team", "orders", theirs);
    let before = server.object("leases", "team", "orders");
    let sidecar = start(&server, "team/orders", &[]);
    sidecar.reports(&["tenure.dev/term"], "foreign");
    assert_eq!(server.object("leases", "team", "orders"), before);
    server.put("leases", "team", "orders", json!({"spec": {}}));
    sidecar.leads();
    server.put("leases", "team", "orders", json!({"spec": {"holderIdentity": "x"}}));
    sidecar.reports(&["leaseDurationSeconds"], "foreign");
    server.put("leases", "team", "orders", json!({"spec": {}}));
    sidecar.leads();
}

#[test]
fn no_proxy_of_the_environment_is_followed() {
    let server = KubeServer::start_secure();
    let dead = "http://127.0.0.1:9";
    let names =
        ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy"];
    let variables: Vec<_> = names.into_iter().map(|it| (it, dead)).collect();
    start(&server, "team/orders", &variables).leads();
}

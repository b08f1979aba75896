//! Records that no candidate writes, in each store that others can write to: names with controls or
//! without an end, and a lease that does not end. Test names contain the number of the fault.

use testkit::azure::{account, blob_server};
use testkit::kubernetes::kube_server;
use testkit::processes::process;

use account::Account;
use kube_server::KubeServer;
use process::{BOUND, Process, run_verb, until};
use serde_json::json;
use tenure::lease::text::is_printable;

/// A name that would end an environment variable, steer a terminal and turn its text around.
const POISON: &str = "web\0\u{9b}31m\u{202e}";

const NONCE: &str = "0000000000000000000000000000002a";

/// The lease id of the holder.
const ITS_LEASE: &str = "33333333-2222-4333-8444-555555555555";

/// Returns the poison, so long that it would fill a log.
fn long(characters: usize) -> String {
    format!("{POISON}{}", "x".repeat(characters))
}

/// Starts a standby on a poisoned record, and asserts that its hook runs, that nothing it shows is
/// raw or endless, and that `doctor` names the command that ends the lease, which it does. `has_holder` is
/// whether the record may be the holder's.
fn survives(store: &[&str], variables: &[(&str, &str)], has_holder: bool) {
    let directory = tempfile::tempdir().unwrap();
    let (script, seen) = (directory.path().join("hook"), directory.path().join("seen"));
    let text = "printf '%s at %s\\n' \"$TENURE_HOLDER\" \"$TENURE_HOLDER_ADDRESS\" >> ";
    std::fs::write(&script, format!("{text}{}\n", seen.display())).unwrap();
    let hook = format!("/bin/sh {}", script.display());
    let hooks = ["--election=orders", "--on-leader-change", &hook, "--on-active", &hook];
    let standby = Process::run("web-1", &[store, &hooks[..]].concat(), variables);
    let hook_ran = |words: &str| {
        let ran = || std::fs::read_to_string(&seen).ok().filter(|it| it.contains(words));
        until(BOUND, &format!("the hook ran with {words:?}"), ran);
    };
    if has_holder {
        hook_ran("(invalid name) at (invalid name)\n");
    }
    for alarm in ["not 1 to 128 printable characters", "`tenure break --now`"] {
        until(BOUND, alarm, || standby.log().contains(alarm).then_some(()));
    }
    let holder = &standby.status().unwrap()["holder"];
    assert_eq!(holder["identity"].as_str(), has_holder.then_some("(invalid name)"), "{holder}");
    assert_eq!(standby.state().as_deref(), Some("standby"));

    let options = [store, &["--election=orders"]].concat();
    let doctor = run_verb(&[&["doctor"][..], &options].concat(), variables);
    assert_eq!(doctor.code, 1, "{}", doctor.out);
    assert!(doctor.out.contains("free it with `tenure break --now`"), "{}", doctor.out);
    let broken = run_verb(&[&["break", "--now", "--yes"][..], &options].concat(), variables);
    assert_eq!(broken.code, 0, "{}", broken.err);
    until(BOUND, "the standby leads", || standby.is_leader().then_some(()));
    hook_ran("web-1 at");
    assert_eq!(standby.status().unwrap()["term"], 42);

    let page = standby.get("/").unwrap().1;
    for text in [&standby.log(), &doctor.out, &broken.out, &broken.err, &page] {
        assert!(text.chars().all(|it| is_printable(it) || it == '\n'), "{text:?}");
        assert!(text.lines().all(|it| it.len() < 10_000), "a line without an end");
    }
}

#[test]
fn fault_40_a_poisoned_record_of_a_file_is_reported_and_can_be_ended() {
    let directory = tempfile::tempdir().unwrap();
    let record = json!({
        "tenure": 1, "revision": 7, "term": 41, "nonce": NONCE,
        "holder": {"identity": long(20_000), "instance": long(200), "address": POISON},
        "lease": {
            "id": ITS_LEASE, "boot_id": "another", "from_boottime_ns": 0,
            "until_boottime_ns": u64::MAX,
        },
    });
    std::fs::write(directory.path().join("orders.json"), record.to_string()).unwrap();
    survives(&["--store", &format!("file://{}", directory.path().display())], &[], true);
}

#[test]
fn fault_40_a_poisoned_lease_of_a_cluster_is_reported_and_can_be_ended() {
    let server = KubeServer::start();
    let (identity, instance) = (long(200_000), "1");
    let lease = json!({
        "metadata": {"annotations": {
            "tenure.dev/claim": NONCE, "tenure.dev/nonce": NONCE, "tenure.dev/term": "41",
            "tenure.dev/holder": identity, "tenure.dev/instance": instance,
            "tenure.dev/address": POISON,
        }},
        "spec": {
            "holderIdentity": format!("{identity}_{instance}"),
            "leaseDurationSeconds": i32::MAX, "leaseTransitions": 3,
            "acquireTime": "9999-12-31T23:59:58-01:00", "renewTime": "9999-12-31T23:59:58-01:00",
        },
    });
    server.put("leases", "team", "orders", lease);
    let given = server.arguments();
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    survives(&[&["--store", "kubernetes:team/orders"][..], &given].concat(), &[], true);
}

#[test]
fn fault_40_a_poisoned_blob_is_reported_and_can_be_ended() {
    let account = Account::by_the_tables();
    drop(account.cluster(&[]));
    let poison = "web%00%C2%9B31m%E2%80%AE";
    let long = format!("{poison}{}", "x".repeat(3_000));
    let id = ("x-ms-lease-id", ITS_LEASE);
    account.by_hand(async |raw| {
        let endless = [("x-ms-proposed-lease-id", ITS_LEASE), ("x-ms-lease-duration", "-1")];
        assert_eq!(raw.lease("acquire", &endless).await.status, 201);
        let record = [
            id,
            ("x-ms-meta-tenure_term", "41"),
            ("x-ms-meta-tenure_nonce", NONCE),
            ("x-ms-meta-tenure_identity", &long),
            ("x-ms-meta-tenure_address", poison),
        ];
        assert_eq!(raw.blob("PUT", "comp=metadata", &record).await.status, 200);
    });
    let settings = account.tables().settings("locks", "orders");
    let (store, endpoint) =
        (format!("azure://{}/{}", settings.account, settings.container), settings.endpoint);
    survives(
        &["--store", &store, "--azure-endpoint", endpoint.as_str()],
        &[("AZURE_STORAGE_KEY", blob_server::KEY)],
        false,
    );
}

#[test]
fn a_lease_of_another_tool_without_an_end_has_no_holder_and_break_says_how_to_free_it() {
    let account = Account::by_the_tables();
    drop(account.cluster(&[]));
    account.by_hand(async |raw| {
        let endless = [("x-ms-proposed-lease-id", ITS_LEASE), ("x-ms-lease-duration", "-1")];
        assert_eq!(raw.lease("acquire", &endless).await.status, 201);
        // The record of the last leader.
        let record = [
            ("x-ms-lease-id", ITS_LEASE),
            ("x-ms-meta-tenure_term", "41"),
            ("x-ms-meta-tenure_nonce", NONCE),
            ("x-ms-meta-tenure_identity", "web-1"),
        ];
        assert_eq!(raw.blob("PUT", "comp=metadata", &record).await.status, 200);
    });
    let settings = account.tables().settings("locks", "orders");
    let store = format!("azure://{}/{}", settings.account, settings.container);
    let given =
        ["--election", "orders", "--store", &store, "--azure-endpoint", settings.endpoint.as_str()];
    let variables = [("AZURE_STORAGE_KEY", blob_server::KEY)];
    let candidate = Process::run("c0", &given, &variables);
    let status = until(BOUND, "it has seen the lease", || {
        candidate.status().filter(|it| it["held_without_end"] == true)
    });
    assert!(status["holder"].is_null() && status["last_holder"].is_null(), "{status}");
    let error = status["store"]["last_error"].as_str().unwrap();
    assert!(error.contains("another tool") && error.contains("`tenure break --now`"), "{error}");

    let bare = run_verb(&[&["break", "--yes"][..], &given].concat(), &variables);
    assert_eq!(bare.code, 1, "{}{}", bare.out, bare.err);
    assert!(bare.err.contains("another tool") && bare.err.contains("--now"), "{}", bare.err);
    let broken = run_verb(&[&["break", "--now", "--yes"][..], &given].concat(), &variables);
    assert_eq!(broken.code, 0, "{}{}", broken.out, broken.err);
    assert!(!broken.out.contains("web-1") && !broken.err.contains("web-1"), "{}", broken.out);
    until(BOUND, "the candidate leads", || candidate.is_leader().then_some(()));
}

//! Secrets in the log: the trace-level log of a full run on Azurite contains none.

use testkit::azure::account::Account;
use testkit::azure::azurite;
use testkit::azure::blob_server::{self, Proof};
use testkit::processes::process;

use std::time::Duration;

use azurite::KEY;
use blob_server::BlobServer;
use process::{Process, until};
use rustix::process::Signal;

/// Texts that requests with secrets contain.
const TELLTALES: [&str; 6] =
    ["sig=", "sharedkey ", "authorization", "bearer ", "x-ms-lease-id", "x-ms-proposed-lease-id"];

#[tokio::test]
async fn a_trace_level_log_shows_no_key_no_signature_and_no_lease_id() {
    let azurite = azurite::Azurite::start().await;
    let endpoint = azurite.endpoint.to_string();
    let connection_string = format!(
        "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={KEY};\
         BlobEndpoint={endpoint};"
    );
    // Each crate by name too: a named target overrides a general level in a filter.
    let level = "trace,azure_core=trace,typespec_client_core=trace,azure_core::http=trace,\
                 typespec_client_core::http=trace,reqwest=trace,hyper=trace,hyper_util=trace";
    let arguments = [
        "--store",
        "azure://devstoreaccount1/secrets",
        "--azure-endpoint",
        &endpoint,
        "--log-level",
        level,
    ];
    let created = std::process::Command::new(env!("CARGO_BIN_EXE_tenure"))
        .args(["doctor", "--create", "--yes", "--log-level", level])
        .args(&arguments[..4])
        .env("AZURE_STORAGE_CONNECTION_STRING", &connection_string)
        .output()
        .unwrap();
    let line = format!(
        "{}{}",
        String::from_utf8_lossy(&created.stdout),
        String::from_utf8_lossy(&created.stderr)
    );
    assert!(created.status.success(), "{line}");

    let variables = [("AZURE_STORAGE_CONNECTION_STRING", connection_string.as_str())];
    let mut leader = Process::run("leader", &arguments, &variables);
    until(Duration::from_secs(30), "it leads", || leader.is_leader().then_some(()));
    let standby = Process::run("standby", &arguments, &variables);
    until(Duration::from_secs(30), "the other stands by", || {
        (standby.state()? == "standby").then_some(())
    });
    // A renewal, a release, a handover.
    let renewed = || leader.log().matches("\"renew\"").count() >= 2;
    until(Duration::from_secs(30), "it renews", || renewed().then_some(()));
    leader.signal(Signal::TERM);
    assert!(leader.wait(Duration::from_secs(10)).success());
    until(Duration::from_secs(30), "the other leads", || standby.is_leader().then_some(()));

    for log in [leader.log(), standby.log(), line] {
        let log = log.to_lowercase();
        assert!(!log.contains(&KEY.to_lowercase()), "the account's key");
        for telltale in TELLTALES {
            let line = log.lines().find(|line| line.contains(telltale));
            assert!(line.is_none(), "{telltale}: {line:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_that_is_about_to_expire_is_in_the_metrics_and_a_warning() {
    let server = BlobServer::start_live().await;
    server.require(Proof::Sas("SECRET".to_owned()));
    let end = tenure::clock::now().date() + Duration::from_secs(30 * 60);
    let (end, unix) = (end.date(), end.replace_nanosecond(0).unwrap());
    let time = unix.time();
    let shown = format!("{end}T{:02}:{:02}:{:02}Z", time.hour(), time.minute(), time.second());
    let sas = format!("sv=2023-11-03&se={shown}&sig=SECRET");
    let arguments =
        ["--store", "azure://devstoreaccount1/locks", "--azure-endpoint", server.endpoint.as_str()];
    let candidate = Process::run("c0", &arguments, &[("AZURE_STORAGE_SAS_TOKEN", &sas)]);
    let line = until(Duration::from_secs(30), "the warning", || {
        candidate
            .log()
            .lines()
            .find(|it| it.contains("the credential for the store expires"))
            .map(str::to_owned)
    });
    assert!(line.contains("WARN") && line.contains(&shown) && !line.contains("SECRET"), "{line}");
    let (_, metrics) = candidate.get("/metrics").unwrap();
    let metric = metrics
        .lines()
        .find(|it| it.starts_with("tenure_store_credential_expiry_timestamp_seconds{"))
        .and_then(|it| it.rsplit(' ').next()?.parse::<f64>().ok());
    assert_eq!(metric, Some(unix.unix_timestamp() as f64));
}

#[tokio::test]
async fn fault_39_a_secret_file_that_turns_into_a_fifo_or_a_gibibyte_stops_no_renewal() {
    let azurite = azurite::Azurite::start().await;
    let endpoint = azurite.endpoint.to_string();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, KEY).unwrap();
    let arguments = ["--store", "azure://devstoreaccount1/files", "--azure-endpoint", &endpoint];
    let variables = [("AZURE_STORAGE_KEY_FILE", file.to_str().unwrap())];
    // A blob that is missing would have the first leader wait for a minute.
    let create = ["doctor", "--create", "--yes"];
    let created = process::run_verb(&[&create[..], &arguments[..]].concat(), &variables);
    assert_eq!(created.code, 0, "{}{}", created.out, created.err);
    let leader = Process::run("leader", &arguments, &variables);
    until(Duration::from_secs(30), "it leads", || leader.is_leader().then_some(()));
    let term = leader.status().unwrap()["term"].clone();
    let threads = || std::fs::read_dir(format!("/proc/{}/task", leader.id())).unwrap().count();
    let before = threads();
    let replace = |make: &dyn Fn(&std::path::Path)| {
        let aside = directory.path().join("aside");
        make(&aside);
        std::fs::rename(&aside, &file).unwrap();
    };
    replace(&|path| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success())
    });
    let logs = |words: &str| {
        until(Duration::from_secs(30), words, || leader.log().contains(words).then_some(()));
    };
    logs("is not a regular file");
    replace(&|path| std::fs::File::create(path).unwrap().set_len(1 << 30).unwrap());
    logs("is larger than 64 KiB");
    let log = leader.log();
    assert!(log.contains("AZURE_STORAGE_KEY_FILE"), "the variable is named: {log}");
    assert!(threads() <= before + 1, "{} threads instead of {before}", threads());
    until(Duration::from_secs(30), "it renews after both", || {
        let status = leader.status()?;
        let renewed = status["store"]["last_success_ms_ago"].as_u64()? < 2_000;
        (renewed && status["term"] == term && leader.is_leader()).then_some(())
    });
}

#[test]
fn fault_52_a_secret_file_of_another_account_or_endpoint_moves_nobody_to_another_lock() {
    let (account, other) = (Account::by_the_tables(), Account::by_the_tables());
    for it in [&account, &other] {
        drop(it.cluster(&[]));
        it.tables().take_log();
    }
    let settings = account.tables().settings("locks", "orders");
    let [here, elsewhere] =
        [&account, &other].map(|it| it.tables().settings("locks", "orders").endpoint.to_string());
    let key = |key: &str| format!("AccountName=devstoreaccount1;AccountKey={key}");
    let at = |endpoint: &str, it: &str| format!("{};BlobEndpoint={endpoint}", key(it));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("string");
    let replace = |text: &str| {
        let aside = directory.path().join("aside");
        std::fs::write(&aside, text).unwrap();
        std::fs::rename(&aside, &file).unwrap();
    };
    replace(&at(&here, blob_server::KEY));
    let store = format!("azure://{}/{}", settings.account, settings.container);
    let arguments = ["--store", &store, "--election", "orders", "--azure-endpoint", &here];
    let variables = [("AZURE_STORAGE_CONNECTION_STRING_FILE", file.to_str().unwrap())];
    let leader = Process::run("leader", &arguments, &variables);
    until(Duration::from_secs(30), "it leads", || leader.is_leader().then_some(()));
    let standby = Process::run("standby", &arguments, &variables);
    let is_in = |it: &Process, state: &str| (it.state()? == state).then_some(());
    until(Duration::from_secs(30), "the other stands by", || is_in(&standby, "standby"));
    let before = leader.status().unwrap();

    let sas = "SharedAccessSignature=sv=2023-11-03&sig=x";
    let contents = [
        (at(&elsewhere, blob_server::KEY), "now means the endpoint"),
        (
            format!("BlobEndpoint=https://acct.blob.core.windows.net;{sas}"),
            "is for the account acct",
        ),
        (key(blob_server::KEY), "now means the endpoint http://127.0.0.1:10000/devstoreaccount1"),
        (String::new(), "is empty"),
    ];
    for (count, (text, words)) in (1..).zip(&contents) {
        replace(text);
        for it in [&leader, &standby] {
            until(Duration::from_secs(30), words, || it.log().contains(words).then_some(()));
            let log = it.log();
            let warned = log.lines().filter(|it| it.contains("stays in use"));
            assert_eq!(warned.count(), count, "one warning for each: {log}");
            assert!(!log.contains(blob_server::KEY), "no secret: {log}");
        }
    }
    // The file is followed all the while: a key that was replaced in the account is used.
    let second = "c2Vjb25kIGtleQ==";
    account.tables().require(Proof::Key(second.to_owned()));
    replace(&at(&here, second));
    account.tables().take_log();
    until(Duration::from_secs(30), "it renews with the new key", || {
        account
            .tables()
            .take_log()
            .iter()
            .any(|it| it.op == "renew" && it.status == 200)
            .then_some(())
    });
    until(Duration::from_secs(30), "the other stands by", || is_in(&standby, "standby"));
    let after = leader.status().unwrap();
    for member in ["role", "term"] {
        assert_eq!(after[member], before[member]);
    }
    assert_eq!(after["store"]["url"], before["store"]["url"]);
    assert!(other.tables().take_log().is_empty(), "nobody went elsewhere");
}

//! Secrets in the log: runs with each kind of credential, with and without faults, log none of the
//! secrets at any level.

use testkit::azure::{azurite, blob_server};
use testkit::stores::bids;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use azurite::Azurite;
use blob_server::{BlobServer, Fault, Proof};
use tenure::config::{AzureCredential, AzureSettings, SecretSource};
use tenure::lease::{Bid, LeaseId, Nonce};
use tenure::store::azure::{Azure, QUIET};
use tenure::store::{LeaseAdmin, LeaseStore};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("a lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const LEASE: u128 = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;

/// Makes every call once, and returns the errors.
async fn everything(settings: AzureSettings) -> String {
    let bid = Bid { nonce: Nonce(1), ..bids::bid_as("orders-0", LEASE) };
    let store = Azure::open(settings).expect("the settings are good");
    let mut text = format!("{store:?} {bid:?}");
    let all = async {
        text += &format!("{:?}", store.read().await);
        text += &format!("{:?}", store.create(1).await);
        text += &format!("{:?}", store.acquire(&bid).await);
        text += &format!("{:?}", store.write_term(&bid, 1).await);
        text += &format!("{:?}", store.renew(&bid).await);
        text += &format!("{:?}", store.examine().await);
        text += &format!("{:?}", store.release(&bid).await);
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("an end within a minute");
    text
}

/// Runs with each kind of credential, without faults and with each fault.
async fn with_each_credential(server: &BlobServer) -> String {
    let mut text = String::new();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("sas");
    std::fs::write(&file, "sv=2023-11-03&sp=rcw&sig=U0FTLVNFQ1JFVA%3D%3D").expect("written");
    let connection = format!(
        "AccountName={};AccountKey={};BlobEndpoint={}",
        blob_server::ACCOUNT,
        blob_server::KEY,
        server.endpoint
    );
    let credentials = [
        AzureCredential::Key(SecretSource::Value(blob_server::KEY.to_owned())),
        AzureCredential::ConnectionString(SecretSource::Value(connection)),
        AzureCredential::Sas(SecretSource::File(file)),
    ];
    for credential in credentials {
        if matches!(credential, AzureCredential::Sas(_)) {
            server.require(Proof::Sas("U0FTLVNFQ1JFVA==".to_owned()));
        }
        let mut settings = server.settings("locks", "orders");
        settings.credential = credential;
        text += &everything(settings.clone()).await;
        for fault in [
            Fault::Answer(403, "AuthenticationFailed"),
            Fault::Answer(500, "InternalError"),
            Fault::DropBefore,
            Fault::DropAfter,
            Fault::Html,
            Fault::WrongLease,
            Fault::Redirect("http://127.0.0.1:1/?sig=U0FTLVNFQ1JFVA%3D%3D".to_owned()),
        ] {
            server.inject("any", vec![fault; 40]);
            text += &everything(settings.clone()).await;
            server.heal();
        }
        let mut away = settings;
        away.endpoint =
            format!("http://127.0.0.1:{}/a", testkit::ports::free_port()).parse().expect("a URL");
        text += &everything(away).await;
    }
    text
}

#[tokio::test]
async fn logs_and_errors_have_no_secret_at_any_level() {
    let captured = Captured::default();
    let writer = captured.clone();
    let filter: Targets = format!("trace,{}", QUIET.join(",")).parse().expect("a filter");
    tracing_subscriber::registry()
        .with(filter)
        .with(tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone()))
        .init();

    let azurite = Azurite::start().await;
    let mut text = everything(azurite.settings("locks", "orders")).await;

    let server = BlobServer::start().await;
    text += &with_each_credential(&server).await;

    let log = String::from_utf8(captured.0.lock().expect("a lock").clone()).expect("UTF-8");
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "something was captured: {log}");
    assert!(log.contains("created the missing blob") || text.contains("created the blob"), "{log}");
    let mut secrets = vec![
        azurite::KEY.to_owned(),
        blob_server::KEY.to_owned(),
        "U0FTLVNFQ1JFVA".to_owned(),
        "SharedKey ".to_owned(),
        "sig=".to_owned(),
        "AccountKey=".to_owned(),
        LeaseId::from_random(LEASE).to_wire(),
    ];
    for logged in server.take_log() {
        secrets.extend(logged.headers.get("authorization").cloned());
        secrets.extend(logged.headers.get("x-ms-proposed-lease-id").cloned());
    }
    secrets.sort();
    secrets.dedup();
    assert!(secrets.len() > 20, "signatures were sent: {}", secrets.len());
    for secret in secrets {
        let signature = secret.rsplit(':').next().expect("a last part");
        for text in [&log, &text] {
            let line = text.lines().find(|line| line.contains(signature));
            assert!(line.is_none(), "{signature} in {line:?}");
        }
    }
}

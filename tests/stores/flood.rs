//! A store that sends interim answers without end, to the clients on the driver's own thread.

use testkit::faults::flood;

use std::time::Duration;

use flood::Flood;
use tenure::config::{AzureCredential, AzureSettings, KubeAccess, SecretSource};
use tenure::kube::objects::Lease;
use tenure::kube::{Kube, KubeError};
use tenure::store::LeaseStore;
use tenure::store::azure::Azure;
use tokio::time::timeout;

const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// The timeout of any expected change.
const BOUND: Duration = Duration::from_secs(60);

/// On one thread, a request that never yields would end neither the request nor the test.
#[tokio::test]
async fn fault_38_an_endless_answer_of_a_store_ends_with_its_request() {
    // Long ones, since a debug build takes seconds for the many short ones of one turn.
    let early = format!("HTTP/1.1 103 Early Hints\r\nlink: <{}>\r\n\r\n", "a".repeat(8_000));
    let flood = Flood::start("", early.leak());
    let api = flood.url().parse().unwrap();
    let access = KubeAccess { api, token_file: None, ca_file: None };
    let kube = Kube::open(&access, REQUEST_TIMEOUT).unwrap();
    let answer = timeout(BOUND, kube.get::<Lease>("team", "orders")).await;
    assert!(matches!(answer, Ok(Err(KubeError::Timeout(_)))), "{answer:?}");

    let key = SecretSource::Value("a2V5".to_owned());
    let azure = Azure::open(AzureSettings {
        endpoint: format!("{}acct", flood.url()).parse().unwrap(),
        is_endpoint_given: true,
        account: "acct".to_owned(),
        container: "locks".to_owned(),
        blob: "orders".to_owned(),
        credential: AzureCredential::Key(key),
        request_timeout: REQUEST_TIMEOUT,
        proxy: None,
        no_proxy: None,
    });
    let azure = azure.unwrap();
    assert!(timeout(REQUEST_TIMEOUT, azure.read()).await.is_err(), "the driver's deadline");
    let closed = async {
        while flood.closed() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(BOUND, closed).await.expect("the connections are closed");
}

//! Tests of the URLs of locks: one for each lock, whatever leads to it, and no secret in any.

use super::super::{Environment, Flags, Verb, load};

/// What must never be shown.
const SECRET: &str = "hidden";

/// Secrets of all stores, where their own clients look for them.
const SECRETS: [(&str, &str); 14] = [
    ("AZURE_STORAGE_KEY", "hiddenhidden"),
    ("AZURE_STORAGE_SAS_TOKEN", "sv=2024-01-01&sig=hidden"),
    ("CONSUL_HTTP_TOKEN", SECRET),
    ("ETCD_USERNAME", SECRET),
    ("ETCD_PASSWORD", SECRET),
    ("PGUSER", SECRET),
    ("PGPASSWORD", SECRET),
    ("REDIS_USERNAME", SECRET),
    ("REDIS_PASSWORD", SECRET),
    ("MONGODB_USERNAME", SECRET),
    ("MONGODB_PASSWORD", SECRET),
    ("ZOOKEEPER_AUTH", "digest:hidden:hidden"),
    ("AWS_ACCESS_KEY_ID", SECRET),
    ("AWS_SECRET_ACCESS_KEY", SECRET),
];

/// Returns the URL of the lock that words of the form `store [--flag value | NAME=value]…` name, or the
/// faults.
fn url(words: &str) -> Result<String, String> {
    let mut words = words.split(' ');
    let store = words.next().unwrap().to_owned();
    let mut flags = Flags::from([("store", vec![store]), ("election", vec!["orders".to_owned()])]);
    let mut variables = SECRETS.to_vec();
    variables.extend([("POD_NAMESPACE", "shop"), ("GOOGLE_APPLICATION_CREDENTIALS", "/hidden")]);
    while let Some(word) = words.next() {
        if let Some((name, value)) = word.split_once('=').filter(|_| !word.starts_with("--")) {
            variables.push((name, value));
            continue;
        }
        let name = &*word.trim_start_matches("--").to_owned().leak();
        flags.insert(name, vec![words.next().unwrap().to_owned()]);
    }
    let loaded = load(&flags, &Environment::of(variables), Verb::Run);
    loaded.map(|it| it.settings.store.to_string()).map_err(|faults| faults.to_string())
}

/// The URL of each lock, and ways to name it.
const ALL: &[(&str, &[&str])] = &[
    (
        "file:///srv/locks/orders.lock",
        &[
            "file:///srv/locks",
            "file:///srv/locks/",
            "file:///srv//./locks",
            "file:///srv/a/../locks",
        ],
    ),
    (
        "https://acct.blob.core.windows.net/box/orders",
        &[
            "azure://acct/box",
            "azure://acct/box/",
            "azure://acct/box --azure-endpoint https://acct.blob.core.windows.net:443/",
            "azure://acct/box --azure-endpoint https://ACCT.blob.core.windows.net",
        ],
    ),
    (
        "https://acct.blob.core.chinacloudapi.cn/box/team/prod/orders",
        &[
            "azure://acct/box --azure-endpoint https://acct.blob.core.chinacloudapi.cn --azure-blob-prefix team/prod/",
        ],
    ),
    (
        "http://127.0.0.1:10000/devstoreaccount1/box/orders",
        &[
            "azure://devstoreaccount1/box",
            "azure://devstoreaccount1/box --azure-endpoint http://127.0.0.1:10000/devstoreaccount1/",
        ],
    ),
    (
        "https://api.test/apis/coordination.k8s.io/v1/namespaces/shop/leases/worker",
        &[
            "kubernetes:worker --kube-api https://api.test",
            "kubernetes:shop/worker --kube-api https://API.test:443/",
        ],
    ),
    (
        "https://proxy.test:8001/k8s/apis/coordination.k8s.io/v1/namespaces/ops/leases/worker",
        &["kubernetes:ops/worker --kube-api https://proxy.test:8001/k8s/"],
    ),
    ("memory:", &["memory:"]),
    #[cfg(feature = "consul")]
    (
        "consul://10.0.0.1:443,10.0.0.2:80/tenure/orders",
        &[
            "consul://10.0.0.1:443,10.0.0.2:80/tenure",
            "consul://10.0.0.2:80,10.0.0.1:443/tenure/",
            "consul://10.0.0.2:80,10.0.0.1:443/tenure --store-insecure true",
        ],
    ),
    #[cfg(feature = "etcd")]
    (
        "etcd://[::1]:2379,b.test:2379/tenure/orders",
        &[
            "etcd://B.test:2379,[::1]:2379/tenure",
            "etcd://[0::1]:2379,b.test:2379/tenure/ --store-insecure true",
        ],
    ),
    #[cfg(feature = "postgres")]
    (
        "postgres://a.test:5432,b.test:5432/app/ops.tenure/orders",
        &[
            "postgres://a.test,b.test/app --postgres-table ops.tenure",
            "postgres://b.test:5432,a.test:5432/app --postgres-table ops.tenure --store-insecure true",
        ],
    ),
    #[cfg(feature = "redis")]
    ("redis://127.0.0.1:6379/0/orders", &["redis://127.0.0.1", "redis://127.0.0.1:6379/0"]),
    #[cfg(feature = "s3")]
    (
        "https://s3.eu-west-1.amazonaws.com/leases/team/orders",
        &[
            "s3://leases/team --s3-region eu-west-1",
            "s3://leases/team/ --s3-region eu-west-1 --s3-path-style true",
            "s3://leases/team AWS_REGION=eu-west-1",
        ],
    ),
    #[cfg(feature = "s3")]
    (
        "http://127.0.0.1:9000/leases/orders",
        &[
            "s3://leases --s3-endpoint http://127.0.0.1:9000",
            "s3://leases --s3-endpoint http://127.0.0.1:9000/",
        ],
    ),
    #[cfg(feature = "gcs")]
    (
        "https://storage.googleapis.com/leases/team/orders",
        &["gs://leases/team", "gs://leases/team/"],
    ),
    #[cfg(feature = "gcs")]
    ("http://127.0.0.1:4443/leases/orders", &["gs://leases STORAGE_EMULATOR_HOST=127.0.0.1:4443"]),
    #[cfg(feature = "mongodb")]
    (
        "mongodb://a.test:27017,b.test:27017/app/tenure/orders",
        &[
            "mongodb://b.test,a.test/app",
            "mongodb://a.test:27017,b.test/app --mongodb-auth-source admin",
        ],
    ),
    #[cfg(feature = "zookeeper")]
    (
        "zookeeper://a.test:2281,b.test:2281/team/orders",
        &["zookeeper://a.test:2281,b.test:2281/team", "zookeeper://b.test:2281,a.test:2281/team/"],
    ),
];

#[test]
fn every_way_to_name_a_lock_has_the_one_url_of_the_lock() {
    for (expected, ways) in ALL {
        for way in *ways {
            assert_eq!(url(way).as_deref(), Ok(*expected), "{way}");
            assert!(!expected.contains(SECRET));
        }
    }
    let mut all: Vec<_> = ALL.iter().map(|(url, _)| url).collect();
    all.dedup();
    assert_eq!(all.len(), ALL.len(), "two locks never have one URL");
}

#[test]
fn a_secret_within_a_url_is_refused_and_not_shown() {
    for words in [
        "file:///srv/locks?sig=hidden",
        "azure://me:hidden@acct/box",
        "azure://acct/box?sv=1&sig=hidden",
        "azure://acct/box --azure-endpoint https://me:hidden@acct.blob.core.windows.net",
        "azure://acct/box --azure-endpoint https://acct.blob.core.windows.net/?sig=hidden",
        "kubernetes:worker?token=hidden --kube-api https://api.test",
        "kubernetes:worker --kube-api https://me:hidden@api.test",
        "kubernetes:worker --kube-api https://api.test/?token=hidden",
        "consul://me:hidden@10.0.0.1:8500/tenure",
        "consul://10.0.0.1:8500/tenure?token=hidden",
        "etcd://me:hidden@10.0.0.1:2379/tenure",
        "postgres://me:hidden@10.0.0.1/app",
        "postgres://10.0.0.1/app?password=hidden",
        "redis://:hidden@10.0.0.1",
        "redis://10.0.0.1/0?password=hidden",
        "s3://AKIA:hidden@leases --s3-region eu-west-1",
        "s3://leases --s3-endpoint https://AKIA:hidden@s3.test",
        "s3://leases --s3-endpoint https://s3.test/?X-Amz-Signature=hidden",
        "gs://leases?key=hidden",
        "gs://leases STORAGE_EMULATOR_HOST=http://me:hidden@127.0.0.1:4443",
        "mongodb://me:hidden@10.0.0.1/app",
        "mongodb://10.0.0.1/app?password=hidden",
        "zookeeper://digest:hidden@10.0.0.1:2181/team",
    ] {
        let faults = url(words).expect_err(words);
        assert!(!faults.contains(SECRET), "{words}: {faults}");
    }
}

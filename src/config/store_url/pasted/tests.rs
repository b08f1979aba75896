//! Tests of what is said of texts that other clients understand.

use super::super::parse;

/// What is pasted, the URL to write, and another word of the remedy.
const PASTED: &[(&str, &str, &str)] = &[
    ("rediss://h:6380/0", "redis://h:6380/0", "TLS is on beyond loopback"),
    ("rediss://u:hidden@h:6380/0", "redis://h:6380/0", "REDIS_PASSWORD_FILE"),
    ("redis://u:hidden@h:6380/0?ssl=true", "redis://h:6380/0", "REDIS_PASSWORD_FILE"),
    ("valkeys://a_1:6380,b:6381/15", "redis://a_1:6380,b:6381/15", "TLS"),
    ("redis-sentinel://h:26379/0", "redis://h:26379/0", "Sentinel is not asked"),
    ("REDIS://h:6379", "redis://h:6379", "TLS"),
    ("h:6379,password=hidden,ssl=True", "redis://h:6379", "REDIS_PASSWORD"),
    ("postgresql://h/app_1", "postgres://h/app_1", "TLS"),
    ("postgresql+asyncpg://me:hidden@h:5432/app", "postgres://h:5432/app", "PGPASSWORD_FILE"),
    ("jdbc:postgresql://a:5432,b:5433/app?ssl=true", "postgres://a:5432,b:5433/app", "TLS"),
    (
        "host=db.example port=5433 dbname=app password=hidden",
        "postgres://db.example:5433/app",
        "PGUSER",
    ),
    ("postgres://h", "postgres://h/DATABASE", "postgres://HOST:PORT/DATABASE"),
    ("https://acct.blob.core.windows.net/box", "azure://acct/box", ""),
    ("https://acct.blob.core.windows.net/box/b?sig=hidden", "azure://acct/box", "SAS_TOKEN"),
    ("https://acct.blob.core.windows.net", "azure://acct/CONTAINER", ""),
    (
        "https://acct.blob.core.chinacloudapi.cn/box",
        "azure://acct/box",
        "--azure-endpoint https://acct.blob.core.chinacloudapi.cn",
    ),
    ("abfss://box@acct.dfs.core.windows.net/path", "azure://acct/box", ""),
    ("wasbs://box@acct.blob.core.windows.net", "azure://acct/box", ""),
    ("http://127.0.0.1:10000/devstoreaccount1/box", "azure://devstoreaccount1/box", ""),
    (
        "AccountName=acct;AccountKey=hidden",
        "azure://acct/CONTAINER",
        "AZURE_STORAGE_CONNECTION_STRING",
    ),
    ("azure://acct.blob.core.windows.net/box", "azure://acct/box", ""),
    ("s3a://my-leases/team_1", "s3://my-leases/team_1", ""),
    ("s3://id:hidden@my-leases/team", "s3://my-leases/team", "AWS_SECRET_ACCESS_KEY_FILE"),
    ("https://leases.s3.eu-west-1.amazonaws.com/a", "s3://leases/a", ""),
    ("https://s3.eu-west-1.amazonaws.com/leases/a", "s3://leases/a", ""),
    ("arn:aws:s3:::leases/a", "s3://leases/a", ""),
    ("s3://http://127.0.0.1:9000/leases", "s3://leases", "--s3-endpoint http://127.0.0.1:9000"),
    ("s3://minio:9000/leases", "s3://leases", "--s3-endpoint https://minio:9000"),
    ("http://minio:9000/leases/a", "s3://leases/a", "--s3-endpoint http://minio:9000"),
    ("minio://minio.example/leases", "s3://leases", "--s3-endpoint https://minio.example"),
    ("gcs://my_leases/a", "gs://my_leases/a", ""),
    ("https://storage.googleapis.com/my_leases/a", "gs://my_leases/a", ""),
    ("https://leases.storage.googleapis.com/a", "gs://leases/a", ""),
    ("zk://a:2181,b:2181/kafka", "zookeeper://a:2181,b:2181/kafka", "TLS"),
    ("zk://a", "zookeeper://a:2181/PATH", ""),
    ("zookeeper://a:2181/kafka,b:2181/kafka", "zookeeper://a:2181,b:2181/kafka", ""),
    ("zookeeper://a:2181/kafka,b:2181", "zookeeper://a:2181,b:2181/kafka", ""),
    ("a:2181,b:2181/kafka_1", "zookeeper://a:2181,b:2181/kafka_1", ""),
    ("mongodb+srv://u:hidden@cluster.example/app_1", "mongodb://HOST,HOST2/app_1", "dig SRV"),
    (
        "mongo://a:27017,b:27018/app?replicaSet=rs0",
        "mongodb://a:27017,b:27018/app",
        "MONGODB_PASSWORD_FILE",
    ),
    ("consul+https://h:8501/team_1", "consul://h:8501/team_1", "TLS"),
    ("https://h:8501", "consul://h:8501/PREFIX", "TLS"),
    ("consul://https://h/x", "consul://h:443/x", ""),
    ("etcd3://a:2379,b:2379", "etcd://a:2379,b:2379/PREFIX", "TLS"),
    ("etcd://http://h:2379", "etcd://h:2379/PREFIX", ""),
    ("etcd://https://a_1:2379,https://b:2379/x", "etcd://a_1:2379,b:2379/x", ""),
    ("http://a:2379,http://b:2379", "etcd://a:2379,b:2379/PREFIX", "TLS"),
    ("localhost:2379", "etcd://localhost:2379/PREFIX", ""),
    ("\"etcd://[::1]:2379/x\"", "etcd://[::1]:2379/x", ""),
    ("etcd:h:2379/x", "etcd://h:2379/x", ""),
    ("k8s://prod/orders", "kubernetes:prod/orders", ""),
];

#[test]
fn a_url_of_another_client_gets_the_form_to_write() {
    for (text, url, more) in PASTED {
        let found = parse(text).expect_err(text);
        let words = format!("did you mean {url}?");
        assert!(found.remedy.contains(&words), "{text}: {found:?}");
        assert!(found.remedy.contains(more), "{text}: {found:?}");
        assert!(!format!("{found:?}").contains("hidden"), "{text}: {found:?}");
        let filled = ["PREFIX", "PATH", "DATABASE", "CONTAINER"]
            .iter()
            .fold((*url).to_owned(), |url, word| url.replace(word, "leases"));
        parse(&filled).unwrap_or_else(|problem| panic!("{filled}: {problem:?}"));
    }
}

#[test]
fn a_socket_is_said_to_be_unsupported() {
    for (text, instead) in [
        ("unix:///run/etcd.sock", "etcd://127.0.0.1:2379"),
        ("etcd://unix:///run/etcd.sock", "etcd://127.0.0.1:2379"),
        ("redis+unix:///run/redis.sock", "redis://127.0.0.1:6379"),
        ("redis+socket:///run/redis.sock", "redis://127.0.0.1:6379"),
        ("redis:///run/redis.sock", "redis://127.0.0.1:6379"),
        ("postgres://%2Fvar%2Frun%2Fpostgresql/app", "postgres://127.0.0.1:5432"),
        ("postgresql://me:hidden@%2Fvar%2Frun%2Fpostgresql/app", "postgres://127.0.0.1:5432"),
        ("postgres:///app?host=/var/run/postgresql", "postgres://127.0.0.1:5432"),
        ("postgresql:///app", "postgres://127.0.0.1:5432"),
        ("mongodb://%2Ftmp%2Fmongodb-27017.sock/app", "mongodb://127.0.0.1:27017"),
        ("consul+unix:///run/consul.sock", "consul://127.0.0.1:8500"),
    ] {
        let found = parse(text).expect_err(text);
        assert!(found.problem.contains("names a socket"), "{text}: {found:?}");
        assert!(found.remedy.contains(instead), "{text}: {found:?}");
        assert!(!format!("{found:?}").contains("hidden"), "{text}: {found:?}");
    }
}

#[test]
fn what_names_no_store_and_what_may_be_a_secret_gets_the_general_forms() {
    for text in [
        "mysql://h/x",
        "https://example.org/",
        "redis://u:hid?den@h",
        "localhost:1",
        "nats:4222",
        "postgres://u:hidden#@h/x",
    ] {
        let found = parse(text).expect_err(text);
        assert!(!found.remedy.contains("did you mean"), "{text}: {found:?}");
        assert!(found.remedy.contains("write "), "{text}: {found:?}");
    }
}

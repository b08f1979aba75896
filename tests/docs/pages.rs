//! The commands of the pages in `docs`, run verbatim except for ports and the location of the
//! store.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

const BOUND: Duration = Duration::from_secs(60);

/// A shell and all its processes; killed with the test.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.0.id().try_into().unwrap()).unwrap();
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Returns the shell blocks of a page.
fn blocks(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("```sh\n").skip(1);
    blocks.map(|it| it.split("\n```").next().unwrap().to_owned()).collect()
}

fn runs(page: &str) {
    let blocks = blocks(page);
    assert!(!blocks.is_empty(), "{page} shows no commands");
    for block in blocks {
        run(&block, &[]);
    }
}

/// Runs a block, in which some words are others, and each line of which must succeed.
fn run(block: &str, others: &[(&str, &str)]) {
    let directory = tempfile::tempdir().unwrap();
    let [status, service, remote] = [(); 3].map(|()| testkit::ports::free_port());
    let block = others.iter().fold(block.to_owned(), |it, (from, to)| it.replace(from, to));
    let script = block
        .replace("127.0.0.1:4040", &format!("127.0.0.1:{status}"))
        .replace("8080", &service.to_string())
        .replace("4443", &remote.to_string());
    let binary = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let store = directory.path().join("store");
    std::fs::create_dir(&store).unwrap();
    let log = std::fs::File::create(directory.path().join("log")).unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-eu", "-c", &script])
        .current_dir(directory.path())
        .process_group(0)
        .env("PATH", path)
        .env("TENURE_STORE", format!("file://{}", store.display()))
        .env("TENURE_LISTEN", format!("127.0.0.1:{status}"))
        .env("TENURE_URL", format!("http://127.0.0.1:{status}"))
        .env_remove("POD_NAME")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    let mut shell = Shell(command.spawn().unwrap());
    let start = tenure::clock::now();
    let log = || std::fs::read_to_string(directory.path().join("log")).unwrap();
    loop {
        if let Some(ended) = shell.0.try_wait().unwrap() {
            assert!(ended.success(), "{ended}\n{script}\n--- log\n{}", log());
            return;
        }
        let waited = start.elapsed_min(tenure::clock::now());
        assert!(waited < BOUND, "it has not ended:\n{script}\n--- log\n{}", log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_commands_of_the_page_on_health_work_as_described() {
    runs("health.md");
}

#[test]
fn the_commands_of_the_page_on_hooks_work_as_described() {
    runs("hooks.md");
}

#[test]
fn the_commands_of_the_page_on_the_status_work_as_described() {
    runs("status.md");
}

#[test]
fn the_commands_of_the_page_on_tls_work_as_described() {
    runs("tls.md");
}

#[test]
fn the_commands_of_the_page_on_consul_work_as_described() {
    let consul = testkit::consul::server::ConsulServer::start();
    let address = format!("127.0.0.1:{}", consul.servers[0].port);
    let blocks = blocks("stores/consul.md");
    assert_eq!(blocks.len(), 2);
    let program = testkit::paths::tool("consul");
    let get = format!("{} kv get -http-addr=http://{address} ", program.display());
    for block in blocks {
        run(&block.replace("consul kv get ", &get), &[("127.0.0.1:8500", &address)]);
    }
}

#[test]
fn the_commands_of_the_page_on_etcd_work_as_described() {
    let etcd = testkit::etcd::server::EtcdServer::start();
    let address = format!("127.0.0.1:{}", etcd.members[0].port);
    let blocks = blocks("stores/etcd.md");
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        let block = block.replace("etcdctl ", &format!("etcdctl --endpoints={address} "));
        run(&block, &[("127.0.0.1:2379", &address)]);
    }
}

#[test]
fn the_commands_of_the_page_on_postgres_work_as_described() {
    let server = testkit::postgres::server::PostgresServer::start();
    let blocks = blocks("stores/postgres.md");
    assert_eq!(blocks.len(), 3);
    let administrator =
        format!("PGHOST=127.0.0.1 PGPORT={} PGUSER=admin PGDATABASE=app psql ", server.port);
    for block in blocks {
        let block = block.replace("psql ", &administrator);
        run(&block, &[("127.0.0.1/app", &format!("127.0.0.1:{}/app", server.port))]);
    }
}

#[test]
fn the_commands_of_the_page_on_mongodb_work_as_described() {
    let server = testkit::mongodb::server::MongoServer::start();
    let blocks = blocks("stores/mongodb.md");
    assert_eq!(blocks.len(), 1);
    let address = format!("127.0.0.1:{}/app", server.front.port);
    run(&blocks[0], &[("127.0.0.1/app", &address)]);
}

#[test]
fn the_commands_of_the_page_on_redis_work_as_described() {
    let server = testkit::redis::server::RedisServer::start();
    let blocks = blocks("stores/redis.md");
    assert_eq!(blocks.len(), 3);
    let client = format!("redis-cli -e -p {} ", server.port);
    for block in blocks {
        let block = block.replace("redis-cli ", &client);
        run(&block, &[("redis://127.0.0.1", &format!("redis://127.0.0.1:{}", server.port))]);
    }
}

#[test]
fn the_commands_of_the_page_on_s3_work_as_described() {
    let server = testkit::s3::server::S3Server::start();
    let blocks = blocks("stores/s3.md");
    assert_eq!(blocks.len(), 2);
    let keys = "export AWS_ACCESS_KEY_ID=elections AWS_SECRET_ACCESS_KEY='correct horse'";
    assert!(blocks[0].contains(keys));
    for block in blocks {
        run(&format!("{keys}\n{block}"), &[("http://127.0.0.1:7070", &server.url())]);
    }
}

#[test]
fn the_commands_of_the_page_on_zookeeper_work_as_described() {
    let server = testkit::zookeeper::server::ZookeeperServer::start();
    let address = format!("127.0.0.1:{}", server.members[0].port);
    let blocks = blocks("stores/zookeeper.md");
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        let block = block.replace("zkCli.sh ", &testkit::zookeeper::server::shell());
        run(&block, &[("127.0.0.1:2181", &address)]);
    }
}

#[test]
fn the_commands_of_the_page_on_google_cloud_storage_work_as_described() {
    let server = testkit::gcs::server::GcsServer::start();
    let blocks = blocks("stores/gcs.md");
    assert_eq!(blocks.len(), 1);
    let of_server = server.variables(&server.url());
    let variables = of_server.iter().map(|(name, value)| format!("export {name}={value}\n"));
    let block = format!("{}{}", variables.collect::<String>(), blocks[0]);
    run(&block, &[("gs://my-leases/", "gs://leases/")]);
}

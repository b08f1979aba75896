//! `tenure migrate` between pairs of real stores: terms go on with a gap, leaders are left alone, and nobody
//! bids in the old store any more.

use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use tenure::config::FileSettings;
use tenure::lease::Bid;
use tenure::store::consul;
use tenure::store::etcd;
use tenure::store::file::FileStore;
use tenure::store::postgres;
use tenure::store::redis;
use tenure::store::zookeeper;
use tenure::store::{LeaseAdmin, s3};
use testkit::consul::server::ConsulServer;
use testkit::etcd::server::EtcdServer;
use testkit::postgres::server::{self, PostgresServer};
use testkit::redis::server::{self as cache, RedisServer};
use testkit::s3::server::{self as bucket, S3Server};
use testkit::stores::bids::{self, A, B, soon};
use testkit::stores::servers::{SharedServer, on_thread};
use testkit::zookeeper::server::ZookeeperServer;
use tokio::sync::oneshot::error::TryRecvError;

/// How far the terms of the new store are above those of the old one, as docs/operating.md has it.
const GAP: u64 = 1 << 20;

/// An election in one of the stores, as the tests and `tenure` see it.
struct Election {
    store: Arc<dyn LeaseAdmin>,
    url: String,
}

/// The stores of one migration, and what `tenure` needs for them.
struct Ground {
    election: &'static str,
    flags: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Ground {
    fn migrate(&self, from: &Election, to: &Election) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tenure"))
            .args(["migrate", "--from", &from.url, "--to", &to.url, "--election", self.election])
            .args(&self.flags)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap()
    }
}

async fn migrated(ground: &Arc<Ground>, from: &Arc<Election>, to: &Arc<Election>) -> (i32, String) {
    let (ground, from, to) = (Arc::clone(ground), Arc::clone(from), Arc::clone(to));
    let output = tokio::task::spawn_blocking(move || ground.migrate(&from, &to)).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout) + &text(&output.stderr))
}

async fn bid(election: &Election, number: u128) -> Bid {
    let seen = soon(election.store.read()).await.unwrap().version;
    let bid = Bid { seen, ..bids::bid(number) };
    soon(election.store.acquire(&bid)).await.unwrap();
    bid
}

/// Moves an election there and back.
async fn moves(ground: Ground, from: Election, to: Election) {
    let (ground, from, to) = (Arc::new(ground), Arc::new(from), Arc::new(to));
    let (code, text) = migrated(&ground, &from, &to).await;
    assert!(code == 1 && text.contains("has no term, so there is nothing to move"), "{text}");
    let leader = bid(&from, A).await;
    let term = soon(from.store.write_term(&leader, 41)).await.unwrap();
    // While it leads, and renews, nothing moves.
    let (end, mut ended) = tokio::sync::oneshot::channel::<()>();
    let renewing = {
        let (from, leader) = (Arc::clone(&from), leader.clone());
        tokio::spawn(async move {
            while ended.try_recv().is_err_and(|it| it == TryRecvError::Empty) {
                let _ = from.store.renew(&leader).await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        })
    };
    let (code, text) = migrated(&ground, &from, &to).await;
    assert!(code == 1 && text.contains("is held by candidate A"), "{text}");
    assert_eq!(soon(to.store.read()).await.unwrap().record.term, None, "nothing was written");
    // A renewal that is under way would modify the record under the release.
    drop(end);
    renewing.await.unwrap();
    soon(from.store.release(&leader)).await.unwrap();
    let (code, text) = migrated(&ground, &from, &to).await;
    assert_eq!(code, 0, "{text}");
    let moved = soon(to.store.read()).await.unwrap();
    assert!(moved.free && moved.record.term > Some(term + GAP), "{moved:?}");
    let left = soon(from.store.read()).await.unwrap();
    assert!(left.free && left.record.moved_to() == Some(&to.url), "{left:?}");
    let (code, again) = migrated(&ground, &from, &to).await;
    assert_eq!((code, &again), (0, &text), "it is done already");
    // The next leader there has a higher term; once it is gone, the election can come back.
    let next = bid(&to, B).await;
    let higher = soon(to.store.write_term(&next, 0)).await.unwrap();
    assert!(higher > moved.record.term.unwrap());
    soon(to.store.release(&next)).await.unwrap();
    let (code, text) = migrated(&ground, &to, &from).await;
    assert_eq!(code, 0, "{text}");
    let back = soon(from.store.read()).await.unwrap();
    assert!(back.free && back.record.term > Some(higher + GAP), "{back:?}");
    assert_eq!(back.record.moved_to(), None, "{back:?}");
    let left = soon(to.store.read()).await.unwrap();
    assert!(left.free && left.record.moved_to() == Some(&from.url), "{left:?}");
    assert!(!text.contains("correct horse"), "{text}");
}

#[tokio::test]
async fn an_election_moves_from_a_file_to_postgres_and_back() {
    let server = on_thread(PostgresServer::shared).await;
    let directory = tempfile::tempdir().unwrap();
    let election = "moved-1";
    let file = FileSettings {
        directory: directory.path().to_owned(),
        is_private: false,
        election: election.to_owned(),
    };
    let from = Election {
        store: Arc::new(FileStore::open(&file)),
        url: format!("file://{}", directory.path().display()),
    };
    let to = Election {
        store: postgres::open(&server.settings(election)).unwrap(),
        url: server.arguments()[1].clone(),
    };
    let ground = Ground { election, flags: Vec::new(), variables: server::variables() };
    moves(ground, from, to).await;
}

#[tokio::test]
async fn an_election_moves_from_etcd_to_s3_and_back() {
    let server = on_thread(EtcdServer::shared).await;
    let s3 = on_thread(S3Server::shared).await;
    let election = "moved-2";
    let from = Election {
        store: etcd::open(&server.settings(election)).unwrap(),
        url: server.arguments()[1].clone(),
    };
    let arguments = s3.arguments();
    let to =
        Election { store: s3::open(&s3.settings(election)).unwrap(), url: arguments[1].clone() };
    let ground =
        Ground { election, flags: arguments[2..].to_vec(), variables: bucket::variables() };
    moves(ground, from, to).await;
}

#[tokio::test]
async fn an_election_moves_from_s3_to_postgres_and_back() {
    let postgres = on_thread(PostgresServer::shared).await;
    let s3 = on_thread(S3Server::shared).await;
    let election = "moved-3";
    let arguments = s3.arguments();
    let from =
        Election { store: s3::open(&s3.settings(election)).unwrap(), url: arguments[1].clone() };
    let to = Election {
        store: postgres::open(&postgres.settings(election)).unwrap(),
        url: postgres.arguments()[1].clone(),
    };
    let variables = [bucket::variables(), server::variables()].concat();
    moves(Ground { election, flags: arguments[2..].to_vec(), variables }, from, to).await;
}

#[tokio::test]
async fn an_election_moves_from_a_file_to_zookeeper_and_back() {
    let server = on_thread(ZookeeperServer::shared).await;
    let directory = tempfile::tempdir().unwrap();
    let election = "moved-to-zookeeper";
    let file = FileSettings {
        directory: directory.path().to_owned(),
        is_private: false,
        election: election.to_owned(),
    };
    let from = Election {
        store: Arc::new(FileStore::open(&file)),
        url: format!("file://{}", directory.path().display()),
    };
    let to = Election {
        store: zookeeper::open(&server.settings(election)).unwrap(),
        url: server.arguments()[1].clone(),
    };
    moves(Ground { election, flags: Vec::new(), variables: Vec::new() }, from, to).await;
}

#[tokio::test]
async fn an_election_moves_from_redis_to_postgres_and_back() {
    let postgres = on_thread(PostgresServer::shared).await;
    let redis = on_thread(RedisServer::shared).await;
    let election = "moved-4";
    let from = Election {
        store: redis::open(&redis.settings(election)).unwrap(),
        url: redis.arguments()[1].clone(),
    };
    let to = Election {
        store: postgres::open(&postgres.settings(election)).unwrap(),
        url: postgres.arguments()[1].clone(),
    };
    let variables = [cache::variables(), server::variables()].concat();
    moves(Ground { election, flags: Vec::new(), variables }, from, to).await;
}

#[tokio::test]
async fn an_election_moves_from_consul_to_etcd_and_back() {
    let from = on_thread(ConsulServer::shared).await;
    let server = on_thread(EtcdServer::shared).await;
    let election = "moved-to-etcd";
    let from = Election {
        store: consul::open(&from.settings(election)).unwrap(),
        url: from.arguments()[1].clone(),
    };
    let to = Election {
        store: etcd::open(&server.settings(election)).unwrap(),
        url: server.arguments()[1].clone(),
    };
    moves(Ground { election, flags: Vec::new(), variables: Vec::new() }, from, to).await;
}

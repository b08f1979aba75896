//! The lock of an election in Redis, with the operations of others on it, for the conformance suite.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::config::RedisSettings;
use tenure::store::LeaseAdmin;
use tenure::store::redis::Redis;

use super::server::RedisServer;
use crate::stores::conformance::Harness;

/// What the candidates of a lock connect to.
pub trait Ground: Send + Sync {
    /// Returns the server.
    fn server() -> Arc<RedisServer>;
}

/// The server without TLS.
pub struct Plain;

impl Ground for Plain {
    fn server() -> Arc<RedisServer> {
        RedisServer::shared()
    }
}

/// The server with TLS and certificates of its users.
pub struct Secured;

impl Ground for Secured {
    fn server() -> Arc<RedisServer> {
        RedisServer::shared_secured()
    }
}

/// A lock whose time passes when the test says so: the end of its lease is moved.
pub struct RedisLock<G> {
    server: Arc<RedisServer>,
    settings: RedisSettings,
    ground: std::marker::PhantomData<G>,
}

impl<G> RedisLock<G> {
    /// Sends a command, on a thread that may block.
    async fn ask(&self, command: &[&str]) -> String {
        let server = Arc::clone(&self.server);
        let command: Vec<_> = command.iter().map(|it| (*it).to_owned()).collect();
        let asked = tokio::task::spawn_blocking(move || {
            server.ask(&command.iter().map(String::as_str).collect::<Vec<_>>())
        });
        asked.await.expect("the command is executed")
    }

    fn key(&self, name: &str) -> String {
        format!("tenure:{{{}}}:{name}", self.settings.election)
    }
}

impl<G: Ground + 'static> Harness for RedisLock<G> {
    const LEASE: Duration = Duration::from_secs(60);
    const FOREIGN: &'static [&'static str] = &[
        "HSET record format 2",
        "HDEL record format",
        "HSET record term many",
        "HSET record nonce somebody",
        "SET record words",
        "SET lease locked",
        "HSET lease holder somebody",
    ];

    async fn start() -> Self {
        static LOCKS: AtomicU64 = AtomicU64::new(0);
        let server = tokio::task::spawn_blocking(G::server).await.expect("a server");
        let election = format!("lock-{}", LOCKS.fetch_add(1, Ordering::Relaxed));
        let settings = server.settings(&election);
        Self { server, settings, ground: std::marker::PhantomData }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        Arc::new(Redis::open(&self.settings).expect("the settings are good"))
    }

    async fn advance(&self, by: Duration) {
        let earlier = "local left = redis.call('PTTL', KEYS[1]) \
                       if left > 0 then redis.call('PEXPIRE', KEYS[1], left - tonumber(ARGV[1])) end";
        let millis = by.as_millis().to_string();
        self.ask(&["EVAL", earlier, "1", &self.key("lease"), &millis]).await;
    }

    async fn delete(&self) {
        self.ask(&["DEL", &self.key("lease"), &self.key("record")]).await;
    }

    async fn plant(&self, foreign: &str) {
        self.candidate().create(1).await.expect("a record");
        let mut words: Vec<_> = foreign.split(' ').collect();
        let key = self.key(words[1]);
        words[1] = &key;
        self.ask(&words).await;
    }

    async fn bytes(&self) -> Vec<u8> {
        let mut all = String::new();
        for name in ["lease", "record"] {
            all += &self.ask(&["DUMP", &self.key(name)]).await;
        }
        all.into_bytes()
    }
}

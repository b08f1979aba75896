//! The lock of an election in Redis, with the operations of others on it, for the conformance suite.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tenure::config::RedisSettings;
use tenure::store::LeaseAdmin;
use tenure::store::redis::Redis;

use super::server::RedisServer;
use crate::stores::conformance::Harness;
use crate::stores::servers::{Ground, on_thread, place};

/// A lock whose time passes when the test says so: the end of its lease is moved.
pub struct RedisLock<G> {
    server: Arc<RedisServer>,
    settings: RedisSettings,
    _ground: PhantomData<G>,
}

impl<G> RedisLock<G> {
    /// Sends a command, on a thread that may block.
    async fn ask(&self, command: &[&str]) -> String {
        let server = Arc::clone(&self.server);
        let command: Vec<_> = command.iter().map(|it| (*it).to_owned()).collect();
        on_thread(move || server.ask(&command.iter().map(String::as_str).collect::<Vec<_>>())).await
    }

    fn key(&self, name: &str) -> String {
        format!("tenure:{{{}}}:{name}", self.settings.election)
    }
}

impl<G: Ground> Harness for RedisLock<G> {
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
        let (server, election) = place::<G, RedisServer>().await;
        let settings = server.settings(&election);
        Self { server, settings, _ground: PhantomData }
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

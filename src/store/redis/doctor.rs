//! The checks of `tenure doctor` for a server and its replicas, in the order in which an operator would
//! fix them. The keys of the election are only read; what the user may write is tried on keys beside them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::Redis;
use super::access::Access;
use super::connection::Connection;
use super::errors::RedisError;
use super::reply::Reply;
use super::scripts::{Command, Scripts, command};
use super::state::Seen;
use crate::clock;
use crate::lease::{Bid, Candidate, LeaseId, Nonce, Successor, Version};
use crate::store::Finding;
use crate::store::finding::{Findings, TIMED, of_timings};
use crate::store::network::in_time;
use crate::store::server_finding::ServerClock;

/// The longest time that one request may take; longer than any sensible request-timeout, to tell a slow
/// server from a dead one.
const PATIENCE: Duration = Duration::from_secs(10);

const CLOCK: ServerClock = ServerClock {
    of: "the server",
    unit: time::Duration::ZERO,
    skewed: 2,
    remedy: "synchronize both (NTP), slewing the clock of the server: it alone counts the lease, and a jump \
             forward ends the lease early",
};

/// The oldest major version that has what is used here.
const OLDEST: u32 = 6;

const SERVERS: &str = "servers";
const SIGN_IN: &str = "sign-in";
const VERSION: &str = "version";
const PRIMARY: &str = "primary";
const KEYS: &str = "keys";
const RIGHTS: &str = "permissions";
const DURABILITY: &str = "durability";
const EVICTION: &str = "eviction";
const FAILOVER: &str = "failover";
const NOTIFICATIONS: &str = "notifications";
const SKEW: &str = "clock skew";
const TIMINGS: &str = "timings";

/// All subjects, in order.
const SUBJECTS: [&str; 12] = [
    SERVERS,
    SIGN_IN,
    VERSION,
    PRIMARY,
    KEYS,
    RIGHTS,
    DURABILITY,
    EVICTION,
    FAILOVER,
    NOTIFICATIONS,
    SKEW,
    TIMINGS,
];

/// One run of the checks.
struct Examination<'a> {
    store: &'a Redis,
    access: Access,
    findings: Findings,
}

/// A server that signed the user in.
struct Server {
    /// Its number among the addresses.
    at: usize,
    /// Host and port.
    name: String,
    connection: Connection,
    info: Info,
}

/// What `INFO` says.
struct Info(HashMap<String, String>);

impl Info {
    fn of(reply: &Reply) -> Self {
        let lines = reply.text().unwrap_or_default().lines();
        let pairs = lines.filter_map(|it| it.split_once(':'));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn is_primary(&self) -> bool {
        self.get("role") == "master"
    }
}

/// Runs all checks, as far as it gets.
pub(super) async fn examine(store: &Redis) -> Vec<Finding> {
    let mut findings = Findings::new(&SUBJECTS);
    let access = match Access::open(&store.settings, PATIENCE) {
        Ok(access) => access,
        Err(error) => {
            let remedy = "check --store-ca-file and --store-cert";
            findings.failed(SERVERS, format!("{error:#}"), remedy);
            return findings.finish();
        }
    };
    let mut examination = Examination { store, access, findings };
    if let Some(mut primary) = examination.servers().await {
        examination.all(&mut primary).await;
    }
    examination.findings.finish()
}

async fn ask(connection: &mut Connection, command: &Command) -> Result<Reply, RedisError> {
    in_time(PATIENCE, "the server", connection.ask(command)).await
}

impl Examination<'_> {
    /// Connects to each server; returns the primary.
    async fn servers(&mut self) -> Option<Server> {
        let (mut servers, mut broken, mut denied) = (Vec::new(), Vec::new(), None);
        for (at, address) in self.store.settings.servers.iter().enumerate() {
            let name = address.to_string();
            let connected = async {
                let mut connection = self.access.connect_to(at).await?;
                let info = Info::of(&connection.ask(&command(&["INFO"])).await?);
                Ok(Server { at, name: name.clone(), connection, info })
            };
            match tokio::time::timeout(PATIENCE, connected).await {
                Ok(Ok(server)) => servers.push(server),
                Ok(Err(
                    error @ (RedisError::SignIn(_) | RedisError::Files(_) | RedisError::Denied(_)),
                )) => denied = Some(error),
                Ok(Err(error)) => broken.push(error.to_string()),
                Err(_) => broken.push(format!("{name} did not answer within {PATIENCE:?}")),
            }
        }
        let names: Vec<&str> = servers.iter().map(|it| it.name.as_str()).collect();
        let scheme = if self.store.settings.tls.is_some() { "TLS" } else { "no TLS" };
        let answered = match names.is_empty() {
            true => format!("answered, with {scheme}"),
            false => format!("answered, with {scheme}: {}", names.join(", ")),
        };
        let remedy = "check --store, firewalls, and whether Redis runs there";
        match (broken.is_empty(), servers.is_empty() && denied.is_none()) {
            (true, _) => self.findings.passed(SERVERS, answered),
            (false, true) => self.findings.failed(SERVERS, broken.join("; "), remedy),
            (false, false) => {
                let detail = format!("{answered}; but {}", broken.join("; "));
                self.findings.warning(SERVERS, detail, remedy);
            }
        }
        match denied {
            Some(error @ RedisError::Denied(_)) => {
                self.signed_in();
                self.denied(&error.to_string());
                None
            }
            Some(error) => {
                let remedy = "set REDIS_USERNAME and REDIS_PASSWORD as the server has them";
                self.findings.failed(SIGN_IN, error.to_string(), remedy);
                None
            }
            None => self.primary(servers),
        }
    }

    fn signed_in(&mut self) {
        let detail = match (&self.store.settings.user, &self.store.settings.password) {
            (Some(_), _) => "as the user of REDIS_USERNAME",
            (None, Some(_)) => "as the default user, with REDIS_PASSWORD",
            (None, None) => "as the default user, without a password",
        };
        self.findings.passed(SIGN_IN, detail);
    }

    /// Finds the primary among the servers.
    fn primary(&mut self, servers: Vec<Server>) -> Option<Server> {
        let (mut primaries, replicas): (Vec<_>, Vec<_>) =
            servers.into_iter().partition(|it| it.info.is_primary());
        let one = primaries.first().or(replicas.first())?;
        self.signed_in();
        let is_cluster = one.info.get("cluster_enabled") == "1";
        let (version, is_fit) = version(&one.info);
        if !is_fit {
            let remedy = "upgrade to Redis 6 or newer, or to Valkey";
            self.findings.failed(VERSION, version, remedy);
            return None;
        }
        self.findings.passed(VERSION, version);
        let names =
            |of: &[Server]| of.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
        if primaries.is_empty() {
            let detail = format!("{} are replicas, and none is the primary", names(&replicas));
            let remedy = "name the primary in --store too";
            self.findings.failed(PRIMARY, detail, remedy);
            return None;
        }
        // Several ways to one server have its number. In a cluster, one of them has the keys.
        let id = |it: &Server| it.info.get("run_id").to_owned();
        if !is_cluster && primaries.iter().any(|it| id(it) != id(&primaries[0])) {
            let detail = format!("{} all take writes", names(&primaries));
            let remedy = "name one primary and its replicas: on several, several instances lead";
            self.findings.failed(PRIMARY, detail, remedy);
            return None;
        }
        let followed = match replicas.as_slice() {
            [] => String::new(),
            some => format!("; replicas: {}", names(some)),
        };
        self.findings.passed(PRIMARY, format!("{}{followed}", names(&primaries)));
        Some(primaries.swap_remove(0))
    }

    /// Runs the checks that need the primary.
    async fn all(&mut self, primary: &mut Server) {
        if !self.keys(primary).await || !self.rights(&mut primary.connection).await {
            return;
        }
        self.durability(primary).await;
        self.eviction(&primary.info);
        self.failover(&primary.info);
        self.notifications(primary).await;
        self.timings(&mut primary.connection).await;
    }

    /// Reads the keys; returns whether they are usable.
    async fn keys(&mut self, primary: &mut Server) -> bool {
        let place = self.store.place();
        let sent = clock::now();
        let reply = match ask(&mut primary.connection, &self.store.scripts.read()).await {
            Ok(reply) => reply,
            Err(error @ RedisError::Denied(_)) => {
                self.denied(&error.to_string());
                return false;
            }
            Err(error) => {
                self.findings.failed(KEYS, error.to_string(), "see above");
                return false;
            }
        };
        let seen = match Seen::of(&reply, &place) {
            Ok(seen) => seen,
            Err(failure) => {
                self.findings.failed(KEYS, failure.message, "see above");
                return false;
            }
        };
        self.findings.skew(SKEW, &CLOCK, seen.date, (sent, clock::now()));
        let holder = seen.held.as_ref().map(|it| format!("held by {:?}", it.identity));
        self.findings.term(KEYS, &place, seen.record.term, holder.as_deref());
        true
    }

    fn denied(&mut self, why: &str) {
        let remedy = "give the user the commands, keys and channels that docs/stores/redis.md names, by ACL \
                      SETUSER";
        self.findings.failed(RIGHTS, why.to_owned(), remedy);
    }

    /// Does everything that an election does, on keys beside it; returns whether it may.
    async fn rights(&mut self, primary: &mut Connection) -> bool {
        match self.try_all(primary).await {
            Ok(()) => {
                self.findings.passed(RIGHTS, "reads and writes the keys");
                true
            }
            Err(error @ RedisError::Denied(_)) => {
                self.denied(&error.to_string());
                false
            }
            Err(error) => {
                let remedy = "mend what the server reports";
                self.findings.failed(RIGHTS, error.to_string(), remedy);
                false
            }
        }
    }

    async fn try_all(&self, primary: &mut Connection) -> Result<(), RedisError> {
        let probe = Scripts::of_probe(&self.store.settings.election);
        let lease = Uuid::new_v4().as_u128();
        let candidate = Candidate {
            identity: "doctor".to_owned(),
            instance: "doctor".to_owned(),
            address: None,
            peer: None,
        };
        let bid = Bid {
            lease: LeaseId::from_random(lease),
            nonce: Nonce(lease),
            candidate: Arc::new(candidate),
            lease_duration: PATIENCE,
            seen: Version("0".into()),
            written: None,
        };
        let successor = Successor { identity: "doctor".to_owned(), hold_off: PATIENCE };
        let remove = command(&["DEL", &probe.lease, &probe.record]);
        for request in [
            // Of an examination that was interrupted.
            remove.clone(),
            probe.first_term(1),
            probe.acquire(&Bid { seen: Version("1".into()), ..bid.clone() }),
            probe.write_term(&bid, 1),
            probe.set_successor(&bid, &successor),
            probe.renew(&bid),
            probe.break_lease("4", false),
            probe.release(&bid),
            remove,
        ] {
            ask(primary, &request).await?;
        }
        Ok(())
    }

    /// Tells what becomes of the lease in a crash.
    async fn durability(&mut self, primary: &mut Server) {
        if primary.info.get("aof_enabled") != "1" {
            let detail = "the append-only file is off: after a restart the lease and its term are gone, or as \
                          in the last snapshot; two instances may lead, and a term may be given twice";
            let remedy = "set appendonly yes and appendfsync always";
            return self.findings.warning(DURABILITY, detail, remedy);
        }
        // The user need not be allowed to ask.
        let asked = command(&["CONFIG", "GET", "appendfsync"]);
        let found = ask(&mut primary.connection, &asked).await.ok();
        let found = found.as_ref().and_then(|it| it.parts().get(1)).and_then(Reply::text);
        match found {
            Some("always") => {
                let detail = "each write is on disk before it is answered (appendfsync always)";
                self.findings.passed(DURABILITY, detail);
            }
            other => {
                let policy = other.unwrap_or("unknown, since the user may not ask for it");
                let detail = format!(
                    "appendfsync is {policy}: a crash may lose the last writes; two instances may lead then, and \
                     a term may be given twice"
                );
                self.findings.warning(DURABILITY, detail, "set appendfsync always");
            }
        }
    }

    /// Tells whether the server may delete the keys when its memory is full.
    fn eviction(&mut self, info: &Info) {
        let policy = info.get("maxmemory_policy");
        let remedy = "set maxmemory-policy noeviction, or use a server of its own for elections";
        match (policy, info.get("maxmemory")) {
            ("noeviction", _) => self.findings.passed(EVICTION, "none (noeviction)"),
            ("", _) => {
                let detail = "the server does not tell its maxmemory-policy";
                self.findings.warning(EVICTION, detail, remedy);
            }
            (policy, "0") => {
                let detail = format!(
                    "maxmemory-policy is {policy}: once maxmemory is set, the lease or its term may be deleted"
                );
                self.findings.warning(EVICTION, detail, remedy);
            }
            (policy, _) => {
                let detail = format!(
                    "maxmemory-policy is {policy}: when its memory is full, the server deletes the lease or its \
                     term, and two instances may lead"
                );
                self.findings.failed(EVICTION, detail, remedy);
            }
        }
    }

    /// Tells what becomes of the lease when another server becomes the primary.
    fn failover(&mut self, info: &Info) {
        let replicas = info.get("connected_slaves");
        if replicas == "0" && self.store.settings.servers.len() == 1 {
            let detail = "exclusive on this server, as far as its clock is not set forward and it loses no \
                          write; it has no replica";
            return self.findings.passed(FAILOVER, detail);
        }
        let detail = format!(
            "best effort: its {replicas} replicas get writes after they were answered, so that after a failover \
             two instances may lead until the old leader's deadline, and the same term may be given twice"
        );
        let remedy = "fail over only after a lease-duration without a primary, or use a store that is exclusive \
                      across a failover, see docs/choosing.md";
        self.findings.warning(FAILOVER, detail, remedy);
    }

    /// Subscribes to the channel, and publishes on it what no store takes for news.
    async fn notifications(&mut self, primary: &mut Server) {
        let channel = &self.store.scripts.channel;
        let tried = async {
            let mut listener = self.access.connect_to(primary.at).await?;
            listener.ask(&command(&["SUBSCRIBE", channel])).await?;
            primary.connection.ask(&command(&["PUBLISH", channel, "doctor"])).await?;
            listener.message().await
        };
        match tokio::time::timeout(PATIENCE, tried).await {
            Ok(Ok(_)) => {
                let detail = "a standby is told of a release, and a leader of a break";
                self.findings.passed(NOTIFICATIONS, detail);
            }
            failed => {
                let why = failed.map_or_else(
                    |_| format!("no message arrived within {PATIENCE:?}"),
                    |it| it.err().map(|it| it.to_string()).unwrap_or_default(),
                );
                let detail =
                    format!("none, so that a standby sees a release at its next poll: {why}");
                let remedy = format!("allow PUBLISH and SUBSCRIBE on the channel {channel}");
                self.findings.warning(NOTIFICATIONS, detail, &remedy);
            }
        }
    }

    /// Times some requests over an open connection.
    async fn timings(&mut self, primary: &mut Connection) {
        let mut slowest = Duration::ZERO;
        for _ in 0..TIMED {
            let sent = clock::now();
            // One that fails takes its time too.
            let _ = ask(primary, &self.store.scripts.read()).await;
            slowest = slowest.max(sent.elapsed_max(clock::now()));
        }
        let bound = self.store.settings.request_timeout;
        let check = "check the load of the server";
        self.findings.timings(TIMINGS, of_timings(slowest, 1, bound, check));
    }
}

/// Names the server with its version, and returns whether that is new enough.
fn version(info: &Info) -> (String, bool) {
    let valkey = info.get("valkey_version");
    if !valkey.is_empty() {
        return (format!("Valkey {valkey}"), true);
    }
    let redis = info.get("redis_version");
    let major = redis.split('.').next().and_then(|it| it.parse::<u32>().ok());
    (format!("Redis {redis}"), major.is_none_or(|it| it >= OLDEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_too_old_for_the_script_are_known() {
        for (text, name, is_fit) in [
            ("redis_version:7.0.15\r\nrole:master\r\n", "Redis 7.0.15", true),
            ("redis_version:5.0.14\r\n", "Redis 5.0.14", false),
            (
                "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n",
                "Valkey 8.1.0",
                true,
            ),
        ] {
            let info = Info::of(&Reply::Text(text.into()));
            assert_eq!(version(&info), (name.to_owned(), is_fit));
        }
    }
}

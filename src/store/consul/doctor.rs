//! The checks of `tenure doctor` for a cluster, in the order in which an operator would fix them.
//! Permissions are tried on a key of their own, which is removed afterwards; the key of the election is not
//! touched.

use std::time::Duration;

use serde::Deserialize;
use uuid::Uuid;

use super::Consul;
use super::api::{Api, Call, Changed};
use super::errors::ConsulError;
use super::record::Seen;
use super::wire::{self, Entry, Session};
use crate::clock;
use crate::store::Finding;
use crate::store::finding::{Findings, TIMED, of_timings};
use crate::store::server_finding::ServerClock;

/// The longest time that one request may take; longer than any sensible request-timeout, to tell a
/// slow cluster from a dead one.
const PATIENCE: Duration = Duration::from_secs(10);

/// The TTL of the session that is tried, the shortest there is.
const TRIED: Duration = Duration::from_secs(10);

/// When a lease is free that nobody released.
const LATE: &str =
    "three lease-durations: Consul ends a session up to twice its TTL after its last renewal";

const CLOCK: ServerClock = ServerClock {
    of: "Consul",
    unit: time::Duration::SECOND,
    skewed: 31,
    remedy: "synchronize both clocks (NTP): no lease depends on them, but certificates do",
};

const SERVERS: &str = "servers";
const VERSION: &str = "version";
const CLUSTER: &str = "cluster";
const TOKEN: &str = "token";
const KEY: &str = "key";
const RIGHTS: &str = "permissions";
const SESSION: &str = "session";
const SKEW: &str = "clock skew";
const TIMINGS: &str = "timings";

/// All subjects, in order.
const SUBJECTS: [&str; 9] = [SERVERS, VERSION, CLUSTER, TOKEN, KEY, RIGHTS, SESSION, SKEW, TIMINGS];

/// What an agent says of its version to a token with the right `agent:read`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Release {
    human_version: String,
}

/// What Consul says of the token in use.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct OwnToken {
    #[serde(default)]
    expiration_time: Option<String>,
}

/// One run of the checks.
struct Examination<'a> {
    store: &'a Consul,
    api: Api,
    findings: Findings,
}

/// Runs all checks, as far as it gets.
pub(super) async fn examine(store: &Consul) -> Vec<Finding> {
    let mut findings = Findings::new(&SUBJECTS);
    let api = match Api::open(&store.settings, PATIENCE) {
        Ok(api) => api,
        Err(error) => {
            let remedy = "check --store-ca-file and --store-cert";
            findings.failed(SERVERS, format!("{error:#}"), remedy);
            return findings.finish();
        }
    };
    let mut examination = Examination { store, api, findings };
    if let Some(at) = examination.servers().await
        && examination.key(at).await
    {
        examination.token(at).await;
        examination.rights(at).await;
        examination.timings(at).await;
    }
    examination.findings.finish()
}

impl Examination<'_> {
    /// Asks each server or agent which server leads; returns the number of one that can be used.
    async fn servers(&mut self) -> Option<usize> {
        let (mut found, mut broken) = (Vec::new(), Vec::new());
        for at in 0..self.store.settings.servers.len() {
            let mut call = self.api.call_to(at);
            match call.ask::<String>("status/leader").await {
                Ok(leader) => found.push((at, call.server().to_owned(), leader)),
                Err(error) => broken.push(error.to_string()),
            }
        }
        let scheme = if self.store.settings.tls.is_some() { "TLS" } else { "plain HTTP" };
        let names: Vec<&str> = found.iter().map(|(_, name, _)| name.as_str()).collect();
        let answer = format!("answered over {scheme}: {}", names.join(", "));
        let remedy = "check --store, firewalls, and whether Consul runs there";
        if found.is_empty() {
            self.findings.failed(SERVERS, broken.join("; "), remedy);
            return None;
        }
        if broken.is_empty() {
            self.findings.passed(SERVERS, answer);
        } else {
            let detail = format!("{answer}; but {}", broken.join("; "));
            self.findings.warning(SERVERS, detail, remedy);
        }
        let usable = found.iter().find(|(_, _, leader)| !leader.is_empty());
        let at = usable.or(found.first()).map(|(at, ..)| *at)?;
        self.version(at).await;
        self.cluster(at, usable.map(|(.., leader)| leader.as_str())).await;
        usable.map(|(at, ..)| *at)
    }

    async fn version(&mut self, at: usize) {
        let detail = match self.api.call_to(at).ask::<Release>("agent/version").await {
            Ok(it) => format!("Consul {}", it.human_version),
            Err(_) => "the token may not ask for it, which is no fault".to_owned(),
        };
        self.findings.passed(VERSION, detail);
    }

    /// Checks that the servers have a leader, and counts them.
    async fn cluster(&mut self, at: usize, leader: Option<&str>) {
        let peers = self.api.call_to(at).ask::<Vec<String>>("status/peers").await;
        let peers = peers.unwrap_or_default().len();
        let Some(leader) = leader else {
            let remedy = "start the other servers, or restore the cluster";
            let detail = "no server leads: there is no quorum";
            return self.findings.failed(CLUSTER, detail, remedy);
        };
        let detail =
            format!("{leader} leads {peers} servers, which count the lease by their quorum");
        match peers {
            0..=2 => {
                let remedy = "run three or five servers, so that one may fail";
                self.findings.warning(CLUSTER, format!("{detail}: none may fail"), remedy);
            }
            _ => self.findings.passed(CLUSTER, detail),
        }
    }

    /// Reads the key; returns whether that is allowed.
    async fn key(&mut self, at: usize) -> bool {
        let mut call = self.api.call_to(at);
        let sent = clock::now();
        let read = call.get(&self.store.key).await;
        let date = call.date;
        drop(call);
        match read {
            Ok(entry) => {
                self.findings.skew(SKEW, &CLOCK, date, (sent, clock::now()));
                self.state(entry.as_ref());
                true
            }
            Err(error) => {
                self.fault(&error);
                false
            }
        }
    }

    /// Records the error of a request that should have succeeded.
    fn fault(&mut self, error: &ConsulError) {
        let store = &self.store.settings;
        let folder = format!("{}/{}/", store.prefix, store.election);
        let rights = format!(
            "give its token a policy with key_prefix \"{folder}\" {{ policy = \"write\" }} and session_prefix \
             \"\" {{ policy = \"write\" }}"
        );
        let (subject, remedy) = match error {
            ConsulError::Token(_) => (TOKEN, "set CONSUL_HTTP_TOKEN or CONSUL_HTTP_TOKEN_FILE"),
            ConsulError::Denied(_) => (RIGHTS, rights.as_str()),
            _ => (CLUSTER, "check the cluster, and run `tenure doctor` again"),
        };
        self.findings.failed(subject, error.to_string(), remedy);
    }

    /// Reports what the key holds.
    fn state(&mut self, entry: Option<&Entry>) {
        let key = &self.store.key;
        let seen = match Seen::of(entry, key) {
            Ok(seen) => seen,
            Err(failure) => return self.findings.failed(KEY, failure.message, "see above"),
        };
        let holder = match (seen.claim(), seen.session) {
            (Some(claim), _) if claim.is_breaking => {
                Some(format!("held by {:?}, and broken", claim.identity))
            }
            (Some(claim), _) => Some(format!("held by {:?}", claim.identity)),
            (None, Some(_)) => Some("locked by a session that is none of Tenure's".to_owned()),
            (None, None) => None,
        };
        if let (Some(term), Some(who), None) = (seen.content.record.term, &holder, seen.claim()) {
            let remedy = "end what has locked it, or run `tenure break --now`";
            let detail = format!("{key}: term {term}, {who}");
            return self.findings.warning(KEY, detail, remedy);
        }
        self.findings.term(KEY, key, seen.content.record.term, holder.as_deref());
    }

    /// Asks what Consul knows of the token, which the reading of the key has accepted.
    async fn token(&mut self, at: usize) {
        if self.store.settings.token.is_none() {
            let detail = "none is set, and the anonymous token may read";
            return self.findings.passed(TOKEN, detail);
        }
        match self.api.call_to(at).ask::<OwnToken>("acl/token/self").await {
            Ok(OwnToken { expiration_time: Some(end) }) => {
                let detail = format!("CONSUL_HTTP_TOKEN is accepted, and expires at {end}");
                let remedy = "replace it before, in the file of CONSUL_HTTP_TOKEN_FILE";
                self.findings.warning(TOKEN, detail, remedy);
            }
            Ok(_) => self.findings.passed(TOKEN, "CONSUL_HTTP_TOKEN is accepted"),
            Err(_) => self.findings.passed(TOKEN, "CONSUL_HTTP_TOKEN is set; Consul asks for none"),
        }
    }

    /// Tries a session and a key of its own, and removes them.
    async fn rights(&mut self, at: usize) {
        let mut call = self.api.call_to(at);
        let (key, mut tried) = (format!("{}.doctor", self.store.key), None);
        let outcome = try_lock(&mut call, &key, &mut tried).await;
        // Without it the session ends in a moment, and its lock with it.
        let removed = match tried.as_ref() {
            Some(session) => call.destroy_session(session.id).await,
            None => Ok(()),
        };
        drop(call);
        if let Err(error) = outcome.and(removed) {
            return self.fault(&error);
        }
        let place = key.trim_end_matches("lease.doctor");
        self.findings
            .passed(RIGHTS, format!("locks and writes keys in {place}, by sessions of its own"));
        let node = tried.map(|it| it.node).unwrap_or_default();
        let detail = format!(
            "created at the agent {node:?}: if that leaves the cluster, the lease is lost, and Consul keeps the \
             lock from others for a lease-duration, of 60 s at most"
        );
        let longest = format!("; after a crash it is free after up to {}", LATE);
        self.findings.passed(SESSION, detail + &longest);
    }

    /// Times some requests over an open connection.
    async fn timings(&mut self, at: usize) {
        let mut slowest = Duration::ZERO;
        for _ in 0..TIMED {
            let sent = clock::now();
            // One that fails takes its time too.
            let _ = self.api.call_to(at).get(&self.store.key).await;
            slowest = slowest.max(sent.elapsed_max(clock::now()));
        }
        // A renewal is that of the session, and a read.
        let bound = self.store.settings.request_timeout;
        let check = "check the load and the disks of the servers";
        self.findings.timings(TIMINGS, of_timings(slowest, 2, bound, check));
    }
}

/// Creates a session, keeps it in `tried`, and locks, unlocks and deletes a key with it.
async fn try_lock(
    call: &mut Call<'_>,
    key: &str,
    tried: &mut Option<Session>,
) -> Result<(), ConsulError> {
    let id = call.create_session("tenure doctor", TRIED).await?;
    let made = call.session(id).await?;
    *tried = Some(made.unwrap_or_else(|| unknown(id)));
    let steps = [wire::lock(key, b"tenure doctor", id), wire::unlock(key, b"tenure doctor", id)];
    for operations in [&steps[..1], &steps[1..], &[wire::delete(key)]] {
        if call.txn(operations).await? != Changed::Done {
            let message =
                format!("{} did not lock {key}, which only `tenure doctor` locks", call.server());
            return Err(ConsulError::Unavailable(message));
        }
    }
    Ok(())
}

/// A session that this token may not read.
fn unknown(id: Uuid) -> Session {
    Session { id, node: String::new(), ttl: String::new(), lock_delay: 0 }
}

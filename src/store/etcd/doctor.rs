//! The checks of `tenure doctor` for a cluster, in the order in which an operator would fix them.
//! Permissions are tried on a key of their own, which is removed afterwards; the lease and the record
//! of the election are not touched.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::errors::EtcdError;
use super::gateway::{Call, Gateway};
use super::record::{Seen, lease_number};
use super::version::Release;
use super::wire::{self, Header, Number};
use super::{Etcd, Range};
use crate::clock;
use crate::lease::LeaseId;
use crate::store::Finding;
use crate::store::finding::{Findings, TIMED, of_timings};
use crate::store::server_finding::ServerClock;

/// The longest time that one request may take; longer than any sensible request-timeout, to tell a
/// slow cluster from a dead one.
const PATIENCE: Duration = Duration::from_secs(10);

/// The seconds of the lease that is tried; etcd grants its minimum, which is longer.
const TRIED: i64 = 1;

const CLOCK: ServerClock = ServerClock {
    of: "etcd",
    unit: time::Duration::SECOND,
    skewed: 31,
    remedy: "synchronize both clocks (NTP): no lease depends on them, but certificates do",
};

const MEMBERS: &str = "members";
const VERSION: &str = "version";
const HEALTH: &str = "cluster";
const SIGN_IN: &str = "sign-in";
const KEYS: &str = "keys";
const RIGHTS: &str = "permissions";
const LEASE: &str = "lease";
const SKEW: &str = "clock skew";
const TIMINGS: &str = "timings";

/// All subjects, in order.
const SUBJECTS: [&str; 9] = [MEMBERS, VERSION, HEALTH, SIGN_IN, KEYS, RIGHTS, LEASE, SKEW, TIMINGS];

/// What a member says of itself to an administrator, and to everyone where etcd has no users.
#[derive(Debug, Deserialize)]
struct Status {
    header: Header,
    /// The id of the leader; 0 if the member knows none.
    #[serde(default)]
    leader: Number<u64>,
    /// The alarms, and what else is wrong.
    #[serde(default)]
    errors: Vec<String>,
}

/// A member that answers.
struct Member {
    at: usize,
    /// Host and port.
    name: String,
    version: String,
    /// `None` if the user may not ask for it.
    status: Option<Status>,
}

impl Member {
    /// Returns whether the member says that it has no leader.
    fn is_leaderless(&self) -> bool {
        self.status.as_ref().is_some_and(|it| it.leader == Number(0))
    }
}

/// One run of the checks.
struct Examination<'a> {
    store: &'a Etcd,
    gateway: Gateway,
    findings: Findings,
}

/// Runs all checks, as far as it gets.
pub(super) async fn examine(store: &Etcd) -> Vec<Finding> {
    let mut findings = Findings::new(&SUBJECTS);
    let gateway = match Gateway::open(&store.settings, PATIENCE) {
        Ok(gateway) => gateway,
        Err(error) => {
            findings.failed(
                MEMBERS,
                format!("{error:#}"),
                "check --store-ca-file and --store-cert",
            );
            return findings.finish();
        }
    };
    let mut examination = Examination { store, gateway, findings };
    if let Some(at) = examination.members().await
        && examination.keys(at).await
    {
        examination.rights(at).await;
        examination.timings(at).await;
    }
    examination.findings.finish()
}

impl Examination<'_> {
    /// Asks each member for its state; returns the number of one that can be used.
    async fn members(&mut self) -> Option<usize> {
        let mut members = Vec::new();
        let mut broken = Vec::new();
        for at in 0..self.store.settings.members.len() {
            let mut call = self.gateway.call_to(at);
            match call.version().await {
                Ok(version) => {
                    let name = call.member().to_owned();
                    let status = call.request("maintenance/status", &json!({})).await.ok();
                    members.push(Member { at, name, version, status });
                }
                Err(error) => broken.push(error.to_string()),
            }
        }
        let scheme = if self.store.settings.tls.is_some() { "TLS" } else { "plain HTTP" };
        let names: Vec<&str> = members.iter().map(|it| it.name.as_str()).collect();
        let answer = format!("answered over {scheme}: {}", names.join(", "));
        let statuses = members.iter().filter_map(|it| it.status.as_ref());
        let clusters: BTreeSet<_> = statuses.map(|it| it.header.cluster_id.0).collect();
        let remedy = "check --store, firewalls, and whether etcd runs there";
        if members.is_empty() {
            self.findings.failed(MEMBERS, broken.join("; "), remedy);
            return None;
        }
        if clusters.len() > 1 {
            let detail =
                format!("{} belong to {} different clusters", names.join(", "), clusters.len());
            let remedy =
                "name members of one cluster in --store: on several, several instances lead";
            self.findings.failed(MEMBERS, detail, remedy);
            return None;
        }
        if broken.is_empty() {
            self.findings.passed(MEMBERS, answer);
        } else {
            let detail = format!("{answer}; but {}", broken.join("; "));
            self.findings.warning(MEMBERS, detail, remedy);
        }
        self.versions(&members);
        self.health(&members);
        let usable = members.iter().find(|it| !it.is_leaderless());
        usable.or(members.first()).map(|it| it.at)
    }

    /// Names the versions of the members, and those that end live leases.
    fn versions(&mut self, members: &[Member]) {
        let all: BTreeSet<_> = members.iter().map(|it| it.version.as_str()).collect();
        let shown = all.iter().copied().collect::<Vec<_>>().join(", ");
        let asks_first = |it: &&str| Release::parse(it).is_some_and(Release::asks_first);
        if all.iter().all(asks_first) {
            return self.findings.passed(VERSION, format!("etcd {shown}"));
        }
        let detail = format!(
            "etcd {shown}; its issue 15247, by which live leases of others may end, ends no leadership: each \
             renewal has a new lease"
        );
        self.findings.passed(VERSION, detail);
    }

    /// Checks that the members have a leader and no alarm.
    fn health(&mut self, members: &[Member]) {
        let statuses = || members.iter().filter_map(|it| it.status.as_ref());
        if statuses().next().is_none() {
            let detail = "the user may not ask for leader and alarms, which is no fault";
            return self.findings.passed(HEALTH, detail);
        }
        let leaderless = members.iter().filter(|it| it.is_leaderless());
        let leaderless: Vec<_> = leaderless.map(|it| it.name.as_str()).collect();
        let errors: BTreeSet<_> = statuses().flat_map(|it| it.errors.iter()).collect();
        let errors = errors.into_iter().map(String::as_str).collect::<Vec<_>>().join("; ");
        if leaderless.len() == members.len() {
            let detail = format!("no member has a leader: the cluster has no quorum; {errors}");
            let remedy = "start the other members, or restore the cluster";
            self.findings.failed(HEALTH, detail, remedy);
        } else if errors.contains("NOSPACE") || errors.contains("CORRUPT") {
            let remedy = "NOSPACE: compact and defragment, then disarm the alarm; CORRUPT: replace the \
                          member";
            self.findings.failed(HEALTH, errors, remedy);
        } else if !leaderless.is_empty() || !errors.is_empty() {
            let detail = format!("without a leader: {}; {errors}", leaderless.join(", "));
            self.findings.warning(HEALTH, detail, "check these members");
        } else {
            self.findings.passed(HEALTH, "has a leader and no alarm");
        }
    }

    /// Records the error of a request that should have succeeded.
    fn fault(&mut self, error: &EtcdError) {
        let (subject, remedy) = match error {
            EtcdError::Files(_) | EtcdError::Token(_) => {
                (SIGN_IN, "set ETCD_USERNAME and ETCD_PASSWORD")
            }
            EtcdError::Denied(why) if why.contains("sign-in") => (SIGN_IN, "correct the password"),
            EtcdError::Denied(why) if why.contains("--store-cert") => (SIGN_IN, "replace it"),
            EtcdError::Denied(_) => return self.denied(error),
            _ => (HEALTH, "check the cluster, and run `tenure doctor` again"),
        };
        self.findings.failed(subject, error.to_string(), remedy);
    }

    fn denied(&mut self, error: &EtcdError) {
        let place = self.store.place();
        let remedy = format!(
            "etcdctl role add tenure; etcdctl role grant-permission --prefix tenure readwrite {place}; \
             etcdctl user grant-role USER tenure"
        );
        self.findings.failed(RIGHTS, error.to_string(), &remedy);
    }

    /// Reads both keys; returns whether that is allowed.
    async fn keys(&mut self, at: usize) -> bool {
        let mut call = self.gateway.call_to(at);
        let sent = clock::now();
        let read = call.range(&self.store.both()).await;
        let date = call.date;
        drop(call);
        let range = match read {
            Ok(range) => range,
            Err(error @ EtcdError::Denied(_)) if !error.to_string().contains("sign-in") => {
                self.signed_in();
                self.denied(&error);
                return false;
            }
            Err(error) => {
                self.fault(&error);
                return false;
            }
        };
        self.signed_in();
        self.findings.skew(SKEW, &CLOCK, date, (sent, clock::now()));
        self.state(&range);
        true
    }

    fn signed_in(&mut self) {
        let detail = match &self.store.settings.user {
            Some(_) => "the user of ETCD_USERNAME, by its password",
            None => "none is needed",
        };
        self.findings.passed(SIGN_IN, detail);
    }

    /// Reports what the keys hold.
    fn state(&mut self, range: &Range) {
        let place = self.store.place();
        let seen = match Seen::of(range, &self.store.keys) {
            Ok(seen) => seen,
            Err(failure) => return self.findings.failed(KEYS, failure.message, "see above"),
        };
        let holder = seen.held.as_ref().map(|it| format!("held by {:?}", it.identity));
        let endless = seen.held.as_ref().is_some_and(|it| it.lease == 0);
        if endless {
            let detail = format!("{place}: the claim belongs to no lease, so that it never ends");
            let remedy = "if its holder is dead, run `tenure break --now`";
            return self.findings.warning(KEYS, detail, remedy);
        }
        self.findings.term(KEYS, place, seen.record.term, holder.as_deref());
    }

    /// Tries a lease and a key of its own, and removes them.
    async fn rights(&mut self, at: usize) {
        let mut call = self.gateway.call_to(at);
        let lease = lease_number(LeaseId::from_random(Uuid::new_v4().as_u128()));
        let granted = match call.grant(lease, TRIED).await {
            Ok(granted) => granted.ttl.0,
            Err(error) => {
                drop(call);
                return self.fault(&error);
            }
        };
        let tried = self.try_key(&mut call, lease).await;
        // Without it the lease, and with it the key, ends in a moment.
        let revoked = call.revoke(lease).await;
        drop(call);
        match tried.and(revoked) {
            Ok(()) => {
                let place = self.store.place();
                self.findings.passed(RIGHTS, format!("reads and writes keys in {place}"));
            }
            Err(error) => self.fault(&error),
        }
        self.findings.passed(
            LEASE,
            format!(
                "the cluster counts it; the shortest that it grants is {granted} s, and a key is \
                 deleted at most half a second after its lease has ended"
            ),
        );
    }

    async fn try_key(&self, call: &mut Call<'_>, lease: i64) -> Result<(), EtcdError> {
        let key = self.store.keys.trial();
        call.txn(&[], &[wire::put_under(&key, b"tenure doctor", lease)], &[]).await?;
        call.txn(&[], &[wire::delete(&key)], &[]).await.map(drop)
    }

    /// Times some requests over an open connection.
    async fn timings(&mut self, at: usize) {
        let mut slowest = Duration::ZERO;
        for _ in 0..TIMED {
            let sent = clock::now();
            // One that fails takes its time too.
            let _ = self.gateway.call_to(at).range(&self.store.both()).await;
            slowest = slowest.max(sent.elapsed_max(clock::now()));
        }
        // A renewal is the grant of a lease and a transaction.
        let bound = self.store.settings.request_timeout;
        let check = "check the disks of the cluster";
        self.findings.timings(TIMINGS, of_timings(slowest, 2, bound, check));
    }
}

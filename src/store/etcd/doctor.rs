//! The checks of `tenure doctor` for a cluster, in the order in which an operator would fix them.
//! Permissions are tried on a key of their own, which is removed afterwards; that of the election is only
//! read.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::json;

use super::wire::{self, Number};
use super::{Cluster, several_clusters};
use crate::store::Finding;
use crate::store::register::doctor::{
    CREDENTIAL, Examination, PATIENCE, SERVER, SKEW, TIMINGS, Words, unusable,
};
use crate::store::register::{Body, If, Register, Slot};

const VERSION: &str = "version";
const HEALTH: &str = "cluster";
const KEYS: &str = "keys";
const RECORD: &str = "record";
const RIGHTS: &str = "permissions";
const SPACE: &str = "space";

const WORDS: Words = Words {
    subjects: &[SERVER, VERSION, HEALTH, CREDENTIAL, KEYS, RECORD, RIGHTS, SPACE, SKEW, TIMINGS],
    holder: KEYS,
    value: RECORD,
    settings: "--store",
    page: "docs/stores/etcd.md",
    right: "readwrite on the keys",
};

/// How many revisions without any compaction are few.
const FEW_REVISIONS: i64 = 10_000;

/// The quota of a member that does not tell it, which is etcd's default, in bytes.
const USUAL_QUOTA: u64 = 2 << 30;

const MIB: u64 = 1 << 20;

/// What a member says of itself to an administrator, and to everyone where etcd has no users.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    /// The id of the leader; 0 if the member knows none.
    leader: Number<u64>,
    /// The alarms, and what else is wrong.
    errors: Vec<String>,
    /// In bytes.
    db_size: Number<u64>,
    /// In bytes; of members before 3.6, 0.
    db_size_quota: Number<u64>,
}

/// A member that answers.
struct Member {
    /// Host and port.
    name: String,
    version: String,
    /// The id of its cluster, with what it says of itself; `None` if the user may not ask for it.
    status: Option<(u64, Status)>,
}

impl Member {
    /// Returns whether the member says that it has no leader.
    fn is_leaderless(&self) -> bool {
        self.status.as_ref().is_some_and(|(_, it)| it.leader == Number(0))
    }
}

/// Runs all checks, as far as it gets.
pub(super) async fn examine(cluster: &Cluster) -> Vec<Finding> {
    let patient = match Cluster::open(&cluster.settings, PATIENCE) {
        Ok(patient) => patient,
        Err(error) => return unusable(WORDS, &error),
    };
    let mut examination = Examination::new(&patient, WORDS);
    examination.grant = Some(format!(
        "etcdctl role add tenure; etcdctl role grant-permission --prefix tenure readwrite {}; etcdctl user \
         grant-role USER tenure",
        cluster.folder()
    ));
    let members = members(&mut examination).await;
    if may_begin(&mut examination, &members) && examination.object().await {
        rights(&mut examination).await;
        space(&mut examination, &members).await;
        examination.timings(cluster.settings.request_timeout).await;
    }
    examination.finish()
}

/// Asks each member for its state.
async fn members(examination: &mut Examination<'_, Cluster>) -> Vec<Member> {
    let cluster = examination.register;
    let (mut members, mut outcomes) = (Vec::new(), Vec::new());
    for at in 0..cluster.settings.members.len() {
        let mut call = cluster.gateway.call_to(at);
        let version = call.version().await;
        let name = call.member().to_owned();
        outcomes.push(version.as_ref().map(|_| name.clone()).map_err(Clone::clone));
        if let Ok(version) = version {
            let status = call.request::<Status>("maintenance/status", &json!({})).await.ok();
            let status = status.map(|(header, it)| (header.cluster_id.0, it));
            members.push(Member { name, version, status });
        }
    }
    examination.findings.servers(SERVER, cluster.scheme(), "etcd", &outcomes);
    members
}

/// Judges what the members say; returns whether requests make sense.
fn may_begin(examination: &mut Examination<'_, Cluster>, members: &[Member]) -> bool {
    if members.is_empty() {
        return false;
    }
    let findings = &mut examination.findings;
    let versions: BTreeSet<_> = members.iter().map(|it| it.version.as_str()).collect();
    let versions: Vec<_> = versions.into_iter().collect();
    findings.passed(VERSION, format!("etcd {}", versions.join(", ")));
    let statuses = || members.iter().filter_map(|it| it.status.as_ref());
    let clusters: BTreeSet<_> = statuses().map(|it| it.0).collect();
    if clusters.len() > 1 {
        let remedy = "name members of one cluster in --store";
        findings.failed(HEALTH, several_clusters(clusters.len()), remedy);
        return false;
    }
    if clusters.is_empty() {
        findings.passed(HEALTH, "the user may not ask for leader and alarms, which is no fault");
        return true;
    }
    let leaderless = members.iter().filter(|it| it.is_leaderless());
    let leaderless: Vec<_> = leaderless.map(|it| it.name.as_str()).collect();
    let errors: BTreeSet<_> = statuses().flat_map(|it| it.1.errors.iter()).collect();
    let errors = errors.into_iter().map(String::as_str).collect::<Vec<_>>().join("; ");
    if leaderless.len() == members.len() {
        let detail = format!("no member has a leader: the cluster has no quorum; {errors}");
        findings.failed(HEALTH, detail, "start the other members, or restore the cluster");
        return false;
    }
    if errors.contains("NOSPACE") || errors.contains("CORRUPT") {
        let remedy =
            "NOSPACE: compact and defragment, then disarm the alarm; CORRUPT: replace the member";
        findings.failed(HEALTH, errors, remedy);
    } else if !leaderless.is_empty() || !errors.is_empty() {
        let detail = format!("without a leader: {}; {errors}", leaderless.join(", "));
        findings.warning(HEALTH, detail, "check these members");
    } else {
        findings.passed(HEALTH, "has a leader and no alarm");
    }
    true
}

/// Writes a key of its own, and removes it.
async fn rights(examination: &mut Examination<'_, Cluster>) {
    let cluster = examination.register;
    let tried = async {
        let key = cluster.key(Slot::Trial);
        // Whether one was left there is of no interest.
        cluster.put(Slot::Trial, If::Absent, &Body::default()).await?;
        cluster.gateway.call().txn(&[], &[wire::delete(&key)]).await
    };
    let tried = tried.await.map(drop);
    examination.rights(RIGHTS, &cluster.folder(), tried);
}

/// Compares the databases with their quota, beyond which nothing can be written, and looks for a compaction.
async fn space(examination: &mut Examination<'_, Cluster>, members: &[Member]) {
    let cluster = examination.register;
    let findings = &mut examination.findings;
    let statuses = members.iter().filter_map(|it| it.status.as_ref().map(|it| &it.1));
    let fullest = statuses.max_by_key(|it| it.db_size);
    let Some(Status { db_size: Number(size), db_size_quota: Number(quota), .. }) = fullest else {
        return findings.passed(SPACE, "the user may not ask for it, which is no fault");
    };
    let (quota, by_default) = match *quota {
        0 => (USUAL_QUOTA, ", unless --quota-backend-bytes sets another"),
        quota => (quota, ""),
    };
    let mut detail = format!(
        "the database has {} MiB of {} MiB{by_default}; once it is full, nobody can lead",
        size.div_ceil(MIB),
        quota / MIB
    );
    // It can be read only where nothing was ever compacted.
    let mut oldest = wire::only(&cluster.key(Slot::Lease));
    oldest["revision"] = "1".into();
    let oldest = cluster.gateway.call().range(&oldest).await;
    let revisions = oldest.map(|it| it.0.revision.0).unwrap_or_default();
    let is_kept = revisions > FEW_REVISIONS;
    if is_kept {
        detail += &format!(
            "; nobody has ever compacted it: it keeps all of its {revisions} revisions, and an election adds \
             about 25 MB a day"
        );
    }
    if is_kept || *size >= quota / 2 {
        let remedy = "run etcd with --auto-compaction-mode=periodic --auto-compaction-retention=1h, and \
                      `etcdctl defrag` once to make the file smaller";
        return findings.warning(SPACE, detail, remedy);
    }
    findings.passed(SPACE, detail);
}

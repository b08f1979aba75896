//! The checks of `tenure doctor` for a cluster, in the order in which an operator would fix them.
//! Permissions are tried on a key of their own, which is removed afterwards; that of the election is only
//! read.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Keys, wire};
use crate::store::Finding;
use crate::store::register::doctor::{
    CREDENTIAL, Examination, PATIENCE, SERVER, SKEW, TIMINGS, Words, unusable,
};
use crate::store::register::{Body, If, Register, Slot};

const VERSION: &str = "version";
const CLUSTER: &str = "cluster";
const TOKEN: &str = "token";
const KEYS: &str = "keys";
const RECORD: &str = "record";
const RIGHTS: &str = "permissions";

const WORDS: Words = Words {
    subjects: &[SERVER, VERSION, CLUSTER, CREDENTIAL, TOKEN, KEYS, RECORD, RIGHTS, SKEW, TIMINGS],
    holder: KEYS,
    value: RECORD,
    settings: "--store",
    page: "docs/stores/consul.md",
    right: "key_prefix with the policy write",
};

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

/// A server or agent that answers.
struct Answered {
    at: usize,
    /// Host and port.
    name: String,
    /// The address of the server that leads; empty if none does.
    leader: String,
    /// Those of all servers of its cluster.
    peers: BTreeSet<String>,
}

/// Runs all checks, as far as it gets.
pub(super) async fn examine(keys: &Keys) -> Vec<Finding> {
    let patient = match Keys::open(&keys.settings, PATIENCE) {
        Ok(patient) => patient,
        Err(error) => return unusable(WORDS, &error),
    };
    let mut examination = Examination::new(&patient, WORDS);
    examination.grant = Some(format!(
        "give its token a policy with key_prefix \"{}\" {{ policy = \"write\" }}",
        keys.folder()
    ));
    let servers = servers(&mut examination).await;
    if let Some(at) = cluster(&mut examination, &servers).await
        && examination.object().await
    {
        token(&mut examination, at).await;
        rights(&mut examination).await;
        examination.timings(keys.settings.request_timeout).await;
    }
    examination.finish()
}

/// Asks each server or agent which servers there are, and which leads.
async fn servers(examination: &mut Examination<'_, Keys>) -> Vec<Answered> {
    let keys = examination.register;
    let (mut found, mut outcomes) = (Vec::new(), Vec::new());
    for at in 0..keys.settings.servers.len() {
        let mut call = keys.api.call_to(at);
        let leader = call.ask::<String>("status/leader").await;
        let name = call.server().to_owned();
        outcomes.push(leader.as_ref().map(|_| name.clone()).map_err(Clone::clone));
        if let Ok(leader) = leader {
            let peers = call.ask("status/peers").await.unwrap_or_default();
            found.push(Answered { at, name, leader, peers });
        }
    }
    examination.findings.servers(SERVER, keys.scheme(), "Consul", &outcomes);
    found
}

/// Checks that the servers are of one cluster and have a leader, and counts them; returns the number of one that
/// can be asked.
async fn cluster(examination: &mut Examination<'_, Keys>, servers: &[Answered]) -> Option<usize> {
    let keys = examination.register;
    let first = servers.first()?;
    let version = match keys.api.call_to(first.at).ask::<Release>("agent/version").await {
        Ok(it) => format!("Consul {}", it.human_version),
        Err(_) => "the token may not ask for it, which is no fault".to_owned(),
    };
    let findings = &mut examination.findings;
    findings.passed(VERSION, version);
    let is_other = |it: &&Answered| {
        !it.peers.is_empty() && !first.peers.is_empty() && it.peers.is_disjoint(&first.peers)
    };
    if let Some(other) = servers.iter().find(is_other) {
        let detail = format!(
            "{} and {} belong to different clusters, each of which could have a leader of its own",
            first.name, other.name
        );
        findings.failed(CLUSTER, detail, "name servers or agents of one cluster in --store");
        return None;
    }
    let Some(usable) = servers.iter().find(|it| !it.leader.is_empty()) else {
        let remedy = "start the other servers, or restore the cluster";
        findings.failed(CLUSTER, "no server leads: there is no quorum", remedy);
        return None;
    };
    let peers = usable.peers.len();
    let detail =
        format!("{} leads {peers} servers, by whose quorum each write counts", usable.leader);
    if peers < 3 {
        let remedy = "run three or five servers, so that one may fail";
        findings.warning(CLUSTER, format!("{detail}: none may fail"), remedy);
    } else {
        findings.passed(CLUSTER, detail);
    }
    Some(usable.at)
}

/// Asks what Consul knows of the token, which the reading of the key has accepted.
async fn token(examination: &mut Examination<'_, Keys>, at: usize) {
    let keys = examination.register;
    let findings = &mut examination.findings;
    if keys.settings.token.is_none() {
        return findings.passed(TOKEN, "none is set, and the anonymous token may read");
    }
    match keys.api.call_to(at).ask::<OwnToken>("acl/token/self").await {
        Ok(OwnToken { expiration_time: Some(end) }) => {
            let remedy = "replace it before, in the file of CONSUL_HTTP_TOKEN_FILE";
            findings.warning(TOKEN, format!("it expires at {end}"), remedy);
        }
        Ok(_) => findings.passed(TOKEN, "it does not expire"),
        Err(_) => findings.passed(TOKEN, "it is set, and Consul asks for none"),
    }
}

/// Writes a key of its own, and removes it.
async fn rights(examination: &mut Examination<'_, Keys>) {
    let keys = examination.register;
    let tried = async {
        // Whether one was left there is of no interest.
        keys.put(Slot::Trial, If::Absent, &Body::default()).await?;
        keys.api.call().txn(&[wire::delete(&keys.key(Slot::Trial))]).await
    };
    let tried = tried.await.map(drop);
    examination.rights(RIGHTS, &keys.folder(), tried);
}

//! The checks of `tenure doctor` for an ensemble, in the order in which an operator would fix them. Rights are
//! tried by transactions that leave nothing behind; the nodes of the election are only read.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::access::Call;
use super::connection::Connection;
use super::wire::{Acl, Mode, Op, Reader, Request};
use super::{Ensemble, date};
use crate::clock;
use crate::store::Finding;
use crate::store::register::RegisterError;
use crate::store::register::doctor::{
    CREDENTIAL, Examination, PATIENCE, SERVER, SKEW, TIMINGS, Words, unusable,
};

/// The oldest version that Tenure was made for: major and minor.
const OLDEST: (u32, u32) = (3, 5);

const VERSION: &str = "version";
const PATH: &str = "path";
const NODE: &str = "node";
const RIGHTS: &str = "permissions";
const ACCESS: &str = "access lists";

const WORDS: Words = Words {
    subjects: &[SERVER, CREDENTIAL, VERSION, PATH, NODE, RIGHTS, ACCESS, SKEW, TIMINGS],
    holder: PATH,
    value: NODE,
    settings: "--store",
    page: "docs/stores/zookeeper.md",
    right: "all rights on the nodes of the election",
};

/// A server that takes connections.
struct Server {
    /// What it says of itself, if it may.
    told: String,
    connection: Connection,
}

/// Runs all checks, as far as it gets.
pub(super) async fn examine(ensemble: &Ensemble) -> Vec<Finding> {
    let patient = match Ensemble::open(&ensemble.settings, PATIENCE) {
        Ok(patient) => patient,
        Err(error) => return unusable(WORDS, &error),
    };
    let mut examination = Examination::new(&patient, WORDS);
    if servers(&mut examination).await
        && examination.object().await
        && rights(&mut examination).await
    {
        examination.timings(ensemble.settings.request_timeout).await;
    }
    examination.finish()
}

/// Returns the value of a line of what a server says of itself.
fn line<'a>(told: &'a str, name: &str) -> Option<&'a str> {
    told.lines().find_map(|it| it.strip_prefix(name)).map(str::trim)
}

/// Returns a node for trials, below this one.
fn trial(above: &str) -> String {
    format!("{above}/tenure-doctor-{}", Uuid::new_v4().simple())
}

/// Returns major and minor of a version.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(['.', '-']).map(|it| it.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// Connects to each server; returns whether one can be used.
async fn servers(examination: &mut Examination<'_, Ensemble>) -> bool {
    let ensemble = examination.register;
    let (mut servers, mut broken) = (Vec::new(), Vec::new());
    for at in 0..ensemble.settings.servers.len() {
        let told = ensemble.access.server(at).await.unwrap_or_default();
        match ensemble.access.connect_to(at).await {
            Ok(connection) => {
                ensemble.access.turn_to(at);
                servers.push(Server { told, connection });
            }
            // That is common to all of them.
            Err(error @ (RegisterError::Local(_) | RegisterError::Credential(_))) => {
                examination.fault(&error);
                return false;
            }
            Err(error) => broken.push(error.to_string()),
        }
    }
    let findings = &mut examination.findings;
    let remedy = "check --store, firewalls, and whether ZooKeeper runs there with a quorum";
    if servers.is_empty() {
        findings.failed(SERVER, broken.join("; "), remedy);
        return false;
    }
    if let Some(apart) = apart(ensemble, &mut servers).await {
        let remedy = "name servers of one ensemble in --store: on several, several instances lead";
        findings.failed(SERVER, apart, remedy);
        return false;
    }
    let roles = servers.iter().map(|it| match line(&it.told, "Mode:") {
        Some(mode) => format!("{} ({mode})", it.connection.server()),
        None => it.connection.server().to_string(),
    });
    let scheme = if ensemble.settings.tls.is_some() { "TLS" } else { "no TLS" };
    let answered = format!("answered, with {scheme}: {}", roles.collect::<Vec<_>>().join(", "));
    if broken.is_empty() {
        findings.passed(SERVER, answered);
    } else {
        findings.warning(SERVER, format!("{answered}; but {}", broken.join("; ")), remedy);
    }
    versions(examination, &servers);
    true
}

/// Tells whether a node that one server creates is not known to another, which is of another ensemble
/// then.
async fn apart(ensemble: &Ensemble, servers: &mut [Server]) -> Option<String> {
    let [first, others @ ..] = servers else { return None };
    if others.is_empty() {
        return None;
    }
    let path = trial("");
    let (mode, acl) = (Mode::Ephemeral, ensemble.access.acl());
    let create = [Op::Create { path: &path, data: b"", mode, acl }];
    let one = first.connection.server();
    let asked = first.connection.ask([Request::Transaction(&create)]);
    let [created] = ensemble.access.in_time(&one, asked).await.ok()?;
    // Without the right to create it there, nothing is known.
    created.done(1).ok()?.ok()?;
    for other in others {
        let two = other.connection.server();
        let asked = other.connection.ask([Request::Sync(&path), Request::State(&path)]);
        let Ok([_, found]) = ensemble.access.in_time(&two, asked).await else { continue };
        if let Ok(None) = found.found(Reader::state) {
            return Some(format!("{one} and {two} belong to different ensembles"));
        }
    }
    None
}

/// Names the versions of the servers.
fn versions(examination: &mut Examination<'_, Ensemble>, servers: &[Server]) {
    let version = |it: &Server| {
        let version = line(&it.told, "Zookeeper version:")?.split(['-', ',']).next()?;
        Some(version.to_owned())
    };
    let findings = &mut examination.findings;
    let all: BTreeSet<String> = servers.iter().filter_map(version).collect();
    let shown = all.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let is_old = |it: &String| release(it).is_some_and(|it| it < OLDEST);
    match all.iter().any(is_old) {
        _ if all.is_empty() => {
            let detail = "not told: srvr is not among the server's 4lw.commands.whitelist";
            findings.passed(VERSION, detail);
        }
        false => findings.passed(VERSION, format!("ZooKeeper {shown}")),
        true => {
            let detail = format!("ZooKeeper {shown}, which its project maintains no longer");
            findings.warning(VERSION, detail, "update the servers to 3.8 or newer");
        }
    }
}

/// Tries the rights, and tells who has them; returns whether they suffice.
async fn rights(examination: &mut Examination<'_, Ensemble>) -> bool {
    let asked = async {
        let mut call = examination.register.access.call().await?;
        try_rights(examination, &mut call).await?;
        access(examination, &mut call).await
    };
    match asked.await {
        Ok(()) => true,
        Err(error @ RegisterError::Local(_)) => {
            examination.fault(&error);
            false
        }
        Err(error) => {
            let remedy = "give the user all rights on the nodes of the election: zkCli.sh setAcl -R PATH \
                          auth::cdrwa, as their creator";
            examination.findings.failed(RIGHTS, error.to_string(), remedy);
            false
        }
    }
}

/// Tries to create a node of its own, and to write those of the election in a version that they are not in.
async fn try_rights(
    examination: &mut Examination<'_, Ensemble>,
    call: &mut Call<'_>,
) -> Result<(), RegisterError> {
    let ensemble = examination.register;
    // The lowest folder that is there.
    let mut above = "";
    for folder in ensemble.nodes.folders() {
        let [state] = call.ask([Request::State(folder)]).await?;
        match state.found(Reader::state)? {
            Some(_) => above = folder,
            None => break,
        }
    }
    let (trial, acl) = (trial(above), ensemble.access.acl());
    let path = trial.as_str();
    let ops = [
        Op::Create { path, data: b"", mode: Mode::Ephemeral, acl },
        Op::Set { path, data: b"tenure doctor", version: Some(0) },
        Op::Delete { path },
    ];
    let sent = clock::now();
    let done = call.transact(&ops).await?;
    let answered = clock::now();
    for path in [&ensemble.nodes.record, &ensemble.nodes.term] {
        let written = Op::Set { path, data: b"", version: Some(i32::MAX) };
        // It is in another version, or not there.
        let _ = call.transact(&[written]).await?;
    }
    let folder = &ensemble.nodes.folder;
    let detail = format!("creates, writes and deletes nodes below {folder}");
    examination.findings.passed(RIGHTS, detail);
    examination.skew(done.ok().as_ref().and_then(date), sent, answered);
    Ok(())
}

/// Tells who may change the record.
async fn access(
    examination: &mut Examination<'_, Ensemble>,
    call: &mut Call<'_>,
) -> Result<(), RegisterError> {
    let ensemble = examination.register;
    let [answer] = call.ask([Request::Access(&ensemble.nodes.record)]).await?;
    let has_user = ensemble.access.acl() == Acl::Creator;
    let of_new = if has_user { "auth:" } else { "world:anyone" };
    let all = answer.found(Reader::access)?.unwrap_or_else(|| vec![of_new.to_owned()]);
    let is_far = ensemble.settings.servers.iter().any(|it| !it.is_loopback());
    let open = "anyone who can connect may take the lease";
    let remedy = "set ZOOKEEPER_AUTH before the nodes are created; or for nodes that exist, as their user: \
                  zkCli.sh setAcl -R PATH auth::cdrwa";
    // Without the hash of a password.
    let name = |it: &String| it.split(':').take(2).collect::<Vec<_>>().join(":");
    let names = all.iter().map(name).collect::<Vec<_>>().join(", ");
    let findings = &mut examination.findings;
    match all.iter().any(|it| it == "world:anyone") {
        true if is_far => findings.warning(ACCESS, open, remedy),
        true => findings.passed(ACCESS, open),
        false if names == of_new => findings.passed(ACCESS, "the user alone, for what it creates"),
        false => findings.passed(ACCESS, format!("the record is for {names} alone")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_and_the_role_are_read_from_what_a_server_says() {
        let told = "Zookeeper version: 3.9.4-7246445ec281f3dbf53dc54e970c914f39713903, built on 2025\n\
                    Latency min/avg/max: 0/0.0/0\nMode: standalone\nNode count: 5\n";
        assert_eq!(line(told, "Mode:"), Some("standalone"));
        let version = line(told, "Zookeeper version:").unwrap();
        assert_eq!(release(version), Some((3, 9)));
        assert_eq!(release("3.4.14"), Some((3, 4)));
        assert_eq!(release("unknown"), None);
    }
}

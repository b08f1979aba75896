//! The checks of `tenure doctor` for an ensemble, in the order in which an operator would fix them. Rights are
//! tried by transactions that leave nothing behind; the lease and the record of the election are only read.

use std::collections::BTreeSet;
use std::time::Duration;

use uuid::Uuid;

use super::access::{Access, Call};
use super::connection::Connection;
use super::errors::{ZookeeperError, other_length};
use super::record::Seen;
use super::wire::{Acl, Mode, Op, Reader, Request};
use super::{Zookeeper, connection, date};
use crate::clock;
use crate::store::Finding;
use crate::store::finding::{Findings, TIMED, of_timings};
use crate::store::server_finding::ServerClock;

/// The longest time that one request may take; longer than any sensible request-timeout, to tell a slow
/// ensemble from a dead one.
const PATIENCE: Duration = Duration::from_secs(10);

const CLOCK: ServerClock = ServerClock {
    of: "ZooKeeper's leader",
    unit: time::Duration::ZERO,
    skewed: 31,
    remedy: "synchronize both clocks (NTP): no lease depends on them, but certificates do",
};

/// The oldest version that Tenure was made for: major and minor.
const OLDEST: (u32, u32) = (3, 5);

const SERVERS: &str = "servers";
const VERSION: &str = "version";
const SIGN_IN: &str = "sign-in";
const SESSIONS: &str = "sessions";
const NODES: &str = "nodes";
const RIGHTS: &str = "permissions";
const ACCESS: &str = "access lists";
const SKEW: &str = "clock skew";
const TIMINGS: &str = "timings";

/// All subjects, in order.
const SUBJECTS: [&str; 9] =
    [SERVERS, VERSION, SIGN_IN, SESSIONS, NODES, RIGHTS, ACCESS, SKEW, TIMINGS];

/// A server that takes connections.
struct Server {
    /// Host and port.
    name: String,
    /// What it says of itself, if it may.
    told: String,
    connection: Connection,
}

/// One run of the checks.
struct Examination<'a> {
    store: &'a Zookeeper,
    access: Access,
    findings: Findings,
}

/// Runs all checks, as far as it gets.
pub(super) async fn examine(store: &Zookeeper) -> Vec<Finding> {
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
    examination.all().await;
    examination.findings.finish()
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

impl Examination<'_> {
    async fn all(&mut self) {
        if !self.servers().await {
            return;
        }
        if let Err(error) = self.sessions().await {
            self.fault(&error);
            return;
        }
        let mut call = match self.access.call().await {
            Ok(call) => call,
            Err(error) => return fault(&mut self.findings, &error),
        };
        let findings = &mut self.findings;
        if let Some(seen) = nodes(self.store, findings, &mut call).await {
            rights(self.store, findings, &mut call, &seen).await;
        }
        drop(call);
        self.timings().await;
    }

    /// Connects to each server; returns whether one can be used.
    async fn servers(&mut self) -> bool {
        let (mut servers, mut broken, mut sign_in) = (Vec::new(), Vec::new(), None);
        for (at, address) in self.store.settings.servers.iter().enumerate() {
            let told = self.access.server(at).await.unwrap_or_default();
            match self.access.connect_to(at, self.store.settings.lease_duration).await {
                Ok(connection) => {
                    self.access.turn_to(at);
                    servers.push(Server { name: address.to_string(), told, connection });
                }
                Err(error @ (ZookeeperError::SignIn(_) | ZookeeperError::Files(_))) => {
                    sign_in = Some(error);
                }
                Err(error) => broken.push(error.to_string()),
            }
        }
        if let Some(error) = sign_in {
            self.findings.passed(SERVERS, "answered");
            fault(&mut self.findings, &error);
            return false;
        }
        let remedy = "check --store, firewalls, and whether ZooKeeper runs there with a quorum";
        if servers.is_empty() {
            self.findings.failed(SERVERS, broken.join("; "), remedy);
            return false;
        }
        if let Some(apart) = self.apart(&mut servers).await {
            let remedy =
                "name servers of one ensemble in --store: on several, several instances lead";
            self.findings.failed(SERVERS, apart, remedy);
            return false;
        }
        let roles = servers.iter().map(|it| match line(&it.told, "Mode:") {
            Some(mode) => format!("{} ({mode})", it.name),
            None => it.name.clone(),
        });
        let scheme = if self.store.settings.tls.is_some() { "TLS" } else { "no TLS" };
        let answered = format!("answered, with {scheme}: {}", roles.collect::<Vec<_>>().join(", "));
        if broken.is_empty() {
            self.findings.passed(SERVERS, answered);
        } else {
            let detail = format!("{answered}; but {}", broken.join("; "));
            self.findings.warning(SERVERS, detail, remedy);
        }
        self.versions(&servers);
        let detail = match &self.store.settings.auth {
            Some(_) => "the user of ZOOKEEPER_AUTH",
            None => "none: ZOOKEEPER_AUTH is not set",
        };
        self.findings.passed(SIGN_IN, detail);
        servers.into_iter().for_each(|it| it.connection.close());
        true
    }

    /// Tells whether a node that one server creates is not known to another, which is of another ensemble
    /// then.
    async fn apart(&self, servers: &mut [Server]) -> Option<String> {
        let [first, others @ ..] = servers else { return None };
        if others.is_empty() {
            return None;
        }
        let acl = self.access.acl();
        let path = trial("");
        let create = [Op::Create { path: &path, data: b"", mode: Mode::Ephemeral, acl }];
        // Without the right to create it there, nothing is known.
        let created = self.access.in_time(0, first.connection.transact(&create));
        created.await.ok()?.ok()?;
        for other in others {
            let asked = [Request::Sync(&path), Request::State(&path)];
            let asked = self.access.in_time(0, other.connection.ask(asked)).await;
            let Ok([_, found]) = asked else { continue };
            if let Ok(None) = connection::state(&found) {
                let (one, two) = (&first.name, &other.name);
                return Some(format!("{one} and {two} belong to different ensembles"));
            }
        }
        None
    }

    /// Names the versions of the servers.
    fn versions(&mut self, servers: &[Server]) {
        let version = |it: &Server| {
            let version = line(&it.told, "Zookeeper version:")?.split(['-', ',']).next()?;
            Some(version.to_owned())
        };
        let all: BTreeSet<String> = servers.iter().filter_map(version).collect();
        let shown = all.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let is_old = |it: &String| release(it).is_some_and(|it| it < OLDEST);
        match all.iter().any(is_old) {
            _ if all.is_empty() => {
                let detail = "not told: srvr is not among the server's 4lw.commands.whitelist";
                self.findings.passed(VERSION, detail);
            }
            false => self.findings.passed(VERSION, format!("ZooKeeper {shown}")),
            true => {
                let detail = format!("ZooKeeper {shown}, which its project maintains no longer");
                self.findings.warning(VERSION, detail, "update the servers to 3.8 or newer");
            }
        }
    }

    /// Compares the lease with the bounds of sessions.
    async fn sessions(&mut self) -> Result<(), ZookeeperError> {
        let (shortest, longest) = self.access.lengths().await?;
        let lease = self.store.settings.lease_duration;
        let bounds = format!("the servers keep sessions of {shortest:?} to {longest:?}");
        if (shortest..=longest).contains(&lease) {
            let detail = format!(
                "{bounds}; a lease that is not renewed ends lease-duration after the last renewal, and \
                 less than a tick later"
            );
            self.findings.passed(SESSIONS, detail);
        } else {
            let bound = if lease < shortest { shortest } else { longest };
            let why = other_length(lease, bound, "the ensemble").to_string();
            let remedy = "correct --lease-duration, or minSessionTimeout and maxSessionTimeout";
            self.findings.failed(SESSIONS, why, remedy);
        }
        Ok(())
    }

    fn fault(&mut self, error: &ZookeeperError) {
        fault(&mut self.findings, error);
    }

    /// Times what a renewal does, up to its transaction.
    async fn timings(&mut self) {
        let mut slowest = Duration::ZERO;
        for _ in 0..TIMED {
            let sent = clock::now();
            // One that fails takes its time too.
            let _ = self.like_a_renewal().await;
            slowest = slowest.max(sent.elapsed_max(clock::now()));
        }
        let bound = self.store.settings.request_timeout;
        let check = "check the disks and the network of the ensemble";
        self.findings.timings(TIMINGS, of_timings(slowest, 1, bound, check));
    }

    async fn like_a_renewal(&self) -> Result<(), ZookeeperError> {
        let mut call = self.access.session(self.store.settings.lease_duration).await?;
        let [_] = call.ask([Request::Data(&self.store.nodes.record)]).await?;
        let _ = call.transact(&[Op::Check { path: "/", version: None }]).await?;
        call.close();
        Ok(())
    }
}

/// Records the error of a request that should have succeeded.
fn fault(findings: &mut Findings, error: &ZookeeperError) {
    let (subject, remedy) = match error {
        ZookeeperError::SignIn(_) | ZookeeperError::Files(_) => {
            (SIGN_IN, "set ZOOKEEPER_AUTH to digest:USER:PASSWORD")
        }
        ZookeeperError::Denied(_) => (
            RIGHTS,
            "give the user all rights on the nodes of the election: zkCli.sh setAcl -R PATH \
             auth::cdrwa, as their creator",
        ),
        _ => (SERVERS, "check the ensemble, and run `tenure doctor` again"),
    };
    findings.failed(subject, error.to_string(), remedy);
}

/// Reads the record; returns it if that is allowed.
async fn nodes(store: &Zookeeper, findings: &mut Findings, call: &mut Call<'_>) -> Option<Seen> {
    let asked = call.ask([Request::Data(store.place())]).await;
    let node = match asked.and_then(|[data]| data.found(Reader::data)) {
        Ok(node) => node,
        Err(error) => {
            fault(findings, &error);
            return None;
        }
    };
    let seen = match Seen::of(node, &store.nodes) {
        Ok(seen) => seen,
        Err(failure) => {
            findings.failed(NODES, failure.message, "see above");
            return None;
        }
    };
    let place = store.place();
    let holder = seen.held.as_ref().map(|it| format!("held by {:?}", it.identity));
    findings.term(NODES, place, seen.record.term, holder.as_deref());
    Some(seen)
}

/// Tries to create a node of its own, and to write the record in a version that it is not in.
async fn rights(store: &Zookeeper, findings: &mut Findings, call: &mut Call<'_>, seen: &Seen) {
    let acl = store.access.acl();
    // The lowest folder that is there.
    let mut above = "";
    for folder in store.nodes.folders() {
        let asked = call.ask([Request::State(folder)]).await;
        match asked.and_then(|[answer]| connection::state(&answer)) {
            Ok(Some(_)) => above = folder,
            Ok(None) => break,
            Err(error) => return fault(findings, &error),
        }
    }
    let trial = trial(above);
    let path = trial.as_str();
    let ops = [
        Op::Create { path, data: b"", mode: Mode::Ephemeral, acl },
        Op::Set { path, data: b"tenure doctor", version: 0 },
        Op::Delete { path },
    ];
    let sent = clock::now();
    let outcome = match call.transact(&ops).await {
        Ok(outcome) => outcome,
        Err(error) => return fault(findings, &error),
    };
    let answered = clock::now();
    let written = Op::Set { path: store.place(), data: b"", version: i32::MAX };
    if let Err(error) = call.transact(&[written]).await {
        return fault(findings, &error);
    }
    let folder = &store.nodes.folder;
    findings.passed(RIGHTS, format!("creates, writes and deletes nodes below {folder}"));
    access(store, findings, call, seen).await;
    if let Ok(outcome) = outcome {
        findings.skew(SKEW, &CLOCK, date(&outcome), (sent, answered));
    }
}

/// Tells who may change the record.
async fn access(store: &Zookeeper, findings: &mut Findings, call: &mut Call<'_>, seen: &Seen) {
    let is_far = store.settings.servers.iter().any(|it| !it.is_loopback());
    let open = "anyone who can connect may take the lease";
    let remedy = "set ZOOKEEPER_AUTH before the nodes are created; or for nodes that exist, as their user: \
                  zkCli.sh setAcl -R PATH auth::cdrwa";
    if seen.node.is_none() {
        return match store.access.acl() {
            Acl::Creator => findings.passed(ACCESS, "the user alone, for what it creates"),
            Acl::World if is_far => findings.warning(ACCESS, open, remedy),
            Acl::World => findings.passed(ACCESS, open),
        };
    }
    let asked = call.ask([Request::Access(store.place())]).await;
    match asked.and_then(|[answer]| answer.read(Reader::access)) {
        Err(error) => fault(findings, &error),
        Ok(all) => {
            // Without the hash of a password.
            let name = |it: &String| it.split(':').take(2).collect::<Vec<_>>().join(":");
            let names = all.iter().map(name).collect::<Vec<_>>().join(", ");
            match all.iter().any(|it| it == "world:anyone") {
                true if is_far => findings.warning(ACCESS, open, remedy),
                true => findings.passed(ACCESS, open),
                false => findings.passed(ACCESS, format!("the record is for {names} alone")),
            }
        }
    }
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

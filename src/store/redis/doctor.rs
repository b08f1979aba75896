//! The checks of `tenure doctor` for a server and its replicas, in the order in which an operator would
//! fix them. The key of the election is only read; what the user may write is tried on one beside it, which
//! stays.

use super::Database;
use super::connection::{Connection, Info};
use super::reply::Reply;
use super::scripts::{Command, command};
use crate::store::Finding;
use crate::store::finding::Findings;
use crate::store::network::in_time;
use crate::store::register::doctor::{
    CREDENTIAL, Examination, PATIENCE, SERVER, SKEW, TIMINGS, Words, unusable,
};
use crate::store::register::{Body, If, Register, RegisterError, Slot};

/// The oldest major version that has what is used here.
const OLDEST: u32 = 6;

const VERSION: &str = "version";
const PRIMARY: &str = "primary";
const DATABASE: &str = "database";
const KEY: &str = "key";
const RIGHTS: &str = "permissions";
const DURABILITY: &str = "durability";
const EVICTION: &str = "eviction";
const FAILOVER: &str = "failover";
const NOTIFICATIONS: &str = "notifications";

const WORDS: Words = Words {
    subjects: &[
        SERVER,
        CREDENTIAL,
        VERSION,
        PRIMARY,
        DATABASE,
        KEY,
        RIGHTS,
        DURABILITY,
        EVICTION,
        FAILOVER,
        NOTIFICATIONS,
        SKEW,
        TIMINGS,
    ],
    holder: DATABASE,
    value: KEY,
    settings: "--store",
    page: "docs/stores/redis.md",
    right: "the commands, keys and channels that docs/stores/redis.md names",
};

/// A server that signed the user in.
struct Server {
    /// Its number among the addresses.
    at: usize,
    /// Host and port.
    name: String,
    connection: Connection,
}

/// Runs all checks, as far as it gets.
pub(super) async fn examine(database: &Database) -> Vec<Finding> {
    let patient = match Database::open(&database.settings, PATIENCE) {
        Ok(patient) => patient,
        Err(error) => return unusable(WORDS, &error),
    };
    let mut examination = Examination::new(&patient, WORDS);
    let servers = servers(&mut examination).await;
    if let Some(mut primary) = primary(&mut examination, servers) {
        patient.access.next.set(primary.at);
        if examination.object().await && rights(&mut examination).await {
            durability(&mut examination.findings, &mut primary.connection).await;
            let info = &primary.connection.info;
            eviction(&mut examination.findings, info);
            failover(&mut examination.findings, info, patient.settings.servers.len());
            notifications(&mut examination, &mut primary).await;
            examination.timings(database.settings.request_timeout).await;
        }
    }
    examination.finish()
}

async fn ask(connection: &mut Connection, command: &Command) -> Result<Reply, RegisterError> {
    in_time(PATIENCE, "the server", connection.ask(command)).await
}

/// Connects to each server, and returns those that signed the user in.
async fn servers(examination: &mut Examination<'_, Database>) -> Vec<Server> {
    let database = examination.register;
    let (mut servers, mut outcomes) = (Vec::new(), Vec::new());
    for (at, address) in database.settings.servers.iter().enumerate() {
        let name = address.to_string();
        outcomes.push(match database.access.connect_to(at).await {
            Ok(connection) => {
                servers.push(Server { at, name: name.clone(), connection });
                Ok(name)
            }
            Err(error) => Err(error),
        });
    }
    let how = if database.settings.tls.is_some() { "with TLS" } else { "with no TLS" };
    let is_answered = examination.findings.servers(SERVER, how, "Redis", &outcomes);
    let refusal = outcomes.into_iter().filter_map(Result::err).find(RegisterError::is_answer);
    match refusal {
        // That is common to all of them.
        Some(error @ RegisterError::Credential(_)) => examination.fault(&error),
        Some(error) if !is_answered => examination.fault(&error),
        _ => return servers,
    }
    Vec::new()
}

/// Finds the primary among the servers.
fn primary(examination: &mut Examination<'_, Database>, servers: Vec<Server>) -> Option<Server> {
    let (mut primaries, replicas): (Vec<_>, Vec<_>) = servers
        .into_iter()
        .partition(|it| it.connection.info.is_primary() || !it.connection.info.is_known());
    let one = primaries.first().or(replicas.first())?;
    let findings = &mut examination.findings;
    let (version, is_fit) = version(&one.connection.info);
    if !is_fit {
        findings.failed(VERSION, version, "upgrade to Redis 6 or newer, or to Valkey");
        return None;
    }
    findings.passed(VERSION, version);
    let names = |of: &[Server]| of.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    if primaries.is_empty() {
        let detail = format!("{} are replicas, and none is the primary", names(&replicas));
        findings.failed(PRIMARY, detail, "name the primary in --store too");
        return None;
    }
    let first = &primaries[0].connection.info;
    if primaries.iter().any(|it| it.connection.info.is_another_primary(first)) {
        let detail = format!("{} all take writes", names(&primaries));
        let remedy = "name one primary and its replicas: on several, several instances could lead";
        findings.failed(PRIMARY, detail, remedy);
        return None;
    }
    let followed = match replicas.as_slice() {
        [] => String::new(),
        some => format!("; replicas: {}", names(some)),
    };
    findings.passed(PRIMARY, format!("{}{followed}", names(&primaries)));
    Some(primaries.swap_remove(0))
}

/// Writes beside the key of the election; returns whether the user may.
async fn rights(examination: &mut Examination<'_, Database>) -> bool {
    let database = examination.register;
    let tried = async {
        let found = database.get(Slot::Trial).await?;
        let condition = found.as_ref().map_or(If::Absent, |it| If::Tagged(&it.tag));
        let body = Body { write: database.draw(), ..Body::default() };
        database.put(Slot::Trial, condition, &body).await.map(drop)
    };
    let findings = &mut examination.findings;
    let Err(error) = tried.await else {
        findings.passed(RIGHTS, "reads and writes the keys");
        return true;
    };
    let remedy = match error {
        RegisterError::Denied(_) => {
            "give the user the commands, keys and channels that docs/stores/redis.md names, by ACL SETUSER"
        }
        _ => "mend what the server reports",
    };
    findings.failed(RIGHTS, error.to_string(), remedy);
    false
}

/// Tells what becomes of the lease in a crash.
async fn durability(findings: &mut Findings, primary: &mut Connection) {
    if primary.info.get("aof_enabled") != "1" {
        let detail = "the append-only file is off: after a restart the lease and its term are gone, or as \
                      in the last snapshot; two instances may lead, and a term may be given twice";
        let remedy = "set appendonly yes and appendfsync always";
        return findings.warning(DURABILITY, detail, remedy);
    }
    // The user need not be allowed to ask.
    let asked = command(&["CONFIG", "GET", "appendfsync"]);
    let found = ask(primary, &asked).await.ok();
    let found = found.as_ref().and_then(|it| it.parts().get(1)).and_then(Reply::text);
    match found {
        Some("always") => {
            let detail = "each write is on disk before it is answered (appendfsync always)";
            findings.passed(DURABILITY, detail);
        }
        other => {
            let policy = other.unwrap_or("unknown, since the user may not ask for it");
            let detail = format!(
                "appendfsync is {policy}: a crash may lose the last writes; two instances may lead then, and \
                 a term may be given twice"
            );
            findings.warning(DURABILITY, detail, "set appendfsync always");
        }
    }
}

/// Tells whether the server may delete the keys when its memory is full.
fn eviction(findings: &mut Findings, info: &Info) {
    let policy = info.get("maxmemory_policy");
    let remedy = "set maxmemory-policy noeviction, or use a server of its own for elections";
    match (policy, info.get("maxmemory")) {
        ("noeviction", _) => findings.passed(EVICTION, "none (noeviction)"),
        ("", _) => {
            let detail = "the server does not tell its maxmemory-policy";
            findings.warning(EVICTION, detail, remedy);
        }
        (policy, "0") => {
            let detail = format!(
                "maxmemory-policy is {policy}: once maxmemory is set, the lease or its term may be deleted"
            );
            findings.warning(EVICTION, detail, remedy);
        }
        (policy, _) => {
            let detail = format!(
                "maxmemory-policy is {policy}: when its memory is full, the server deletes the lease or its \
                 term, and two instances may lead"
            );
            findings.failed(EVICTION, detail, remedy);
        }
    }
}

/// Tells what becomes of the lease when another server becomes the primary.
fn failover(findings: &mut Findings, info: &Info, servers: usize) {
    let replicas = info.get("connected_slaves");
    if replicas == "0" && servers == 1 {
        let detail = "exclusive on this server, as far as it loses no write; it has no replica";
        return findings.passed(FAILOVER, detail);
    }
    let detail = format!(
        "best effort: its {replicas} replicas get writes after they were answered, so that after a failover two \
         instances may lead until the older one's next renewal is refused, and the same term may be given twice"
    );
    let remedy = "fail over only after a lease-duration without a primary, or use a store that is exclusive \
                  across a failover, see docs/choosing.md";
    findings.warning(FAILOVER, detail, remedy);
}

/// Subscribes to the channel, and publishes on it what no store takes for news.
async fn notifications(examination: &mut Examination<'_, Database>, primary: &mut Server) {
    let channel = &examination.register.scripts.channel;
    let tried = async {
        let mut listener = examination.register.access.connect_to(primary.at).await?;
        listener.ask(&command(&["SUBSCRIBE", channel])).await?;
        primary.connection.ask(&command(&["PUBLISH", channel, "doctor"])).await?;
        listener.message().await
    };
    let outcome = tokio::time::timeout(PATIENCE, tried).await;
    let findings = &mut examination.findings;
    match outcome {
        Ok(Ok(_)) => {
            let detail = "a standby is told of a release, and a leader of a break";
            findings.passed(NOTIFICATIONS, detail);
        }
        failed => {
            let why = failed.map_or_else(
                |_| format!("no message arrived within {PATIENCE:?}"),
                |it| it.err().map(|it| it.to_string()).unwrap_or_default(),
            );
            let detail = format!("none, so that a standby sees a release at its next poll: {why}");
            let remedy = format!("allow PUBLISH and SUBSCRIBE on the channel {channel}");
            findings.warning(NOTIFICATIONS, detail, &remedy);
        }
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

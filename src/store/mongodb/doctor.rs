//! The checks of `tenure doctor` for the servers of MongoDB, in the order in which an operator would fix
//! them. The document of the election is only read; conditions are tried on one of its own, which stays.

use super::Collection;
use super::access::Session;
use super::wire::OLDEST;
use crate::clock;
use crate::store::Finding;
use crate::store::register::RegisterError;
use crate::store::register::doctor::{
    CONDITIONS, CREDENTIAL, Examination, PATIENCE, SERVER, SKEW, TIMINGS, Words, unusable,
};

const VERSION: &str = "version";
const PRIMARY: &str = "primary";
const COLLECTION: &str = "collection";
const DOCUMENT: &str = "document";
const DURABILITY: &str = "durability";
const STREAM: &str = "change stream";

const WORDS: Words = Words {
    subjects: &[
        SERVER, CREDENTIAL, VERSION, PRIMARY, COLLECTION, DOCUMENT, CONDITIONS, DURABILITY, STREAM,
        SKEW, TIMINGS,
    ],
    holder: COLLECTION,
    value: DOCUMENT,
    settings: "--store",
    page: "docs/stores/mongodb.md",
    right: "insert and update on the collection",
};

/// Runs all checks, as far as it gets.
pub(super) async fn examine(collection: &Collection) -> Vec<Finding> {
    let patient = match Collection::open(&collection.settings, PATIENCE) {
        Ok(patient) => patient,
        Err(error) => return unusable(WORDS, &error),
    };
    let mut examination = Examination::new(&patient, WORDS);
    let sessions = servers(&mut examination).await;
    if primary(&mut examination, &sessions) && examination.object().await {
        examination.conditions().await;
        durability(&mut examination, &sessions);
        stream(&mut examination, &sessions).await;
        examination.timings(collection.settings.request_timeout).await;
    }
    examination.finish()
}

/// Connects to each server; returns the clients.
async fn servers(examination: &mut Examination<'_, Collection>) -> Vec<Session> {
    let collection = examination.register;
    let (mut sessions, mut outcomes) = (Vec::new(), Vec::new());
    for at in 0..collection.settings.servers.len() {
        let asked = clock::now();
        match collection.access.connect_to(at).await {
            Ok(session) => {
                if sessions.is_empty() {
                    examination.skew(session.hello.date, asked, clock::now());
                }
                outcomes.push(Ok(session.servers().to_owned()));
                sessions.push(session);
            }
            // That is common to all of them.
            Err(error @ (RegisterError::Credential(_) | RegisterError::Denied(_))) => {
                examination.fault(&error);
                return Vec::new();
            }
            Err(error) => outcomes.push(Err(error)),
        }
    }
    let scheme = if collection.settings.tls.is_some() { "with TLS" } else { "with no TLS" };
    examination.findings.servers(SERVER, scheme, "MongoDB", &outcomes);
    sessions
}

/// Reports the version, and which server is the primary; returns whether there is one for all.
fn primary(examination: &mut Examination<'_, Collection>, sessions: &[Session]) -> bool {
    let Some(one) = sessions.first() else { return false };
    let settings = &examination.register.settings;
    let findings = &mut examination.findings;
    if let Some(other) = sessions.iter().find(|it| !it.build.is_mongodb) {
        let detail = format!("{} is not MongoDB ({})", other.servers(), other.build.version);
        if !settings.accepts_compatible {
            let remedy =
                "use MongoDB; other servers may let two candidates win, as FerretDB 1 does";
            findings.failed(VERSION, detail, remedy);
            return false;
        }
        let remedy = "keep --mongodb-compatible only if its makers promise atomic updates and the write concern \
                      \"majority\"";
        findings.warning(VERSION, detail, remedy);
    } else {
        let version = &one.build.version;
        let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
        let detail = format!("MongoDB {version}");
        match digits.parse::<u32>() {
            Ok(major) if major < OLDEST => {
                findings.warning(VERSION, detail, "upgrade to a release that MongoDB supports");
            }
            _ => findings.passed(VERSION, detail),
        }
    }
    let named = |of: &[&Session]| {
        of.iter().map(|it| it.servers().to_owned()).collect::<Vec<_>>().join(", ")
    };
    let primaries: Vec<_> = sessions.iter().filter(|it| it.hello.is_primary).collect();
    let mut sets: Vec<_> = sessions.iter().map(|it| &it.hello.set).collect();
    sets.dedup();
    let routers = sessions.iter().filter(|it| it.hello.is_router).count();
    let is_apart = sessions.iter().any(|it| !it.hello.is_replicated());
    if settings.servers.len() > 1
        && (is_apart || sets.len() > 1 || !(routers == 0 || routers == sessions.len()))
    {
        let all: Vec<_> = sessions.iter().collect();
        let detail = format!("{} are not members of one replica set", named(&all));
        let remedy =
            "name the members of one replica set: each other server has a leader of its own";
        findings.failed(PRIMARY, detail, remedy);
        return false;
    }
    if primaries.is_empty() {
        let known = sessions.iter().find_map(|it| it.hello.primary.as_deref());
        let detail = match known {
            Some(known) => format!("the primary is {known}, which --store does not name"),
            None => "the replica set has no primary".to_owned(),
        };
        findings.failed(PRIMARY, detail, "name all members in --store; check rs.status()");
        return false;
    }
    findings.passed(PRIMARY, named(&primaries));
    true
}

/// Tells what the deployment promises.
fn durability(examination: &mut Examination<'_, Collection>, sessions: &[Session]) {
    let named: Vec<_> =
        examination.register.settings.servers.iter().map(ToString::to_string).collect();
    let findings = &mut examination.findings;
    let Some(hello) = sessions.iter().map(|it| &it.hello).find(|it| it.is_primary) else {
        return;
    };
    if hello.is_router {
        let detail = "exclusive, also across failovers, while each shard is a replica set: writes wait for a \
                      majority of it";
        return findings.passed(DURABILITY, detail);
    }
    let Some(set) = &hello.set else {
        let detail = "exclusive on this one server, which belongs to no replica set: while it is down nobody \
                      leads, and with its disk the lease and its term are lost";
        let remedy = "use a replica set of three members for what must go on without one of them";
        return findings.warning(DURABILITY, detail, remedy);
    };
    let members = hello.members.len();
    let detail = format!(
        "exclusive, also across failovers of the replica set {set}: each write waits for a majority of its \
         {members} members"
    );
    let unnamed: Vec<_> = hello.members.iter().filter(|it| !named.contains(it)).cloned().collect();
    if members < 3 {
        let detail = format!("{detail}; without one of them nobody leads");
        findings.warning(DURABILITY, detail, "add members, so that there are three");
    } else if unnamed.len() > 1 {
        // One unnamed may be an arbiter.
        let detail = format!("{detail}; --store does not name {}", unnamed.join(", "));
        let remedy = "name all members, so that the primary is found after each failover; nothing, if they have \
                      other names here";
        findings.warning(DURABILITY, detail, remedy);
    } else {
        findings.passed(DURABILITY, detail);
    }
}

/// Opens a change stream.
async fn stream(examination: &mut Examination<'_, Collection>, sessions: &[Session]) {
    let collection = examination.register;
    let findings = &mut examination.findings;
    if sessions.iter().all(|it| !it.hello.is_replicated()) {
        let detail =
            "none without a replica set, so that a standby sees a release at its next poll";
        return findings.passed(STREAM, detail);
    }
    match collection.try_stream().await {
        Ok(()) => {
            findings.passed(STREAM, "a standby is told of a release, and a leader of a break");
        }
        Err(error) => {
            let remedy = "give the right changeStream on the collection; until then a standby sees a release at its \
                          next poll";
            findings.warning(STREAM, error.to_string(), remedy);
        }
    }
}

//! What is assumed of MongoDB: the commands that are sent, and what their answers mean. No server of MongoDB
//! itself ran in the tests, so each assumption stands here, with its source:
//!
//! - who a server is: <https://www.mongodb.com/docs/manual/reference/command/hello/>, `isMaster` for servers that
//!   do not know it, and <https://www.mongodb.com/docs/manual/reference/command/buildInfo/>
//! - reads and writes: `…/command/find/`, `…/command/insert/`, `…/command/findAndModify/` of the same manual. One
//!   document is changed atomically, and a write with a write concern of the majority that is acknowledged
//!   is never rolled back: <https://www.mongodb.com/docs/manual/reference/write-concern/>. A linearizable
//!   read reflects each write that was acknowledged before it, and needs a bound on its time:
//!   <https://www.mongodb.com/docs/manual/reference/read-concern-linearizable/>
//! - codes of errors: `src/mongo/base/error_codes.yml` of MongoDB's source

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::ErrorKind;
use time::OffsetDateTime;

use super::access::Unanswered;
use crate::config::MongoSettings;
use crate::store::register::Body;

/// The oldest version with support of MongoDB's makers.
pub(super) const OLDEST: u32 = 7;

/// Returns whole milliseconds, at least one: none stands for no bound.
fn millis(bound: Duration) -> i64 {
    i64::try_from(bound.as_millis()).unwrap_or(i64::MAX).max(1)
}

/// Names the servers.
pub(super) fn servers(settings: &MongoSettings) -> String {
    settings.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// What a server says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Hello {
    /// Whether it takes writes.
    pub(super) is_primary: bool,
    /// Whether it is a `mongos`, which routes to the primaries of shards.
    pub(super) is_router: bool,
    /// The name of its replica set; `None` of a server without one.
    pub(super) set: Option<String>,
    /// The members that hold data or vote, as the set names them.
    pub(super) members: Vec<String>,
    /// The primary, as far as it knows.
    pub(super) primary: Option<String>,
    /// The date by its clock.
    pub(super) date: Option<OffsetDateTime>,
}

impl Hello {
    pub(super) fn of(answer: &Document) -> Self {
        let texts = |name: &str| {
            let all = answer.get_array(name).map(Vec::as_slice).unwrap_or_default();
            all.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        let is = |name: &str| answer.get_bool(name).unwrap_or_default();
        let text = |name: &str| answer.get_str(name).ok().map(str::to_owned);
        let date = answer.get_datetime("localTime").ok().map(|it| it.timestamp_millis());
        Self {
            is_primary: is("isWritablePrimary") || is("ismaster"),
            is_router: answer.get_str("msg").is_ok_and(|it| it == "isdbgrid"),
            set: text("setName"),
            members: ["hosts", "passives", "arbiters"].into_iter().flat_map(texts).collect(),
            primary: text("primary"),
            date: date.and_then(|it| {
                OffsetDateTime::from_unix_timestamp_nanos(i128::from(it) * 1_000_000).ok()
            }),
        }
    }

    /// Returns whether writes can be acknowledged by a majority, and reads be linearizable.
    pub(super) fn is_replicated(&self) -> bool {
        self.set.is_some() || self.is_router
    }
}

/// What a server says of its build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Build {
    pub(super) version: String,
    /// Whether it is MongoDB, or built of its source: the others that speak its protocol name no allocator
    /// of memory, or name themselves.
    pub(super) is_mongodb: bool,
}

impl Build {
    pub(super) fn of(answer: &Document) -> Self {
        let names_itself = ["ferretdb", "ferretdbVersion", "ferretdbFeatures"];
        let is_other = names_itself.iter().any(|it| answer.contains_key(it));
        Self {
            version: answer.get_str("version").unwrap_or("unknown").to_owned(),
            is_mongodb: !is_other && answer.get_str("allocator").is_ok(),
        }
    }
}

/// The documents of the elections: their place, and the bounds of requests for them.
pub(super) struct Commands {
    collection: String,
    bound: Duration,
}

/// The field with the name of a state, random in each write: it never repeats, also where a write that was
/// not acknowledged is rolled back.
const WRITE: &str = "write";

/// The field with the content.
const LEASE: &str = "lease";

/// The field with the term, for comparisons of others.
const TERM: &str = "term";

impl Commands {
    pub(super) fn new(settings: &MongoSettings, bound: Duration) -> Self {
        Self { collection: settings.collection.clone(), bound }
    }

    /// Reads a document; where the server has a replica set, none but the newest state that it
    /// acknowledged.
    pub(super) fn find(&self, id: &str, is_replicated: bool) -> Document {
        // A server without a replica set refuses the other level, and has one copy alone.
        let level = if is_replicated { "linearizable" } else { "local" };
        doc! {
            "find": &self.collection, "filter": {"_id": id}, "limit": 1, "singleBatch": true,
            "readConcern": {"level": level}, "maxTimeMS": millis(self.bound),
        }
    }

    /// Lists the names of documents.
    pub(super) fn names(&self, most: usize) -> Document {
        let most = i32::try_from(most).unwrap_or(i32::MAX);
        doc! {
            "find": &self.collection, "projection": {"_id": 1}, "sort": {"_id": 1}, "limit": most,
            "batchSize": most, "singleBatch": true, "maxTimeMS": millis(self.bound),
        }
    }

    /// Creates a document, unless there is one.
    pub(super) fn insert(&self, id: &str, body: &Body) -> Document {
        let mut document = doc! {"_id": id};
        document.extend(fields(body));
        doc! {
            "insert": &self.collection, "documents": [document], "ordered": true,
            "writeConcern": self.concern(), "maxTimeMS": millis(self.bound),
        }
    }

    /// Replaces a document, if it is still in a state.
    pub(super) fn replace(&self, id: &str, from: &str, body: &Body) -> Document {
        doc! {
            "findAndModify": &self.collection, "query": {"_id": id, WRITE: from},
            "update": fields(body), "fields": {"_id": 1}, "writeConcern": self.concern(),
            "maxTimeMS": millis(self.bound),
        }
    }

    /// Asks for an answer only when a majority has written it to disk; after the bound, for one that says
    /// that it has not.
    fn concern(&self) -> Document {
        doc! {"w": "majority", "j": true, "wtimeout": millis(self.bound)}
    }
}

/// Returns the fields of a document, but its name.
fn fields(body: &Body) -> Document {
    let content = body.encode();
    let mut fields = doc! {
        WRITE: body.write.to_string(),
        LEASE: String::from_utf8_lossy(&content).into_owned(),
    };
    if let Some(term) = body.record.term.and_then(|it| i64::try_from(it).ok()) {
        fields.insert(TERM, term);
    }
    fields
}

/// A document as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) write: String,
    pub(super) content: String,
}

impl Stored {
    /// Reads a document; one of another shape has no content, which is none of Tenure's.
    pub(super) fn of(document: &Document) -> Self {
        let text = |name| document.get_str(name).unwrap_or_default().to_owned();
        Self { write: text(WRITE), content: text(LEASE) }
    }
}

fn batch(answer: &Document) -> Result<impl Iterator<Item = &Document>, ()> {
    let cursor = answer.get_document("cursor").map_err(drop)?;
    let all = cursor.get_array("firstBatch").map_err(drop)?;
    Ok(all.iter().filter_map(Bson::as_document))
}

/// Returns the first document of an answer with a cursor.
pub(super) fn found(answer: &Document) -> Result<Option<Stored>, ()> {
    Ok(batch(answer)?.next().map(Stored::of))
}

/// Returns the names of the documents of an answer.
pub(super) fn listed(answer: &Document) -> Vec<String> {
    let names = batch(answer).into_iter().flatten();
    names.filter_map(|it| it.get_str("_id").ok().map(str::to_owned)).collect()
}

/// Returns whether a write was done; `None` where the answer does not say so.
pub(super) fn is_written(answer: &Document) -> Option<bool> {
    // A replacement answers with the document that it has found; there is none where the condition did not hold.
    match (answer.get("value"), number(answer, "n")) {
        (Some(Bson::Document(_)), _) | (None, Some(1)) => Some(true),
        (Some(Bson::Null), _) | (None, Some(0)) => Some(false),
        _ => None,
    }
}

fn number(document: &Document, name: &str) -> Option<i64> {
    match document.get(name)? {
        Bson::Int32(it) => Some(i64::from(*it)),
        Bson::Int64(it) => Some(*it),
        #[allow(clippy::cast_possible_truncation, reason = "counts and codes are small")]
        Bson::Double(it) => Some(*it as i64),
        _ => None,
    }
}

/// Returns the date by the clock of the server that wrote or read last, to a second; a server without a
/// replica set sends none.
pub(super) fn date(answer: &Document) -> Option<OffsetDateTime> {
    let time = answer.get_timestamp("operationTime").ok()?.time;
    OffsetDateTime::from_unix_timestamp(i64::from(time)).ok()
}

/// An error that a server reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) code: i64,
    pub(super) words: String,
    /// Whether the write was done, and a majority has not acknowledged it.
    pub(super) is_unacknowledged: bool,
}

/// Returns the error of an answer, if it reports one: of a write, or of its acknowledgement.
pub(super) fn error(answer: &Document) -> Option<Reported> {
    let of = |it: &Document, is_unacknowledged| Reported {
        code: number(it, "code").unwrap_or_default(),
        words: it.get_str("errmsg").unwrap_or_default().to_owned(),
        is_unacknowledged,
    };
    // Before the error of a write, whose outcome it makes unknown.
    if let Ok(error) = answer.get_document("writeConcernError") {
        return Some(of(error, true));
    }
    let first = answer.get_array("writeErrors").ok()?.first()?;
    first.as_document().map(|it| of(it, false))
}

/// Returns the code of a command that a server has refused.
pub(super) fn code(error: &Unanswered) -> Option<i32> {
    match error {
        Unanswered::Failed(error) => match error.kind.as_ref() {
            ErrorKind::Command(it) => Some(it.code),
            _ => None,
        },
        Unanswered::Late => None,
    }
}

/// What an error means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// There is a document of this name already.
    Exists,
    /// The user is unknown, or its password or certificate is.
    SignIn,
    /// The user may not.
    Denied,
    /// Another server is the primary, or this one is about to stop being it.
    NotPrimary,
    /// It took too long.
    Timeout,
    /// Another write was being done.
    Concurrent,
    /// The server failed; it may still be done.
    Unavailable,
    /// The request is invalid.
    Invalid,
}

/// Returns what the code of an error means.
pub(super) fn meaning(code: i64) -> Meaning {
    match code {
        // DuplicateKey
        11_000 => Meaning::Exists,
        // UserNotFound, AuthenticationFailed, MechanismUnavailable, AtlasError
        11 | 18 | 334 | 8_000 => Meaning::SignIn,
        // Unauthorized
        13 => Meaning::Denied,
        // ShutdownInProgress, PrimarySteppedDown, LegacyNotPrimary, NotWritablePrimary,
        // InterruptedAtShutdown, InterruptedDueToReplStateChange, NotPrimaryNoSecondaryOk,
        // NotPrimaryOrSecondary
        91 | 189 | 10_058 | 10_107 | 11_600 | 11_602 | 13_435 | 13_436 => Meaning::NotPrimary,
        // MaxTimeMSExpired, ExceededTimeLimit
        50 | 262 => Meaning::Timeout,
        // WriteConflict
        112 => Meaning::Concurrent,
        // BadValue, FailedToParse, TypeMismatch, InvalidNamespace, InvalidOptions, NotAReplicaSet,
        // DocumentValidationFailure, CommandNotSupportedOnView, CommandNotFound, and a change stream on a
        // server without a replica set
        2 | 9 | 14 | 59 | 73 | 72 | 123 | 121 | 166 | 40_573 => Meaning::Invalid,
        _ => Meaning::Unavailable,
    }
}

//! What is assumed of MongoDB: the messages of its wire protocol, the commands that are sent, and what
//! their answers mean. No server of MongoDB itself ran in the tests, so each assumption stands here, with
//! its source:
//!
//! - messages: <https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/>
//! - the start of a connection: <https://www.mongodb.com/docs/manual/reference/command/hello/>, and `isMaster`
//!   for servers that do not know it; <https://www.mongodb.com/docs/manual/reference/command/buildInfo/>
//! - reads and writes: `…/command/find/`, `…/command/insert/`, `…/command/update/` of the same manual. One
//!   document is changed atomically, and a write with a write concern of the majority that is acknowledged
//!   is never rolled back: <https://www.mongodb.com/docs/manual/reference/write-concern/>. A linearizable
//!   read reflects each write that was acknowledged before it, and needs a bound on its time:
//!   <https://www.mongodb.com/docs/manual/reference/read-concern-linearizable/>
//! - without a session and a number of a transaction no server retries a write:
//!   <https://www.mongodb.com/docs/manual/core/retryable-writes/>
//! - change streams: <https://www.mongodb.com/docs/manual/changeStreams/>, and
//!   <https://www.mongodb.com/docs/manual/reference/change-events/> for the fields of an event
//! - sign-in: <https://github.com/mongodb/specifications/blob/master/source/auth/auth.md>
//! - codes of errors: `src/mongo/base/error_codes.yml` of MongoDB's source

use std::time::Duration;

use time::OffsetDateTime;

use super::bson::{Document, Value};
use crate::config::MongoSettings;

/// The longest message that is read. Those here have some hundred bytes, and a list of names some thousand.
pub(super) const LONGEST_MESSAGE: usize = 1024 * 1024;

/// Length, number, number that is answered, and operation.
const HEADER: usize = 16;

/// The operation `OP_MSG`.
const OP_MSG: i32 = 2_013;

/// The flag of a message that has a checksum at its end.
const CHECKSUM: u32 = 1;

/// The flags whose meaning has to be known, and of which no answer here has one: all of the lower half but
/// the checksum.
const REQUIRED: u32 = 0xffff & !CHECKSUM;

/// The database with users and commands of the server.
const ADMIN: &str = "admin";

/// The database of users with certificates.
const EXTERNAL: &str = "$external";

/// The oldest version with support of MongoDB's makers.
pub(super) const OLDEST: u32 = 7;

/// A message from the server.
#[derive(Debug, PartialEq)]
pub(super) struct Received {
    /// The number of the request that it answers.
    pub(super) answers: i32,
    pub(super) body: Document,
}

/// Returns a message with this number.
pub(super) fn message(number: i32, body: &Document) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for part in [number, 0, OP_MSG, 0] {
        bytes.extend(part.to_le_bytes());
    }
    // One section, with the body alone.
    bytes.push(0);
    body.write(&mut bytes);
    let length = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Takes the next message out of what was received; `Ok(None)` if it has not arrived to its end, and an
/// error if it is none.
pub(super) fn parse(received: &mut Vec<u8>) -> Result<Option<Received>, ()> {
    let number = |at: usize| received.get(at..at + 4)?.try_into().ok().map(i32::from_le_bytes);
    let Some(length) = number(0) else { return Ok(None) };
    let length = usize::try_from(length).map_err(|_| ())?;
    if !(HEADER + 5..=LONGEST_MESSAGE).contains(&length) {
        return Err(());
    }
    if received.len() < length {
        // What is no message shows before its end.
        return number(12).is_none_or(|it| it == OP_MSG).then_some(None).ok_or(());
    }
    let message: Vec<u8> = received.drain(..length).collect();
    let number = |at: usize| message[at..at + 4].try_into().map(i32::from_le_bytes).map_err(drop);
    #[allow(clippy::cast_sign_loss, reason = "it is a set of flags")]
    let flags = number(HEADER)? as u32;
    let end = length.checked_sub(if flags & CHECKSUM == 0 { 0 } else { 4 }).ok_or(())?;
    let section = message.get(HEADER + 4..end).ok_or(())?;
    let [0, body @ ..] = section else { return Err(()) };
    if number(12)? != OP_MSG || flags & REQUIRED != 0 {
        return Err(());
    }
    let body = Document::read(body).ok_or(())?;
    Ok(Some(Received { answers: number(8)?, body }))
}

/// Returns whole milliseconds, at least one: none stands for no bound.
fn millis(bound: Duration) -> Value {
    Value::Int64(i64::try_from(bound.as_millis()).unwrap_or(i64::MAX).max(1))
}

/// Asks who the server is; `name` is that of the command. The client names itself, for the server's log.
pub(super) fn hello(name: &str, election: &str) -> Document {
    let application = Document::of([("name", Value::Text(format!("tenure {election}")))]);
    let driver =
        Document::of([("name", "tenure".into()), ("version", env!("CARGO_PKG_VERSION").into())]);
    let system = Document::of([("type", "Linux".into())]);
    let client = Document::of([
        ("application", application.into()),
        ("driver", driver.into()),
        ("os", system.into()),
    ]);
    Document::of([(name, 1.into()), ("client", client.into()), ("$db", ADMIN.into())])
}

/// The name of [`hello`] that every server of today knows.
pub(super) const HELLO: &str = "hello";

/// The name that it had before.
pub(super) const IS_MASTER: &str = "isMaster";

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
            let all = answer.array(name).iter();
            all.filter_map(|it| if let Value::Text(it) = it { Some(it.clone()) } else { None })
        };
        let date = match answer.get("localTime") {
            Some(Value::Date(millis)) => {
                OffsetDateTime::from_unix_timestamp_nanos(i128::from(*millis) * 1_000_000).ok()
            }
            _ => None,
        };
        Self {
            is_primary: answer.is("isWritablePrimary") || answer.is("ismaster"),
            is_router: answer.text("msg") == Some("isdbgrid"),
            set: answer.text("setName").map(str::to_owned),
            members: texts("hosts").chain(texts("passives")).chain(texts("arbiters")).collect(),
            primary: answer.text("primary").map(str::to_owned),
            date,
        }
    }

    /// Returns whether writes can be acknowledged by a majority, and reads be linearizable.
    pub(super) fn is_replicated(&self) -> bool {
        self.set.is_some() || self.is_router
    }
}

/// Asks what the server is built of.
pub(super) fn build_info() -> Document {
    Document::of([("buildInfo", 1.into()), ("$db", ADMIN.into())])
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
        let is_other = names_itself.iter().any(|it| answer.get(it).is_some());
        Self {
            version: answer.text("version").unwrap_or("unknown").to_owned(),
            is_mongodb: !is_other && answer.text("allocator").is_some(),
        }
    }
}

/// The command that begins a sign-in with a password, by the user of a database.
pub(super) fn sasl_start(database: &str, first: &str) -> Document {
    // Without the option the server sends an empty message at the end, which wants an answer.
    let options = Document::of([("skipEmptyExchange", true.into())]);
    Document::of([
        ("saslStart", 1.into()),
        ("mechanism", "SCRAM-SHA-256".into()),
        ("payload", first.as_bytes().to_vec().into()),
        ("options", options.into()),
        ("$db", database.into()),
    ])
}

/// The command that goes on with it; `conversation` is of the answer before.
pub(super) fn sasl_continue(database: &str, conversation: &Document, next: &str) -> Document {
    let id = conversation.get("conversationId").cloned().unwrap_or(Value::Int32(1));
    Document::of([
        ("saslContinue", 1.into()),
        ("conversationId", id),
        ("payload", next.as_bytes().to_vec().into()),
        ("$db", database.into()),
    ])
}

/// Returns the server's message of a step of a sign-in.
pub(super) fn sasl_payload(answer: &Document) -> Option<&str> {
    str::from_utf8(answer.bytes("payload")?).ok()
}

/// The command that signs in with the certificate of the connection.
pub(super) fn authenticate() -> Document {
    Document::of([
        ("authenticate", 1.into()),
        ("mechanism", "MONGODB-X509".into()),
        ("$db", EXTERNAL.into()),
    ])
}

/// The documents of the elections: their place, and the bounds of requests for them.
pub(super) struct Commands {
    database: String,
    collection: String,
    bound: Duration,
}

/// The field with the name of a state, random in each write: it never repeats, also where a write that was
/// not acknowledged is rolled back.
const VERSION: &str = "version";

/// The field with the content.
const LEASE: &str = "lease";

impl Commands {
    pub(super) fn new(settings: &MongoSettings, bound: Duration) -> Self {
        let MongoSettings { database, collection, .. } = settings;
        Self { database: database.clone(), collection: collection.clone(), bound }
    }

    fn of(&self, name: &str) -> Document {
        Document::of([(name, self.collection.as_str().into())])
    }

    fn end(&self, command: Document) -> Document {
        command.with("maxTimeMS", millis(self.bound)).with("$db", self.database.as_str())
    }

    /// Reads a document; where the server has a replica set, none but the newest state that it
    /// acknowledged.
    pub(super) fn find(&self, id: &str, is_replicated: bool) -> Document {
        // A server without a replica set refuses the other level, and has one copy alone.
        let level = if is_replicated { "linearizable" } else { "local" };
        let command = self
            .of("find")
            .with("filter", Document::of([("_id", id.into())]))
            .with("limit", 1)
            .with("singleBatch", true)
            .with("readConcern", Document::of([("level", level.into())]));
        self.end(command)
    }

    /// Lists the names of documents.
    pub(super) fn names(&self, most: usize) -> Document {
        let most = i32::try_from(most).unwrap_or(i32::MAX);
        let command = self
            .of("find")
            .with("projection", Document::of([("_id", 1.into())]))
            .with("sort", Document::of([("_id", 1.into())]))
            .with("limit", most)
            .with("batchSize", most)
            .with("singleBatch", true);
        self.end(command)
    }

    /// Creates a document, unless there is one.
    pub(super) fn insert(&self, id: &str, version: &str, content: &str) -> Document {
        let document =
            Document::of([("_id", id.into()), (VERSION, version.into()), (LEASE, content.into())]);
        let command = self.of("insert").with("documents", vec![document]);
        self.end(self.acknowledged(command))
    }

    /// Replaces a document, if it is still in a state.
    pub(super) fn replace(&self, id: &str, from: &str, version: &str, content: &str) -> Document {
        let condition = Document::of([("_id", id.into()), (VERSION, from.into())]);
        let document = Document::of([(VERSION, version.into()), (LEASE, content.into())]);
        let update = Document::of([
            ("q", condition.into()),
            ("u", document.into()),
            ("upsert", false.into()),
            ("multi", false.into()),
        ]);
        let command = self.of("update").with("updates", vec![update]);
        self.end(self.acknowledged(command))
    }

    /// Asks for an answer only when a majority has written it to disk; after the bound, for one that says
    /// that it has not.
    fn acknowledged(&self, command: Document) -> Document {
        let concern = Document::of([
            ("w", "majority".into()),
            ("j", true.into()),
            ("wtimeout", millis(self.bound)),
        ]);
        command.with("ordered", true).with("writeConcern", concern)
    }

    /// Opens a change stream on a document.
    pub(super) fn watch(&self, id: &str) -> Document {
        // Replacements have the whole document; only what others change in part is looked up.
        let stream = Document::of([("fullDocument", "updateLookup".into())]);
        let of_document = Document::of([("documentKey._id", id.into())]);
        let pipeline = vec![
            Document::of([("$changeStream", stream.into())]),
            Document::of([("$match", of_document.into())]),
        ];
        let command =
            self.of("aggregate").with("pipeline", pipeline).with("cursor", Document::default());
        self.end(command)
    }

    /// Asks for the next events, for at most this long.
    pub(super) fn more(&self, cursor: i64, at_most: Duration) -> Document {
        Document::of([("getMore", cursor.into()), ("collection", self.collection.as_str().into())])
            .with("maxTimeMS", millis(at_most))
            .with("$db", self.database.as_str())
    }
}

/// A document as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) version: String,
    pub(super) content: String,
}

impl Stored {
    /// Reads a document; one of another shape has no content, which is none of Tenure's.
    fn of(document: &Document) -> Self {
        let text = |name| document.text(name).unwrap_or_default().to_owned();
        Self { version: text(VERSION), content: text(LEASE) }
    }
}

/// Returns the first document of an answer with a cursor.
pub(super) fn found(answer: &Document) -> Result<Option<Stored>, ()> {
    let cursor = answer.document("cursor").ok_or(())?;
    Ok(cursor.documents("firstBatch").next().map(Stored::of))
}

/// Returns the names of the documents of an answer.
pub(super) fn listed(answer: &Document) -> Vec<String> {
    let documents = answer.document("cursor").into_iter().flat_map(|it| it.documents("firstBatch"));
    documents.filter_map(|it| it.text("_id").map(str::to_owned)).collect()
}

/// Returns how many documents were written, or matched the condition.
pub(super) fn counted(answer: &Document) -> Option<i64> {
    answer.number("n")
}

/// Returns the date by the clock of the server that wrote or read last, to a second; a server without a
/// replica set sends none.
pub(super) fn date(answer: &Document) -> Option<OffsetDateTime> {
    match answer.get("operationTime")? {
        Value::Timestamp(time) => {
            OffsetDateTime::from_unix_timestamp(i64::try_from(time >> 32).ok()?).ok()
        }
        _ => None,
    }
}

/// The events of a change stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Events {
    /// The cursor to ask for more; `None` if the stream has ended.
    pub(super) cursor: Option<i64>,
    /// The document as each event left it; `None` if it was deleted.
    pub(super) states: Vec<Option<Stored>>,
}

/// Reads the answer to [`Commands::watch`] or [`Commands::more`].
pub(super) fn events(answer: &Document) -> Result<Events, ()> {
    let cursor = answer.document("cursor").ok_or(())?;
    let all = cursor.documents("firstBatch").chain(cursor.documents("nextBatch"));
    let states = all.map(|it| it.document("fullDocument").map(Stored::of)).collect();
    Ok(Events { cursor: cursor.number("id").filter(|it| *it != 0), states })
}

/// An error that an answer reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) code: i64,
    pub(super) words: String,
    /// Whether the write was done, and a majority has not acknowledged it.
    pub(super) is_unacknowledged: bool,
}

/// Returns the error of an answer, if it reports one: of the command, of a write, or of its
/// acknowledgement.
pub(super) fn error(answer: &Document) -> Option<Reported> {
    let of = |it: &Document, is_unacknowledged| Reported {
        code: it.number("code").unwrap_or_default(),
        words: it.text("errmsg").unwrap_or_default().to_owned(),
        is_unacknowledged,
    };
    if !answer.is("ok") {
        return Some(of(answer, false));
    }
    // Before the error of a write, whose outcome it makes unknown.
    if let Some(error) = answer.document("writeConcernError") {
        return Some(of(error, true));
    }
    answer.documents("writeErrors").next().map(|it| of(it, false))
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
    /// The command is not known.
    UnknownCommand,
    /// The server has no change streams.
    NoStream,
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
        // CommandNotFound
        59 => Meaning::UnknownCommand,
        // A change stream on a server without a replica set
        40_573 => Meaning::NoStream,
        // BadValue, FailedToParse, TypeMismatch, InvalidNamespace, InvalidOptions, NotAReplicaSet,
        // DocumentValidationFailure, CommandNotSupportedOnView
        2 | 9 | 14 | 73 | 72 | 123 | 121 | 166 => Meaning::Invalid,
        _ => Meaning::Unavailable,
    }
}

#[cfg(test)]
mod tests;

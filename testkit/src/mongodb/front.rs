//! A front for mongo-java-server, which has no users, no replica sets and no change streams: it answers for
//! these by MongoDB's documentation, refuses what MongoDB refuses, and forwards the rest.

use std::collections::{HashMap, VecDeque};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bson::{Bson, Document, Timestamp, doc};

use super::sign_in::SignIn;
use super::wire::{Client, Message, failure, is, is_done};

/// The name of the replica set.
pub const SET: &str = "rs-tests";

/// Who may send commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Users {
    /// Everyone.
    All,
    /// This user, with this password.
    Password(&'static str, String),
    /// Who signs in with the certificate of the connection.
    Certificate,
}

/// What the front does to one of the next commands on a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Fails with this code, and does nothing.
    Code(i32),
    /// Does the write, and answers that no majority acknowledged it.
    Unacknowledged,
}

/// What the server is.
#[derive(Clone, Debug)]
pub struct Role {
    pub users: Users,
    /// Whether it is a member of a replica set.
    pub is_member: bool,
    /// Whether it takes writes.
    pub is_primary: bool,
    /// The primary that it names.
    pub primary: Option<String>,
    /// The members that it names.
    pub members: Vec<String>,
    /// Whether a majority acknowledges its writes; what is written without one is rolled back.
    pub has_majority: bool,
    /// Whether it says that it is MongoDB.
    pub is_mongodb: bool,
    /// Whether the user may do nothing.
    pub denies: bool,
}

struct State {
    role: Role,
    faults: VecDeque<Fault>,
    /// The commands on documents that were received.
    received: Vec<Document>,
    /// The events of change streams, from the first on.
    events: Vec<Document>,
    /// The change streams, by their cursors.
    streams: HashMap<i64, Stream>,
}

struct Shared {
    server: u16,
    state: Mutex<State>,
    /// There is an event.
    changed: Condvar,
    /// Held while a write is forwarded, so that events are in the order of the writes.
    order: Mutex<()>,
}

/// The front, on a free port of loopback. Its threads end with the test.
pub struct Front {
    pub port: u16,
    shared: Arc<Shared>,
}

impl Front {
    /// Starts one before a server on a port of loopback.
    pub fn before(server: u16, users: Users) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let role = Role {
            users,
            is_member: true,
            is_primary: true,
            primary: Some(format!("127.0.0.1:{port}")),
            members: [port, 2, 3].map(|it| format!("127.0.0.1:{it}")).into(),
            has_majority: true,
            is_mongodb: true,
            denies: false,
        };
        let (faults, received, events, streams) = Default::default();
        let state = State { role, faults, received, events, streams };
        let shared = Arc::new(Shared {
            server,
            state: Mutex::new(state),
            changed: Condvar::new(),
            order: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || serve(client, &shared));
            }
        });
        Self { port, shared }
    }

    /// Changes what the server is.
    pub fn change(&self, change: impl FnOnce(&mut Role)) {
        change(&mut self.shared.state().role);
    }

    /// Does this to the next commands on documents.
    pub fn inject(&self, faults: impl IntoIterator<Item = Fault>) {
        self.shared.state().faults.extend(faults);
    }

    /// Returns how many faults are still to come.
    pub fn pending(&self) -> usize {
        self.shared.state().faults.len()
    }

    /// Returns the commands on documents that were received since the last call.
    pub fn take_received(&self) -> Vec<Document> {
        std::mem::take(&mut self.shared.state().received)
    }

    /// Sends a command as the administrator, which succeeds.
    pub fn ask(&self, command: &Document) -> Document {
        let mut server = Client::connect(self.shared.server);
        let answer = self.shared.forward(command, &mut server).expect("an answer");
        assert!(is_done(&answer), "{command}: {answer}");
        answer
    }
}

fn serve(mut client: TcpStream, shared: &Shared) {
    let _ = client.set_nodelay(true);
    let (mut server, mut sign_in) = (None, SignIn::default());
    while let Some(message) = Message::read(&mut client) {
        let Some(answer) = shared.answer(&message.body, &mut server, &mut sign_in) else { return };
        if message.answer(&mut client, &answer).is_none() {
            return;
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the answer to a command; `None` if the server has ended the connection.
    fn answer(
        &self,
        command: &Document,
        server: &mut Option<Client>,
        sign_in: &mut SignIn,
    ) -> Option<Document> {
        let role = self.state().role.clone();
        let name = command.keys().next()?.as_str();
        match (name, &role.users) {
            // The server knows the older name alone.
            ("hello" | "isMaster" | "ismaster", _) => {
                let command = doc! {"isMaster": 1, "$db": "admin"};
                return Some(self.greeting(self.send(&command, server)?, &role));
            }
            ("saslStart", Users::Password(user, _)) => return Some(sign_in.start(command, user)),
            ("saslContinue", Users::Password(_, password)) => {
                return Some(sign_in.go_on(command, password));
            }
            ("authenticate", Users::Certificate)
                if is(command, "mechanism", "MONGODB-X509") && is(command, "$db", "$external") =>
            {
                sign_in.is_done = true;
                return Some(doc! {"ok": 1.0});
            }
            ("saslStart" | "authenticate", _) => return Some(failure(18, "AuthenticationFailed")),
            ("endSessions" | "killCursors", _) => return Some(doc! {"ok": 1.0}),
            _ => (),
        }
        if role.users != Users::All && !sign_in.is_done {
            return Some(failure(13, "Unauthorized"));
        }
        if name == "buildInfo" {
            let mut answer = self.send(command, server)?;
            if role.is_mongodb {
                answer.insert("version", "8.0.4");
                answer.insert("allocator", "tcmalloc-google");
            }
            return Some(answer);
        }
        self.state().received.push(command.clone());
        if role.denies {
            return Some(failure(13, "Unauthorized"));
        }
        if !role.is_primary {
            return Some(failure(10_107, "NotWritablePrimary"));
        }
        match name {
            "aggregate" if !role.is_member => Some(failure(40_573, "Location40573")),
            "aggregate" => {
                let mut state = self.state();
                let id = i64::try_from(state.streams.len()).expect("few") + 1;
                let stream = Stream::on(command, state.events.len());
                state.streams.insert(id, stream);
                Some(cursor(id, "firstBatch", Vec::new()))
            }
            "getMore" => Some(self.more(command)),
            _ => self.of_document(command, &role, server),
        }
    }

    fn greeting(&self, mut answer: Document, role: &Role) -> Document {
        answer.remove("ismaster");
        answer.insert("isWritablePrimary", role.is_primary);
        answer.insert("maxWireVersion", 25);
        if role.is_member {
            answer.insert("setName", SET);
            answer.insert("hosts", role.members.clone());
            answer.insert("secondary", !role.is_primary);
            if let Some(primary) = &role.primary {
                answer.insert("primary", primary.as_str());
            }
        }
        answer
    }

    fn of_document(
        &self,
        command: &Document,
        role: &Role,
        server: &mut Option<Client>,
    ) -> Option<Document> {
        let level = command.get_document("readConcern");
        let is_linearizable = level.is_ok_and(|it| is(it, "level", "linearizable"));
        if is_linearizable && (!role.is_member || !command.contains_key("maxTimeMS")) {
            return Some(failure(123, "NotAReplicaSet"));
        }
        let fault = self.state().faults.pop_front();
        if let Some(Fault::Code(code)) = fault {
            return Some(failure(code, "of the test"));
        }
        if !role.has_majority {
            let longest = command.get_i64("maxTimeMS").unwrap_or(1_000).unsigned_abs();
            std::thread::sleep(Duration::from_millis(longest));
            return Some(match command.contains_key("find") {
                true => failure(50, "MaxTimeMSExpired"),
                false => {
                    doc! {"n": 1, "ok": 1.0, "writeConcernError": unacknowledged()}
                }
            });
        }
        let mut answer = self.forward(command, server)?;
        if role.is_member {
            let now = time::OffsetDateTime::now_utc().unix_timestamp();
            let time = u32::try_from(now).expect("before 2106");
            answer.insert("operationTime", Timestamp { time, increment: 1 });
        }
        if fault == Some(Fault::Unacknowledged) {
            answer.insert("writeConcernError", unacknowledged());
        }
        Some(answer)
    }

    /// Forwards a command, and keeps the events of its writes.
    fn forward(&self, command: &Document, server: &mut Option<Client>) -> Option<Document> {
        let is_write = ["insert", "findAndModify", "update", "delete"]
            .iter()
            .any(|it| command.contains_key(it));
        // Without change streams nothing keeps writes apart.
        if !is_write || !self.state().role.is_member {
            return self.send(command, server);
        }
        let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = self.send(command, server)?;
        let count = answer.get_document("lastErrorObject").unwrap_or(&answer).get_i32("n");
        if is_done(&answer) && count.is_ok_and(|it| it > 0) {
            let mut state = self.state();
            let number = i32::try_from(state.events.len()).expect("few");
            let mut event = event(command).expect("an event");
            event.insert("_id", doc! {"_data": number});
            state.events.push(event);
            self.changed.notify_all();
        }
        Some(answer)
    }

    fn send(&self, command: &Document, server: &mut Option<Client>) -> Option<Document> {
        let connection = match server {
            Some(connection) => connection,
            None => server.insert(Client::connect(self.server)?),
        };
        connection.ask(command)
    }

    /// Waits for events of a stream, as long as the command says.
    fn more(&self, command: &Document) -> Document {
        let longest = command.get_i64("maxTimeMS").unwrap_or(1_000).unsigned_abs();
        let until = Instant::now() + Duration::from_millis(longest);
        let id = command.get_i64("getMore").expect("a cursor");
        let mut state = self.state();
        loop {
            let Some(stream) = state.streams.get(&id).cloned() else {
                return failure(43, "CursorNotFound");
            };
            let new = state.events[stream.read..].iter();
            let is_of = |it: &&Document| {
                it.get_document("documentKey").is_ok_and(|it| is(it, "_id", &stream.id))
            };
            let events: Vec<_> = new.filter(is_of).cloned().collect();
            let read = state.events.len();
            state.streams.insert(id, Stream { read, ..stream });
            let rest = until.saturating_duration_since(Instant::now());
            if !events.is_empty() || rest.is_zero() {
                return cursor(id, "nextBatch", events);
            }
            let waited = self.changed.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A change stream.
#[derive(Clone)]
struct Stream {
    /// The document that it is on.
    id: String,
    /// How many events of all documents it has read.
    read: usize,
}

impl Stream {
    fn on(command: &Document, read: usize) -> Self {
        let pipeline = command.get_array("pipeline").expect("a pipeline");
        let of = |at: usize| pipeline.get(at).and_then(Bson::as_document);
        let first = of(0).and_then(|it| it.get_document("$changeStream").ok());
        assert!(first.is_some(), "{command}");
        let only =
            of(1).and_then(|it| it.get_document("$match").ok()?.get_str("documentKey._id").ok());
        Self { id: only.expect("a document").to_owned(), read }
    }
}

fn unacknowledged() -> Document {
    doc! {"code": 64, "codeName": "WriteConcernTimeout", "errmsg": "waiting for replication timed out"}
}

fn cursor(id: i64, batch: &str, events: Vec<Document>) -> Document {
    doc! {"cursor": {"id": id, "ns": "app.tenure", batch: events}, "ok": 1.0}
}

/// Returns the event of a write of one document.
fn event(command: &Document) -> Option<Document> {
    let first = |name: &str| command.get_array(name).ok()?.first()?.as_document();
    if let Some(document) = first("documents") {
        let key = doc! {"_id": document.get("_id")?};
        return Some(
            doc! {"operationType": "insert", "documentKey": key, "fullDocument": document},
        );
    }
    if let Some(update) = first("updates") {
        let id = update.get_document("q").ok()?.get("_id")?;
        let mut document = doc! {"_id": id};
        document.extend(update.get_document("u").ok()?.clone());
        return Some(
            doc! {"operationType": "replace", "documentKey": {"_id": id}, "fullDocument": document},
        );
    }
    if let Ok(query) = command.get_document("query") {
        let id = query.get("_id")?;
        let mut document = doc! {"_id": id};
        document.extend(command.get_document("update").ok()?.clone());
        return Some(
            doc! {"operationType": "replace", "documentKey": {"_id": id}, "fullDocument": document},
        );
    }
    let delete = first("deletes")?;
    let id = delete.get_document("q").ok()?.get("_id")?;
    Some(doc! {"operationType": "delete", "documentKey": {"_id": id}})
}

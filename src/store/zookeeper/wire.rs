//! The messages of ZooKeeper's protocol that are used here, in its encoding (jute). Sends nothing.
//!
//! They are those of `zookeeper.jute` in <https://github.com/apache/zookeeper/tree/master/zookeeper-jute>:
//! numbers in network order, and text and bytes behind their length, which is -1 where there is none.

use std::time::Duration;

/// The number of a notification.
pub(super) const NOTIFICATION: i32 = -1;

/// The number of a ping and of its answer.
pub(super) const PING: i32 = -2;

/// The number of a sign-in and of its answer.
pub(super) const SIGN_IN: i32 = -4;

/// The version that matches every one.
const ANY_VERSION: i32 = -1;

/// All rights.
const ALL: i32 = 31;

// The kinds of requests.
const CREATE: i32 = 1;
const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const GET_ACL: i32 = 6;
const SYNC: i32 = 9;
const PING_KIND: i32 = 11;
const GET_CHILDREN: i32 = 8;
const MULTI: i32 = 14;
const AUTH: i32 = 100;
const CLOSE_SESSION: i32 = -11;
/// In an answer to several operations: the error of one of them, and in a request the end.
const ERROR: i32 = -1;

/// What becomes of a node that is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// It stays.
    Persistent = 0,
    /// It is deleted with its session.
    Ephemeral = 1,
}

/// Who may use a node that is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acl {
    /// Everyone.
    World,
    /// The user that creates it.
    Creator,
}

/// A part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op<'a> {
    /// Creates a node.
    Create { path: &'a str, data: &'a [u8], mode: Mode, acl: Acl },
    /// Replaces the data of a node in this version; `None` for any.
    Set { path: &'a str, data: &'a [u8], version: Option<i32> },
    /// Deletes a node in whatever version.
    Delete { path: &'a str },
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    /// The data of a node and its state.
    Data(&'a str),
    /// The same, and a notification when one of them changes, if there is the node.
    Watch(&'a str),
    /// The state of a node, and a notification when that changes, also if there is none.
    Await(&'a str),
    /// The state of a node.
    State(&'a str),
    /// The names of the nodes below a node.
    Children(&'a str),
    /// Who may use a node.
    Access(&'a str),
    /// That the server has caught up with the leader of the ensemble.
    Sync(&'a str),
    /// All of these, or none.
    Transaction(&'a [Op<'a>]),
    /// The end of the session.
    Close,
}

/// A message that is being made.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn int(&mut self, it: i32) -> &mut Self {
        self.0.extend_from_slice(&it.to_be_bytes());
        self
    }

    fn long(&mut self, it: i64) -> &mut Self {
        self.0.extend_from_slice(&it.to_be_bytes());
        self
    }

    fn bool(&mut self, it: bool) -> &mut Self {
        self.0.push(it.into());
        self
    }

    fn bytes(&mut self, it: &[u8]) -> &mut Self {
        self.int(i32::try_from(it.len()).unwrap_or(i32::MAX));
        self.0.extend_from_slice(it);
        self
    }

    fn text(&mut self, it: &str) -> &mut Self {
        self.bytes(it.as_bytes())
    }

    fn create(&mut self, path: &str, data: &[u8], mode: Mode, acl: Acl) -> &mut Self {
        let (scheme, id) = match acl {
            Acl::World => ("world", "anyone"),
            Acl::Creator => ("auth", ""),
        };
        self.text(path).bytes(data).int(1).int(ALL).text(scheme).text(id).int(mode as i32)
    }

    fn op(&mut self, op: &Op<'_>) -> &mut Self {
        match *op {
            Op::Create { path, data, mode, acl } => self.part(CREATE).create(path, data, mode, acl),
            Op::Set { path, data, version } => {
                self.part(SET_DATA).text(path).bytes(data).int(version.unwrap_or(ANY_VERSION))
            }
            Op::Delete { path } => self.part(DELETE).text(path).int(ANY_VERSION),
        }
    }

    /// Begins a part of a transaction.
    fn part(&mut self, kind: i32) -> &mut Self {
        self.int(kind).bool(false).int(ERROR)
    }

    /// Puts its length before it.
    fn framed(self) -> Vec<u8> {
        let mut frame = Self::default();
        frame.bytes(&self.0);
        frame.0
    }
}

/// Returns the first message of a connection, which asks for a new session.
pub(super) fn connect(seen: i64, length: Duration) -> Vec<u8> {
    let mut message = Message::default();
    let millis = i32::try_from(length.as_millis()).unwrap_or(i32::MAX);
    // The version of the protocol, the session, its password, and whether a server that only reads will do.
    message.int(0).long(seen).int(millis).long(0).bytes(&[0; 16]).bool(false);
    message.framed()
}

/// Returns the message that signs in as `USER:PASSWORD`.
pub(super) fn sign_in(user: &str) -> Vec<u8> {
    let mut message = Message::default();
    message.int(SIGN_IN).int(AUTH).int(0).text("digest").text(user);
    message.framed()
}

/// Returns the message that keeps a session alive.
pub(super) fn ping() -> Vec<u8> {
    let mut message = Message::default();
    message.int(PING).int(PING_KIND);
    message.framed()
}

/// Returns a request with its number.
pub(super) fn request(number: i32, request: &Request<'_>) -> Vec<u8> {
    let mut message = Message::default();
    message.int(number);
    match *request {
        Request::Data(path) => message.int(GET_DATA).text(path).bool(false),
        Request::Watch(path) => message.int(GET_DATA).text(path).bool(true),
        Request::Await(path) => message.int(EXISTS).text(path).bool(true),
        Request::State(path) => message.int(EXISTS).text(path).bool(false),
        Request::Children(path) => message.int(GET_CHILDREN).text(path).bool(false),
        Request::Access(path) => message.int(GET_ACL).text(path),
        Request::Sync(path) => message.int(SYNC).text(path),
        Request::Transaction(ops) => {
            let all = message.int(MULTI);
            ops.iter().for_each(|op| {
                all.op(op);
            });
            all.int(ERROR).bool(true).int(ERROR)
        }
        Request::Close => message.int(CLOSE_SESSION),
    };
    message.framed()
}

/// A message that is being read; `None` where it is shorter or other than it should be.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn int(&mut self) -> Option<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn long(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }

    fn bool(&mut self) -> Option<bool> {
        self.take::<1>().map(|[it]| it != 0)
    }

    fn length(&mut self) -> Option<usize> {
        // None at all, which is written as -1, is read as empty.
        Some(usize::try_from(self.int()?).unwrap_or(0))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn text(&mut self) -> Option<&'a str> {
        str::from_utf8(self.bytes()?).ok()
    }

    fn texts(&mut self) -> Option<Vec<String>> {
        // Each is read before there is room for all of them.
        (0..self.length()?).map(|_| self.text().map(str::to_owned)).collect()
    }

    /// Reads what an answer begins with: its number, the last transaction, and its error.
    pub(super) fn header(&mut self) -> Option<(i32, i64, i32)> {
        Some((self.int()?, self.long()?, self.int()?))
    }

    /// Reads the answer to the first message: the length of the session, zero if there is none.
    pub(super) fn connected(&mut self) -> Option<Duration> {
        let (_protocol, length, _session) = (self.int()?, self.int()?, self.long()?);
        Some(Duration::from_millis(u64::try_from(length).unwrap_or(0)))
    }

    /// Reads the state of a node.
    pub(super) fn state(&mut self) -> Option<State> {
        let (created, _changed) = (self.long()?, self.long()?);
        let (_created_ms, changed_ms) = (self.long()?, self.long()?);
        let version = self.int()?;
        let (_children_version, _access_version, _owner) = (self.int()?, self.int()?, self.long()?);
        let (_length, _children, _children_changed) = (self.int()?, self.int()?, self.long()?);
        Some(State { created, changed_ms, version })
    }

    /// Reads the data of a node and its state.
    pub(super) fn data(&mut self) -> Option<(Vec<u8>, State)> {
        Some((self.bytes()?.to_vec(), self.state()?))
    }

    /// Reads the names of nodes.
    pub(super) fn children(&mut self) -> Option<Vec<String>> {
        self.texts()
    }

    /// Reads who may use a node: `SCHEME:ID`.
    pub(super) fn access(&mut self) -> Option<Vec<String>> {
        let entry = |it: &mut Self| {
            let (_rights, scheme, id) = (it.int()?, it.text()?, it.text()?);
            Some(format!("{scheme}:{id}"))
        };
        (0..self.length()?).map(|_| entry(self)).collect()
    }

    /// Reads the answer to a transaction.
    pub(super) fn outcome(&mut self) -> Option<Outcome> {
        let (mut done, mut fault, mut state) = (0, None, None);
        loop {
            let (kind, is_end, _error) = (self.int()?, self.bool()?, self.int()?);
            match kind {
                _ if is_end => break,
                ERROR => match self.int()? {
                    0 => (),
                    code => fault = fault.or(Some((done, code))),
                },
                CREATE => drop(self.text()?),
                SET_DATA => state = state.or(Some(self.state()?)),
                DELETE => (),
                _ => return None,
            }
            done += 1;
        }
        Some(Outcome { parts: done, fault, state: state.unwrap_or_default() })
    }
}

/// The state of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The transaction that created it.
    pub(super) created: i64,
    /// When its data were last replaced, in Unix milliseconds by the leader's clock.
    pub(super) changed_ms: i64,
    /// How often that was.
    pub(super) version: i32,
}

/// The answer to a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// How many parts it answers.
    pub(super) parts: usize,
    /// The first part that failed, and its error: then nothing was done.
    pub(super) fault: Option<(usize, i32)>,
    /// The state of the first node whose data were replaced.
    pub(super) state: State,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from a server of 3.9.4: the answers behind their headers.
    #[test]
    fn a_transaction_that_failed_tells_by_which_part() {
        let mut message = Message::default();
        let error = |it: &mut Message, code| {
            it.int(ERROR).bool(false).int(code).int(code);
        };
        for code in [0, -103, -2] {
            error(&mut message, code);
        }
        message.int(ERROR).bool(true).int(ERROR);
        let outcome = Reader(&message.0).outcome().unwrap();
        assert_eq!(outcome, Outcome { parts: 3, fault: Some((1, -103)), state: State::default() });
    }

    #[test]
    fn what_is_cut_off_is_no_message() {
        let mut message = Message::default();
        message.bytes(b"data");
        [1, 2, 3, 4].iter().for_each(|it| {
            message.long(*it);
        });
        message.int(5).int(6).int(7).long(8).int(9).int(10).long(11);
        let (data, state) = Reader(&message.0).data().unwrap();
        assert_eq!(data, b"data");
        assert_eq!(state, State { created: 1, changed_ms: 4, version: 5 });
        for end in 0..message.0.len() {
            assert_eq!(Reader(&message.0[..end]).data(), None, "{end}");
        }
        let none = (-1_i32).to_be_bytes();
        assert_eq!(Reader(&none).bytes(), Some(&[][..]));
    }

    #[test]
    fn a_transaction_that_was_done_tells_what_became_of_its_first_node() {
        let mut message = Message::default();
        message.int(CREATE).bool(false).int(0).text("/a");
        for first in [1, 12] {
            message.int(SET_DATA).bool(false).int(0).long(first).long(2).long(3).long(4);
            message.int(5).int(6).int(7).long(8).int(9).int(10).long(11);
        }
        message.int(DELETE).bool(false).int(0);
        message.int(ERROR).bool(true).int(ERROR);
        let outcome = Reader(&message.0).outcome().unwrap();
        let state = State { created: 1, changed_ms: 4, version: 5 };
        assert_eq!(outcome, Outcome { parts: 4, fault: None, state });
        let mut other = Message::default();
        other.int(SYNC).bool(false).int(0).int(ERROR).bool(true).int(ERROR);
        assert_eq!(Reader(&other.0).outcome(), None, "no part that was asked for");
    }

    #[test]
    fn lists_without_a_length_are_empty() {
        let none = (-1_i32).to_be_bytes();
        assert_eq!(Reader(&none).children(), Some(Vec::new()));
        assert_eq!(Reader(&none).access(), Some(Vec::new()));
        let mut message = Message::default();
        message.int(2).int(ALL).text("world").text("anyone").int(1).text("digest").text("u:x");
        let access = Reader(&message.0).access().unwrap();
        assert_eq!(access, ["world:anyone", "digest:u:x"]);
        let mut message = Message::default();
        message.int(2).text("a").text("b");
        assert_eq!(Reader(&message.0).children().unwrap(), ["a", "b"]);
        for unfit in [1, 2] {
            assert_eq!(Reader(&[0, 0, 0, unfit]).children(), None);
            assert_eq!(Reader(&[0, 0, 0, unfit]).access(), None);
        }
    }

    #[test]
    fn a_session_has_the_length_that_the_server_gives() {
        for (given, expected) in [(15_000, 15_000), (0, 0), (-1, 0)] {
            let mut message = Message::default();
            message.int(0).int(given).long(77).bytes(&[0; 16]);
            assert_eq!(Reader(&message.0).connected(), Some(Duration::from_millis(expected)));
            assert_eq!(Reader(&message.0[..15]).connected(), None);
        }
    }

    /// Returns a message with its length before it, from its parts.
    fn framed(parts: &[&[u8]]) -> Vec<u8> {
        let message = parts.concat();
        [&u32::try_from(message.len()).unwrap().to_be_bytes()[..], &message].concat()
    }

    /// As `ConnectRequest`, `AuthPacket` and `RequestHeader` of zookeeper.jute have them.
    #[test]
    fn messages_without_a_request_are_those_of_the_specification() {
        let none: &[u8] = &[0; 4];
        let password = framed(&[&[0; 16]]);
        let millis = 15_000_u32.to_be_bytes();
        let asked = [none, &[0, 0, 0, 0, 0, 0, 0, 9], &millis, &[0; 8], &password, &[0]];
        assert_eq!(connect(9, Duration::from_secs(15)), framed(&asked));
        let longest = connect(9, Duration::MAX);
        assert_eq!(longest[16..20], i32::MAX.to_be_bytes());
        let (scheme, user) = (framed(&[b"digest"]), framed(&[b"u:secret"]));
        let (number, kind) = ([255, 255, 255, 252], [0, 0, 0, 100]);
        assert_eq!(sign_in("u:secret"), framed(&[&number, &kind, none, &scheme, &user]));
        assert_eq!(ping(), [0, 0, 0, 8, 255, 255, 255, 254, 0, 0, 0, 11]);
    }

    /// As `CreateRequest`, `SetDataRequest` and the others of zookeeper.jute have them, and `MultiHeader`
    /// before each part of a transaction.
    #[test]
    fn requests_are_those_of_the_specification() {
        let int = |it: i32| it.to_be_bytes();
        let path: &[u8] = &framed(&[b"/a"]);
        let data: &[u8] = &framed(&[b"data"]);
        let (any, one, end) = (int(-1), int(1), [255, 255, 255, 255, 1, 255, 255, 255, 255]);
        let acl = |scheme: &[u8], id: &[u8]| {
            [&int(1)[..], &int(31), &framed(&[scheme]), &framed(&[id])].concat()
        };
        let (world, creator) = (acl(b"world", b"anyone"), acl(b"auth", b""));
        let header = |kind: i32| [&int(kind)[..], &[0], &int(-1)].concat();
        let ops = [
            Op::Create { path: "/a", data: b"data", mode: Mode::Ephemeral, acl: Acl::World },
            Op::Set { path: "/a", data: b"data", version: Some(1) },
            Op::Set { path: "/a", data: b"data", version: None },
            Op::Create { path: "/a", data: b"data", mode: Mode::Persistent, acl: Acl::Creator },
            Op::Delete { path: "/a" },
        ];
        let parts = [
            &header(1)[..],
            path,
            data,
            &world,
            &int(1),
            &header(5),
            path,
            data,
            &one,
            &header(5),
            path,
            data,
            &any,
            &header(1),
            path,
            data,
            &creator,
            &int(0),
            &header(2),
            path,
            &any,
            &end,
        ]
        .concat();
        for (asked, kind, body) in [
            (Request::Data("/a"), 4, [path, &[0]].concat()),
            (Request::Watch("/a"), 4, [path, &[1]].concat()),
            (Request::Await("/a"), 3, [path, &[1]].concat()),
            (Request::State("/a"), 3, [path, &[0]].concat()),
            (Request::Children("/a"), 8, [path, &[0]].concat()),
            (Request::Access("/a"), 6, path.to_vec()),
            (Request::Sync("/a"), 9, path.to_vec()),
            (Request::Close, -11, Vec::new()),
            (Request::Transaction(&ops), 14, parts),
        ] {
            assert_eq!(request(7, &asked), framed(&[&int(7), &int(kind), &body]), "{asked:?}");
        }
    }

    #[test]
    fn a_request_has_its_length_before_it() {
        let made = request(7, &Request::Data("/a"));
        let expected: &[u8] = &[0, 0, 0, 15, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, 2, b'/', b'a', 0];
        assert_eq!(made, expected);
    }
}

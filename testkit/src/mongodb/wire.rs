//! Messages of MongoDB, written and read by MongoDB's own crate `bson`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bson::{Document, doc};

/// The operations of messages, and of the first one of a client and its answer.
const OP_MSG: i32 = 2_013;
const OP_QUERY: i32 = 2_004;
const OP_REPLY: i32 = 1;

/// A message: its number, and its only section.
pub struct Message {
    pub number: i32,
    /// Whether it is the first one of a client, in the older form.
    pub is_query: bool,
    pub body: Document,
}

impl Message {
    /// Reads the next message; `None` when the connection has ended.
    pub fn read(from: &mut impl Read) -> Option<Self> {
        let mut header = [0; 16];
        from.read_exact(&mut header).ok()?;
        let number = |at: usize| i32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
        let mut rest = vec![0; usize::try_from(number(0)).expect("a length") - header.len()];
        from.read_exact(&mut rest).ok()?;
        let is_query = number(12) == OP_QUERY;
        let body = if is_query {
            // Flags, a name that ends with a zero, and two numbers.
            let name = rest[4..].iter().position(|it| *it == 0).expect("a name");
            &rest[4 + name + 1 + 8..]
        } else {
            assert_eq!(number(12), OP_MSG);
            assert_eq!(rest[..5], [0; 5], "a body alone");
            &rest[5..]
        };
        let body = Document::from_reader(body).expect("a document");
        Some(Self { number: number(4), is_query, body })
    }

    /// Writes a message.
    pub fn write(to: &mut impl Write, answers: i32, body: &Document) -> Option<()> {
        Self::send(to, answers, OP_MSG, &[0; 5], body)
    }

    /// Writes the answer to this one.
    pub fn answer(&self, to: &mut impl Write, body: &Document) -> Option<()> {
        if !self.is_query {
            return Self::write(to, self.number, body);
        }
        // Flags, no cursor, from the first on, one document.
        let mut before = [0; 20];
        before[16] = 1;
        Self::send(to, self.number, OP_REPLY, &before, body)
    }

    fn send(
        to: &mut impl Write,
        answers: i32,
        operation: i32,
        before: &[u8],
        body: &Document,
    ) -> Option<()> {
        let body = body.to_vec().expect("a document");
        let length = i32::try_from(16 + before.len() + body.len()).expect("it is short");
        let mut bytes = Vec::new();
        for part in [length, 1, answers, operation] {
            bytes.extend(part.to_le_bytes());
        }
        bytes.extend(before);
        bytes.extend(body);
        to.write_all(&bytes).ok()
    }
}

/// A connection to a server that asks for no credentials.
pub struct Client(TcpStream);

impl Client {
    /// Connects to a port of loopback; `None` if nothing listens there.
    pub fn connect(port: u16) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_nodelay(true).ok()?;
        // A server that is stopped must not hold a test for ever.
        stream.set_read_timeout(Some(Duration::from_secs(120))).ok()?;
        Some(Self(stream))
    }

    /// Sends a command; returns its answer, or `None` when the connection has ended.
    pub fn ask(&mut self, command: &Document) -> Option<Document> {
        Message::write(&mut self.0, 0, command)?;
        Some(Message::read(&mut self.0)?.body)
    }
}

/// Returns the answer of a command that fails.
pub fn failure(code: i32, name: &str) -> Document {
    doc! {"ok": 0.0, "errmsg": name, "code": code, "codeName": name}
}

/// Returns whether a field is this text.
pub fn is(document: &Document, name: &str, text: &str) -> bool {
    document.get_str(name).is_ok_and(|it| it == text)
}

/// Returns whether an answer reports no error.
pub fn is_done(answer: &Document) -> bool {
    answer.get_f64("ok").is_ok_and(|it| it > 0.0) && !answer.contains_key("writeErrors")
}

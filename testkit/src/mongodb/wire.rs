//! Messages of MongoDB, written and read by MongoDB's own crate `bson`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bson::{Document, doc};

/// A message: its number, and its only section.
pub struct Message {
    pub number: i32,
    pub body: Document,
}

impl Message {
    /// Reads the next message; `None` when the connection has ended.
    pub fn read(from: &mut impl Read) -> Option<Self> {
        let mut header = [0; 21];
        from.read_exact(&mut header).ok()?;
        let number = |at: usize| i32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
        assert_eq!((number(12), number(16), header[20]), (2_013, 0, 0), "OP_MSG with a body alone");
        let mut body = vec![0; usize::try_from(number(0)).expect("a length") - header.len()];
        from.read_exact(&mut body).ok()?;
        let body = Document::from_reader(body.as_slice()).expect("a document");
        Some(Self { number: number(4), body })
    }

    /// Writes a message that answers the one with this number.
    pub fn write(to: &mut impl Write, answers: i32, body: &Document) -> Option<()> {
        let body = body.to_vec().expect("a document");
        let length = i32::try_from(21 + body.len()).expect("it is short");
        let mut bytes = Vec::new();
        for part in [length, 1, answers, 2_013, 0] {
            bytes.extend(part.to_le_bytes());
        }
        bytes.push(0);
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

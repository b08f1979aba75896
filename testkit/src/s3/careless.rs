//! A server of S3 that ignores conditions of writes, as some do, or names states of an object badly. It
//! checks no signature.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::http::front;
use crate::http::wire::Message;

/// What the server gets wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It creates objects that exist.
    IgnoresAbsence,
    /// It writes objects for states that are over.
    IgnoresTags,
    /// It has one ETag for all states of an object.
    OneTag,
    /// It checks a condition, and writes 30 ms later without another look.
    ChecksFirst,
    /// It refuses each condition on a state.
    Refuses,
    /// It compares a condition with the ETag without its quotes.
    Unquoted,
    /// Nothing.
    None,
}

/// The time from check to write.
const PUBLISHES_AFTER: std::time::Duration = std::time::Duration::from_millis(250);

/// The objects: the number of their last write, and their content.
type Objects = Mutex<HashMap<String, (u64, Vec<u8>)>>;

/// Starts one on a free port of loopback; its threads end with the test. Returns its URL.
pub fn start(fault: Fault) -> String {
    let objects = Objects::default();
    let port = front::serve(move |request| {
        let (status, tag, body) = answer(request, fault, &objects);
        front::answer(status, &format!("etag: \"{tag}\"\r\n"), &body)
    });
    format!("http://127.0.0.1:{port}")
}

fn answer(request: &Message, fault: Fault, objects: &Objects) -> (u16, u64, Vec<u8>) {
    let text = String::from_utf8_lossy(&request.bytes).into_owned();
    let mut line = text.split(' ');
    let (method, key) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
    let published = objects;
    let mut objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
    let found = objects.get(key).cloned();
    let missing = b"<Error><Code>NoSuchKey</Code></Error>".to_vec();
    let tag = |number: u64| if fault == Fault::OneTag { 1 } else { number };
    if method == "GET" {
        return found.map_or((404, 0, missing), |(number, content)| (200, tag(number), content));
    }
    let number = found.as_ref().map_or(0, |it| it.0);
    let present = match fault {
        Fault::Unquoted => tag(number).to_string(),
        Fault::Refuses => String::new(),
        _ => format!("\"{}\"", tag(number)),
    };
    let is_stale = request.header("if-match").is_some_and(|it| it != present);
    let exists = request.header("if-none-match").is_some() && found.is_some();
    if is_stale && fault != Fault::IgnoresTags || exists && fault != Fault::IgnoresAbsence {
        return (412, 0, b"<Error><Code>PreconditionFailed</Code></Error>".to_vec());
    }
    let content = text.split_once("\r\n\r\n").map_or("", |it| it.1).as_bytes().to_vec();
    if fault == Fault::ChecksFirst {
        drop(objects);
        std::thread::sleep(PUBLISHES_AFTER);
        objects = published.lock().unwrap_or_else(PoisonError::into_inner);
    }
    let number = objects.get(key).map_or(0, |it| it.0) + 1;
    objects.insert(key.to_owned(), (number, content));
    (200, tag(number), Vec::new())
}

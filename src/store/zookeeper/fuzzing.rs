//! Fuzz target for what a server, or somebody in its place, sends.

use std::io::Cursor;

use futures::FutureExt;

use super::connection::Connection;
use super::wire::{Op, Reader, Request};
use crate::lease::text::is_printable;

/// Checks that arbitrary messages of a server end a request in an answer or an error that can be shown.
pub fn zookeeper_answer(data: &[u8]) {
    let stream = tokio::io::join(Cursor::new(data.to_vec()), tokio::io::sink());
    let mut connection = Connection::over(Box::new(stream), "server");
    let fine = |error: &dyn std::fmt::Display| {
        let text = error.to_string();
        assert!(text.chars().all(is_printable), "{text}");
    };
    let asked = connection.ask([
        Request::Data("/r"),
        Request::State("/r"),
        Request::Children("/q"),
        Request::Access("/r"),
        Request::Transaction(&[Op::Delete { path: "/r" }]),
    ]);
    let [data, state, children, access, done] =
        match asked.now_or_never().expect("nothing is waited for") {
            Ok(answers) => answers,
            Err(error) => return fine(&error),
        };
    let _ = (state.found(Reader::state), children.found(Reader::children));
    let _ = (access.found(Reader::access), done.done(1));
    if let Err(error) = data.found(Reader::data) {
        fine(&error);
    }
}

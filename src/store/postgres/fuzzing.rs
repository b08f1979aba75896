//! Fuzz target for what a server, or somebody in its place, sends.

use std::io::Cursor;

use futures::FutureExt;

use super::connection::Connection;
use crate::lease::text::is_printable;

/// Checks that arbitrary messages of a server end a request in an answer or an error that can be shown, and
/// the wait for a notification too. What a value means is the target of the register.
pub fn postgres_answer(data: &[u8]) {
    let connection = || {
        let stream = tokio::io::join(Cursor::new(data.to_vec()), tokio::io::sink());
        Connection::over(Box::new(stream))
    };
    let asked = connection().ask("SELECT 1").now_or_never().expect("nothing is waited for");
    let told = connection().notification("orders", "own").now_or_never();
    let told = told.expect("nothing is waited for");
    for error in asked.err().into_iter().chain(told.err()) {
        assert!(error.to_string().chars().all(is_printable), "{error}");
    }
}

//! Fuzz target for what a server, or somebody in its place, sends.

use std::io::Cursor;

use futures::FutureExt;

use super::connection::{Connection, Info};
use super::scripts::command;
use crate::lease::text::is_printable;

/// Checks that arbitrary bytes of a server end a request in an answer or an error that can be shown. What a
/// value means is the target of the register.
pub fn redis_answer(data: &[u8]) {
    let stream = tokio::io::join(Cursor::new(data.to_vec()), tokio::io::sink());
    let mut connection = Connection::over(Box::new(stream), "h:6379".to_owned());
    loop {
        let asked = connection.ask(&command(&["PING"])).now_or_never();
        match asked.expect("nothing is waited for") {
            Ok(reply) => drop(Info::of(&reply)),
            Err(error) => {
                assert!(error.to_string().chars().all(is_printable), "{error}");
                // The rest belongs to the next request.
                if !connection.is_in_step() {
                    return;
                }
            }
        }
    }
}

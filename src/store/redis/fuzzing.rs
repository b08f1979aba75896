//! Fuzz target for what a server, or somebody in its place, sends.

use std::io::Cursor;
use std::time::Duration;

use futures::FutureExt;

use super::connection::Connection;
use super::scripts::command;
use super::state::Seen;
use crate::lease::fuzzing::shown;
use crate::lease::text::is_printable;

/// Checks that arbitrary bytes of a server end a request in an answer or an error that can be shown, and
/// that keys that were read are free exactly without a claim.
pub fn redis_answer(data: &[u8]) {
    let stream = tokio::io::join(Cursor::new(data.to_vec()), tokio::io::sink());
    let mut connection = Connection::over(Box::new(stream), "h:6379".to_owned());
    loop {
        let asked = connection.ask(&command(&["PING"])).now_or_never();
        let reply = match asked.expect("nothing is waited for") {
            Ok(reply) => reply,
            Err(error) => {
                assert!(error.to_string().chars().all(is_printable), "{error}");
                // The rest belongs to the next request.
                match connection.is_in_step() {
                    true => continue,
                    false => return,
                }
            }
        };
        match Seen::of(&reply, "orders") {
            Ok(seen) => {
                let mut snapshot = seen.clone().snapshot();
                assert_eq!(snapshot.free, seen.held.is_none());
                snapshot.admit(Duration::from_secs(15));
                shown(&snapshot);
            }
            Err(failure) => {
                assert!(failure.message.chars().all(is_printable), "{failure}");
            }
        }
    }
}

//! Fuzz target for what a server, or somebody in its place, sends.

use std::io::Cursor;
use std::time::Duration;

use futures::FutureExt;

use super::connection::Connection;
use super::row::Seen;
use crate::lease::fuzzing::shown;
use crate::lease::text::is_printable;

/// Checks that arbitrary messages of a server end a request in an answer or an error that can be shown,
/// and that a row that was read is free exactly without a claim.
pub fn postgres_answer(data: &[u8]) {
    let stream = tokio::io::join(Cursor::new(data.to_vec()), tokio::io::sink());
    let mut connection = Connection::over(Box::new(stream));
    let asked = connection.ask("SELECT 1").now_or_never().expect("nothing is waited for");
    let rows = match asked {
        Ok(answer) => answer,
        Err(error) => return assert!(error.to_string().chars().all(is_printable), "{error}"),
    };
    for row in rows {
        let seen = match Seen::of(&row, "orders") {
            Ok(seen) => seen,
            Err(failure) => {
                assert!(failure.message.chars().all(is_printable), "{failure}");
                continue;
            }
        };
        let mut snapshot = seen.clone().snapshot();
        assert_eq!(snapshot.free, seen.held.is_none());
        snapshot.admit(Duration::from_secs(15));
        shown(&snapshot);
    }
}

//! Errors of requests to MongoDB, by what the caller does next, with the remedy in the message. No message
//! shows a password.

use std::io;

use super::wire::{Meaning, Reported, meaning};
use crate::http::client::{self, Cause as Fault};
use crate::http::resolver::Unconnected;
use crate::lease::text::is_printable;
use crate::store::register::error::RegisterError;

/// Returns whether another server may do better.
pub(super) fn is_of_one_server(error: &RegisterError) -> bool {
    match error {
        RegisterError::Disconnected(_)
        | RegisterError::Network(_)
        | RegisterError::Timeout(_)
        | RegisterError::Unavailable(_)
        | RegisterError::Throttled(_)
        | RegisterError::Invalid(_) => true,
        RegisterError::Missing(_)
        | RegisterError::Condition(_)
        | RegisterError::Concurrent(_)
        | RegisterError::Credential(_)
        | RegisterError::Denied(_) => false,
    }
}

/// Returns whether an error tells of the document alone.
pub(super) fn is_of_document(error: &RegisterError) -> bool {
    matches!(error, RegisterError::Condition(_) | RegisterError::Concurrent(_))
}

/// Converts an error that the server reports.
pub(super) fn reported(error: &Reported, server: &str) -> RegisterError {
    let Reported { code, words, is_unacknowledged } = error;
    let words: String = words.chars().filter(|it| is_printable(*it)).take(300).collect();
    let said = format!("{server}: {words} ({code})");
    if *is_unacknowledged {
        return RegisterError::Unavailable(format!(
            "the write was not acknowledged by a majority in time, and may still be done ({said})"
        ));
    }
    match meaning(*code) {
        Meaning::Exists => RegisterError::Condition(format!("it exists already ({said})")),
        Meaning::SignIn => RegisterError::Credential(format!(
            "the sign-in failed: check MONGODB_USERNAME, MONGODB_PASSWORD and --mongodb-auth-source, and that the \
             user has the mechanism SCRAM-SHA-256; without a user name the one of --store-cert ({said})"
        )),
        Meaning::Denied => RegisterError::Denied(format!(
            "access denied: the user needs find, insert, update and changeStream on the collection, see \
             docs/stores/mongodb.md ({said})"
        )),
        Meaning::NotPrimary => {
            RegisterError::Disconnected(format!("another is the primary ({said})"))
        }
        Meaning::Timeout => RegisterError::Timeout(said),
        Meaning::Concurrent => RegisterError::Concurrent(said),
        Meaning::Unavailable => RegisterError::Unavailable(said),
        Meaning::UnknownCommand | Meaning::NoStream | Meaning::Invalid => {
            RegisterError::Invalid(format!("the server refused the request ({said})"))
        }
    }
}

/// Converts the error of a connection that was not made.
pub(super) fn unconnected(error: &Unconnected, server: &str) -> RegisterError {
    match error {
        Unconnected::Unresolved(why) => RegisterError::Network(format!("{why}: check --store")),
        Unconnected::Io(kind) => {
            RegisterError::Disconnected(format!("cannot connect to {server}: {kind}"))
        }
    }
}

/// Converts the error of a connection that broke, or was refused by TLS.
pub(super) fn broken(error: &io::Error, server: &str) -> RegisterError {
    match client::cause(error) {
        Fault::Certificate(why) => RegisterError::Network(format!(
            "TLS with {server} failed: {why}; check --store-ca-file, --store-cert, and that the server's \
             certificate is valid for the host in --store"
        )),
        Fault::Io(kind) => {
            RegisterError::Disconnected(format!("the connection to {server} broke: {kind}"))
        }
        Fault::Unresolved(_) | Fault::Other => {
            RegisterError::Disconnected(format!("the connection to {server} broke"))
        }
    }
}

/// Returns the error for a server that takes no writes.
pub(super) fn secondary(server: &str, primary: Option<&str>) -> RegisterError {
    let primary = primary.map_or(String::new(), |it| format!(", which is {it}"));
    RegisterError::Disconnected(format!(
        "{server} is not the primary: name the primary{primary} in --store too, with all members of the \
         replica set"
    ))
}

/// Returns the error for one of several servers that belongs to no replica set.
pub(super) fn alone(server: &str) -> RegisterError {
    RegisterError::Invalid(format!(
        "--store names several servers, and {server} is no member of a replica set: each such server would have a \
         leader of its own; name one alone, or the members of one replica set"
    ))
}

/// Returns the error for a server that speaks the protocol of MongoDB, and is another.
pub(super) fn other(server: &str, version: &str) -> RegisterError {
    let version: String = version.chars().filter(|it| is_printable(*it)).take(100).collect();
    RegisterError::Invalid(format!(
        "{server} is not MongoDB, but a server that speaks its protocol (version {version}): of two candidates \
         that write at the same time both may win, as on FerretDB 1; use MongoDB, or if its makers promise atomic \
         updates and the write concern \"majority\", set --mongodb-compatible"
    ))
}

/// Returns the error for what no server of MongoDB sends.
pub(super) fn not_mongodb(server: &str) -> RegisterError {
    RegisterError::Invalid(format!(
        "{server} did not answer as MongoDB does: check the address in --store"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::StoreError;

    #[test]
    fn each_code_has_its_meaning_and_none_is_definite() {
        for (code, expected) in [
            (11_000, "Condition"),
            (18, "Credential"),
            (11, "Credential"),
            (334, "Credential"),
            (13, "Denied"),
            (10_107, "Disconnected"),
            (189, "Disconnected"),
            (91, "Disconnected"),
            (11_600, "Disconnected"),
            (11_602, "Disconnected"),
            (13_435, "Disconnected"),
            (13_436, "Disconnected"),
            (50, "Timeout"),
            (112, "Concurrent"),
            (59, "Invalid"),
            (40_573, "Invalid"),
            (123, "Invalid"),
            (64, "Unavailable"),
            (14_031, "Unavailable"),
            (0, "Unavailable"),
        ] {
            let words = "words\u{202e}\n".to_owned();
            let mut error = Reported { code, words, is_unacknowledged: false };
            let shown = format!("{:?}", reported(&error, "h:1"));
            assert!(shown.starts_with(expected), "{code}: {shown}");
            assert!(shown.contains("h:1: words (") && !shown.contains('\u{202e}'), "{shown}");
            let failed = StoreError::from(reported(&error, "h:1"));
            assert!(!matches!(failed, StoreError::Refused(_) | StoreError::Foreign(_)), "{code}");
            error.is_unacknowledged = true;
            let unknown = reported(&error, "h:1");
            assert!(matches!(unknown, RegisterError::Unavailable(_)), "{code}: {unknown:?}");
        }
    }
}

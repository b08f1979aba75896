//! Errors of requests to MongoDB, by what the caller does next, with the remedy in the message. No message
//! shows a password.

use std::io;

use mongodb::error::{Error, ErrorKind};

use super::wire::{Meaning, Reported, meaning};
use crate::http::client::{self, Cause};
use crate::lease::text::is_printable;
use crate::store::network::NetworkError;
use crate::store::register::RegisterError;

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
        Meaning::SignIn => sign_in(&said),
        Meaning::Denied => RegisterError::Denied(format!(
            "access denied: the user needs find, insert, update and changeStream on the collection, see \
             docs/stores/mongodb.md ({said})"
        )),
        Meaning::NotPrimary => {
            NetworkError::Disconnected(format!("another is the primary ({said})")).into()
        }
        Meaning::Timeout => NetworkError::Timeout(said).into(),
        Meaning::Concurrent => RegisterError::Concurrent(said),
        Meaning::Unavailable => RegisterError::Unavailable(said),
        Meaning::Invalid => {
            RegisterError::Invalid(format!("the server refused the request ({said})"))
        }
    }
}

fn sign_in(said: &str) -> RegisterError {
    RegisterError::Credential(format!(
        "the sign-in failed: check MONGODB_USERNAME, MONGODB_PASSWORD and --mongodb-auth-source, and that the \
         user has the mechanism SCRAM-SHA-256; without a user name the one of --store-cert ({said})"
    ))
}

/// Converts an error of MongoDB's client. No outcome of it is definite, but what the server reports.
pub(super) fn failed(error: &Error, servers: &str) -> RegisterError {
    let shown = |text: &str| -> String {
        let printable = text.chars().map(|it| if is_printable(it) { it } else { ' ' });
        printable.take(300).collect()
    };
    match error.kind.as_ref() {
        ErrorKind::Command(it) => {
            let (code, words) = (i64::from(it.code), it.message.clone());
            reported(&Reported { code, words, is_unacknowledged: false }, servers)
        }
        ErrorKind::Authentication { message, .. } => {
            sign_in(&format!("{servers}: {}", shown(message)))
        }
        ErrorKind::Io(error) => broken(error, servers).into(),
        ErrorKind::ServerSelection { message, .. } => no_server(&shown(message), servers),
        ErrorKind::DnsResolve { message, .. } => {
            NetworkError::Unreachable(format!("{}: check --store", shown(message))).into()
        }
        ErrorKind::InvalidTlsConfig { message, .. }
        | ErrorKind::InvalidArgument { message, .. } => RegisterError::no_client(shown(message)),
        ErrorKind::IncompatibleServer { message, .. } => RegisterError::Invalid(shown(message)),
        ErrorKind::InvalidResponse { .. } => not_mongodb(servers),
        ErrorKind::ConnectionPoolCleared { .. } | ErrorKind::Shutdown => {
            NetworkError::Disconnected(format!("the connections to {servers} broke")).into()
        }
        _ => RegisterError::Unavailable(format!("{servers}: {}", shown(&error.to_string()))),
    }
}

fn broken(error: &io::Error, servers: &str) -> NetworkError {
    match client::cause(error) {
        Cause::Certificate(why) => refused_by_tls(&why, servers),
        Cause::Io(kind) => {
            NetworkError::Disconnected(format!("the connection to {servers} broke: {kind}"))
        }
        Cause::Unresolved(_) | Cause::Other => {
            NetworkError::Disconnected(format!("the connection to {servers} broke"))
        }
    }
}

fn refused_by_tls(why: &str, servers: &str) -> NetworkError {
    NetworkError::Unreachable(format!(
        "TLS with {servers} failed: {why}; check --store-ca-file, --store-cert, and that the server's \
         certificate is valid for the host in --store"
    ))
}

/// Returns the error where the client has found no primary in time.
fn no_server(said: &str, servers: &str) -> RegisterError {
    let lower = said.to_ascii_lowercase();
    if lower.contains("certificate") || lower.contains("alert") {
        return refused_by_tls(said, servers).into();
    }
    // The client leaves out servers that belong to no replica set, where there are several.
    if !said.contains("Servers: [") {
        return alone(servers);
    }
    NetworkError::Disconnected(format!("cannot connect to a primary among {servers} ({said})"))
        .into()
}

/// Returns the error for a server that takes no writes.
pub(super) fn secondary(server: &str, primary: Option<&str>) -> RegisterError {
    let primary = primary.map_or(String::new(), |it| format!(", which is {it}"));
    NetworkError::Disconnected(format!(
        "{server} is not the primary: name the primary{primary} in --store too, with all members of the \
         replica set"
    ))
    .into()
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
            (10_107, "Network(Disconnected"),
            (189, "Network(Disconnected"),
            (91, "Network(Disconnected"),
            (11_600, "Network(Disconnected"),
            (11_602, "Network(Disconnected"),
            (13_435, "Network(Disconnected"),
            (13_436, "Network(Disconnected"),
            (50, "Network(Timeout"),
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

    #[test]
    fn what_a_server_says_is_shown_up_to_a_bound() {
        let said = |length: usize| {
            let error = Reported { code: 8, words: "x".repeat(length), is_unacknowledged: false };
            reported(&error, "h:1").to_string()
        };
        assert_eq!(said(300), format!("h:1: {} (8)", "x".repeat(300)));
        assert_eq!(said(301), said(300));
        let named = |length: usize| other("h:1", &"x".repeat(length)).to_string();
        assert!(named(100).contains(&format!("(version {}):", "x".repeat(100))));
        assert_eq!(named(101), named(100));
    }
}

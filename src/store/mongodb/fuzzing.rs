//! Fuzz target for what a server, or somebody in its place, sends.

use std::io::Cursor;

use futures::FutureExt;

use super::bson::Document;
use super::connection::Connection;
use super::scram::Scram;
use super::wire::{self, Build, Hello};
use crate::lease::StoreError;
use crate::lease::text::is_printable;

/// Checks that arbitrary bytes end a request in an answer or an error that can be shown and is never
/// definite, that no part of an answer panics, and that a document that was read is written alike.
pub fn mongodb_answer(data: &[u8]) {
    let stream = tokio::io::join(Cursor::new(data.to_vec()), tokio::io::sink());
    let mut connection = Connection::over(Box::new(stream), "h:1".to_owned());
    let asked = connection.exchange(&wire::build_info()).now_or_never();
    match asked.expect("nothing is waited for") {
        Ok(answer) => read(&answer),
        Err(error) => shown(error.into()),
    }
    // A document by itself, which needs no valid header.
    if let Some(document) = Document::read(data) {
        read(&document);
        let mut bytes = Vec::new();
        document.write(&mut bytes);
        let again = Document::read(&bytes).expect("it is of our making");
        // NaN is not equal to itself.
        assert_eq!(format!("{again:?}"), format!("{document:?}"));
    }
    if let Ok(challenge) = str::from_utf8(data) {
        // The rounds of a valid one would take the fuzzer's time.
        if !challenge.contains("i=") {
            let _ = Scram::new("u", "p", "n".to_owned()).answer(challenge);
        }
    }
}

fn read(answer: &Document) {
    let _ = (Hello::of(answer), Build::of(answer), wire::date(answer), wire::counted(answer));
    let _ = (wire::found(answer), wire::listed(answer), wire::sasl_payload(answer));
    if let Ok(events) = wire::events(answer) {
        assert_ne!(events.cursor, Some(0));
    }
    if let Some(error) = wire::error(answer) {
        shown(super::errors::reported(&error, "h:1").into());
    }
}

fn shown(error: StoreError) {
    let message = &error.failure().message;
    assert!(message.chars().all(is_printable), "{message}");
    assert!(!matches!(error, StoreError::Refused(_) | StoreError::Foreign(_)), "{error:?}");
}

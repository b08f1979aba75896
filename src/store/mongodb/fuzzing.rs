//! Fuzz target for what a server, or somebody in its place, answers.

use mongodb::bson::Document;

use super::wire::{self, Build, Hello};
use crate::lease::StoreError;
use crate::lease::text::is_printable;

/// Checks that no part of an answer panics, and that an error that it reports can be shown and is never
/// definite.
pub fn mongodb_answer(data: &[u8]) {
    let Ok(answer) = Document::from_reader(data) else { return };
    let _ = (Hello::of(&answer), Build::of(&answer), wire::date(&answer));
    let _ = (wire::is_written(&answer), wire::found(&answer), wire::listed(&answer));
    if let Some(error) = wire::error(&answer) {
        let error = StoreError::from(super::errors::reported(&error, "h:1"));
        let message = &error.failure().message;
        assert!(message.chars().all(is_printable), "{message}");
        assert!(!matches!(error, StoreError::Refused(_) | StoreError::Foreign(_)), "{error:?}");
    }
}

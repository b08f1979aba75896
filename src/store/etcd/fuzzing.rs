//! Fuzz target for what a member of etcd may answer to a read, and send as a message of a watch.

use azure_core::base64;

use super::wire::{Answer, Event, Range, Streamed};
use super::{election, tag, term_of};
use crate::store::register::{Body, Told};

/// Checks that each value has a tag of one line, from which it is compared as it was, with its term.
pub fn etcd_answer(data: &[u8]) {
    if let Ok(Streamed { result: Some(message), .. }) = serde_json::from_slice(data) {
        let values = message.rest.events.into_iter().map(Event::into_value);
        values.for_each(|it| drop(Told::of(it.as_deref())));
    }
    let Ok(answer) = serde_json::from_slice::<Answer<Range>>(data) else { return };
    for found in answer.rest.kvs {
        let (revision, value) = (found.mod_revision.0, base64::encode(&found.value.0));
        let tag = tag(revision, &value);
        assert_eq!(tag.split_once(' '), Some((revision.to_string().as_str(), value.as_str())));
        assert!(!tag.contains('\n'));
        let term = Body::decode(&found.value.0).ok().and_then(|it| it.record.term);
        assert_eq!(term_of(&value), term);
        if let Some(name) = str::from_utf8(&found.key.0).ok().and_then(|it| election(it, "/t/")) {
            assert_eq!(format!("/t/{name}/record").as_bytes(), found.key.0);
        }
    }
}

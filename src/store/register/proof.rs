//! Tries whether a server honours the conditions of writes, on a value of its own: some servers accept
//! them and write all the same, and several candidates would lead.
//!
//! What is tried is what the lease needs: a value that exists is not created again, and a write for a
//! state that is no more is not done. Other candidates may try on the same value at the same time, which
//! only makes a condition fail that should have held; then the next attempt is based on what is there.

use uuid::Uuid;

use super::{If, Register, Slot, Tagged};
use crate::lease::{Cause, Failure, StoreError};

/// How often a write is tried that other candidates get ahead of.
const ATTEMPTS: usize = 5;

/// Returns what was seen, for people, if the server honours the conditions.
///
/// # Errors
/// Returns an error that names the condition, if the server ignores one; else that of a request.
pub(super) async fn prove(register: &impl Register) -> Result<String, StoreError> {
    let place = register.place(Slot::Trial);
    // If there is none, this creates it, and a second time must not.
    let created = register.put(Slot::Trial, If::Absent, content()).await?;
    if created.is_some() && register.put(Slot::Trial, If::Absent, content()).await?.is_some() {
        return Err(ignores(&format!("created {place} although it existed")));
    }
    let mut tag = match created {
        Some(written) => written.tag,
        None => present(register).await?.tag,
    };
    for _ in 0..ATTEMPTS {
        let Some(written) = register.put(Slot::Trial, If::Tagged(&tag), content()).await? else {
            tag = present(register).await?.tag;
            continue;
        };
        if written.tag == tag {
            return Err(ignores(&format!("names two states of {place} alike")));
        }
        if register.put(Slot::Trial, If::Tagged(&tag), content()).await?.is_some() {
            return Err(ignores(&format!(
                "wrote {place} on the condition of a state that was over"
            )));
        }
        return Ok(format!(
            "neither created {place} again, nor wrote it on the condition of a state that was over"
        ));
    }
    let message = format!(
        "{place} was changed at each of {ATTEMPTS} attempts to write it; it is tried again with the next \
         bid"
    );
    Err(StoreError::Unknown(Failure::new(Cause::Unavailable, message)))
}

async fn present(register: &impl Register) -> Result<Tagged, StoreError> {
    register.get(Slot::Trial).await?.ok_or_else(|| {
        let place = register.place(Slot::Trial);
        ignores(&format!("said both that {place} exists and that it does not"))
    })
}

/// Returns another content each time.
fn content() -> Vec<u8> {
    format!("Tenure tries here whether conditions of writes are honoured: {}", Uuid::new_v4())
        .into_bytes()
}

fn ignores(what: &str) -> StoreError {
    let message = format!(
        "the server does not honour the conditions of writes, so that several instances could lead at \
         the same time, and none does: it {what}; use a server that honours them, without a proxy that \
         removes them"
    );
    StoreError::Unknown(Failure::new(Cause::Settings, message))
}

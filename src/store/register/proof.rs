//! Tries whether a server honours the conditions of writes, on a value of its own: some servers accept
//! them and write all the same, and several candidates would lead.
//!
//! One after the other, what the lease needs is tried: a value that exists is not created again, and a write
//! for a state that is no more is not done. Then *in a race*, when the last one is a day ago: of several
//! writes at once on one state, one is done. A server that checks and then writes passes the first.
//!
//! Other candidates may try on the same value at the same time. They only make a condition fail that should
//! have held; so a trial counts only if nobody else has changed the value, and the next one is based on what
//! is there.

use futures::future::join_all;
use time::OffsetDateTime;

use super::body::{self, Body};
use super::{If, Register, RegisterError, Slot, Tagged};
use crate::lease::{Cause, Failure, StoreError};

/// How often a trial is made that other candidates get ahead of.
const ATTEMPTS: usize = 5;

/// How many writes are in a race.
const RACERS: usize = 8;

/// For how many seconds a race that was passed counts.
const RACED_FOR: i64 = 24 * 3_600;

/// The state of the trial's value.
pub(super) struct Trial {
    tag: String,
    /// When a race was passed last, in seconds by the server's clock. The value has it as its term.
    raced: Option<u64>,
    date: Option<OffsetDateTime>,
}

impl Trial {
    fn of(read: &Tagged) -> Self {
        // What another version has written there says nothing.
        let raced = read.body.as_ref().ok().and_then(|it| it.record.term);
        Self { tag: read.tag.clone(), raced, date: read.date }
    }

    /// Returns whether a race is to be run.
    pub(super) fn is_race_due(&self) -> bool {
        let age = |(date, raced): (OffsetDateTime, u64)| {
            date.unix_timestamp().saturating_sub(raced.cast_signed())
        };
        !self.date.zip(self.raced).is_some_and(|it| (0..RACED_FOR).contains(&age(it)))
    }
}

/// Tries the conditions one after the other.
///
/// # Errors
/// Returns an error that names the condition, if the server ignores one, or refuses one that holds; else
/// that of a request.
pub(super) async fn in_order(register: &impl Register) -> Result<Trial, StoreError> {
    let place = register.place(Slot::Trial);
    // If there is none, this creates it, and a second time must not.
    let created = put(register, If::Absent, None).await?;
    if created.is_some() && put(register, If::Absent, None).await?.is_some() {
        return Err(ignores(register, &format!("created {place} although it existed")));
    }
    let mut trial = match created {
        Some(created) => created,
        None => present(register).await?,
    };
    let mut is_same = true;
    for _ in 0..ATTEMPTS {
        let Some(written) = put(register, If::Tagged(&trial.tag), trial.raced).await? else {
            let found = present(register).await?;
            is_same &= found.tag == trial.tag;
            trial = found;
            continue;
        };
        if written.tag == trial.tag {
            return Err(ignores(register, &format!("names two states of {place} alike")));
        }
        if put(register, If::Tagged(&trial.tag), None).await?.is_some() {
            return Err(ignores(
                register,
                &format!("wrote {place} on the condition of a state that was over"),
            ));
        }
        return Ok(written);
    }
    Err(if is_same { refuses(register) } else { busy(&place) })
}

/// Tries the conditions in a race, and leaves a note of it in the value.
///
/// # Errors
/// As [`in_order`].
pub(super) async fn in_a_race(register: &impl Register) -> Result<(), StoreError> {
    let place = register.place(Slot::Trial);
    let mut trial = present(register).await?;
    for _ in 0..ATTEMPTS {
        let bodies: Vec<_> = (0..RACERS).map(|_| content(register, trial.raced)).collect();
        let condition = If::Tagged(&trial.tag);
        let race = join_all(bodies.iter().map(|it| register.put(Slot::Trial, condition, it))).await;
        let is_written = |it: &usize| matches!(race[*it], Ok(Some(_)));
        let winners = (0..RACERS).filter(is_written).count();
        if winners > 1 {
            return Err(ignores(
                register,
                &format!(
                    "did {winners} of {RACERS} writes of {place} at the same time on the condition of one \
                 state"
                ),
            ));
        }
        let found = present_value(register).await?;
        let ours = bodies.iter().position(|it| found.body.as_ref() == Ok(it));
        if ours.is_some_and(|it| matches!(race[it], Ok(None))) {
            return Err(ignores(register, &format!("did a write of {place} that it had refused")));
        }
        if winners == 1 && ours.as_ref().is_some_and(is_written) {
            let raced = found.date.and_then(|it| u64::try_from(it.unix_timestamp()).ok());
            // If another candidate is ahead here, it has run a race of its own.
            put(register, If::Tagged(&found.tag), raced).await?;
            return Ok(());
        }
        if let Some(error) = race.into_iter().find_map(Result::err).filter(|it| !is_of_a_race(it)) {
            return Err(error.into());
        }
        trial = Trial::of(&found);
    }
    Err(busy(&place))
}

/// Returns whether a write may fail with this error for no other reason than that others are served.
fn is_of_a_race(error: &RegisterError) -> bool {
    matches!(
        error,
        RegisterError::Concurrent(_) | RegisterError::Throttled(_) | RegisterError::Unavailable(_)
    )
}

async fn put(
    register: &impl Register,
    condition: If<'_>,
    raced: Option<u64>,
) -> Result<Option<Trial>, StoreError> {
    let body = content(register, raced);
    let written = register.put(Slot::Trial, condition, &body).await?;
    Ok(written.map(|it| Trial { tag: it.tag, raced, date: it.date }))
}

async fn present_value(register: &impl Register) -> Result<Tagged, StoreError> {
    register.get(Slot::Trial).await?.ok_or_else(|| {
        let place = register.place(Slot::Trial);
        ignores(register, &format!("said both that {place} exists and that it does not"))
    })
}

async fn present(register: &impl Register) -> Result<Trial, StoreError> {
    present_value(register).await.map(|it| Trial::of(&it))
}

/// Returns another content each time.
fn content(register: &impl Register, raced: Option<u64>) -> Body {
    let mut body = raced.map_or_else(Body::default, body::first);
    body.stamp(register.draw());
    body
}

fn busy(place: &str) -> StoreError {
    let message = format!(
        "{place} was changed at each of {ATTEMPTS} attempts to write it; it is tried again with the next \
         bid"
    );
    StoreError::Unknown(Failure::new(Cause::Unavailable, message))
}

fn refuses(register: &impl Register) -> StoreError {
    let place = register.place(Slot::Trial);
    let message = format!(
        "the server refused {ATTEMPTS} times to write {place} on a condition that held, without which nobody \
         can lead: use a server that honours conditions, without a proxy that changes or compresses values{}",
        register.reports()
    );
    StoreError::Unknown(Failure::new(Cause::Settings, message))
}

fn ignores(register: &impl Register, what: &str) -> StoreError {
    let message = format!(
        "the server does not honour the conditions of writes, so that several instances could lead at \
         the same time, and none does: it {what}; use a server that honours them, without a proxy that \
         removes them{}",
        register.reports()
    );
    StoreError::Unknown(Failure::new(Cause::Settings, message))
}

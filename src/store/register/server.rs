//! What a store brings to its register: a value that is read and written on a condition, and reports of it.

use async_trait::async_trait;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Body, RegisterError};
use crate::lease::Nonce;
use crate::store::Finding;

/// A value of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The one with the lease and the record.
    Lease,
    /// The one on which conditions are tried. It stays, and all candidates of the election share it.
    Trial,
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum If<'a> {
    /// There is no value yet.
    Absent,
    /// The value is the one with this tag.
    Tagged(&'a str),
}

/// A value as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// The server's name for this state of the value, which no other state has.
    pub tag: String,
    /// The value, or why it is none of Tenure's, to follow its name.
    pub body: Result<Body, String>,
    /// The date by the server's clock, if it sent one.
    pub date: Option<OffsetDateTime>,
}

/// The outcome of a write that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The server's name for the new state of the value.
    pub tag: String,
    /// The date by the server's clock, if it sent one.
    pub date: Option<OffsetDateTime>,
}

/// What a server reports unasked.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are of the largest, and few live at once"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The value, as it was at some time.
    Body(Body),
    /// The value was deleted.
    Gone,
    /// It may have changed. Anybody may be able to cause this.
    Hint,
}

impl Told {
    /// Returns the report of a content, or of its deletion.
    #[must_use]
    pub fn of(content: Option<&[u8]>) -> Self {
        match content.map(Body::decode) {
            Some(Ok(body)) => Self::Body(body),
            Some(Err(_)) => Self::Hint,
            None => Self::Gone,
        }
    }
}

/// How conditions are tried before the first bid, and by `tenure doctor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trials {
    /// Not at all: one maker's servers answer like this one, and they honour conditions.
    None,
    /// One after the other: a proxy may remove them.
    InOrder,
    /// Also in a race: servers of other makers answer like this one.
    InARace,
}

/// A server with such values. Each call is one request.
#[async_trait]
pub trait Register: Send + Sync + 'static {
    /// Returns the name of the kind of store.
    fn kind(&self) -> &'static str;

    /// Names a value, for messages: `the object s3://bucket/key`.
    fn place(&self, slot: Slot) -> String;

    /// Names the server that answered, for `tenure doctor`, and how it is reached.
    fn answered(&self) -> String;

    /// Names the credential, for `tenure doctor`; `None` if there is none yet.
    fn credential(&self) -> Option<String>;

    /// Reads a value; `None` if there is none.
    async fn get(&self, slot: Slot) -> Result<Option<Tagged>, RegisterError>;

    /// Writes a value on a condition; `None` if the server says that it does not hold, so that nothing was
    /// written.
    async fn put(
        &self,
        slot: Slot,
        condition: If<'_>,
        body: &Body,
    ) -> Result<Option<Written>, RegisterError>;

    /// Writes the lease like [`put`](Self::put), where it is but renewed, so that no standby need be told.
    async fn put_renewal(
        &self,
        condition: If<'_>,
        body: &Body,
    ) -> Result<Option<Written>, RegisterError> {
        self.put(Slot::Lease, condition, body).await
    }

    /// Returns the names of other elections in the same place, sorted; `None` if they cannot be listed.
    async fn others(&self) -> Option<Vec<String>>;

    /// Resolves when the server reports unasked that the value of the lease has changed, or may have;
    /// first, on a new watch, with the present state. Dropping the future closes the watch; the next call
    /// opens another. Never resolves where a server reports nothing.
    async fn told(&self) -> Told {
        std::future::pending().await
    }

    /// Checks everything that this store needs, for `tenure doctor`.
    async fn examine(&self) -> Vec<Finding>;

    /// Returns how its conditions are tried before the first bid.
    fn trials(&self) -> Trials;

    /// Names public reports of servers that do not honour conditions, to end a message.
    fn reports(&self) -> &'static str {
        ""
    }

    /// Draws a number that no other write has.
    fn draw(&self) -> Nonce {
        Nonce(Uuid::new_v4().as_u128())
    }
}

//! What a request to a store did not bring: the errors, by what the caller does next, and their
//! causes, for people and for metrics.
//!
//! What it does not do: it takes nothing for definite. A backend does, where it can prove it (R4).

use std::borrow::Cow;
use std::fmt;

/// What a request did not bring, by what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Definite: the store did not do it, and no later answer can say otherwise. To a bid it means
    /// that another holds the lease, to a holder that the lease is lost.
    #[error("{0}")]
    Refused(Failure),
    /// Definite: there is a record, but not of our making. Nothing was overwritten; the lease may
    /// have been taken before this was seen.
    #[error("{0}")]
    Foreign(Failure),
    /// Unknown: the connection broke under the request. One more try at once is worth it (R9).
    #[error("{0}")]
    Broken(Failure),
    /// Unknown: it may have been done, or may yet be. Never evidence for or against (R4).
    #[error("{0}")]
    Unknown(Failure),
}

impl StoreError {
    /// Why it failed.
    #[must_use]
    pub fn failure(&self) -> &Failure {
        let (Self::Refused(it) | Self::Foreign(it) | Self::Broken(it) | Self::Unknown(it)) = self;
        it
    }

    /// The value of the metric label `outcome`.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Foreign(_) => "foreign",
            Self::Broken(failure) | Self::Unknown(failure) => failure.cause.as_str(),
        }
    }
}

/// Why a request failed, for people and for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of cause.
    pub cause: Cause,
    /// In words, lower-case, with the remedy where there is one; never a secret or a signed URL.
    pub message: Cow<'static, str>,
}

impl Failure {
    /// Makes a failure of a cause and its words.
    pub fn new(cause: Cause, message: impl Into<Cow<'static, str>>) -> Self {
        Self { cause, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The kinds of cause that an operator would tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The lease is another's, or no longer ours.
    Lease,
    /// The record is not of our making.
    Record,
    /// No answer within the request-timeout.
    Timeout,
    /// Name resolution, connection, TLS.
    Network,
    /// Signing in failed, or the rights do not allow it.
    Auth,
    /// The store asks us to slow down.
    Throttled,
    /// The store erred or is busy.
    Unavailable,
    /// The store says that what was asked makes no sense: a setting is wrong, something is missing.
    Settings,
}

impl Cause {
    /// All of them, for metrics whose series exist from the start.
    pub const ALL: [Self; 8] = [
        Self::Lease,
        Self::Record,
        Self::Timeout,
        Self::Network,
        Self::Auth,
        Self::Throttled,
        Self::Unavailable,
        Self::Settings,
    ];

    /// The cause as a metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Record => "record",
            Self::Timeout => "timeout",
            Self::Network => "network",
            Self::Auth => "auth",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::Settings => "settings",
        }
    }
}

//! Errors of requests to a store: what the caller may conclude, and the cause, for people and for
//! metrics.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::text::excerpt;

/// The most characters of a message, which may quote what a server sent.
const LONGEST_MESSAGE: usize = 2_000;

/// The error of a request, by what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Definite: the store did not do it, and no later answer can say otherwise. To a bid this
    /// means that another candidate holds the lease, to a holder that the lease is lost.
    #[error("{0}")]
    Refused(Failure),
    /// Definite: there is a record that Tenure did not write. Nothing was overwritten; the lease
    /// may have been acquired before this was detected.
    #[error("{0}")]
    Foreign(Failure),
    /// Unknown, and one immediate retry is worthwhile (R9): the connection broke during the request,
    /// or the lock was changed between its read and its write.
    #[error("{0}")]
    RetryNow(Failure),
    /// Unknown: it may have been done, or may still be. Never evidence for or against (R4).
    #[error("{0}")]
    Unknown(Failure),
}

impl StoreError {
    /// Returns the cause and the message.
    #[must_use]
    pub fn failure(&self) -> &Failure {
        let (Self::Refused(it) | Self::Foreign(it) | Self::RetryNow(it) | Self::Unknown(it)) = self;
        it
    }

    /// Returns the value of the metric label `outcome`.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Foreign(_) => "foreign",
            Self::RetryNow(failure) | Self::Unknown(failure) => failure.cause.as_str(),
        }
    }
}

/// Why a request failed, for people and for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of cause.
    pub cause: Cause,
    /// The message: lower-case, with the remedy if there is one; never a secret or a signed URL.
    pub message: Cow<'static, str>,
    /// Whether the request certainly changed nothing and never will, such as one that could not be
    /// sent. The lease may still be this candidate's by an earlier request.
    pub had_no_effect: bool,
    /// How long the store asks to wait before another request, if it does.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// Creates a failure from a cause and a message, of which only what can be shown is kept.
    pub fn new(cause: Cause, message: impl Into<Cow<'static, str>>) -> Self {
        let message = excerpt(message.into(), LONGEST_MESSAGE);
        Self { cause, message, had_no_effect: false, retry_after: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The kinds of cause that an operator needs to distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Another candidate holds the lease, or this one no longer does.
    Lease,
    /// Tenure did not write the record.
    Record,
    /// No answer within request-timeout.
    Timeout,
    /// Name resolution, connection or TLS.
    Network,
    /// Sign-in failed, or access was denied.
    Auth,
    /// The store throttles requests.
    Throttled,
    /// The store failed or is busy.
    Unavailable,
    /// The store rejected the request as invalid: a setting is wrong, or something is missing.
    Settings,
}

impl Cause {
    /// All causes, for metrics.
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

    /// Returns the cause as a metric label.
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

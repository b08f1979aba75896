//! Errors of requests to ZooKeeper, by what the caller does next, with the remedy in the message. No
//! message shows a password.

use std::time::Duration;

use crate::lease::{Cause, Failure, StoreError};
use crate::store::network::NetworkError;

/// Why a request had no answer that can be used. The text is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ZookeeperError {
    /// Definite: a node does not exist, exists already, or is in another version, so nothing was done.
    #[error("{0}")]
    Conflict(String),
    /// The sign-in is not accepted.
    #[error("{0}")]
    SignIn(String),
    /// The user may not.
    #[error("{0}")]
    Denied(String),
    /// The file of the sign-in cannot be read.
    #[error("{0}")]
    Files(String),
    /// The server throttles requests.
    #[error("{0}")]
    Throttled(String),
    /// The server failed, or has no quorum; what was asked for may still be done.
    #[error("{0}")]
    Unavailable(String),
    /// The server rejected the request as invalid, or its answer is unusable: a setting is wrong.
    #[error("{0}")]
    Invalid(String),
    /// There is no answer.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

impl ZookeeperError {
    /// Returns whether another server may do better.
    pub(super) fn is_of_one_server(&self) -> bool {
        matches!(
            self,
            Self::Throttled(_) | Self::Unavailable(_) | Self::Invalid(_) | Self::Network(_)
        )
    }
}

/// Converts an error, where nothing more is known: its outcome is never definite (R4).
impl From<ZookeeperError> for StoreError {
    fn from(error: ZookeeperError) -> Self {
        let message = error.to_string();
        let cause = match error {
            ZookeeperError::Network(error) => return error.into(),
            ZookeeperError::Conflict(_) => {
                return Self::RetryNow(Failure::new(Cause::Lease, message));
            }
            ZookeeperError::SignIn(_) | ZookeeperError::Denied(_) | ZookeeperError::Files(_) => {
                Cause::Auth
            }
            ZookeeperError::Throttled(_) => Cause::Throttled,
            ZookeeperError::Invalid(_) => Cause::Settings,
            ZookeeperError::Unavailable(_) => Cause::Unavailable,
        };
        Self::Unknown(Failure::new(cause, message))
    }
}

/// There is no such node.
pub(super) const NO_NODE: i32 = -101;

/// There is such a node.
pub(super) const NODE_EXISTS: i32 = -110;

/// The node is in another version.
const BAD_VERSION: i32 = -103;

/// Classifies an error that the server reports, by its number.
///
/// The numbers: `org.apache.zookeeper.KeeperException.Code`.
pub(super) fn reported(code: i32, server: &str) -> ZookeeperError {
    match code {
        NO_NODE => ZookeeperError::Conflict(format!("{server}: there is no such node (-101)")),
        NODE_EXISTS => ZookeeperError::Conflict(format!("{server}: the node exists (-110)")),
        BAD_VERSION => {
            ZookeeperError::Conflict(format!("{server}: the node was modified concurrently (-103)"))
        }
        -102 => ZookeeperError::Denied(format!(
            "access denied: the access lists of the nodes give the user of ZOOKEEPER_AUTH not all rights, \
             see docs/stores/zookeeper.md ({server}: -102)"
        )),
        -114 => ZookeeperError::SignIn(format!(
            "{server} signed nobody in, or does not know the scheme digest (-114)"
        )),
        -115 | -124 => ZookeeperError::SignIn(format!(
            "the sign-in failed: check ZOOKEEPER_AUTH, and that the server knows the scheme digest ({server}: \
             {code})"
        )),
        -112 => disconnected(format!("{server} has ended the session (-112)")),
        -118 => disconnected(format!("the session is on another server than {server} (-118)")),
        -125 => ZookeeperError::Unavailable(format!(
            "the quota of the nodes is used up: raise it with zkCli.sh setquota ({server}: -125)"
        )),
        -127 => ZookeeperError::Throttled(format!("{server} throttles requests (-127)")),
        -6 | -8 | -5 => {
            ZookeeperError::Invalid(format!("{server} does not take the request ({code})"))
        }
        _ => ZookeeperError::Unavailable(format!("{server} failed ({code})")),
    }
}

/// Returns the error of a connection that is of no more use.
pub(super) fn disconnected(why: String) -> ZookeeperError {
    NetworkError::Disconnected(why).into()
}

/// Returns the error for a server that closed a new connection without an answer.
pub(super) fn not_taken(server: &str) -> ZookeeperError {
    disconnected(format!(
        "{server} closed the connection without an answer: it has no quorum, is behind what this instance has \
         seen, wants TLS, or has too many connections (maxClientCnxns)"
    ))
}

/// Returns the error for what no server of ZooKeeper sends.
pub(super) fn not_zookeeper(server: &str) -> ZookeeperError {
    ZookeeperError::Invalid(format!(
        "{server} did not answer as ZooKeeper does: check the address in --store, and whether the port is one \
         for TLS"
    ))
}

/// Returns the error for sessions of another length than the lease.
pub(super) fn other_length(asked: Duration, given: Duration, server: &str) -> ZookeeperError {
    let bound = if given > asked { "least" } else { "most" };
    ZookeeperError::Invalid(format!(
        "{server} keeps sessions for {given:?} at {bound}, so no lease of {asked:?}: set --lease-duration \
         within its bounds (by default 2 to 20 times tickTime), or its minSessionTimeout or \
         maxSessionTimeout"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_its_meaning() {
        for (code, expected) in [
            (-101, "Conflict"),
            (-110, "Conflict"),
            (-103, "Conflict"),
            (-102, "Denied"),
            (-114, "SignIn"),
            (-115, "SignIn"),
            (-112, "Network(Disconnected"),
            (-118, "Network(Disconnected"),
            (-125, "Unavailable"),
            (-127, "Throttled"),
            (-6, "Invalid"),
            (-4, "Unavailable"),
            (-7, "Unavailable"),
            (-1, "Unavailable"),
            (1, "Unavailable"),
        ] {
            let error = reported(code, "h:1");
            let shown = format!("{error:?}");
            assert!(shown.starts_with(expected) && shown.contains("h:1"), "{code}: {shown}");
            assert!(!matches!(StoreError::from(error), StoreError::Refused(_)), "{code}");
        }
    }

    #[test]
    fn a_quota_that_is_used_up_comes_with_its_remedy() {
        let error = reported(-125, "h:1").to_string();
        assert!(error.contains("setquota") && error.contains("h:1"), "{error}");
    }

    #[test]
    fn another_server_is_asked_after_what_may_be_of_one_alone() {
        let why = || "x".to_owned();
        for (error, expected) in [
            (ZookeeperError::Throttled(why()), true),
            (ZookeeperError::Unavailable(why()), true),
            (ZookeeperError::Invalid(why()), true),
            (disconnected(why()), true),
            (ZookeeperError::Conflict(why()), false),
            (ZookeeperError::SignIn(why()), false),
            (ZookeeperError::Denied(why()), false),
            (ZookeeperError::Files(why()), false),
        ] {
            assert_eq!(error.is_of_one_server(), expected, "{error:?}");
        }
    }

    #[test]
    fn the_bound_of_sessions_is_named() {
        let length = Duration::from_secs;
        let short = other_length(length(3), length(4), "h:1").to_string();
        assert!(short.contains("for 4s at least, so no lease of 3s"), "{short}");
        let long = other_length(length(60), length(40), "h:1").to_string();
        assert!(long.contains("for 40s at most, so no lease of 60s"), "{long}");
    }
}

//! Errors of requests to ZooKeeper, by what the caller does next, with the remedy in the message. No
//! message shows a password.

use crate::store::network::NetworkError;
use crate::store::register::RegisterError;

/// There is no such node.
pub(super) const NO_NODE: i32 = -101;

/// There is such a node.
pub(super) const NODE_EXISTS: i32 = -110;

/// The node is in another version.
pub(super) const BAD_VERSION: i32 = -103;

/// Classifies an error that the server, or the node, of this name reports, by its number.
///
/// The numbers: `org.apache.zookeeper.KeeperException.Code`.
pub(super) fn reported(code: i32, at: &str) -> RegisterError {
    match code {
        -102 => RegisterError::Denied(format!(
            "access denied: the access lists of the nodes give the user of ZOOKEEPER_AUTH not all rights, \
             see docs/stores/zookeeper.md ({at}: -102)"
        )),
        -114 => RegisterError::Credential(format!(
            "{at} signed nobody in, or does not know the scheme digest (-114)"
        )),
        -115 => RegisterError::Credential(format!(
            "the sign-in failed: check ZOOKEEPER_AUTH, and that the server knows the scheme digest ({at}: \
             -115)"
        )),
        -124 => RegisterError::Credential(format!(
            "{at} takes no sessions without SASL (Kerberos or DIGEST-MD5), which Tenure does not have (-124): \
             unset sessionRequireClientSASLAuth, or let enforce.auth.schemes name digest, and set \
             ZOOKEEPER_AUTH"
        )),
        -112 => disconnected(format!("{at} has ended the session (-112)")),
        -118 => disconnected(format!("the session is on another server than {at} (-118)")),
        -125 => RegisterError::Unavailable(format!(
            "the quota of the nodes is used up: raise it with zkCli.sh setquota ({at}: -125)"
        )),
        -127 => RegisterError::Throttled(format!("{at} throttles requests (-127)")),
        -6 | -8 | -5 => RegisterError::Invalid(format!("{at} does not take the request ({code})")),
        _ => RegisterError::Unavailable(format!("{at} failed ({code})")),
    }
}

/// Returns the error of a connection that is of no more use.
pub(super) fn disconnected(why: String) -> RegisterError {
    NetworkError::Disconnected(why).into()
}

/// Returns the error for a server that closed a new connection without an answer.
pub(super) fn not_taken(server: &str) -> RegisterError {
    disconnected(format!(
        "{server} closed the connection without an answer: it has no quorum, is behind what this instance has \
         seen, wants TLS, or has too many connections (maxClientCnxns)"
    ))
}

/// Returns the error for what no server of ZooKeeper sends.
pub(super) fn not_zookeeper(server: &str) -> RegisterError {
    RegisterError::Invalid(format!(
        "{server} did not answer as ZooKeeper does: check the address in --store, and whether the port is one \
         for TLS"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::StoreError;

    #[test]
    fn each_number_has_its_meaning_and_its_remedy() {
        for (code, expected, words) in [
            (-102, "Denied", "docs/stores/zookeeper.md"),
            (-114, "Credential", "the scheme digest"),
            (-115, "Credential", "ZOOKEEPER_AUTH"),
            (-124, "Credential", "SASL (Kerberos or DIGEST-MD5), which Tenure does not have"),
            (-112, "Network(Disconnected", "ended the session"),
            (-118, "Network(Disconnected", "another server"),
            (-125, "Unavailable", "setquota"),
            (-127, "Throttled", "throttles"),
            (-6, "Invalid", "does not take"),
            (-4, "Unavailable", "failed"),
            (-7, "Unavailable", "failed"),
            (-1, "Unavailable", "failed"),
            (1, "Unavailable", "failed"),
        ] {
            let error = reported(code, "h:1");
            let shown = format!("{error:?}");
            assert!(shown.starts_with(expected) && shown.contains(words), "{code}: {shown}");
            assert!(shown.contains("h:1"), "{shown}");
            assert!(!matches!(StoreError::from(error), StoreError::Refused(_)), "{code}");
        }
    }
}

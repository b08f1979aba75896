//! Errors of requests to Redis, by what the caller does next, with the remedy in the message. No message
//! shows a password.

use crate::lease::text::is_printable;
use crate::lease::{Cause, Failure, StoreError};
use crate::store::network::NetworkError;

/// Why a request had no answer that can be used. The text is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RedisError {
    /// A key has another type or content than Tenure's.
    #[error("{0}")]
    OtherKeys(String),
    /// The term is the largest possible one.
    #[error("{0}")]
    TooLarge(String),
    /// The user does not exist, or its password is not accepted.
    #[error("{0}")]
    SignIn(String),
    /// The user may not.
    #[error("{0}")]
    Denied(String),
    /// A file of credentials cannot be read.
    #[error("{0}")]
    Files(String),
    /// The server is a replica, or the node of a cluster that does not have the keys.
    #[error("{0}")]
    Replica(String),
    /// The server has no connection left.
    #[error("{0}")]
    Throttled(String),
    /// The server failed, is starting, or takes no writes; what was asked for may still be done.
    #[error("{0}")]
    Unavailable(String),
    /// The server rejected the request as invalid, or its answer is unusable: a setting is wrong.
    #[error("{0}")]
    Invalid(String),
    /// There is no answer.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

impl RedisError {
    /// Returns whether another server may do better.
    pub(super) fn is_of_one_server(&self) -> bool {
        matches!(
            self,
            Self::Replica(_)
                | Self::Throttled(_)
                | Self::Unavailable(_)
                | Self::Invalid(_)
                | Self::Network(_)
        )
    }

    /// Returns whether other credentials may do better.
    pub(super) fn is_of_the_user(&self) -> bool {
        matches!(self, Self::SignIn(_) | Self::Denied(_))
    }
}

/// Converts an error, where nothing more is known: its outcome is never definite (R4).
impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        let message = error.to_string();
        let cause = match error {
            RedisError::Network(error) => return error.into(),
            RedisError::Replica(_) => {
                return Self::RetryNow(Failure::new(Cause::Network, message));
            }
            RedisError::OtherKeys(_) | RedisError::TooLarge(_) => {
                return Self::Foreign(Failure::new(Cause::Record, message));
            }
            RedisError::SignIn(_) | RedisError::Denied(_) | RedisError::Files(_) => Cause::Auth,
            RedisError::Throttled(_) => Cause::Throttled,
            RedisError::Invalid(_) => Cause::Settings,
            RedisError::Unavailable(_) => Cause::Unavailable,
        };
        Self::Unknown(Failure::new(cause, message))
    }
}

/// What errors of a script without a code of their own are about.
const OF_SCRIPTS: [(&str, &str); 5] = [
    ("can't run this command", "NOPERM"),
    ("can't access at least one of the keys", "NOPERM"),
    ("value is not an integer", "WRONGTYPE"),
    ("increment or decrement would overflow", "OVERFLOW"),
    ("max number of clients reached", "MAXCLIENTS"),
];

/// Classifies an error that the server reports, by its code: the first word. Versions before 7 report an
/// error within a script with a code of its own, and the other after it.
pub(super) fn reported(words: &str, server: &str) -> RedisError {
    let words: String = words.chars().filter(|it| is_printable(*it)).take(300).collect();
    let said = format!("{server}: {words}");
    let first = words.split(' ').next().unwrap_or_default();
    let code = match first {
        "ERR" => {
            let of_script = OF_SCRIPTS.iter().find(|it| words.contains(it.0)).map(|it| it.1);
            let is_code = |it: &&str| it.len() >= 3 && it.bytes().all(|it| it.is_ascii_uppercase());
            let nested = words.split(" -").skip(1).filter_map(|it| it.split(' ').next());
            of_script.or(nested.into_iter().find(is_code)).unwrap_or(first)
        }
        code => code,
    };
    match code {
        "READONLY" | "MASTERDOWN" => RedisError::Replica(format!(
            "{server} is a replica: name the primary in --store too, or an address that leads to it"
        )),
        "MOVED" | "ASK" => RedisError::Replica(format!(
            "another node of the cluster has the keys: name all nodes in --store ({said})"
        )),
        "WRONGTYPE" => RedisError::OtherKeys(format!(
            "the keys of the election are not Tenure's; nothing was overwritten: set another --election or \
             database, or delete the keys if nothing else uses them ({said})"
        )),
        "OVERFLOW" => {
            RedisError::TooLarge(format!("the largest possible term is reached ({said})"))
        }
        "NOAUTH" | "WRONGPASS" | "DENIED" => sign_in(&said),
        "NOPERM" => RedisError::Denied(format!(
            "access denied: the user needs the commands, keys and channels that docs/stores/redis.md names \
             ({said})"
        )),
        "MAXCLIENTS" => RedisError::Throttled(said),
        "MISCONF" => RedisError::Unavailable(format!(
            "the server takes no writes since it cannot save them, see its log; perhaps its disk is full \
             ({said})"
        )),
        "OOM" => RedisError::Unavailable(format!("the memory of the server is full ({said})")),
        "LOADING" | "BUSY" | "NOREPLICAS" | "CLUSTERDOWN" | "TRYAGAIN" | "UNKILLABLE"
        | "EXECABORT" => RedisError::Unavailable(said),
        _ if words.contains("AUTH") || words.contains("invalid password") => sign_in(&said),
        _ => RedisError::Invalid(format!("the server refused the request ({said})")),
    }
}

fn sign_in(said: &str) -> RedisError {
    RedisError::SignIn(format!(
        "the sign-in failed: check REDIS_USERNAME and REDIS_PASSWORD ({said})"
    ))
}

/// Returns the error for what no server of Redis sends.
pub(super) fn not_redis(server: &str) -> RedisError {
    RedisError::Invalid(format!(
        "{server} did not answer as Redis does: check the address in --store, and whether its port is the \
         one with TLS"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_meaning() {
        for (words, expected) in [
            ("READONLY You can't write against a read only replica.", "Replica"),
            ("ERR Error running script (call to f_1): @user_script:1: -READONLY You", "Replica"),
            ("ERR Error running script (call to f_1 -Some text): -READONLY You", "Replica"),
            ("ERR Error running script (call to f_1): @user_script:1: -BUSY Redis", "Unavailable"),
            ("MASTERDOWN Link with MASTER is down", "Replica"),
            ("MOVED 3999 127.0.0.1:6381", "Replica"),
            ("WRONGTYPE Operation against a key", "OtherKeys"),
            ("ERR hash value is not an integer script: c9, on @user_script:1.", "OtherKeys"),
            ("ERR increment or decrement would overflow script: 9a", "TooLarge"),
            ("NOAUTH Authentication required.", "SignIn"),
            ("WRONGPASS invalid username-password pair", "SignIn"),
            ("ERR AUTH <password> called without any password configured", "SignIn"),
            ("ERR invalid password", "SignIn"),
            ("DENIED Redis is running in protected mode", "SignIn"),
            ("NOPERM this user has no permissions to run the 'eval' command", "Denied"),
            ("ERR The user executing the script can't run this command or subcommand", "Denied"),
            ("ERR max number of clients reached", "Throttled"),
            ("MISCONF Errors writing to the AOF file: No space left on device", "Unavailable"),
            ("OOM command not allowed when used memory > 'maxmemory'.", "Unavailable"),
            ("ERR Error running script (call to f_1): @user_script:1: -OOM command", "Unavailable"),
            ("LOADING Redis is loading the dataset in memory", "Unavailable"),
            ("BUSY Redis is busy running a script.", "Unavailable"),
            ("CLUSTERDOWN Hash slot not served", "Unavailable"),
            ("ERR DB index is out of range", "Invalid"),
            ("ERR unknown command 'EVAL'", "Invalid"),
            ("", "Invalid"),
        ] {
            let error = reported(&format!("{words}\u{202e}"), "h:1");
            let shown = format!("{error:?}");
            assert!(shown.starts_with(expected), "{words}: {shown}");
            assert!(shown.contains("h:1") && !shown.contains('\u{202e}'), "{shown}");
            assert!(!matches!(StoreError::from(error), StoreError::Refused(_)), "{words}");
        }
    }

    #[test]
    fn what_a_server_says_is_shown_up_to_300_characters() {
        let shown = |length: usize| reported(&"x".repeat(length), "h:1").to_string();
        assert!(shown(300).ends_with(&format!("(h:1: {})", "x".repeat(300))));
        assert_eq!(shown(301), shown(300));
    }

    #[test]
    fn another_server_or_other_credentials_help_only_where_they_can() {
        let of = |it: fn(String) -> RedisError| it("why".to_owned());
        for (error, is_of_one_server, is_of_the_user) in [
            (of(RedisError::Replica), true, false),
            (of(RedisError::Throttled), true, false),
            (of(RedisError::Unavailable), true, false),
            (of(RedisError::Invalid), true, false),
            (NetworkError::Disconnected("why".to_owned()).into(), true, false),
            (of(RedisError::SignIn), false, true),
            (of(RedisError::Denied), false, true),
            (of(RedisError::Files), false, false),
            (of(RedisError::OtherKeys), false, false),
            (of(RedisError::TooLarge), false, false),
        ] {
            assert_eq!(error.is_of_one_server(), is_of_one_server, "{error:?}");
            assert_eq!(error.is_of_the_user(), is_of_the_user, "{error:?}");
        }
    }
}

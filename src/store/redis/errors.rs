//! Errors of requests to Redis, by what the caller does next, with the remedy in the message. No message
//! shows a password.

use crate::lease::text::is_printable;
use crate::store::network::NetworkError;
use crate::store::register::RegisterError;

/// Returns whether other credentials may do better.
pub(super) fn is_of_the_user(error: &RegisterError) -> bool {
    matches!(error, RegisterError::Credential(_) | RegisterError::Denied(_))
}

/// What errors of a script without a code of their own are about.
const OF_SCRIPTS: [(&str, &str); 3] = [
    ("can't run this command", "NOPERM"),
    ("can't access at least one of the keys", "NOPERM"),
    ("max number of clients reached", "MAXCLIENTS"),
];

/// Classifies an error that the server reports, by its code: the first word. Versions before 7 report an
/// error within a script with a code of its own, and the other after it. One that does not know a command
/// shows its arguments, of which one is the script.
pub(super) fn reported(words: &str, server: &str) -> RegisterError {
    let words = words.split(", with args beginning with").next().unwrap_or_default();
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
        "READONLY" | "MASTERDOWN" => replica(server),
        "MOVED" | "ASK" => RegisterError::Network(NetworkError::Disconnected(format!(
            "another node of the cluster has the keys: name all nodes in --store ({said})"
        ))),
        "WRONGTYPE" => foreign(&said),
        "NOAUTH" | "WRONGPASS" | "DENIED" => sign_in(&said),
        "NOPERM" => RegisterError::Denied(format!(
            "access denied: the user needs the commands, keys and channels that docs/stores/redis.md names \
             ({said})"
        )),
        "MAXCLIENTS" => RegisterError::Throttled(said),
        "MISCONF" => RegisterError::Unavailable(format!(
            "the server takes no writes since it cannot save them, see its log; perhaps its disk is full \
             ({said})"
        )),
        "OOM" => RegisterError::Unavailable(format!("the memory of the server is full ({said})")),
        "LOADING" | "BUSY" | "NOREPLICAS" | "CLUSTERDOWN" | "TRYAGAIN" | "UNKILLABLE"
        | "EXECABORT" => RegisterError::Unavailable(said),
        _ if words.contains("AUTH") || words.contains("invalid password") => sign_in(&said),
        _ => RegisterError::Invalid(format!("the server refused the request ({said})")),
    }
}

fn sign_in(said: &str) -> RegisterError {
    RegisterError::Credential(format!(
        "the sign-in failed: check REDIS_USERNAME and REDIS_PASSWORD ({said})"
    ))
}

/// Returns the error for a key that has another type than Tenure's.
fn foreign(said: &str) -> RegisterError {
    RegisterError::Foreign(format!(
        "the key of the election is not Tenure's; nothing was overwritten: set another --election or database, \
         or delete the key if nothing else uses it ({said})"
    ))
}

/// Returns the error for a server that only follows another.
pub(super) fn replica(server: &str) -> RegisterError {
    RegisterError::Network(NetworkError::Disconnected(format!(
        "{server} is a replica: name the primary in --store too, or an address that leads to it"
    )))
}

/// Returns the error for a Sentinel.
pub(super) fn sentinel(server: &str) -> RegisterError {
    RegisterError::Invalid(format!(
        "{server} is a Sentinel, which keeps no keys: name the primary and its replicas in --store, which \
         `redis-cli SENTINEL masters` shows there; Tenure finds the primary among them by itself"
    ))
}

/// Returns the error for two servers that both take writes.
pub(super) fn two_primaries(one: &str, other: &str) -> RegisterError {
    RegisterError::Invalid(format!(
        "{one} and {other} are two primaries, on each of which an instance could lead: name one primary and its \
         replicas in --store, or make one of them a replica of the other"
    ))
}

/// Returns the error for what no server of Redis sends.
pub(super) fn not_redis(server: &str) -> RegisterError {
    RegisterError::Invalid(format!(
        "{server} did not answer as Redis does: check the address in --store, and whether its port is the \
         one with TLS"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::StoreError;

    #[test]
    fn each_code_has_its_meaning() {
        for (words, expected) in [
            ("READONLY You can't write against a read only replica.", "Network"),
            ("ERR Error running script (call to f_1): @user_script:1: -READONLY You", "Network"),
            ("ERR Error running script (call to f_1 -Some text): -READONLY You", "Network"),
            ("ERR Error running script (call to f_1): @user_script:1: -BUSY Redis", "Unavailable"),
            ("MASTERDOWN Link with MASTER is down", "Network"),
            ("MOVED 3999 127.0.0.1:6381", "Network"),
            ("WRONGTYPE Operation against a key", "Foreign"),
            ("NOAUTH Authentication required.", "Credential"),
            ("WRONGPASS invalid username-password pair", "Credential"),
            ("ERR AUTH <password> called without any password configured", "Credential"),
            ("ERR invalid password", "Credential"),
            ("DENIED Redis is running in protected mode", "Credential"),
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
    fn the_script_is_in_no_message() {
        let unknown = "ERR unknown command 'EVAL', with args beginning with: 'local secret' '1' ";
        let error = reported(unknown, "h:1").to_string();
        assert!(error.contains("unknown command 'EVAL'") && !error.contains("local"), "{error}");
    }
}

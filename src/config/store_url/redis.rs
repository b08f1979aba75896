//! Parses the URL of a store in Redis: `redis://HOST[:PORT][,HOST[:PORT]…][/DATABASE]`.

use super::super::faults::Problem;
use super::StoreUrl;
use super::address::{self, Form};

const WRITE: &str = "write redis://HOST:PORT/DATABASE, with commas between the addresses of one server and \
                     its replicas";

const FORM: Form =
    Form { write: WRITE, usual_port: 6379, may_omit_port: true, port_of_server: "the server" };

/// Parses what follows `redis:`.
pub(super) fn parse(rest: &str) -> Result<StoreUrl, Problem> {
    if rest.contains(['?', '#', '@']) {
        let remedy = format!(
            "{WRITE}; pass the user in the environment, by REDIS_USERNAME and REDIS_PASSWORD_FILE, and the \
             files of TLS by --store-ca-file, --store-cert and --store-key"
        );
        return Err(Problem::new("has more than addresses and a database", remedy));
    }
    let Some(rest) = rest.strip_prefix("//") else {
        return Err(Problem::new("names no addresses", WRITE));
    };
    let (addresses, database) = rest.split_once('/').unwrap_or((rest, ""));
    let addresses = address::list(addresses, &FORM)?;
    let is_number = |it: &str| it.bytes().all(|it| it.is_ascii_digit());
    let database = match database {
        "" => Some(0),
        text if is_number(text) => text.parse().ok(),
        _ => None,
    };
    match database {
        Some(database) => Ok(StoreUrl::Redis { addresses, database }),
        None => Err(Problem::new(
            "names a database that is not a number from 0 to 65535",
            format!("{WRITE}; without one it is 0"),
        )),
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use proptest::prelude::*;

    use super::super::parse;
    use super::*;

    fn url(text: &str) -> StoreUrl {
        parse(text).unwrap_or_else(|problem| panic!("{text}: {problem:?}"))
    }

    #[test]
    fn each_form_is_parsed_and_formatted_with_its_ports() {
        for (text, formatted) in [
            ("redis://127.0.0.1:6380/3", "redis://127.0.0.1:6380/3"),
            ("redis://CACHE-1", "redis://cache-1:6379/0"),
            ("redis://cache-1/", "redis://cache-1:6379/0"),
            ("redis://a,b:1,[::1]/015", "redis://a:6379,b:1,[::1]:6379/15"),
        ] {
            assert_eq!(url(text).to_string(), formatted);
        }
    }

    #[test]
    fn each_fault_has_a_remedy() {
        for (text, problem, remedy) in [
            ("redis:", "names no addresses", "redis://HOST:PORT/DATABASE"),
            ("redis:h", "names no addresses", "redis://HOST:PORT/DATABASE"),
            ("redis://", "an empty address", "redis://HOST:PORT/DATABASE"),
            ("redis://h/x", "a database that is not", "without one it is 0"),
            ("redis://h/1/2", "a database that is not", "without one it is 0"),
            ("redis://h/65536", "a database that is not", "without one it is 0"),
            ("redis://h:0", "not from 1 to 65535", "6379"),
            ("redis://h,h:6379", "the address h:6379 twice", "remove one"),
            ("redis://u:hidden@h", "has more than", "REDIS_PASSWORD_FILE"),
            ("redis://h?tls=true", "has more than", "--store-ca-file"),
            ("rediss://h", "unknown kind", "did you mean redis:"),
            ("valkey://h/1", "unknown kind", "did you mean redis://h/1?"),
        ] {
            let found = parse(text).unwrap_err();
            assert!(found.problem.contains(problem), "{text}: {found:?}");
            assert!(found.remedy.contains(remedy), "{text}: {found:?}");
            assert!(!format!("{found:?}").contains("hidden"), "{found:?}");
        }
    }

    proptest! {
        #[test]
        fn a_formatted_url_is_parsed_back(
            hosts in prop::collection::hash_set("[a-z][a-z0-9]{0,9}(\\.[a-z][a-z0-9]{0,5}){0,2}:[1-9][0-9]{0,3}", 1..5),
            database: u16,
        ) {
            let hosts: Vec<_> = hosts.into_iter().collect();
            let text = format!("redis://{}/{database}", hosts.join(","));
            prop_assert_eq!(url(&text).to_string(), text);
        }

        #[test]
        fn no_text_panics(text in "redis://.{0,60}") {
            let _ = parse(&text);
        }
    }
}

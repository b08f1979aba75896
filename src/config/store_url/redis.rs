//! Parses the URL of a store in Redis: `redis://HOST[:PORT][,HOST[:PORT]…][/DATABASE]`.

use super::super::faults::Problem;
use super::StoreUrl;
use super::address::{self, Form};

pub(super) const FORM: Form = Form {
    write: "write redis://HOST:PORT/DATABASE, with commas between the addresses of one server and its replicas",
    part: "database",
    may_omit_part: true,
    credentials: "the user in the environment, by REDIS_USERNAME and REDIS_PASSWORD_FILE, and the files of TLS by \
                  --store-ca-file, --store-cert and --store-key",
    usual_port: 6379,
    may_omit_port: true,
    port_of_server: "the server",
};

/// Parses what follows `redis:`.
pub(super) fn parse(rest: &str) -> Result<StoreUrl, Problem> {
    let (addresses, database) = address::with_part(rest, &FORM)?;
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
            format!("{}; without one it is 0", FORM.write),
        )),
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{addresses, assert_faults, assert_formatted, assert_formatted_alike};

    #[test]
    fn each_form_is_parsed_and_formatted_with_its_ports() {
        assert_formatted([
            ("redis://127.0.0.1:6380/3", "redis://127.0.0.1:6380/3"),
            ("redis://CACHE-1", "redis://cache-1:6379/0"),
            ("redis://cache-1/", "redis://cache-1:6379/0"),
            ("redis://a,b:1,[::1]/015", "redis://a:6379,b:1,[::1]:6379/15"),
        ]);
    }

    #[test]
    fn each_fault_has_a_remedy() {
        assert_faults([
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
            ("rediss://h", "unknown kind", "did you mean redis://h?"),
            ("valkey://h/1", "unknown kind", "did you mean redis://h/1?"),
        ]);
    }

    proptest! {
        #[test]
        fn a_formatted_url_is_parsed_back(
            addresses in addresses(),
            database: u16,
        ) {
            let text = format!("redis://{addresses}/{database}");
            assert_formatted_alike([&text]);
        }
    }
}

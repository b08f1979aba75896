//! Parses the URL of a store in etcd: `etcd://HOST:PORT[,HOST:PORT…]/PREFIX`.

use super::super::faults::Problem;
use super::StoreUrl;
use super::address::{self, Form};

const WRITE: &str = "write etcd://HOST:PORT/PREFIX, with commas between several addresses";

const FORM: Form = Form {
    write: WRITE,
    usual_port: 2379,
    may_omit_port: false,
    port_of_server: "etcd's --listen-client-urls",
};

/// Parses what follows `etcd:`.
pub(super) fn parse(rest: &str) -> Result<StoreUrl, Problem> {
    let credentials = "the user in the environment, by ETCD_USERNAME and ETCD_PASSWORD_FILE";
    let (addresses, prefix) = address::with_prefix(rest, &FORM, credentials)?;
    Ok(StoreUrl::Etcd { addresses, prefix })
}

#[cfg(all(test, feature = "etcd"))]
mod tests {
    use proptest::prelude::*;

    use super::super::{Address, parse};
    use super::*;

    fn url(text: &str) -> StoreUrl {
        parse(text).unwrap_or_else(|problem| panic!("{text}: {problem:?}"))
    }

    #[test]
    fn each_form_is_parsed_and_formatted_alike() {
        for text in [
            "etcd://127.0.0.1:2379/tenure",
            "etcd://a.example:2379,b.example:2380,[::1]:1/team/prod",
        ] {
            assert_eq!(url(text).to_string(), text);
        }
        assert_eq!(url("etcd://A:02379/x/").to_string(), "etcd://a:2379/x");
    }

    #[test]
    fn loopback_is_told_from_other_hosts() {
        let StoreUrl::Etcd { addresses, .. } =
            url("etcd://localhost:1,127.9.9.9:1,[::1]:1,10.0.0.1:1,localhost.example.com:1/x")
        else {
            panic!("it is etcd")
        };
        let near: Vec<bool> = addresses.iter().map(Address::is_loopback).collect();
        assert_eq!(near, [true, true, true, false, false]);
    }

    #[test]
    fn each_fault_has_a_remedy() {
        let many = format!(
            "etcd://{}/x",
            (1..18).map(|it| format!("h:{it}")).collect::<Vec<_>>().join(",")
        );
        for (text, problem, remedy) in [
            ("etcd:", "no addresses or no prefix", "etcd://HOST:PORT/PREFIX"),
            ("etcd:h:2379/x", "no addresses or no prefix", "etcd://HOST:PORT/PREFIX"),
            ("etcd://h:2379", "no addresses or no prefix", "etcd://HOST:PORT/PREFIX"),
            ("etcd://h:2379/", "prefix that is empty", "team/prod"),
            ("etcd://h:2379/a//b", "prefix that has a segment", "team/prod"),
            ("etcd://h:2379/a b", "prefix that has characters", "team/prod"),
            ("etcd:///x", "an empty address", "etcd://HOST:PORT/PREFIX"),
            ("etcd://h:1,/x", "an empty address", "etcd://HOST:PORT/PREFIX"),
            ("etcd://h/x", "the address h without a port", "write h:2379"),
            ("etcd://[::1]/x", "the address [::1] without a port", "write [::1]:2379"),
            ("etcd://h:/x", "not from 1 to 65535", "2379"),
            ("etcd://h:0/x", "not from 1 to 65535", "2379"),
            ("etcd://h:+1/x", "not from 1 to 65535", "2379"),
            ("etcd://h:65536/x", "not from 1 to 65535", "2379"),
            ("etcd://::1:2379/x", "neither a name nor an IP address", "in brackets"),
            ("etcd://h:1,H:1/x", "the address h:1 twice", "remove one"),
            ("etcd://u:hidden@h:1/x", "has more than", "ETCD_PASSWORD_FILE"),
            ("etcd://h:1/x?tls", "has more than", "ETCD_USERNAME"),
            ("etc://h:1/x", "unknown kind", "did you mean etcd:"),
            (&many, "17 addresses", "at most 16 servers"),
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
            prefix in "[a-z0-9]{1,9}(/[a-zA-Z0-9_-]{1,9}){0,3}",
        ) {
            let hosts: Vec<_> = hosts.into_iter().collect();
            let text = format!("etcd://{}/{prefix}", hosts.join(","));
            prop_assert_eq!(url(&text).to_string(), text);
        }

        #[test]
        fn no_text_panics(text in "etcd://.{0,60}") {
            let _ = parse(&text);
        }
    }
}

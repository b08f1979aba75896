//! Parses the URL of a store in etcd: `etcd://HOST:PORT[,HOST:PORT…]/PREFIX`.

use super::super::faults::Problem;
use super::StoreUrl;
use super::address::{self, Form};

pub(super) const FORM: Form = Form {
    write: "write etcd://HOST:PORT/PREFIX, with commas between several addresses",
    part: "prefix",
    may_omit_part: false,
    credentials: "the user in the environment, by ETCD_USERNAME and ETCD_PASSWORD_FILE",
    usual_port: 2379,
    may_omit_port: false,
    port_of_server: "etcd's --listen-client-urls",
};

/// Parses what follows `etcd:`.
pub(super) fn parse(rest: &str) -> Result<StoreUrl, Problem> {
    let (addresses, prefix) = address::with_prefix(rest, &FORM)?;
    Ok(StoreUrl::Etcd { addresses, prefix })
}

#[cfg(all(test, feature = "etcd"))]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{addresses, assert_faults, assert_formatted, assert_formatted_alike};
    use super::super::{Address, parse};

    #[test]
    fn each_form_is_parsed_and_formatted_alike() {
        assert_formatted_alike([
            "etcd://127.0.0.1:2379/tenure",
            "etcd://a.example:2379,b.example:2380,[::1]:1/team/prod",
        ]);
        assert_formatted([("etcd://A:02379/x/", "etcd://a:2379/x")]);
    }

    #[test]
    fn loopback_is_told_from_other_hosts() {
        let url = "etcd://localhost:1,127.9.9.9:1,[::1]:1,10.0.0.1:1,localhost.example.com:1/x";
        let url = parse(url).unwrap();
        let near: Vec<bool> = url.addresses().unwrap().iter().map(Address::is_loopback).collect();
        assert_eq!(near, [true, true, true, false, false]);
    }

    #[test]
    fn each_fault_has_a_remedy() {
        let many = format!(
            "etcd://{}/x",
            (1..18).map(|it| format!("h:{it}")).collect::<Vec<_>>().join(",")
        );
        assert_faults([
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
            (many.as_str(), "17 addresses", "at most 16 servers"),
        ]);
    }

    proptest! {
        #[test]
        fn a_formatted_url_is_parsed_back(
            addresses in addresses(),
            prefix in "[a-z0-9]{1,9}(/[a-zA-Z0-9_-]{1,9}){0,3}",
        ) {
            let text = format!("etcd://{addresses}/{prefix}");
            assert_formatted_alike([&text]);
        }
    }
}

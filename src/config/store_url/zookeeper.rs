//! Parses the URL of a store in ZooKeeper: `zookeeper://HOST:PORT[,HOST:PORT…]/PATH`.

use super::super::faults::Problem;
use super::StoreUrl;
use super::address::{self, Form};

pub(super) const FORM: Form = Form {
    write: "write zookeeper://HOST:PORT/PATH, with commas between the addresses of one ensemble",
    part: "path",
    may_omit_part: false,
    credentials: "the user in the environment, by ZOOKEEPER_AUTH_FILE",
    usual_port: 2181,
    may_omit_port: false,
    port_of_server: "ZooKeeper's clientPort, or its secureClientPort for TLS",
};

/// Parses what follows `zookeeper:`.
pub(super) fn parse(rest: &str) -> Result<StoreUrl, Problem> {
    let (addresses, path) = address::with_prefix(rest, &FORM)?;
    match path.split('/').next() {
        Some("zookeeper") => Err(Problem::new(
            "has a path that begins with zookeeper, which is ZooKeeper's own",
            "write another path, such as tenure",
        )),
        _ => Ok(StoreUrl::Zookeeper { addresses, path }),
    }
}

#[cfg(all(test, feature = "zookeeper"))]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{addresses, assert_faults, assert_formatted_alike};

    #[test]
    fn each_form_is_parsed_and_formatted_alike() {
        assert_formatted_alike([
            "zookeeper://127.0.0.1:2181/tenure",
            "zookeeper://a.example:2181,b.example:2281,[::1]:1/team/prod",
        ]);
    }

    #[test]
    fn each_fault_has_a_remedy() {
        assert_faults([
            ("zookeeper:", "no addresses or no path", "zookeeper://HOST:PORT/PATH"),
            ("zookeeper://h:2181", "no addresses or no path", "zookeeper://HOST:PORT/PATH"),
            ("zookeeper://h:2181/", "a path that is empty", "team/prod"),
            ("zookeeper://h:2181/a//b", "a path that has a segment", "team/prod"),
            ("zookeeper://h:2181/zookeeper/x", "ZooKeeper's own", "another path"),
            ("zookeeper://h/x", "the address h without a port", "write h:2181"),
            ("zookeeper://h:0/x", "not from 1 to 65535", "secureClientPort"),
            ("zookeeper://u:hidden@h:1/x", "has more than", "ZOOKEEPER_AUTH_FILE"),
            ("zk://h:1/x", "unknown kind", "did you mean zookeeper:"),
            ("zookeper://h:1/x", "unknown kind", "did you mean zookeeper:"),
        ]);
    }

    proptest! {
        #[test]
        fn a_formatted_url_is_parsed_back(
            addresses in addresses(),
            path in "[a-y0-9]{1,9}(/[a-zA-Z0-9_-]{1,9}){0,3}",
        ) {
            let text = format!("zookeeper://{addresses}/{path}");
            assert_formatted_alike([&text]);
        }
    }
}

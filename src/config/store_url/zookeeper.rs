//! Parses the URL of a store in ZooKeeper: `zookeeper://HOST:PORT[,HOST:PORT…]/PATH`.

use super::super::faults::Problem;
use super::super::values;
use super::StoreUrl;
use super::address::{self, Form};

const WRITE: &str =
    "write zookeeper://HOST:PORT/PATH, with commas between the addresses of one ensemble";

const FORM: Form = Form {
    write: WRITE,
    usual_port: 2181,
    may_omit_port: false,
    port_of_server: "ZooKeeper's clientPort, or its secureClientPort for TLS",
};

/// Parses what follows `zookeeper:`.
pub(super) fn parse(rest: &str) -> Result<StoreUrl, Problem> {
    if rest.contains(['?', '#', '@']) {
        return Err(Problem::new(
            "has more than addresses and a path",
            format!("{WRITE}; pass the user in the environment, by ZOOKEEPER_AUTH_FILE"),
        ));
    }
    let Some((addresses, path)) = rest.strip_prefix("//").and_then(|it| it.split_once('/')) else {
        return Err(Problem::new("names no addresses or no path", WRITE));
    };
    let addresses = address::list(addresses, &FORM)?;
    let path = values::blob_prefix(path)
        .map_err(|it| Problem::new(format!("has a path that {}", it.problem), it.remedy))?;
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

    use super::super::parse;
    use super::*;

    fn url(text: &str) -> StoreUrl {
        parse(text).unwrap_or_else(|problem| panic!("{text}: {problem:?}"))
    }

    #[test]
    fn each_form_is_parsed_and_formatted_alike() {
        for text in [
            "zookeeper://127.0.0.1:2181/tenure",
            "zookeeper://a.example:2181,b.example:2281,[::1]:1/team/prod",
        ] {
            assert_eq!(url(text).to_string(), text);
        }
    }

    #[test]
    fn each_fault_has_a_remedy() {
        for (text, problem, remedy) in [
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
            path in "[a-y0-9]{1,9}(/[a-zA-Z0-9_-]{1,9}){0,3}",
        ) {
            let hosts: Vec<_> = hosts.into_iter().collect();
            let text = format!("zookeeper://{}/{path}", hosts.join(","));
            prop_assert_eq!(url(&text).to_string(), text);
        }

        #[test]
        fn no_text_panics(text in "zookeeper://.{0,60}") {
            let _ = parse(&text);
        }
    }
}

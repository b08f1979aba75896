//! Parses the URL of a store in etcd: `etcd://HOST:PORT[,HOST:PORT…]/PREFIX`.

use std::fmt;

use url::Host;

use super::super::faults::Problem;
use super::super::values;
use super::StoreUrl;

const WRITE: &str = "write etcd://HOST:PORT/PREFIX, with commas between several addresses";

/// The most addresses of one URL.
const MOST: usize = 16;

/// The address of a server: a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Address {
    /// The name or IP address.
    pub(in super::super) host: Host,
    /// The port.
    pub(in super::super) port: u16,
}

impl Address {
    /// Returns whether it is of this host alone.
    pub(in super::super) fn is_loopback(&self) -> bool {
        values::is_loopback(&match &self.host {
            Host::Domain(name) => Host::Domain(name.as_str()),
            Host::Ipv4(address) => Host::Ipv4(*address),
            Host::Ipv6(address) => Host::Ipv6(*address),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Parses what follows `etcd:`.
pub(super) fn parse(rest: &str) -> Result<StoreUrl, Problem> {
    if rest.contains(['?', '#', '@']) {
        return Err(Problem::new(
            "has more than addresses and a prefix",
            format!(
                "{WRITE}; pass the user in the environment, by ETCD_USERNAME and ETCD_PASSWORD_FILE"
            ),
        ));
    }
    let Some((addresses, prefix)) = rest.strip_prefix("//").and_then(|it| it.split_once('/'))
    else {
        return Err(Problem::new("names no addresses or no prefix", WRITE));
    };
    let addresses = addresses.split(',').map(address).collect::<Result<Vec<_>, _>>()?;
    if addresses.len() > MOST {
        let remedy = format!("name at most {MOST} members: any of a cluster will do");
        return Err(Problem::new(format!("names {} addresses", addresses.len()), remedy));
    }
    if let Some(at) = (1..addresses.len()).find(|at| addresses[..*at].contains(&addresses[*at])) {
        let problem = format!("names the address {} twice", addresses[at]);
        return Err(Problem::new(problem, "remove one of the two"));
    }
    let prefix = values::blob_prefix(prefix)
        .map_err(|it| Problem::new(format!("has a prefix that {}", it.problem), it.remedy))?;
    Ok(StoreUrl::Etcd { addresses, prefix })
}

fn address(text: &str) -> Result<Address, Problem> {
    let colon = text.rfind(':').filter(|at| !text[*at..].contains(']'));
    let Some((host, port)) = colon.map(|at| (&text[..at], &text[at + 1..])) else {
        let (problem, remedy) = if text.is_empty() {
            ("names an empty address".to_owned(), WRITE.to_owned())
        } else {
            let shown: String = text.chars().filter(char::is_ascii_graphic).take(100).collect();
            (format!("names the address {shown} without a port"), format!("write {shown}:2379"))
        };
        return Err(Problem::new(problem, remedy));
    };
    let is_number = !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit());
    let port = port.parse().ok().filter(|it| is_number && *it != 0);
    match (Host::parse(host), port) {
        (Ok(host), Some(port)) => Ok(Address { host, port }),
        (Err(_), _) => Err(Problem::new(
            "names an address whose host is neither a name nor an IP address",
            format!("{WRITE}; an IPv6 address stands in brackets"),
        )),
        (_, None) => Err(Problem::new(
            "names an address whose port is not from 1 to 65535",
            "write the port of etcd's --listen-client-urls, 2379 by default",
        )),
    }
}

#[cfg(all(test, feature = "etcd"))]
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
            (&many, "17 addresses", "at most 16"),
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

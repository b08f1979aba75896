//! Parses the URL of a store in Consul: `consul://HOST:PORT[,HOST:PORT…]/PREFIX`.

use super::super::faults::Problem;
use super::StoreUrl;
use super::address::{self, Form};

pub(super) const FORM: Form = Form {
    write: "write consul://HOST:PORT/PREFIX, with commas between several addresses",
    part: "prefix",
    may_omit_part: false,
    credentials: "the token in the environment, by CONSUL_HTTP_TOKEN_FILE",
    usual_port: 8500,
    may_omit_port: false,
    port_of_server: "Consul's ports.http, or ports.https for TLS",
};

/// Parses what follows `consul:`.
pub(super) fn parse(rest: &str) -> Result<StoreUrl, Problem> {
    let (addresses, prefix) = address::with_prefix(rest, &FORM)?;
    Ok(StoreUrl::Consul { addresses, prefix })
}

#[cfg(all(test, feature = "consul"))]
mod tests {
    use super::super::tests::{assert_faults, assert_formatted};

    #[test]
    fn each_form_is_parsed_and_formatted_back() {
        assert_formatted([
            ("consul://127.0.0.1:8500/tenure", "consul://127.0.0.1:8500/tenure"),
            ("consul://A:08500,[::1]:1/team/prod/", "consul://a:8500,[::1]:1/team/prod"),
        ]);
    }

    #[test]
    fn each_fault_has_a_remedy() {
        assert_faults([
            ("consul:h:8500/x", "no addresses or no prefix", "consul://HOST:PORT/PREFIX"),
            ("consul://h:8500/", "prefix that is empty", "team/prod"),
            ("consul://h/x", "the address h without a port", "write h:8500"),
            ("consul://h:0/x", "not from 1 to 65535", "ports.https"),
            ("consul://:hidden@h:1/x", "has more than", "CONSUL_HTTP_TOKEN_FILE"),
            ("consul://h:1/x?token=hidden", "has more than", "CONSUL_HTTP_TOKEN_FILE"),
            ("consu://h:1/x", "unknown kind", "did you mean consul:"),
        ]);
    }
}

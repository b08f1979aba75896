//! The URL of a candidate's stream for its peers, as its record has it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The path of the stream.
const PATH: &str = "/peer";

/// The URL of a stream for peers: `http://IP:PORT/peer`, or https. Others may write the record, and
/// every candidate connects to the URL in it: so it has an address, no name, and no address that
/// leads to another service of the machine or the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerUrl {
    /// Whether it is https.
    pub is_tls: bool,
    /// The address, an IP literal with its port.
    pub address: SocketAddr,
}

impl PeerUrl {
    /// Parses a URL exactly as it is formatted; `None` if it is another, or may not be contacted.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let is_tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let address = SocketAddr::from_str(rest.strip_suffix(PATH)?).ok()?;
        let url = Self { is_tls, address };
        let is_exact = url.to_string() == text && address.port() != 0;
        (is_exact && Self::unfit(address.ip()).is_none()).then_some(url)
    }

    /// Returns why no peer can have this address; `None` if one can.
    #[must_use]
    pub fn unfit(address: IpAddr) -> Option<&'static str> {
        let address = address.to_canonical();
        let is_link_local = match address {
            IpAddr::V4(it) => it.is_link_local(),
            IpAddr::V6(it) => it.is_unicast_link_local(),
        };
        if is_link_local {
            Some("is a link-local address")
        } else if address.is_multicast() {
            Some("is a multicast address")
        } else if address.is_unspecified() {
            Some("is the unspecified address")
        } else if matches!(address, IpAddr::V4(it) if it.is_broadcast() || it.octets()[0] == 0) {
            Some("is no address of a host")
        } else {
            None
        }
    }

    /// Returns whether it is of this host alone.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }
}

impl fmt::Display for PeerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{PATH}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_peer_is_an_address_with_the_one_path() {
        for text in [
            "http://10.0.3.7:4040/peer",
            "https://[2001:db8::7]:443/peer",
            "http://127.0.0.1:4040/peer",
            "http://[::1]:1/peer",
        ] {
            assert_eq!(PeerUrl::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "10.0.3.7:4040",
            "http://10.0.3.7:4040",
            "http://10.0.3.7:4040/",
            "http://10.0.3.7:4040/peer/",
            "http://10.0.3.7:4040/admin#/peer",
            "http://10.0.3.7:4040/peer?x",
            "http://10.0.3.7/peer",
            "http://10.0.3.7:0/peer",
            "http://10.0.3.7:04040/peer",
            "http://10.0.3.7:65536/peer",
            "http://10.3.7:4040/peer",
            "http://web-1:4040/peer",
            "http://localhost:4040/peer",
            "http://me@10.0.3.7:4040/peer",
            "HTTP://10.0.3.7:4040/peer",
            "ftp://10.0.3.7:4040/peer",
            " http://10.0.3.7:4040/peer",
            "http://[2001:DB8::7]:443/peer",
        ] {
            assert_eq!(PeerUrl::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_address_that_leads_elsewhere_is_refused() {
        for host in [
            "169.254.169.254",
            "[fe80::1]",
            "[::ffff:169.254.169.254]",
            "224.0.0.1",
            "[ff02::1]",
            "0.0.0.0",
            "0.1.2.3",
            "[::]",
            "[::ffff:0.0.0.0]",
            "255.255.255.255",
        ] {
            assert_eq!(PeerUrl::parse(&format!("http://{host}:4040/peer")), None, "{host}");
        }
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_formatted_alike(text in "(https?://)?[0-9a-f.:\\[\\]%]{0,24}(/peer)?") {
            if let Some(url) = PeerUrl::parse(&text) {
                prop_assert_eq!(url.to_string(), text);
                prop_assert_eq!(PeerUrl::unfit(url.address.ip()), None);
            }
        }
    }
}

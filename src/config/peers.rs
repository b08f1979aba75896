//! Settings of the connections between candidates, and of who is next in line.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::faults::{Problem, Source, Warning};
use super::kubernetes_names as names;
use super::reader::Reader;
use super::values::{self, Listen};
use crate::lease::PeerUrl;
use crate::tls::{ClientTls, KeyPair, Part, ServerFiles, TlsFault};

/// The variable with the address of the pod.
const POD_IP: &str = "POD_IP";

/// How the candidates of an election are connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    /// The URL at which the others reach this instance while it leads.
    pub url: PeerUrl,
    /// The file with the CA certificates that authenticate a leader; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
}

/// What decides who is next in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The priority, 0 to 100.
    pub priority: u8,
    /// The zone, for people.
    pub zone: Option<String>,
    /// For how long a candidate of higher priority has to be connected and healthy before this
    /// instance hands over to it; `None` for never.
    pub preempt_after: Option<Duration>,
}

/// Parses a peer address. Brackets around an IPv4 address are removed, so that `[$(POD_IP)]:4040` is
/// right for pods of both families.
fn address(text: &str) -> Result<SocketAddr, Problem> {
    const WRITE: &str = "write the address at which the other candidates reach this instance, such as 10.0.3.7:4040";
    let bare = text.strip_prefix('[').and_then(|it| it.split_once("]:"));
    let is_ipv4 = |it: &str| it.parse::<std::net::Ipv4Addr>().is_ok();
    let parsed = match bare.filter(|(host, _)| is_ipv4(host)) {
        Some((host, port)) => format!("{host}:{port}").parse::<SocketAddr>(),
        None => text.parse(),
    };
    let Ok(address) = parsed else {
        return Err(Problem::new("is not an IP address with a port", WRITE));
    };
    if address.port() == 0 {
        return Err(Problem::new("has port 0, which nobody can connect to", WRITE));
    }
    match PeerUrl::unfit(address.ip()) {
        Some(why) => Err(Problem::new(format!("{why}, which no candidate connects to"), WRITE)),
        None => Ok(address),
    }
}

/// Parses the time after which a leader hands over to a candidate of higher priority.
fn preempt_after(text: &str) -> Result<Option<Duration>, Problem> {
    match text {
        "off" => Ok(None),
        _ => match values::duration(text)? {
            Duration::ZERO => Err(Problem::new("is zero", "write a duration such as 30s, or off")),
            after => Ok(Some(after)),
        },
    }
}

/// Returns whether the listener behind a peer address has TLS, where it is configured: those on
/// loopback have none.
fn has_tls(address: SocketAddr, listen: &[Listen]) -> bool {
    let is_behind = |it: &&Listen| matches!(it, Listen::Tcp(it) if it.port() == address.port());
    let behind = listen.iter().find(is_behind);
    behind.map_or(!address.ip().to_canonical().is_loopback(), Listen::is_remote)
}

impl Reader<'_> {
    /// Reads what decides who is next in line.
    pub(super) fn rank(&mut self) -> Option<Rank> {
        let priority = self.one("priority", values::percent);
        let zone = self.optional("zone", values::identity);
        let preempt_after = self.one("preempt-after", preempt_after);
        Some(Rank { priority: priority?, zone: zone?, preempt_after: preempt_after? })
    }

    /// Reads how the candidates are connected; `Some(None)` without peers.
    pub(super) fn peers(
        &mut self,
        advertise: Option<&str>,
        listen: Option<&[Listen]>,
        tls: Option<&ServerFiles>,
    ) -> Option<Option<Peers>> {
        let is_on = self.one("peers", values::switch);
        let given = self.optional("peer-address", address);
        let ca_file = self.optional("peer-ca", values::path);
        let own = tls.map(|it| &it.own);
        if !is_on? {
            self.warn_without_peers();
            return Some(None);
        }
        let listen = listen?;
        if !listen.iter().any(|it| matches!(it, Listen::Tcp(_))) {
            let problem = Problem::new(
                format!("needs a status listener on a TCP address{}", self.sources(&["listen"])),
                "set --listen to an address that the other candidates reach, such as 0.0.0.0:4040",
            );
            self.fault_of("peers", problem);
            return None;
        }
        let address = match given? {
            Some(address) => address,
            None => self.derived(advertise, listen)?,
        };
        let ca_file = ca_file?;
        if let Some(ca_file) = &ca_file {
            self.check_ca(own, ca_file)?;
        }
        let is_tls = own.is_some() && has_tls(address, listen);
        Some(Some(Peers { url: PeerUrl { is_tls, address }, ca_file }))
    }

    /// Checks that the certificates that authenticate leaders can be read.
    fn check_ca(&mut self, own: Option<&KeyPair>, ca_file: &Path) -> Option<()> {
        let faults = ClientTls::load_for_any_name(own, ca_file).err().unwrap_or_default();
        // Those of this instance's own certificate are of its setting.
        let of_ca = faults.into_iter().find(|it| it.part == Part::Authorities);
        match of_ca {
            None => Some(()),
            Some(TlsFault { problem, remedy, .. }) => {
                self.fault_of("peer-ca", Problem { problem, remedy });
                None
            }
        }
    }

    /// Derives the peer address from the pod's or the service's address and the listener's port.
    fn derived(&mut self, advertise: Option<&str>, listen: &[Listen]) -> Option<SocketAddr> {
        let beyond_loopback = listen.iter().find_map(|it| match it {
            Listen::Tcp(it) if !it.ip().to_canonical().is_loopback() => Some(*it),
            _ => None,
        });
        let Some(listener) = beyond_loopback.filter(|it| it.port() != 0) else {
            let problem = match beyond_loopback {
                None => {
                    "needs a status listener that the other candidates reach, and all are loopback"
                }
                Some(_) => "needs a status listener with a port of its own, and has port 0",
            };
            let problem = Problem::new(
                format!("{problem}{}", self.sources(&["listen"])),
                "set --listen to an address such as 0.0.0.0:4040; for candidates of one host alone, \
                 --peer-address 127.0.0.1:PORT",
            );
            self.fault_of("peers", problem);
            return None;
        };
        let ip = match self.pod_ip() {
            Some(ip) => ip?,
            None => self.host_ip(advertise, listener.ip())?,
        };
        Some(SocketAddr::new(ip, listener.port()))
    }

    /// Returns the address of the pod; `None` if there is none, `Some(None)` if it is invalid.
    fn pod_ip(&mut self) -> Option<Option<IpAddr>> {
        let value = self.environment.get(POD_IP)?.to_owned();
        let address = names::address(&value).map_err(|problem| {
            let add = format!("add to the container: {}", names::downward(POD_IP, "status.podIP"));
            let source = Source::Variable(POD_IP.to_owned());
            self.fault(POD_IP, Some(&value), source, Problem::new(problem, add));
        });
        Some(address.ok())
    }

    /// Returns the host of the service's address, else that of the listener, if it is an address.
    fn host_ip(&mut self, advertise: Option<&str>, listener: IpAddr) -> Option<IpAddr> {
        let advertised = advertise.and_then(|it| names::address(&names::host(it)).ok());
        let own = || names::address(&listener.to_string()).ok();
        let found = advertised.or_else(own);
        if found.is_none() {
            let problem = Problem::new(
                "needs the address at which the other candidates reach this instance: POD_IP is \
                 not set, and neither advertise nor listen has an IP address of this host",
                "set --peer-address to it, such as 10.0.3.7:4040",
            );
            self.fault_of("peers", problem);
        }
        found
    }

    /// Warns of settings that have no effect without peers.
    fn warn_without_peers(&mut self) {
        for subject in ["peer-address", "peer-ca", "preempt-after"] {
            let is_given = self.raw(subject).is_some_and(|it| {
                it.source != Source::Default && it.values.first().is_some_and(|it| it != "off")
            });
            if is_given {
                let problem = "it has no effect, since peers is off".to_owned();
                let remedy = "set --peers, or remove it".to_owned();
                self.warnings.push(Warning { subject, problem, remedy });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::environment::Environment;
    use super::super::table::Verb;
    use super::super::{Flags, Loaded, load};
    use super::*;

    fn loaded(flags: &[(&'static str, &str)], pod_ip: &str) -> Result<Loaded, String> {
        let flags: Flags =
            flags.iter().map(|(name, value)| (*name, vec![(*value).to_owned()])).collect();
        let environment = Environment::of([("TENURE_STORE", "memory:"), (POD_IP, pod_ip)]);
        load(&flags, &environment, Verb::Run).map_err(|it| it.to_string())
    }

    fn url(flags: &[(&'static str, &str)], pod_ip: &str) -> Result<String, String> {
        let flags = [&[("peers", "on")], flags].concat();
        loaded(&flags, pod_ip).map(|it| it.settings.peers.unwrap().url.to_string())
    }

    #[test]
    fn the_address_is_the_one_given_or_that_of_the_pod_the_service_or_the_listener() {
        let all = ("listen", "0.0.0.0:4040");
        for (flags, pod_ip, expected) in [
            (&[("peer-address", "127.0.0.1:4040")][..], "", "127.0.0.1:4040"),
            (&[("peer-address", "[::1]:4040")], "", "[::1]:4040"),
            (&[("peer-address", "[10.0.3.7]:4041"), all], "10.0.3.8", "10.0.3.7:4041"),
            (&[all, ("advertise", "10.0.3.9:8080")], "10.0.3.8", "10.0.3.8:4040"),
            (&[all], "fd00::8", "[fd00::8]:4040"),
            (&[all, ("advertise", "http://10.0.3.9:8080/x")], "", "10.0.3.9:4040"),
            (&[("listen", "10.0.3.5:4040"), ("advertise", "web-1:8080")], "", "10.0.3.5:4040"),
        ] {
            assert_eq!(url(flags, pod_ip), Ok(format!("http://{expected}/peer")), "{flags:?}");
        }
    }

    #[test]
    fn without_an_address_that_others_reach_the_remedy_is_named() {
        let all = ("listen", "[::]:4040");
        for (flags, pod_ip, problem, remedy) in [
            (&[][..], "", "all are loopback", "--peer-address 127.0.0.1:PORT"),
            (&[("listen", "off")], "10.0.3.7", "a TCP address", "--listen"),
            (&[("listen", "0.0.0.0:0")], "10.0.3.7", "port 0", "--listen"),
            (&[all], "", "POD_IP is not set", "--peer-address"),
            (&[all, ("advertise", "web-1:80")], "", "POD_IP is not set", "--peer-address"),
            (&[all, ("advertise", "127.0.0.1:80")], "", "POD_IP is not set", "--peer-address"),
            (&[all], "127.0.0.1", "other pods cannot reach", "status.podIP"),
            (&[("peer-address", "169.254.169.254:80")], "", "link-local", "10.0.3.7:4040"),
            (&[("peer-address", "224.0.0.1:80")], "", "multicast", "10.0.3.7:4040"),
            (&[("peer-address", "0.0.0.0:80")], "", "unspecified", "10.0.3.7:4040"),
            (&[("peer-address", "10.0.3.7:0")], "", "port 0", "10.0.3.7:4040"),
            (&[("peer-address", "web-1:4040")], "", "not an IP address", "10.0.3.7:4040"),
        ] {
            let fault = url(flags, pod_ip).unwrap_err();
            assert!(fault.contains(problem) && fault.contains(remedy), "{flags:?}: {fault}");
            assert!(fault.contains("one setting is wrong"), "{fault}");
        }
    }

    #[test]
    fn the_rank_has_a_default_and_bounds() {
        let rank = |flags: &[(&'static str, &str)]| loaded(flags, "").map(|it| it.settings.rank);
        let usual = Rank { priority: 50, zone: None, preempt_after: None };
        assert_eq!(rank(&[]), Ok(usual.clone()));
        let given = [("priority", "100"), ("zone", "west-1"), ("preempt-after", "30s")];
        let preempt_after = Some(Duration::from_secs(30));
        let expected = Rank { priority: 100, zone: Some("west-1".to_owned()), preempt_after };
        assert_eq!(rank(&given), Ok(expected));
        assert_eq!(rank(&[("preempt-after", "off")]), Ok(usual));
        for (name, value, words) in [
            ("priority", "101", "0 to 100"),
            ("priority", "-1", "0 to 100"),
            ("zone", "", "is empty"),
            ("preempt-after", "0s", "30s, or off"),
            ("preempt-after", "soon", "duration"),
        ] {
            let fault = rank(&[(name, value)]).unwrap_err();
            assert!(fault.contains(words), "{name} {value}: {fault}");
        }
    }

    #[test]
    fn a_loopback_listener_has_no_tls() {
        let listen = |all: &[&str]| all.iter().map(|it| Listen::Tcp(it.parse().unwrap())).collect();
        let all: Vec<Listen> = listen(&["127.0.0.1:4040", "0.0.0.0:4443"]);
        for (address, expected) in [
            ("10.0.3.7:4443", true),
            ("127.0.0.1:4443", true),
            ("127.0.0.1:4040", false),
            ("10.0.3.7:80", true),
            ("[::1]:80", false),
        ] {
            assert_eq!(has_tls(address.parse().unwrap(), &all), expected, "{address}");
        }
    }

    #[test]
    fn certificates_that_cannot_be_read_are_a_fault() {
        let fault = url(&[("peer-address", "127.0.0.1:1"), ("peer-ca", "/none")], "").unwrap_err();
        assert!(fault.contains("peer-ca = \"/none\""), "{fault}");
    }

    #[test]
    fn settings_of_peers_are_warned_of_without_peers() {
        let given = [("peer-address", "127.0.0.1:1"), ("peer-ca", "/ca"), ("preempt-after", "1s")];
        let loaded = loaded(&given, "").unwrap();
        assert_eq!(loaded.settings.peers, None);
        let subjects: Vec<_> = loaded.warnings.iter().map(|it| it.subject).collect();
        assert_eq!(subjects, ["peer-address", "peer-ca", "preempt-after"]);
    }
}

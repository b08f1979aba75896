//! Findings about peers: whether this instance's own peer address and the leader's can be reached.
//!
//! No finding about clocks: peers tell each other durations, never dates. The dates of certificates are
//! examined with the settings of TLS.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::doctor::finding;
use crate::config::Peers;
use crate::lease::{Candidate, PeerUrl, Snapshot};
use crate::store::{Finding, Verdict};

/// The time limit for a connection, as for a candidate's own.
const CONNECT: Duration = Duration::from_secs(1);

/// What must let the connections of the candidates through.
const PATH: &str = "firewalls, and a NetworkPolicy";

/// Returns all findings; connects once to each address, and sends nothing.
pub(super) async fn examine(peers: &Peers, seen: Option<&Snapshot>) -> Vec<Finding> {
    let holder = seen.filter(|it| !it.free).and_then(|it| it.record.holder.as_deref());
    let leader = match holder {
        Some(holder) => leader(peers, holder).await,
        None => Some(finding(Verdict::Skipped, "leader's peer address", "no leader is known")),
    };
    std::iter::once(own(peers.url).await).chain(leader).collect()
}

async fn own(url: PeerUrl) -> Finding {
    let subject = "peer address";
    match connect(url).await {
        Ok(()) => finding(Verdict::Passed, subject, format!("{url} accepts connections")),
        // The sidecar may not be running while doctor examines.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Finding {
            remedy: Some(
                "if `tenure run` is up, check that one of its --listen has this address and port"
                    .to_owned(),
            ),
            ..finding(Verdict::Warning, subject, format!("nothing listens at {}", url.address))
        },
        Err(error) => Finding {
            remedy: Some(format!(
                "set --peer-address to an address of this machine, and open its port in {PATH}"
            )),
            ..finding(
                Verdict::Failed,
                subject,
                format!("{} cannot be reached from here: {error}", url.address),
            )
        },
    }
}

/// Returns the finding about the leader; `None` if it is this instance.
async fn leader(peers: &Peers, holder: &Candidate) -> Option<Finding> {
    let subject = "leader's peer address";
    let identity = &holder.identity;
    let Some(url) = holder.peer.as_deref().and_then(PeerUrl::parse) else {
        return Some(Finding {
            remedy: Some("set --peers on all candidates".to_owned()),
            ..finding(
                Verdict::Warning,
                subject,
                format!("{identity} has none, so it notifies no standby"),
            )
        });
    };
    if url == peers.url {
        return None;
    }
    if url.is_loopback() && !peers.url.is_loopback() {
        return Some(Finding {
            remedy: Some(format!(
                "set --peer-address of {identity} to an address that other machines reach"
            )),
            ..finding(
                Verdict::Failed,
                subject,
                format!("{identity} has the loopback address {}", url.address),
            )
        });
    }
    Some(match connect(url).await {
        Ok(()) => {
            finding(Verdict::Passed, subject, format!("{identity} accepts connections at {url}"))
        }
        Err(error) => Finding {
            remedy: Some(format!(
                "check --peer-address and --listen of {identity}, {PATH}; until then, handovers to this \
                 instance take as long as without peers"
            )),
            ..finding(
                Verdict::Failed,
                subject,
                format!("{identity} at {} cannot be reached from here: {error}", url.address),
            )
        },
    })
}

async fn connect(url: PeerUrl) -> io::Result<()> {
    let connected = timeout(CONNECT, TcpStream::connect(url.address)).await;
    connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map(drop)
}

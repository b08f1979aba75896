//! Notifies systemd of a unit of `Type=notify`: readiness, a status text, the watchdog, and the
//! stop.
//!
//! Ready means that the listeners are bound and a first status is published, not that the store has
//! been contacted: requests are answered from then on, and a store that is down must not keep a
//! unit, and those ordered after it, from starting. `/readyz` tells whether the store has been
//! contacted.
//!
//! The protocol is one or more lines in a datagram. It is implemented here because the small crates
//! for it read the environment by themselves and use sockets that may block.
//!
//! A message that the socket does not accept is sent again later, updated. The watchdog is not fed
//! by a timer alone: the election loop must have turned since the last time.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::pin::pin;
use std::time::Duration;

use futures::future::{FusedFuture, FutureExt};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::clock::{self, Moment};
use crate::config::Environment;
use crate::election::{Standing, State, Status};
use crate::lease::text::is_printable;
use crate::status::{About, Heartbeat, Judgement, Published, Role};

/// How long after a failure a message is sent again.
const RETRY: Duration = Duration::from_secs(1);

/// The shortest watchdog interval that a loop which turns once a second reliably meets. A shorter
/// one is fed as well as possible, and logged as a warning.
const SHORTEST_WATCHDOG: Duration = Duration::from_secs(3);

/// The longest status in characters: what fits on a line of `systemctl status`, and an error
/// message.
const LONGEST_STATUS: usize = 300;

/// The connection to the systemd that started this process.
#[derive(Debug)]
pub struct Systemd {
    socket: UnixDatagram,
    address: SocketAddr,
    /// The watchdog interval, after which systemd ends this process.
    watchdog: Option<Duration>,
    now: fn() -> Moment,
}

impl Systemd {
    /// Finds systemd by the environment; `None` if no notifications are expected. An invalid
    /// address is logged, and no notifications are sent.
    #[must_use]
    pub fn from(environment: &Environment) -> Option<Self> {
        let name = environment.get("NOTIFY_SOCKET")?;
        let open = || {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>((socket, address(name)?))
        };
        match open() {
            Ok((socket, address)) => {
                let watchdog = watchdog(environment, std::process::id());
                if watchdog.is_some_and(|it| it < SHORTEST_WATCHDOG) {
                    tracing::warn!(
                        "WatchdogSec is {watchdog:?}, but the election loop may sleep for a \
                         second: set {SHORTEST_WATCHDOG:?} or more"
                    );
                }
                Some(Self { socket, address, watchdog, now: clock::now })
            }
            Err(error) => {
                tracing::warn!("systemd will not be notified: NOTIFY_SOCKET is {name:?}: {error}");
                None
            }
        }
    }

    /// Notifies systemd of readiness, then of each change, until the driver is gone; from `stop`
    /// on, that the process is stopping.
    pub async fn run(
        self,
        mut published: watch::Receiver<Published>,
        heartbeat: Heartbeat,
        about: About,
        stop: impl Future<Output = ()>,
    ) {
        let mut stop = pin!(stop.fuse());
        let mut feeding = self.watchdog.map(|it| {
            let mut feeding = tokio::time::interval((it / 2).max(Duration::from_millis(1)));
            feeding.set_missed_tick_behavior(MissedTickBehavior::Delay);
            feeding
        });
        let (mut sent, mut fed, mut feed) = (Notified::default(), 0, false);
        let mut over = false;
        loop {
            // Checked before the status, so that its consequences are not reported first.
            if !stop.is_terminated() {
                let _ = stop.as_mut().now_or_never();
            }
            let due = {
                let (published, now) = (published.borrow_and_update(), (self.now)());
                let stopping = over || stop.is_terminated();
                let drain = if stopping { drain(&published.status, now) } else { None };
                Notified {
                    ready: true,
                    stopping,
                    drain,
                    words: status_text(&published, &about, now),
                }
            };
            let pending = match self.send(&sent.until(&due, feed)) {
                Ok(()) => {
                    (sent, feed) = (due, false);
                    false
                }
                Err(error) => {
                    tracing::debug!("failed to notify systemd: {error}");
                    true
                }
            };
            if over {
                return;
            }
            let tick = async {
                match &mut feeding {
                    Some(feeding) => feeding.tick().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = published.changed() => over = changed.is_err(),
                () = &mut stop, if !stop.is_terminated() => {}
                _ = tick => {
                    let turned = heartbeat.count();
                    feed |= turned != fed;
                    fed = turned;
                }
                () = tokio::time::sleep(RETRY), if pending => {}
            }
        }
    }

    /// Sends a message, unless it is empty.
    fn send(&self, message: &str) -> io::Result<()> {
        if !message.is_empty() {
            self.socket.send_to_addr(message.as_bytes(), &self.address)?;
        }
        Ok(())
    }
}

/// What systemd has been notified of, or is to be.
#[derive(Debug, Default, PartialEq, Eq)]
struct Notified {
    ready: bool,
    stopping: bool,
    /// How much longer the stop may take, during a drain.
    drain: Option<Duration>,
    words: String,
}

impl Notified {
    /// Returns the message that notifies of `due`.
    fn until(&self, due: &Self, feed: bool) -> String {
        let mut message = String::new();
        if due.ready && !self.ready {
            message.push_str("READY=1\n");
        }
        if due.stopping && !self.stopping {
            message.push_str("STOPPING=1\n");
        }
        if let (Some(time), None) = (due.drain, self.drain) {
            message.push_str(&format!("EXTEND_TIMEOUT_USEC={}\n", time.as_micros()));
        }
        if due.words != self.words {
            message.push_str("STATUS=");
            message.push_str(&due.words);
            message.push('\n');
        }
        if feed {
            message.push_str("WATCHDOG=1\n");
        }
        message
    }
}

/// Parses the address of systemd's socket: a path, or `@` and an abstract name.
fn address(name: &str) -> io::Result<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None if name.starts_with('/') => SocketAddr::from_pathname(name),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is neither an absolute path nor @NAME",
        )),
    }
}

/// Returns the watchdog interval, if it applies to the process `own`.
fn watchdog(environment: &Environment, own: u32) -> Option<Duration> {
    let length: u64 = environment.get("WATCHDOG_USEC")?.parse().ok()?;
    let ours = environment.get("WATCHDOG_PID").is_none_or(|it| it.parse() == Ok(own));
    (ours && length > 0).then(|| Duration::from_micros(length))
}

/// Returns how much longer the stop may take during a drain: the rest of the drain, whatever the
/// unit's stop timeout, and then the length of the lease, for the release.
fn drain(status: &Status, now: Moment) -> Option<Duration> {
    match &status.standing {
        Standing::Draining { began, length, belief, .. } => {
            Some(length.saturating_sub(began.elapsed_min(now)) + belief.length)
        }
        _ => None,
    }
}

/// Formats the status at `now` on one line.
fn status_text(published: &Published, about: &About, now: Moment) -> String {
    let status = &published.status;
    let judgement = Judgement::of(status, now);
    let election = &about.election;
    let others = || {
        let document = published.document(about, now);
        document.doubt().unwrap_or_else(|| match &document.holder {
            Some(it) if document.is_unseen() => {
                format!("{} holds the lease in term {}", it.identity, it.term)
            }
            Some(it) => format!("{} leads in term {}", it.identity, it.term),
            None => "no leader known".to_owned(),
        })
    };
    let mut text = format!("{}: ", judgement.role().as_str());
    text += &match (judgement.state, judgement.term) {
        (State::Leader | State::Jeopardy, Some(term)) => {
            let but = match (judgement.state, judgement.role()) {
                (State::Leader, _) => "",
                (_, Role::Active) => ", but renewals fail",
                (_, Role::Passive) => ", but reports passive until a renewal succeeds",
            };
            format!("leader of {election} in term {term}{but}")
        }
        (State::Starting, _) => format!("the store of {election} has not been reached yet"),
        (State::Standby, _) => format!("standby of {election}; {}", others()),
        (State::Activating, _) => format!("holds the lease of {election} and does not lead yet"),
        (State::Observing, _) => format!("observes {election}; {}", others()),
        (State::Stopped, _) => format!("stopped; has left {election}"),
        (State::Draining, term) => {
            let term = term.unwrap_or_default();
            format!("draining; holds the lease of {election} in term {term}")
        }
        (State::Paused, _) => {
            format!("paused; does not compete in {election} until resumed; {}", others())
        }
        (State::Unhealthy, _) if published.maintenance.as_ref().is_some_and(|it| it.imminent) => {
            format!("maintenance of the machine; does not compete in {election}; {}", others())
        }
        (State::Unhealthy, _) => {
            format!("unhealthy; does not compete in {election}; {}", others())
        }
        // These two states always have a term.
        (State::Leader | State::Jeopardy, None) => format!("of {election}; {}", others()),
    };
    if let Some(error) = status.store.error() {
        text += "; store: ";
        text += &error.failure().message;
    }
    // A line break would begin another message, and names come from the store.
    text.chars().map(|it| if is_printable(it) { it } else { ' ' }).take(LONGEST_STATUS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(more: &[(&str, &str)]) -> Environment {
        Environment::of(more.iter().copied())
    }

    #[test]
    fn the_watchdog_variable_counts_only_for_the_own_process_id() {
        let length = ("WATCHDOG_USEC", "10000000");
        let ten = Some(Duration::from_secs(10));
        assert_eq!(watchdog(&environment(&[length]), 7), ten);
        assert_eq!(watchdog(&environment(&[length, ("WATCHDOG_PID", "7")]), 7), ten);
        assert_eq!(watchdog(&environment(&[length, ("WATCHDOG_PID", "8")]), 7), None);
        assert_eq!(watchdog(&environment(&[length, ("WATCHDOG_PID", "x")]), 7), None);
        for wrong in ["0", "", "-1", "soon"] {
            assert_eq!(watchdog(&environment(&[("WATCHDOG_USEC", wrong)]), 7), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_address_notifies_nobody() {
        assert!(Systemd::from(&environment(&[])).is_none());
        let long = format!("/{}", "x".repeat(200));
        for wrong in ["relative", "vsock:2:1", "tcp://127.0.0.1:1", &long] {
            assert!(Systemd::from(&environment(&[("NOTIFY_SOCKET", wrong)])).is_none(), "{wrong}");
        }
        for right in ["/run/systemd/notify", "@/org/freedesktop/systemd1/notify"] {
            assert!(Systemd::from(&environment(&[("NOTIFY_SOCKET", right)])).is_some(), "{right}");
        }
    }
}

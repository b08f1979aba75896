//! Runs the health probes, which must succeed for this instance to compete.
//!
//! Each probe runs periodically on its own, one run at a time, each with a timeout; a probe that
//! hangs delays neither the election nor another probe. Every result is reported; the election
//! decides how many in a row matter.

mod exec;
mod file;
mod http;
mod tcp;

use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::clock::Moment;
use crate::config::{self, Probe, duration};
use crate::http::client;
use crate::http::resolver::Resolver;
use crate::status::{ProbeResult, Published};

/// All probes of one election.
pub struct Probes {
    probes: Vec<Running>,
    interval: Duration,
    timeout: Duration,
    now: fn() -> Moment,
}

/// One probe.
struct Running {
    name: String,
    kind: Kind,
}

enum Kind {
    Http(http::Http),
    Tcp(tcp::Tcp),
    File(file::File),
    Exec(exec::Exec),
}

/// The result of one run.
#[derive(Debug)]
struct Outcome {
    succeeded: bool,
    /// The result in words.
    message: String,
}

impl Outcome {
    fn success(message: String) -> Self {
        Self { succeeded: true, message }
    }

    fn failure(message: String) -> Self {
        Self { succeeded: false, message }
    }
}

impl Probes {
    /// Creates the probes, without running them.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(settings: &config::Health, now: fn() -> Moment) -> anyhow::Result<Self> {
        let tls = |it: &Probe| matches!(it, Probe::Http(url) if url.scheme() == "https");
        let resolver = Resolver::default();
        let asks = |it: &Probe| matches!(it, Probe::Http(_));
        let client = if settings.probes.iter().any(asks) {
            let tls = settings.probes.iter().any(tls);
            Some(client::each_alone(tls, resolver.clone(), settings.timeout)?)
        } else {
            None
        };
        let kind = |probe: &Probe| match (probe.clone(), &client) {
            (Probe::Http(url), Some(client)) => {
                Kind::Http(http::Http { url, client: client.clone() })
            }
            (Probe::Http(_), None) => unreachable!("a client was made for it"),
            (Probe::Tcp { host, port }, _) => {
                Kind::Tcp(tcp::Tcp { host, port, resolver: resolver.clone() })
            }
            (Probe::File { path, max_age }, _) => {
                Kind::File(file::File { path, max_age, now, checking: None })
            }
            (Probe::Exec(line), _) => {
                let withheld = settings.withheld.clone();
                Kind::Exec(exec::Exec { line, withheld, starting: None })
            }
        };
        let probes = settings.probes.iter();
        let probes: Vec<_> =
            probes.map(|it| Running { name: it.to_string(), kind: kind(it) }).collect();
        Ok(Self { probes, interval: settings.interval, timeout: settings.timeout, now })
    }

    /// Runs each probe once, concurrently; returns its name, whether it succeeded, and a message.
    pub async fn once(self) -> Vec<(String, bool, String)> {
        let Self { probes, interval, timeout, now } = self;
        let runs = probes.into_iter().enumerate().map(|(number, mut probe)| {
            let round = Round { number, interval, timeout, now };
            async move {
                let Outcome { succeeded, message } = round.run_once(&mut probe).await;
                (probe.name, succeeded, message)
            }
        });
        join_all(runs).await
    }

    /// Runs the probes until the driver is gone. Each result is passed to `report`: the index of the
    /// probe, the result, and this instance's term when the run began, so that a result from an
    /// earlier term is not held against a later one.
    pub async fn run<R, F>(self, published: watch::Receiver<Published>, report: R)
    where
        R: Fn(usize, ProbeResult, Option<u64>) -> F,
        F: Future<Output = ()>,
    {
        let Self { probes, interval, timeout, now } = self;
        let rounds = probes.into_iter().enumerate().map(|(number, probe)| {
            let round = Round { number, interval, timeout, now };
            round.repeat(probe, published.clone(), &report)
        });
        let mut driver = published.clone();
        let gone = async { while driver.changed().await.is_ok() {} };
        tokio::select! {
            _ = join_all(rounds) => {}
            () = gone => {}
        }
    }
}

/// How one probe is run.
struct Round {
    number: usize,
    interval: Duration,
    timeout: Duration,
    now: fn() -> Moment,
}

impl Round {
    async fn repeat<R, F>(
        self,
        mut probe: Running,
        published: watch::Receiver<Published>,
        report: &R,
    ) where
        R: Fn(usize, ProbeResult, Option<u64>) -> F,
        F: Future<Output = ()>,
    {
        let mut ticks = interval(self.interval);
        // After a run that took too long, the missed ones are not made up for.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before = None;
        loop {
            ticks.tick().await;
            let term = published.borrow().status.term();
            let Outcome { succeeded, message } = self.run_once(&mut probe).await;
            log(&probe.name, before.replace(succeeded), succeeded, &message);
            let result = ProbeResult { succeeded, message, at: (self.now)() };
            report(self.number, result, term).await;
        }
    }

    /// Runs the probe once.
    async fn run_once(&self, probe: &mut Running) -> Outcome {
        let began = (self.now)();
        let found = match &mut probe.kind {
            Kind::Http(it) => timeout(self.timeout, it.probe()).await.ok(),
            Kind::Tcp(it) => timeout(self.timeout, it.probe()).await.ok(),
            Kind::File(it) => timeout(self.timeout, it.probe()).await.ok(),
            Kind::Exec(it) => it.probe(self.timeout).await,
        };
        let took = began.elapsed_max((self.now)()).as_millis();
        match found {
            None => {
                let bound = duration::format(self.timeout);
                Outcome::failure(format!("no answer within {bound}"))
            }
            // For a file, its age matters, not how long the check took.
            Some(found) if matches!(probe.kind, Kind::File(_)) || !found.succeeded => found,
            Some(found) => Outcome::success(format!("{} in {took} ms", found.message)),
        }
    }
}

/// Logs a result; only changes are logged above debug level.
fn log(probe: &str, before: Option<bool>, succeeded: bool, message: &str) {
    if before == Some(succeeded) {
        tracing::debug!(probe, succeeded, "health probe: {message}");
    } else if succeeded {
        tracing::info!(probe, "health probe succeeded: {message}");
    } else {
        tracing::warn!(probe, "health probe failed: {message}");
    }
}

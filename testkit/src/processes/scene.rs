//! An election between real processes on a real Azurite, each candidate behind a fault proxy of its
//! own, with a recorder that checks their claims.
//!
//! Concurrent tests share one Azurite, and have an election each. The record is created in advance,
//! so that no candidate waits a minute because it is missing (R11). The tests inject the faults.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tempfile::TempDir;
use tenure::store::LeaseAdmin;
use tenure::store::azure::Azure;
use tokio::runtime::Runtime;
use url::Url;

use crate::azure::azurite::Azurite;
use crate::faults::fault_proxy::{Call, FaultProxy, Seen};
use crate::processes::process::{Candidate, until};
use crate::recorder::{Recorder, Verdict};

/// The default `lease-duration`.
pub const D: Duration = Duration::from_secs(15);

/// The default `renew-deadline`.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// The default `retry-period`.
pub const RETRY: Duration = Duration::from_secs(2);

/// The additional time that a busy machine may take.
pub const SLACK: Duration = Duration::from_secs(15);

/// The container of all elections.
const CONTAINER: &str = "elections";

/// The Azurite of all running tests; ends with the last of them.
struct Store {
    azurite: Azurite,
    runtime: Runtime,
}

impl Store {
    fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Store>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            let azurite = runtime.block_on(Azurite::start());
            let it = Arc::new(Self { azurite, runtime });
            *shared = Arc::downgrade(&it);
            it
        })
    }
}

/// An election.
pub struct Scene {
    pub candidates: Vec<Candidate>,
    pub proxies: Vec<FaultProxy>,
    pub recorder: Recorder,
    pub directory: TempDir,
    election: String,
    timings: &'static [&'static str],
    store: Arc<Store>,
}

impl Scene {
    /// Creates an election with a record, without candidates.
    pub fn new(election: &str) -> Self {
        let store = Store::shared();
        let settings = store.azurite.settings(CONTAINER, election);
        store.runtime.block_on(async {
            let made = Azure::open(settings).expect("good settings").create(1).await;
            made.expect("the record can be made");
        });
        Self {
            candidates: Vec::new(),
            proxies: Vec::new(),
            recorder: Recorder::start(),
            directory: tempfile::tempdir().expect("a temporary directory"),
            election: election.to_owned(),
            timings: &[],
            store,
        }
    }

    /// Uses another recorder.
    pub fn judged_by(mut self, recorder: Recorder) -> Self {
        self.recorder = recorder;
        self
    }

    /// Gives its candidates the longest lease, for tests that do not wait for an expiry: then a
    /// slow machine does not lose leadership.
    pub fn patient(mut self) -> Self {
        self.timings = &["--lease-duration", "60s", "--renew-deadline", "50s"];
        self
    }

    /// Adds candidates, of which the first leads and the others are standbys.
    pub fn led_by_first_of(mut self, candidates: usize) -> Self {
        self.add();
        self.leads(0, SLACK);
        for index in 1..candidates {
            self.add();
            self.stands_by(index, SLACK);
        }
        self
    }

    /// Adds a proxy in front of the store.
    pub fn add_proxy(&mut self) -> &FaultProxy {
        self.proxies.push(FaultProxy::before(self.endpoint()));
        self.proxies.last().expect("just pushed")
    }

    /// Starts one more candidate behind the proxy with its index, which is added if there is none.
    pub fn add(&mut self) {
        let index = self.candidates.len();
        if self.proxies.len() <= index {
            self.add_proxy();
        }
        let endpoint = self.proxies[index].endpoint(self.endpoint());
        let start = |name: &str, directory: &Path, arguments: &[&str]| {
            Candidate::start(name, directory, arguments, &[])
        };
        self.add_by(&endpoint, start);
    }

    /// Starts one more candidate with `start`, which receives its name, the scene's directory and
    /// its arguments.
    pub fn add_by(
        &mut self,
        endpoint: &str,
        start: impl FnOnce(&str, &Path, &[&str]) -> Candidate,
    ) {
        let name = format!("c{}", self.candidates.len());
        let arguments = [
            "--store",
            "azure://devstoreaccount1/elections",
            "--azure-insecure-http",
            "--azure-endpoint",
            endpoint,
            "--election",
            &self.election,
        ];
        let arguments = [&arguments, self.timings].concat();
        let candidate = start(&name, self.directory.path(), &arguments);
        self.recorder.follow(&candidate.name, candidate.address);
        self.candidates.push(candidate);
    }

    /// Returns the URL of the store itself.
    pub fn endpoint(&self) -> &Url {
        &self.store.azurite.endpoint
    }

    /// Waits until a candidate leads and the recorder has seen that, and returns its term.
    pub fn leads(&self, index: usize, bound: Duration) -> u64 {
        let candidate = &self.candidates[index];
        until(bound, &format!("{} leads", candidate.name), || {
            let status = candidate.status()?;
            let led = status["role"] == "active" && self.recorder.heard(&candidate.name);
            led.then(|| status["term"].as_u64()).flatten()
        })
    }

    /// Waits until a candidate is a standby.
    pub fn stands_by(&self, index: usize, bound: Duration) {
        let candidate = &self.candidates[index];
        until(bound, &format!("{} stands by", candidate.name), || {
            (candidate.state()? == "standby").then_some(())
        });
    }

    /// Waits for a renewal of a candidate that is sent and granted from now on.
    pub fn renews(&self, index: usize) -> Seen {
        let from = tenure::clock::now().raw;
        until(DEADLINE + SLACK, "a renewal is granted", || {
            let mut renewals = self.calls(index, Call::Renew).into_iter();
            renewals.find(|it| it.at > from && it.status == 200)
        })
    }

    /// Returns the requests of a kind that a candidate has sent.
    pub fn calls(&self, index: usize, call: Call) -> Vec<Seen> {
        self.proxies[index].log().into_iter().filter(|it| it.call == call).collect()
    }

    /// Waits until all faults that were injected into the next requests have occurred.
    pub fn suffers(&self, index: usize) {
        until(DEADLINE + SLACK, "the faults have happened", || {
            (self.proxies[index].pending() == 0).then_some(())
        });
    }

    /// Stops the recorder, and asserts that its claims are safe and that these candidates led in
    /// this order.
    pub fn judge(self, released: &[&str], tenures: &[&str]) -> Verdict {
        let verdict = self.recorder.finish(released);
        verdict.assert_safe();
        let led: Vec<_> = verdict.terms.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(led, tenures, "{verdict:?}");
        verdict
    }
}

//! The candidates of one election in real processes, and a recorder that checks their claims: on a
//! `file:` lease of about two seconds, on the Azurite of all tests with a fault proxy before each
//! candidate, or on a store of the test's own. The tests inject the faults.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure::clock;
use tenure::store::LeaseAdmin;
use tenure::store::azure::Azure;
use url::Url;

use crate::azure::azurite::Azurite;
use crate::blocking;
use crate::faults::fault_proxy::{Call, FaultProxy, Seen};
use crate::processes::process::{Process, run_verb, until};
use crate::recorder::{Recorder, Verdict};

/// The timeout for any expected change, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The additional time that a busy machine may take.
pub const SLACK: Duration = Duration::from_secs(45);

/// The container of the elections on Azurite.
const CONTAINER: &str = "elections";

/// The timings of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
    pub request_timeout: Duration,
}

/// The defaults.
pub const DEFAULTS: Timings = Timings {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
    request_timeout: Duration::from_secs(2),
};

/// The default `lease-duration`, `renew-deadline` and `retry-period`.
pub const D: Duration = DEFAULTS.lease_duration;
pub const DEADLINE: Duration = DEFAULTS.renew_deadline;
pub const RETRY: Duration = DEFAULTS.retry_period;

/// The longest lease, for tests that do not wait for an expiry: then a slow machine does not lose
/// leadership.
pub const LONGEST: Timings = Timings {
    lease_duration: Duration::from_secs(60),
    renew_deadline: Duration::from_secs(50),
    ..DEFAULTS
};

/// The proportions of the defaults, in about a seventh of the time.
pub const SHORT: Timings = Timings {
    lease_duration: Duration::from_millis(2_000),
    renew_deadline: Duration::from_millis(1_300),
    retry_period: Duration::from_millis(300),
    request_timeout: Duration::from_millis(500),
};

/// A renew-deadline long enough for a busy machine, for tests in which leadership must not be lost.
pub const STEADY: Timings = Timings {
    lease_duration: Duration::from_millis(5_000),
    renew_deadline: Duration::from_millis(3_500),
    ..SHORT
};

/// The shortest lease of Azure, with a renew-deadline far before its end.
pub const ON_BLOBS: Timings = Timings {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(8),
    retry_period: Duration::from_millis(500),
    request_timeout: Duration::from_secs(2),
};

/// Candidates, the recorder that follows them, and the directory with the lease and the files.
pub struct Cluster {
    pub candidates: Vec<Process>,
    /// Of each candidate on Azurite.
    pub proxies: Vec<FaultProxy>,
    pub recorder: Recorder,
    pub timings: Timings,
    pub directory: TempDir,
    azurite: Option<Arc<Azurite>>,
    store: Vec<String>,
    variables: Vec<(String, String)>,
    released: Vec<String>,
    starts: usize,
}

impl Cluster {
    /// Starts candidates with these names.
    pub fn start(names: &[&str], timings: Timings) -> Self {
        let mut it = Self::empty(timings);
        for name in names {
            it.join(name, &[], &[]);
        }
        it
    }

    /// Creates a cluster without candidates.
    pub fn empty(timings: Timings) -> Self {
        let mut it = Self::on(Vec::new(), Vec::new(), timings);
        let lease = it.directory.path().join("lease");
        std::fs::create_dir(&lease).expect("a directory");
        it.store = vec!["--store".to_owned(), format!("file://{}", lease.display())];
        it
    }

    /// Creates a cluster without candidates on the store of these arguments and variables.
    pub fn on(store: Vec<String>, variables: Vec<(String, String)>, timings: Timings) -> Self {
        Self {
            candidates: Vec::new(),
            proxies: Vec::new(),
            recorder: Recorder::start(),
            timings,
            directory: tempfile::tempdir().expect("a directory"),
            azurite: None,
            store,
            variables,
            released: Vec::new(),
            starts: 0,
        }
    }

    /// Creates an election on Azurite without candidates. It has a record, so that no candidate
    /// waits a minute because it is missing (R11).
    pub fn behind_proxies(election: &str) -> Self {
        let azurite = Azurite::shared();
        let settings = azurite.settings(CONTAINER, election);
        let made =
            blocking(async { Azure::open(settings).expect("good settings").create(1).await });
        made.expect("the record can be made");
        let store = ["--store", "azure://devstoreaccount1/elections", "--azure-insecure-http"];
        let store = [&store[..], &["--election", election]].concat();
        let store = store.into_iter().map(str::to_owned).collect();
        Self { azurite: Some(azurite), ..Self::on(store, Vec::new(), DEFAULTS) }
    }

    /// Uses another recorder.
    pub fn with_recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = recorder;
        self
    }

    /// Gives its candidates the longest lease.
    pub fn patient(mut self) -> Self {
        self.timings = LONGEST;
        self
    }

    /// Adds candidates behind proxies, of which the first leads and the others are standbys.
    pub fn led_by_first_of(mut self, candidates: usize) -> Self {
        self.add();
        self.leads(0, SLACK);
        for index in 1..candidates {
            self.add();
            self.stands_by(index, SLACK);
        }
        self
    }

    /// Returns the arguments that all candidates share, without the verb.
    pub fn arguments(&self) -> Vec<String> {
        let text = |length: Duration| format!("{}ms", length.as_millis());
        let timings = &self.timings;
        let given = [
            ("--lease-duration", text(timings.lease_duration)),
            ("--renew-deadline", text(timings.renew_deadline)),
            ("--retry-period", text(timings.retry_period)),
            ("--request-timeout", text(timings.request_timeout)),
        ];
        let given = given.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        self.store.iter().cloned().chain(given).collect()
    }

    /// Starts one more candidate, with a status file; for the recorder it is a new instance.
    pub fn join(&mut self, name: &str, more: &[&str], variables: &[(&str, &str)]) {
        self.starts += 1;
        let instance = format!("{name}-{}", self.starts);
        let file = self.file_of(&instance).display().to_string();
        let all = self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all: Vec<_> = all.chain(variables.iter().copied()).collect();
        let shared = self.arguments();
        let mut arguments: Vec<&str> = shared.iter().map(String::as_str).collect();
        arguments.extend(["--status-file", &file]);
        arguments.extend(more);
        let mut candidate = Process::run(name, &arguments, &all);
        candidate.name = instance;
        self.follow(candidate);
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
        self.add_by(&endpoint, |name, arguments| Process::run(name, arguments, &[]));
    }

    /// Starts one more candidate with `start`, which receives its name and its arguments.
    pub fn add_by(&mut self, endpoint: &str, start: impl FnOnce(&str, &[&str]) -> Process) {
        let shared = self.arguments();
        let mut arguments: Vec<&str> = shared.iter().map(String::as_str).collect();
        arguments.extend(["--azure-endpoint", endpoint]);
        let candidate = start(&format!("c{}", self.candidates.len()), &arguments);
        self.follow(candidate);
    }

    fn follow(&mut self, candidate: Process) {
        self.recorder.follow(&candidate.name, candidate.address);
        self.candidates.push(candidate);
    }

    /// Returns the URL of Azurite itself.
    pub fn endpoint(&self) -> &Url {
        &self.azurite.as_ref().expect("a cluster on Azurite").endpoint
    }

    /// Returns the status file of an instance.
    pub fn file_of(&self, instance: &str) -> PathBuf {
        self.directory.path().join(format!("{instance}.json"))
    }

    /// Returns the exit code of `tenure check` for the status file of an instance: 0 active, 1
    /// passive, 2 unknown.
    pub fn check_file(&self, instance: &str) -> i32 {
        let file = self.file_of(instance).display().to_string();
        run_verb(&["check", "--file", &file], &[]).code
    }

    /// Waits until one candidate leads, the others are standbys, and the recorder has seen the
    /// leader; returns its index.
    pub fn settle(&self) -> usize {
        let leader = settled(&self.candidates);
        self.records(leader);
        leader
    }

    /// Waits until the recorder has seen a candidate claim leadership in its current term.
    pub fn records(&self, index: usize) {
        self.leads(index, PATIENCE);
    }

    /// Waits until a candidate leads and the recorder has seen that, and returns its term.
    pub fn leads(&self, index: usize, bound: Duration) -> u64 {
        let candidate = &self.candidates[index];
        until(bound, &format!("the recorder sees that {} leads", candidate.name), || {
            let status = candidate.status()?;
            let term = status["term"].as_u64().filter(|_| status["role"] == "active")?;
            self.recorder.has_claim_in(&candidate.name, term).then_some(term)
        })
    }

    /// Waits until a candidate is a standby.
    pub fn stands_by(&self, index: usize, bound: Duration) {
        let candidate = &self.candidates[index];
        until(bound, &format!("{} stands by", candidate.name), || {
            (candidate.state()? == "standby").then_some(())
        });
    }

    pub fn term(&self, index: usize) -> u64 {
        let status = self.candidates[index].status().expect("it answers");
        status["term"].as_u64().expect("it leads in a term")
    }

    /// Waits until any candidate leads; returns its index, and how long after `since` that was.
    pub fn next_leader(&self, since: clock::Moment) -> (usize, Duration) {
        until(PATIENCE, "another leads", || {
            let leader = self.candidates.iter().position(Process::is_leader)?;
            Some((leader, since.elapsed_min(clock::now())))
        })
    }

    /// Waits for a renewal of a candidate that is sent and granted from now on.
    pub fn renews(&self, index: usize) -> Seen {
        let from = clock::now().raw;
        until(DEFAULTS.renew_deadline + SLACK, "a renewal is granted", || {
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
        until(DEFAULTS.renew_deadline + SLACK, "the faults have happened", || {
            (self.proxies[index].pending() == 0).then_some(())
        });
    }

    /// Records that a candidate releases voluntarily, which ends its claims early.
    pub fn releases(&mut self, index: usize) {
        self.released.push(self.candidates[index].name.clone());
    }

    /// Stops the recorder, and asserts that there was no dual, no shared and no falling term.
    pub fn verdict(self) -> Verdict {
        let released: Vec<&str> = self.released.iter().map(String::as_str).collect();
        let verdict = self.recorder.finish(&released);
        verdict.assert_safe();
        verdict
    }

    /// Asserts also that these candidates led in this order, of which these released voluntarily.
    pub fn verdict_with_order(mut self, released: &[&str], leaders: &[&str]) -> Verdict {
        self.released.extend(released.iter().map(|it| (*it).to_owned()));
        let verdict = self.verdict();
        let led: Vec<_> = verdict.terms.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(led, leaders, "{verdict:?}");
        verdict
    }
}

/// Waits for a text in a process's log, which is written with a small delay.
pub fn logs(process: &Process, words: &str) {
    until(PATIENCE, &format!("{} logs {words}", process.name), || {
        process.log().contains(words).then_some(())
    });
}

/// Waits until one candidate leads and all others are standbys; returns the index of the leader.
pub fn settled(candidates: &[Process]) -> usize {
    until(Duration::from_secs(90), "one leads and the others stand by", || {
        let states: Vec<_> = candidates.iter().map(|it| it.state().unwrap_or_default()).collect();
        let leader = states.iter().position(|state| state == "leader")?;
        let standbys = states.iter().filter(|state| *state == "standby").count();
        (standbys == states.len() - 1).then_some(leader)
    })
}

//! A few candidates on one lease and a recorder that follows them, on a `file:` lease of about two
//! seconds, or on a store of the test's own. The tests inject the faults.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tenure::clock;

use crate::processes::process::{Candidate, until};
use crate::recorder::{Recorder, Verdict};

/// The timeout for any expected change, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The timings of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
    pub request_timeout: Duration,
}

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
    renew_deadline: Duration::from_secs(4),
    retry_period: Duration::from_millis(500),
    request_timeout: Duration::from_secs(1),
};

/// Candidates, the recorder that follows them, and the directory with the lease and the logs.
pub struct Crew {
    pub candidates: Vec<Candidate>,
    pub recorder: Recorder,
    pub timings: Timings,
    directory: TempDir,
    store: Vec<String>,
    variables: Vec<(String, String)>,
    released: Vec<String>,
    starts: usize,
}

impl Crew {
    /// Starts candidates with these names.
    pub fn start(names: &[&str], timings: Timings) -> Self {
        let mut crew = Self::empty(timings);
        for name in names {
            crew.join(name, &[], &[]);
        }
        crew
    }

    /// Creates a cluster without candidates.
    pub fn empty(timings: Timings) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let lease = directory.path().join("lease");
        std::fs::create_dir(&lease).expect("a directory");
        let store = ["--store".to_owned(), format!("file://{}", lease.display())];
        Self { directory, ..Self::on(store.into(), Vec::new(), timings) }
    }

    /// Creates a cluster without candidates on the store of these arguments and variables.
    pub fn on(store: Vec<String>, variables: Vec<(String, String)>, timings: Timings) -> Self {
        Self {
            candidates: Vec::new(),
            recorder: Recorder::start(),
            timings,
            directory: tempfile::tempdir().expect("a directory"),
            store,
            variables,
            released: Vec::new(),
            starts: 0,
        }
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
        let shared = self.arguments();
        let mut arguments: Vec<&str> = shared.iter().map(String::as_str).collect();
        arguments.extend(["--status-file", &file]);
        arguments.extend(more);
        let all = self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all: Vec<_> = all.chain(variables.iter().copied()).collect();
        let mut candidate = Candidate::start(name, self.directory.path(), &arguments, &all);
        candidate.name = instance;
        self.recorder.follow(&candidate.name, candidate.address);
        self.candidates.push(candidate);
    }

    /// Returns the status file of an instance.
    pub fn file_of(&self, instance: &str) -> PathBuf {
        self.directory.path().join(format!("{instance}.json"))
    }

    /// Returns the exit code of `tenure check` for the status file of an instance: 0 active, 1
    /// passive, 2 unknown.
    pub fn check_file(&self, instance: &str) -> i32 {
        let output = Command::new(crate::paths::tenure())
            .args(["check", "--file"])
            .arg(self.file_of(instance))
            .output()
            .expect("tenure starts");
        output.status.code().expect("an exit code")
    }

    /// Waits until one candidate leads, the others are standbys, and the recorder has seen the
    /// leader; returns its index.
    pub fn settle(&self) -> usize {
        let leader = settled(&self.candidates);
        self.hear(leader);
        leader
    }

    /// Waits until the recorder has seen a candidate claim leadership in its current term.
    pub fn hear(&self, index: usize) {
        let candidate = &self.candidates[index];
        until(PATIENCE, "the recorder hears the leader", || {
            let term = candidate.status()?["term"].as_u64()?;
            self.recorder.heard_in(&candidate.name, term).then_some(())
        });
    }

    pub fn term(&self, index: usize) -> u64 {
        let status = self.candidates[index].status().expect("it answers");
        status["term"].as_u64().expect("it leads in a term")
    }

    /// Waits until any candidate leads; returns its index, and how long after `since` that was.
    pub fn next_leader(&self, since: clock::Moment) -> (usize, Duration) {
        until(PATIENCE, "another leads", || {
            let leader = self.candidates.iter().position(Candidate::is_leader)?;
            Some((leader, since.elapsed_min(clock::now())))
        })
    }

    /// Records that a candidate releases voluntarily, which ends its claims early.
    pub fn lets_go(&mut self, index: usize) {
        self.released.push(self.candidates[index].name.clone());
    }

    /// Stops the recorder, and asserts that there was no dual, no shared and no falling term.
    pub fn judge(self) -> Verdict {
        let released: Vec<&str> = self.released.iter().map(String::as_str).collect();
        let verdict = self.recorder.finish(&released);
        verdict.assert_safe();
        verdict
    }
}

/// Waits for a text in a candidate's log, which is written with a small delay.
pub fn tells(candidate: &Candidate, words: &str) {
    until(PATIENCE, &format!("{} tells {words}", candidate.name), || {
        candidate.log().contains(words).then_some(())
    });
}

/// Waits until one candidate leads and all others are standbys; returns the index of the leader.
pub fn settled(candidates: &[Candidate]) -> usize {
    until(Duration::from_secs(90), "one leads and the others stand by", || {
        let states: Vec<_> = candidates.iter().map(|it| it.state().unwrap_or_default()).collect();
        let leader = states.iter().position(|state| state == "leader")?;
        let standbys = states.iter().filter(|state| *state == "standby").count();
        (standbys == states.len() - 1).then_some(leader)
    })
}

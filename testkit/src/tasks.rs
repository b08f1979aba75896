//! Candidates inside the test process on one `file:` store, and a log of when the work of each
//! leader ran.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tenure::Candidate;
use tenure::candidate::{Builder, Ended, Leadership};
use tenure::clock::{self, Moment};
use tenure::config::FileSettings;
use tenure::store::LeaseStore;
use tenure::store::file::FileStore;
use tokio::task::JoinHandle;

/// The timeout for any expected change, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The work of one leadership, from its start until it is dropped.
#[derive(Clone, Debug)]
pub struct Work {
    pub who: String,
    pub term: u64,
    pub began: Moment,
    pub ended: Option<Moment>,
}

/// All work, in the order of its start.
#[derive(Clone, Debug, Default)]
pub struct WorkLog(Arc<Mutex<Vec<Work>>>);

/// Records the end of a work when it is dropped.
pub struct Guard {
    log: WorkLog,
    index: usize,
}

impl WorkLog {
    /// Records the start of a work, and its end when the guard is dropped.
    pub fn begin(&self, who: &str, term: u64) -> Guard {
        let mut log = self.0.lock().expect("whole");
        log.push(Work { who: who.to_owned(), term, began: clock::now(), ended: None });
        Guard { log: self.clone(), index: log.len() - 1 }
    }

    pub fn all(&self) -> Vec<Work> {
        self.0.lock().expect("whole").clone()
    }

    /// Returns the work that runs now.
    pub fn running(&self) -> Option<Work> {
        self.all().into_iter().rev().find(|it| it.ended.is_none())
    }

    /// Waits until a work runs for which `fits` is true.
    pub async fn until(&self, what: &str, fits: impl Fn(&Work) -> bool) -> Work {
        soon(what, || self.running().filter(|it| fits(it))).await
    }

    /// Asserts that no work began in another term before all earlier ones were dropped, and that
    /// terms only grew.
    pub fn assert_one_at_a_time(&self) {
        let log = self.all();
        for (index, later) in log.iter().enumerate() {
            for earlier in &log[..index] {
                if earlier.term == later.term && earlier.who == later.who {
                    continue;
                }
                let over = earlier.ended.is_some_and(|ended| ended.raw <= later.began.raw);
                assert!(over && earlier.term < later.term, "{earlier:?} and {later:?}");
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.log.0.lock().expect("whole")[self.index].ended = Some(clock::now());
    }
}

/// An election in a temporary directory.
pub struct Election {
    pub log: WorkLog,
    root: TempDir,
}

impl Election {
    pub fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(root.path().join("tenure")).expect("made");
        Self { log: WorkLog::default(), root }
    }

    /// Returns the root directory, for logs.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn url(&self) -> String {
        format!("file://{}", self.root.path().join("tenure").display())
    }

    /// Returns a candidate with a lease of 2 s, for takeovers.
    pub fn hasty(&self, who: &str) -> Builder {
        self.by_way_of(&self.url(), who)
    }

    /// Like [`hasty`](Self::hasty), with another URL of the store.
    pub fn by_way_of(&self, url: &str, who: &str) -> Builder {
        Candidate::builder("orders", url)
            .identity(who)
            .lease_duration(Duration::from_secs(2))
            .renew_deadline(Duration::from_millis(1_300))
            .retry_period(Duration::from_millis(200))
            .request_timeout(Duration::from_millis(500))
    }

    /// Returns a candidate whose lease outlasts the test: only a release makes another leader.
    pub fn lasting(&self, who: &str) -> Builder {
        self.hasty(who)
            .lease_duration(Duration::from_secs(600))
            .renew_deadline(Duration::from_secs(500))
    }

    /// Creates a second path to the store, and returns its URL and the link whose removal cuts it.
    pub fn second_way(&self) -> (String, PathBuf) {
        let link = self.root.path().join("way");
        std::os::unix::fs::symlink(self.root.path(), &link).expect("linked");
        (format!("file://{}", link.join("tenure").display()), link)
    }

    /// Returns whether the lease is free.
    pub async fn is_free(&self) -> bool {
        let directory = self.root.path().join("tenure");
        let election = "orders".to_owned();
        let store = FileStore::open(&FileSettings { directory, is_private: false, election });
        store.read().await.is_ok_and(|snapshot| snapshot.free)
    }

    /// Starts a task in which a candidate repeatedly works as leader until it has resigned.
    pub fn work_until_resigned(&self, who: &str, candidate: Candidate) -> JoinHandle<()> {
        let (log, who) = (self.log.clone(), who.to_owned());
        tokio::spawn(async move {
            let work = |it| forever(log.clone(), who.clone(), it);
            while candidate.run_while_leader(work).await != Err(Ended::Resigned) {}
        })
    }
}

/// A work that only ends when it is dropped.
pub async fn forever(log: WorkLog, who: String, leadership: Leadership) {
    let _guard = log.begin(&who, leadership.term());
    std::future::pending().await
}

/// Waits until a candidate leads, and returns its term.
pub async fn leads(candidate: &Candidate) -> u64 {
    let led = || candidate.is_leader(clock::now()).then(|| candidate.status().term()).flatten();
    soon("it leads", led).await
}

/// Polls until there is a result.
pub async fn soon<T>(what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = question() {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let answer = tokio::time::timeout(PATIENCE, asking).await;
    answer.unwrap_or_else(|_| panic!("waited in vain until {what}"))
}

/// Returns the time since a moment.
pub fn since(moment: Moment) -> Duration {
    moment.elapsed_min(clock::now())
}

//! Status files: the status for readers without HTTP, each with the time until which it is valid.
//!
//! Each file has its own writer, whose disk I/O runs on another thread, one write at a time: a disk
//! that hangs or is full delays only its own file. A symbolic link is followed only in a directory
//! that no other user can write, and never in place of the file.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::future::{BoxFuture, join_all};
use rustix::fs::Mode;
use serde::Serialize;
use tokio::sync::watch;

use crate::clock::{self, Moment};
use crate::config::{FileFormat, StatusFile};
use crate::files::Directory;
use crate::metrics::Metrics;
use crate::status::document::{Document, rfc3339};
use crate::status::publish_acks::PublishAcks;
use crate::status::{About, Judgement, Published, Role, valid_until_boottime_ns};
use crate::timer::{self, Timer, within};

/// A write that takes longer is reported.
const SLOW: Duration = Duration::from_secs(2);

/// What the writers are handed: the real things, or those of a test.
#[derive(Clone, Copy)]
pub struct Outside {
    /// Reads the time.
    pub now: fn() -> Moment,
    /// Tells when a write takes too long.
    pub timer: Timer,
    /// Replaces a file atomically.
    pub replace: fn(&Path, &str) -> io::Result<()>,
    /// Removes a file, if it can.
    pub remove: fn(&Path),
    /// Runs one of these two where it may block, and returns its result.
    pub run: fn(Work) -> BoxFuture<'static, io::Result<()>>,
}

/// What may block: the replacement of one file.
pub type Work = Box<dyn FnOnce() -> io::Result<()> + Send>;

impl Outside {
    /// The clock, the timer and the disk of this machine.
    pub const REAL: Self =
        Self { now: clock::now, timer: timer::sleep, replace, remove, run: on_another_thread };
}

/// Writes the status files.
pub struct Writer(Vec<FileWriter>);

impl Writer {
    /// Writes the files for the first time.
    ///
    /// # Errors
    /// When a file cannot be written, with its path: a setting that is wrong from the start.
    pub async fn start(
        files: Vec<StatusFile>,
        about: About,
        metrics: Metrics,
        published: watch::Receiver<Published>,
        outside: Outside,
    ) -> anyhow::Result<(Self, PublishAcks)> {
        let about = Arc::new(about);
        let (mut writers, mut acks) = (Vec::new(), Vec::new());
        for file in files {
            let (written, ack) = PublishAcks::channel();
            acks.push(ack);
            writers.push(FileWriter {
                file,
                about: Arc::clone(&about),
                metrics: metrics.clone(),
                published: published.clone(),
                written,
                outside,
                logged: None,
            });
        }
        for outcome in join_all(writers.iter_mut().map(FileWriter::write)).await {
            outcome?;
        }
        Ok((Self(writers), acks.into_iter().collect()))
    }

    /// Writes each publication, skipping outdated ones, until the driver is gone and the last is
    /// written.
    pub async fn run(self) {
        join_all(self.0.into_iter().map(FileWriter::run)).await;
    }
}

/// Writes one status file.
struct FileWriter {
    file: StatusFile,
    about: Arc<About>,
    metrics: Metrics,
    published: watch::Receiver<Published>,
    written: watch::Sender<u64>,
    outside: Outside,
    /// The error that was logged last, so that it is logged once.
    logged: Option<String>,
}

impl FileWriter {
    async fn run(mut self) {
        while self.published.changed().await.is_ok() {
            match self.write().await {
                Ok(()) => {
                    if self.logged.take().is_some() {
                        tracing::info!(
                            "status file {} can be written again",
                            self.file.path.display()
                        );
                    }
                }
                Err(error) => self.log_error(format!("{error:#}")),
            }
        }
    }

    /// Counts an error, and logs it if it differs from the last one.
    fn log_error(&mut self, words: String) {
        self.metrics.file_error();
        if self.logged.as_ref() != Some(&words) {
            tracing::error!("{words}; readers see its expiry in valid_until");
            self.logged = Some(words);
        }
    }

    /// Writes the newest publication and acknowledges it.
    async fn write(&mut self) -> anyhow::Result<()> {
        let published = self.published.borrow_and_update().clone();
        let Outside { now, timer, replace, remove, run } = self.outside;
        let now = now();
        let text = text(self.file.format, &self.about, &published, now);
        let passive = Judgement::of(&published.status, now).role() == Role::Passive;
        let path = self.file.path.clone();
        let mut writing = run(Box::new(move || {
            replace(&path, &text).inspect_err(|_| {
                if passive {
                    remove(&path);
                }
            })
        }));
        let written = match within(timer, SLOW, &mut writing).await {
            Some(written) => written,
            None => {
                self.log_error(format!(
                    "writing the status file {} hangs",
                    self.file.path.display()
                ));
                writing.await
            }
        };
        written.with_context(|| {
            format!("failed to write the status file {}", self.file.path.display())
        })?;
        // Only a completed write is acknowledged: a file that still reports active delays the
        // release for as long as R8 allows.
        self.written.send_replace(published.sequence);
        Ok(())
    }
}

/// The status document with the end of its validity as a date.
#[derive(Serialize)]
struct FileDocument<'a> {
    #[serde(flatten)]
    document: Document<'a>,
    valid_until: String,
}

/// Returns the content of a status file.
fn text(format: FileFormat, about: &About, published: &Published, now: Moment) -> String {
    let document = published.document(about, now);
    let judgement = Judgement::of(&published.status, now);
    let valid_until = rfc3339((now.date()) + judgement.remaining);
    match format {
        FileFormat::Json => {
            // Contacts of other candidates age, and a file is not rewritten for that.
            let document = Document { candidates: None, ..document };
            let document = FileDocument { document, valid_until };
            let json = serde_json::to_string(&document).expect("a document is JSON");
            format!("{json}\n")
        }
        FileFormat::Env => {
            let term = document.term.map(|term| term.to_string()).unwrap_or_default();
            let until = valid_until_boottime_ns(&judgement, now).to_string();
            let lines = [
                ("ROLE", document.role.as_str()),
                ("STATE", &document.state),
                ("ELECTION", &document.election),
                ("IDENTITY", &document.identity),
                ("TERM", &term),
                ("VALID_UNTIL", &valid_until),
                ("VALID_UNTIL_BOOTTIME_NS", &until),
                ("BOOT_ID", &document.boot_id),
            ];
            lines.iter().map(|(name, value)| format!("TENURE_{name}={}\n", quoted(value))).collect()
        }
    }
}

/// Quotes a value for a shell.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// Runs what may block on a thread for that.
fn on_another_thread(work: Work) -> BoxFuture<'static, io::Result<()>> {
    let working = tokio::task::spawn_blocking(work);
    Box::pin(async { working.await.expect("writing a file does not panic") })
}

/// Replaces a file atomically: writes a new one in the same directory and renames it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let (directory, name) = place(path)?;
    directory.check_regular(name)?;
    // The temporary file of a process that died half-way has this name too.
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}.tmp", std::process::id()));
    let mode = Mode::from_raw_mode(0o644);
    let written = directory
        .write_new(&beside, text.as_bytes(), mode, false)
        .and_then(|()| Ok(directory.rename(&beside, name)?));
    if written.is_err() {
        let _ = directory.remove(&beside);
    }
    written
}

/// Removes a file that still reports active and could not be rewritten; this works on a full disk
/// too. A missing file means unknown, and unknown is never active.
fn remove(path: &Path) {
    if let Ok((directory, name)) = place(path)
        && directory.check_regular(name).is_ok()
    {
        let _ = directory.remove(name);
    }
}

/// Opens the directory of a file on each use, since it may be deleted and restored meanwhile.
fn place(path: &Path) -> io::Result<(Directory, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    Ok((Directory::open(parent)?, name))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use futures::FutureExt;
    use tokio::time::timeout;

    use super::*;
    use crate::clock;
    use crate::election::{LeaseView, Standing, Status, StoreHealth};

    /// Whether the disk of the file that hangs works again.
    static MENDED: AtomicBool = AtomicBool::new(true);

    /// Repairs the disk when a test ends in any way; the runtime would wait for it otherwise.
    struct Mend;

    impl Drop for Mend {
        fn drop(&mut self) {
            MENDED.store(true, Ordering::Relaxed);
        }
    }

    fn hangs_for_one(path: &Path, text: &str) -> io::Result<()> {
        while path.ends_with("hangs.json") && !MENDED.load(Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        replace(path, text)
    }

    fn after_the_others(work: Work) -> BoxFuture<'static, io::Result<()>> {
        tokio::task::yield_now().map(|()| work()).boxed()
    }

    fn published(sequence: u64, standing: Standing) -> Published {
        let store = StoreHealth::default();
        let status = Status {
            standing,
            since: clock::now(),
            holder: None,
            successor: None,
            hold_off: None,
            workload_term: None,
            released_term: None,
            contact_due: None,
            lease: LeaseView::default(),
            store,
            wait: None,
        };
        Published { index: sequence, sequence, ..Published::first(status) }
    }

    fn about() -> About {
        About {
            election: "orders".to_owned(),
            identity: "us".to_owned(),
            instance: "us-1".to_owned(),
            boot_id: "this".to_owned(),
            store: "memory",
            store_url: "memory:".to_owned(),
            lease_duration: Duration::from_secs(15),
        }
    }

    async fn start(
        files: Vec<StatusFile>,
        metrics: &Metrics,
        published: watch::Receiver<Published>,
    ) -> (Writer, PublishAcks) {
        let started = Writer::start(files, about(), metrics.clone(), published, Outside::REAL);
        started.await.unwrap()
    }

    /// Returns how many errors are counted.
    fn errors(metrics: &Metrics) -> u64 {
        let text = metrics.text(&published(1, Standing::Starting), 0, clock::now());
        let line = text.lines().find(|it| it.starts_with("tenure_status_file_errors_total{"));
        line.and_then(|it| it.split(' ').next_back()?.parse().ok()).unwrap()
    }

    #[tokio::test]
    async fn an_error_is_logged_once_and_so_is_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let [log, place] = ["log", "place"].map(|it| directory.path().join(it));
        let to = Mutex::new(File::create(&log).unwrap());
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(to);
        let _collected = tracing::subscriber::set_default(lines.finish());
        std::fs::create_dir(&place).unwrap();
        let file = StatusFile { path: place.join("status.json"), format: FileFormat::Json };
        let (sender, receiver) = watch::channel(published(1, Standing::Starting));
        let metrics = Metrics::new(&about(), false);
        let (writer, mut acks) = start(vec![file], &metrics, receiver).await;
        let test = async {
            std::fs::remove_dir_all(&place).unwrap();
            for count in 1..3 {
                sender.send_replace(published(1 + count, Standing::Standby));
                while errors(&metrics) < count {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            std::fs::create_dir(&place).unwrap();
            for sequence in 4..7 {
                sender.send_replace(published(sequence, Standing::Standby));
                acks.reached(sequence).await;
            }
            drop(sender);
        };
        let both = async { tokio::join!(test, writer.run()) };
        timeout(Duration::from_secs(20), both).await.expect("it ends");
        let text = std::fs::read_to_string(log).unwrap();
        for part in ["ERROR", "can be written again"] {
            assert_eq!(text.matches(part).count(), 1, "{part} in:\n{text}");
        }
    }

    #[tokio::test]
    async fn r8_a_write_acknowledges_what_it_wrote_and_not_what_came_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status.json");
        let (sender, receiver) = watch::channel(published(1, Standing::Starting));
        let metrics = Metrics::new(&about(), false);
        let file = StatusFile { path, format: FileFormat::Json };
        let (mut writer, mut acks) = start(vec![file], &metrics, receiver).await;
        writer.0[0].outside.run = after_the_others;
        sender.send_replace(published(2, Standing::Standby));
        let meanwhile = async { sender.send_replace(published(3, Standing::Standby)) };
        let (written, _) = tokio::join!(writer.0[0].write(), meanwhile);
        written.unwrap();
        let is_acked = [2, 3].map(|it| acks.reached(it).now_or_never().is_some());
        assert_eq!(is_acked, [true, false]);
    }

    #[tokio::test]
    async fn a_disk_that_hangs_holds_up_its_own_file_alone() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["hangs.json", "well.json"].map(|it| directory.path().join(it));
        let files = paths.clone().map(|path| StatusFile { path, format: FileFormat::Json });
        let (sender, receiver) = watch::channel(published(1, Standing::Starting));
        let metrics = Metrics::new(&about(), false);
        let errors = || errors(&metrics);
        let (mut writer, mut acks) = start(files.to_vec(), &metrics, receiver).await;
        writer.0.iter_mut().for_each(|it| it.outside.replace = hangs_for_one);
        let [mut hung, mut well] = [0, 1].map(|number: usize| acks.of(number));
        let bound = Duration::from_secs(20);
        let mend = Mend;
        let test = async {
            MENDED.store(false, Ordering::Relaxed);
            for sequence in 2..5 {
                sender.send_replace(published(sequence, Standing::Standby));
                timeout(bound, well.reached(sequence)).await.expect("the other file is written");
            }
            let early = timeout(Duration::from_millis(50), hung.reached(2)).await;
            assert!(early.is_err(), "the file that hangs is not acknowledged");
            let early = timeout(Duration::from_millis(50), acks.reached(2)).await;
            assert!(early.is_err(), "all are acknowledged only if each is");
            while errors() == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(errors(), 1, "that it hangs is logged once");
            let late = timeout(Duration::from_millis(50), hung.reached(2)).await;
            assert!(late.is_err(), "nor is it acknowledged once that is known");
            drop(mend);
            timeout(bound, acks.reached(4)).await.expect("the newest is written at last");
            drop(sender);
        };
        timeout(bound * 3, async { tokio::join!(test, writer.run()) }).await.expect("it ends");
        for path in paths {
            assert!(std::fs::read_to_string(path).unwrap().contains("standby"));
        }
    }
}

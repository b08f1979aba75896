//! Status files: the status for readers without HTTP, with the end of its own validity in it.
//!
//! What it does not do: it delays nobody. Disk work runs on a thread of its own, at most one write
//! at a time, and a disk that hangs holds up the files alone. It never follows a symbolic link.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use tokio::sync::watch;

use super::metrics::Metrics;
use super::{About, Document, Judgement, Published, rfc3339, valid_until_boottime_ns};
use crate::clock::Moment;
use crate::config::{FileFormat, StatusFile};

/// The files' word on how far they have said what was published.
#[derive(Clone, Debug)]
pub struct Acknowledgements(watch::Receiver<u64>);

impl Acknowledgements {
    /// The word of no files at all: whatever is published has been said.
    #[must_use]
    pub fn of_no_files() -> Self {
        Self(watch::channel(u64::MAX).1)
    }

    /// Word that somebody else gives, as the number of the last publication that was said.
    #[must_use]
    pub fn channel() -> (watch::Sender<u64>, Self) {
        let (said, word) = watch::channel(0);
        (said, Self(word))
    }

    /// Resolves when the publication `sequence` or a later one has been written to every file.
    pub async fn reached(&mut self, sequence: u64) {
        // The writer ends with the process alone; then there is nothing more to wait for.
        let _ = self.0.wait_for(|said| *said >= sequence).await;
    }
}

/// Writes the status files.
pub struct Writer {
    files: Vec<StatusFile>,
    about: About,
    metrics: Metrics,
    published: watch::Receiver<Published>,
    written: watch::Sender<u64>,
    now: fn() -> Moment,
    /// The error that was told last, so that it is told once.
    told: Option<String>,
}

impl Writer {
    /// Writes the files for the first time.
    ///
    /// # Errors
    /// When a file cannot be written, naming it: a setting that is wrong from the start.
    pub async fn start(
        files: Vec<StatusFile>,
        about: About,
        metrics: Metrics,
        published: watch::Receiver<Published>,
        now: fn() -> Moment,
    ) -> anyhow::Result<(Self, Acknowledgements)> {
        let (written, acknowledgements) = Acknowledgements::channel();
        let mut writer = Self { files, about, metrics, published, written, now, told: None };
        writer.write_all().await?;
        Ok((writer, acknowledgements))
    }

    /// Writes each publication, the newest first, until the driver is gone and the last is written.
    pub async fn run(mut self) {
        while self.published.changed().await.is_ok() {
            match self.write_all().await {
                Ok(()) => {
                    if self.told.take().is_some() {
                        tracing::info!("status files are written again");
                    }
                }
                Err(error) => {
                    self.metrics.file_error();
                    let words = format!("{error:#}");
                    if self.told.as_ref() != Some(&words) {
                        tracing::error!("{words}; the file says itself until when it holds");
                        self.told = Some(words);
                    }
                }
            }
        }
    }

    /// Writes every file, whatever becomes of the others, and gives word of it.
    async fn write_all(&mut self) -> anyhow::Result<()> {
        let published = self.published.borrow_and_update().clone();
        let now = (self.now)();
        let texts: Vec<_> = self
            .files
            .iter()
            .map(|file| (file.path.clone(), text(file.format, &self.about, &published, now)))
            .collect();
        let written = tokio::task::spawn_blocking(move || {
            let mut outcome = Ok(());
            for (path, text) in texts {
                let result = replace(&path, &text)
                    .with_context(|| format!("status file {} cannot be written", path.display()));
                outcome = outcome.and(result);
            }
            outcome
        });
        written.await.expect("writing a file does not panic")?;
        // Only what was written gives word: a file that still says active keeps the release waiting
        // for as long as R8 lets it.
        self.written.send_replace(published.sequence);
        Ok(())
    }
}

/// The status document, and a date for people.
#[derive(Serialize)]
struct FileDocument<'a> {
    #[serde(flatten)]
    document: Document<'a>,
    valid_until: String,
}

/// The text of a status file.
fn text(format: FileFormat, about: &About, published: &Published, now: Moment) -> String {
    let document = published.document(about, now);
    let judgement = Judgement::of(&published.status, now);
    let valid_until = rfc3339((now.date()) + judgement.remaining);
    match format {
        FileFormat::Json => {
            let document = FileDocument { document, valid_until };
            let json = serde_json::to_string(&document).expect("a document is JSON");
            format!(
                "{json}
"
            )
        }
        FileFormat::Env => {
            let term = document.term.map(|term| term.to_string()).unwrap_or_default();
            let until = valid_until_boottime_ns(&judgement, now).to_string();
            let lines = [
                ("ROLE", document.role.as_str()),
                ("STATE", document.state),
                ("ELECTION", document.election),
                ("IDENTITY", document.identity),
                ("TERM", &term),
                ("VALID_UNTIL", &valid_until),
                ("VALID_UNTIL_BOOTTIME_NS", &until),
                ("BOOT_ID", document.boot_id),
            ];
            lines.iter().map(|(name, value)| format!("TENURE_{name}={}\n", quoted(value))).collect()
        }
    }
}

/// Quotes a value so that a shell takes it as it is.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// Replaces a file as a whole: a new one beside it, renamed into its place.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    refuse_what_is_no_file(path)?;
    let beside = beside(path)?;
    // A file left by a process that died half-way; ours alone by its name.
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file: File =
        OpenOptions::new().write(true).create_new(true).mode(0o644).open(&beside)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

fn refuse_what_is_no_file(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if found.file_type().is_file() => Ok(()),
        Ok(found) => {
            let what = if found.is_symlink() { "a symbolic link" } else { "no regular file" };
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}; name a file")))
        }
    }
}

/// The name of the temporary file, in the same directory so that it can be renamed.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    Ok(path.with_file_name(hidden))
}

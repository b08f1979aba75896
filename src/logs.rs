//! Log lines: `tracing`, as text or JSON, on standard error, through a bounded queue.
//!
//! What this module does not do: it never blocks who logs. When nobody reads the other end, lines
//! are dropped and counted.

use std::io::IsTerminal;

use anyhow::Context;
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::LogFormat;

/// How many lines may wait to be written: a few seconds of `trace`, some hundred KiB.
const QUEUE: usize = 4096;

/// Crates whose own lines could show what must not be shown (a signed URL, a token), with the most
/// verbose level that they may have whatever the log level says.
const CAPPED: [(&str, LevelFilter); 6] = [
    ("azure", LevelFilter::WARN),
    ("typespec", LevelFilter::WARN),
    ("reqwest", LevelFilter::INFO),
    ("hyper", LevelFilter::INFO),
    ("rustls", LevelFilter::INFO),
    ("h2", LevelFilter::INFO),
];

/// Keeps the log's writer alive; dropping it writes out what waits, for at most about a second.
#[must_use]
pub struct Logs {
    _guard: WorkerGuard,
    dropped: ErrorCounter,
}

impl Logs {
    /// Counts the lines that were dropped because nobody read the log.
    #[must_use]
    pub fn dropped(&self) -> ErrorCounter {
        self.dropped.clone()
    }
}

/// Starts writing log lines to standard error.
///
/// # Errors
/// When `level` is no `EnvFilter` directive, or logs were started before.
pub fn start(format: LogFormat, level: &str) -> anyhow::Result<Logs> {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(QUEUE)
        .lossy(true)
        .thread_name("tenure-logs")
        .finish(std::io::stderr());
    let dropped = writer.error_counter();
    let filter = EnvFilter::try_new(level).with_context(|| format!("log-level {level:?}"))?;
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_target(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter).with_filter(filter_fn(is_allowed)))
        .try_init()
        .context("logs were started before")?;
    Ok(Logs { _guard: guard, dropped })
}

/// Whether a line may be written as far as the caps are concerned.
fn is_allowed(line: &Metadata<'_>) -> bool {
    CAPPED.iter().all(|(name, cap)| !line.target().starts_with(name) || line.level() <= cap)
}

//! Logging: `tracing` as text or JSON to standard error, through a bounded queue. Logging never
//! blocks; lines that do not fit into the queue, or come too often, are dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anstream::{AutoStream, ColorChoice};
use anyhow::Context;
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::prelude::*;

use crate::clock;
use crate::config::LogFormat;
use limit::Limit;

mod limit;

/// How many lines may be queued: a few seconds at level `trace`, some hundred KiB.
const QUEUE: usize = 4096;

/// Crates whose log lines could contain secrets (a signed URL, a token), with the most verbose
/// level that they may have regardless of the log level.
const CAPPED: [(&str, LevelFilter); 6] = [
    ("azure", LevelFilter::WARN),
    ("typespec", LevelFilter::WARN),
    ("reqwest", LevelFilter::INFO),
    ("hyper", LevelFilter::INFO),
    ("rustls", LevelFilter::INFO),
    ("h2", LevelFilter::INFO),
];

/// Keeps the log writer alive; dropping it writes out the queue, for at most about a second.
#[must_use]
pub struct Logs {
    _guard: WorkerGuard,
    dropped: ErrorCounter,
    left_out: Arc<AtomicUsize>,
}

impl Logs {
    /// Returns the number of dropped lines, whenever it is called.
    #[must_use]
    pub fn dropped(&self) -> Box<dyn Fn() -> usize + Send + Sync> {
        let (dropped, left_out) = (self.dropped.clone(), Arc::clone(&self.left_out));
        Box::new(move || dropped.dropped_lines() + left_out.load(Ordering::Relaxed))
    }
}

/// Starts logging to standard error.
///
/// # Errors
/// When `level` is not a filter of [`Targets`], or logging has been started before.
pub fn start(format: LogFormat, level: &str) -> anyhow::Result<Logs> {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(QUEUE)
        .lossy(true)
        .thread_name("tenure-logs")
        .finish(std::io::stderr());
    let dropped = writer.error_counter();
    let filter: Targets = level.parse().with_context(|| format!("log-level {level:?}"))?;
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_target(false);
    let lines = match format {
        LogFormat::Text => {
            let is_coloured = AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
            lines.with_ansi(is_coloured).boxed()
        }
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let lines = Limit::new(lines, clock::now);
    let left_out = lines.left_out();
    tracing_subscriber::registry()
        .with(lines.with_filter(filter).with_filter(filter_fn(is_allowed)))
        .try_init()
        .context("logging is already set up")?;
    Ok(Logs { _guard: guard, dropped, left_out })
}

/// Returns whether a line is within the cap of its crate.
fn is_allowed(line: &Metadata<'_>) -> bool {
    CAPPED.iter().all(|(name, cap)| !line.target().starts_with(name) || line.level() <= cap)
}

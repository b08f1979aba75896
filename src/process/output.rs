//! The output of a command: a bounded number of lines for the log, and the first line for reports.

use std::time::Duration;

use crate::lease::text::is_printable;

/// The most lines of one run that are logged.
const MOST_LINES: usize = 100;

/// The most bytes of one line; the rest is cut off.
const LONGEST_LINE: usize = 1024;

/// The pause between two reads of output that is not logged. It slows down a command that writes
/// without end, and bounds the time that reading takes.
const PAUSE: Duration = Duration::from_millis(2);

/// The destination of a command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// The log, each line prefixed by this word.
    Log(&'static str),
    /// Nothing is kept but the first line.
    FirstLine,
}

/// The output of one run.
pub(crate) struct Collected {
    to: Output,
    out: Lines,
    err: Lines,
    logged: usize,
    dropped_lines: usize,
    dropped_bytes: usize,
}

/// One stream.
#[derive(Default)]
struct Lines {
    /// The line so far, cut at [`LONGEST_LINE`].
    line: Vec<u8>,
    /// The full length of the line so far, in bytes.
    length: usize,
    first: Option<String>,
}

impl Lines {
    /// Appends bytes, and calls `each` with every line that they complete and its full length.
    fn take(&mut self, bytes: &[u8], mut each: impl FnMut(&str, usize)) {
        for byte in bytes {
            if *byte == b'\n' {
                self.end(&mut each);
                continue;
            }
            self.length += 1;
            if self.line.len() < LONGEST_LINE {
                self.line.push(*byte);
            }
        }
    }

    fn end(&mut self, mut each: impl FnMut(&str, usize)) {
        let text = clean(&self.line);
        if self.first.is_none() && !text.is_empty() {
            self.first = Some(text.clone());
        }
        each(&text, self.length);
        self.line.clear();
        self.length = 0;
    }
}

impl Collected {
    pub(super) fn new(to: Output) -> Self {
        let (out, err) = (Lines::default(), Lines::default());
        Self { to, out, err, logged: 0, dropped_lines: 0, dropped_bytes: 0 }
    }

    /// Appends bytes of standard output.
    pub(super) async fn out(&mut self, bytes: &[u8]) {
        let mut lines = std::mem::take(&mut self.out);
        lines.take(bytes, |line, length| self.line(line, length));
        self.out = lines;
        self.slow_down().await;
    }

    /// Appends bytes of standard error.
    pub(super) async fn err(&mut self, bytes: &[u8]) {
        let mut lines = std::mem::take(&mut self.err);
        lines.take(bytes, |line, length| self.line(line, length));
        self.err = lines;
        self.slow_down().await;
    }

    /// Completes the last lines, logs how much was dropped, and returns the first line.
    pub(super) fn finish(mut self) -> Option<String> {
        for mut lines in [std::mem::take(&mut self.out), std::mem::take(&mut self.err)] {
            if lines.length > 0 {
                lines.end(|line, length| self.line(line, length));
            }
            // Standard error is processed last, and takes precedence.
            self.out.first = lines.first.or(self.out.first.take());
        }
        if let Output::Log(name) = self.to
            && self.dropped_lines > 0
        {
            let (lines, bytes) = (self.dropped_lines, self.dropped_bytes);
            tracing::warn!("{name}: dropped {lines} more lines of output ({bytes} bytes)");
        }
        self.out.first
    }

    fn line(&mut self, line: &str, length: usize) {
        let Output::Log(name) = self.to else {
            return;
        };
        if self.logged == MOST_LINES {
            self.dropped_lines += 1;
            self.dropped_bytes += length;
            return;
        }
        self.logged += 1;
        match length.saturating_sub(LONGEST_LINE) {
            0 => tracing::info!("{name}: {line}"),
            cut => tracing::info!("{name}: {line} … and {cut} more bytes"),
        }
    }

    async fn slow_down(&self) {
        let unread = self.to == Output::FirstLine || self.logged == MOST_LINES;
        let endless = self.out.length.max(self.err.length) > LONGEST_LINE;
        if unread || endless {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Decodes a line, and replaces control characters that could affect a terminal or the log.
fn clean(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let shown = text.trim_end().chars();
    shown.map(|it| if is_printable(it) || it == '\t' { it } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_line_that_says_something_is_kept_and_standard_error_goes_before() {
        let mut it = Collected::new(Output::FirstLine);
        it.out(b"\nfine\nmore\n").await;
        it.err(b"\n \nbro").await;
        it.err(b"ken\x1b[2J\r\nmore").await;
        assert_eq!(it.finish().unwrap(), "broken\u{fffd}[2J");
        let mut it = Collected::new(Output::FirstLine);
        it.out(b"half a line").await;
        assert_eq!(it.finish().unwrap(), "half a line");
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_lines_are_counted() {
        let mut it = Collected::new(Output::Log("on-active"));
        for _ in 0..MOST_LINES + 7 {
            it.out(b"12345\n").await;
        }
        it.err(&vec![b'x'; 3 * LONGEST_LINE]).await;
        assert_eq!(it.err.line.len(), LONGEST_LINE);
        it.err(b"\n").await;
        assert_eq!((it.logged, it.dropped_lines), (MOST_LINES, 8));
        assert_eq!(it.dropped_bytes, 7 * 5 + 3 * LONGEST_LINE);
    }
}

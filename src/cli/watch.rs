//! `tenure watch`: prints each change of status as a line, for as long as the output is read: in
//! words on a terminal, as JSON otherwise. After a lost connection it reconnects.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::client::{RequestError, Sidecar, UrlArgs};
use super::document::Document;
use super::terminal::{self, Style};
use super::watch_lines::Lines;
use crate::clock;
use crate::config::Environment;

/// The pause between two event streams.
const PAUSE: Duration = Duration::from_millis(500);

/// A stream that has been silent for longer is treated as dead; events arrive at least every 10 s.
const SILENCE: Duration = Duration::from_secs(25);

/// The interval of the checks for a closed output.
const GLANCE: Duration = Duration::from_millis(250);

/// The sidecar to watch.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  tenure watch                                  # on a terminal: a line of text per change
  tenure watch | jq --unbuffered -r .role
  tenure watch | while read -r status; do ./on-change \"$status\"; done")]
pub struct Args {
    #[command(flatten)]
    url: UrlArgs,
}

/// Watches until the reader of the output has gone.
pub async fn run(args: Args, environment: &Environment) -> ExitCode {
    let sidecar = match Sidecar::of(&args.url, environment) {
        Ok(sidecar) => sidecar,
        Err(fault) => {
            terminal::complain(&fault);
            return ExitCode::from(2);
        }
    };
    let style = Style::of_stdout(environment);
    let lines = std::io::stdout().is_terminal().then(|| Lines::new(style));
    let code = ExitCode::SUCCESS;
    tokio::select! {
        error = watch(&sidecar, Printer { lines, printed: None, problem: String::new() }) => {
            terminal::unwritten(&error, code)
        }
        () = closed() => code,
    }
}

/// Resolves when the reader of standard output has gone, so that a closed pipe ends the command at
/// once and not only at the next change. Never resolves if the output is a file.
async fn closed() {
    let out = std::io::stdout();
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        let mut fds = [PollFd::new(&out, PollFlags::empty())];
        let gone = PollFlags::ERR | PollFlags::HUP;
        if poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(gone) {
            return;
        }
        tokio::time::sleep(GLANCE).await;
    }
}

/// Prints changes.
struct Printer {
    /// Formats lines for a terminal; `None` for JSON.
    lines: Option<Lines>,
    printed: Option<Face>,
    /// The error that was printed last.
    problem: String,
}

/// Instance, index, state and role: two documents that agree in them are the same status.
type Face = (String, u64, String, &'static str);

impl Printer {
    /// Prints a document unless it repeats the last one.
    fn print(&mut self, data: &str) -> io::Result<()> {
        self.problem.clear();
        // An event of another kind, perhaps of a later version, is ignored.
        let Ok(document) = serde_json::from_str::<Document>(data) else {
            return Ok(());
        };
        let role = document.role.as_str();
        let face =
            (document.instance.to_string(), document.index, document.state.to_string(), role);
        if self.printed.as_ref() == Some(&face) {
            return Ok(());
        }
        self.printed = Some(face);
        match &mut self.lines {
            None => terminal::write(&format!("{data}\n")),
            Some(lines) => terminal::write(&lines.of(document, clock::now())),
        }
    }

    /// Prints an error, unless it repeats the last one.
    fn complain(&mut self, trouble: &RequestError) {
        if self.problem != trouble.problem() {
            terminal::complain(&format!("{trouble}\n  still watching"));
            trouble.problem().clone_into(&mut self.problem);
        }
    }
}

/// Follows the sidecar's event stream; returns the error when a line could not be written.
async fn watch(sidecar: &Sidecar, mut printer: Printer) -> io::Error {
    loop {
        match stream(sidecar, &mut printer).await {
            Ok(error) => return error,
            Err(trouble) => printer.complain(&trouble),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn stream(sidecar: &Sidecar, printer: &mut Printer) -> Result<io::Error, RequestError> {
    let mut events = sidecar.events().await?;
    loop {
        let next = tokio::time::timeout(SILENCE, events.next()).await;
        let data = next.unwrap_or_else(|_| Err(sidecar.silent(SILENCE)))?;
        if let Err(error) = printer.print(&data) {
            return Ok(error);
        }
    }
}

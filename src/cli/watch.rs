//! `tenure watch`: each change of status as one line, for as long as somebody reads. On a terminal
//! in words, for people; anywhere else the status document as JSON, for programs.
//!
//! What it does not do: it repeats nothing that has not changed, and ends with no sidecar: it
//! waits for the next.

mod lines;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::client::{Sidecar, Trouble, UrlArgs};
use super::document::Document;
use super::terminal::{self, Style};
use crate::clock;
use crate::config::Environment;
use lines::Lines;

/// From the end of one stream to the next.
const PAUSE: Duration = Duration::from_millis(500);

/// A stream is dead that has been silent for longer; events come every 10 s at least.
const SILENCE: Duration = Duration::from_secs(25);

/// From one look at our output's other end to the next.
const GLANCE: Duration = Duration::from_millis(250);

/// Whom to watch.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  tenure watch                                  # on a terminal: a line of words a change
  tenure watch | jq --unbuffered -r .role
  tenure watch | while read -r status; do ./on-change \"$status\"; done")]
pub struct Args {
    #[command(flatten)]
    url: UrlArgs,
}

/// Watches until nobody reads any more.
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
    tokio::select! {
        () = watch(&sidecar, Printer { lines, printed: None, told: String::new() }) => {}
        () = closed() => {}
    }
    ExitCode::SUCCESS
}

/// Resolves when whoever read our output has gone, so that a closed pipe ends us at once and not
/// only with the next change. Never resolves where output is a file.
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

/// Prints what is new.
struct Printer {
    /// The words for a terminal; JSON without.
    lines: Option<Lines>,
    printed: Option<Face>,
    /// The trouble that was told last.
    told: String,
}

/// What makes two documents the same one said again.
type Face = (String, u64, String, &'static str);

impl Printer {
    /// Prints a document unless it was printed before. Says whether anybody still reads.
    fn print(&mut self, data: &str) -> bool {
        self.told.clear();
        // Not every event need be a status for all time; what is none is no change.
        let Ok(document) = serde_json::from_str::<Document>(data) else {
            return true;
        };
        let role = document.role.as_str();
        let face = (document.instance.clone(), document.index, document.state.clone(), role);
        if self.printed.as_ref() == Some(&face) {
            return true;
        }
        self.printed = Some(face);
        match &mut self.lines {
            None => terminal::print(&format!("{data}\n")),
            Some(lines) => terminal::print(&lines.of(document, clock::now())),
        }
    }

    /// Tells of a trouble, once.
    fn complain(&mut self, trouble: &Trouble) {
        if self.told != trouble.problem() {
            terminal::complain(&format!("{trouble}\n  still watching"));
            trouble.problem().clone_into(&mut self.told);
        }
    }
}

/// Resolves when a line could not be written.
async fn watch(sidecar: &Sidecar, mut printer: Printer) {
    loop {
        match stream(sidecar, &mut printer).await {
            Ok(()) => return,
            Err(trouble) => printer.complain(&trouble),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn stream(sidecar: &Sidecar, printer: &mut Printer) -> Result<(), Trouble> {
    let mut events = sidecar.events().await?;
    loop {
        let next = tokio::time::timeout(SILENCE, events.next()).await;
        let data = next.unwrap_or_else(|_| Err(sidecar.silent(SILENCE)))?;
        if !printer.print(&data) {
            return Ok(());
        }
    }
}

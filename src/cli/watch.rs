//! `tenure watch`: each change of status as one line of JSON, for as long as somebody reads.
//!
//! What it does not do: it repeats nothing that has not changed, and ends with no sidecar: it
//! waits for the next.

use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::client::{Sidecar, Trouble, UrlArgs};
use super::document::Document;
use super::terminal;
use crate::config::Environment;

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
    tokio::select! {
        () = watch(&sidecar) => {}
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

/// Resolves when a line could not be written.
async fn watch(sidecar: &Sidecar) {
    let mut printed = None;
    let mut told = String::new();
    loop {
        let trouble = match stream(sidecar, &mut printed, &mut told).await {
            Ok(()) => return,
            Err(trouble) => trouble,
        };
        if told != trouble.problem() {
            terminal::complain(&format!("{trouble}\n  still watching"));
            trouble.problem().clone_into(&mut told);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What makes two documents the same one said again.
type Face = (String, u64, String, &'static str);

async fn stream(
    sidecar: &Sidecar,
    printed: &mut Option<Face>,
    told: &mut String,
) -> Result<(), Trouble> {
    let mut events = sidecar.events().await?;
    loop {
        let next = tokio::time::timeout(SILENCE, events.next()).await;
        let data = next.unwrap_or_else(|_| Err(sidecar.silent(SILENCE)))?;
        told.clear();
        // Not every event need be a status for all time; what is none is no change.
        let Ok(document) = serde_json::from_str::<Document>(&data) else {
            continue;
        };
        let face = (document.instance, document.index, document.state, document.role.as_str());
        if printed.as_ref() == Some(&face) {
            continue;
        }
        *printed = Some(face);
        if !terminal::print(&format!("{data}\n")) {
            return Ok(());
        }
    }
}

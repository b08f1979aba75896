//! `tenure run`: runs the sidecar until a signal ends it.

use std::process::ExitCode;

use nix::sys::signal::SigSet;

use super::{SettingsArgs, settings, terminal};
use crate::config::{Environment, Settings, Verb, load};
use crate::driver::Control;
use crate::exec::nesting;
use crate::logs::{self, Logs};
use crate::process::privacy::{give_up_new_privileges, keep_memory_private};
use crate::process::signals::Signals;
use crate::publish::systemd::Systemd;
use crate::sidecar::Sidecar;

/// Runs until a signal ends it. Exits with 0 after an orderly end, 1 when it cannot begin, 2 on
/// wrong settings, 128 + n at a second signal n.
pub async fn run(args: SettingsArgs, environment: &Environment) -> ExitCode {
    // The parent process may have blocked signals; Tenure's own process 1 does.
    let _ = SigSet::empty().thread_set_mask();
    keep_memory_private();
    let loaded = match load(&args.flags, environment, Verb::Run) {
        Ok(loaded) => loaded,
        Err(faults) => {
            terminal::complain(&faults.to_string());
            return ExitCode::from(2);
        }
    };
    let settings = &loaded.settings;
    if let Some(refusal) = nesting::refusal(settings, environment) {
        terminal::complain(&refusal);
        return ExitCode::from(2);
    }
    if !settings.runs_commands() {
        give_up_new_privileges();
    }
    let outcome = match logs::start(settings.log_format, &settings.log_level) {
        Ok(logs) => {
            settings::log(&loaded);
            // On the heap: some 70 KB, which each of the futures around it would hold once more.
            Box::pin(sidecar(loaded.settings, Systemd::from(environment), &logs)).await
        }
        Err(error) => Err(error),
    };
    outcome.unwrap_or_else(|error| {
        terminal::complain(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

/// Runs the sidecar until it has resigned or a second signal arrives.
async fn sidecar(
    settings: Settings,
    systemd: Option<Systemd>,
    logs: &Logs,
) -> anyhow::Result<ExitCode> {
    let signals = Signals::of_run()?;
    let dropped = logs.dropped();
    let (control, orders) = Control::new();
    let to_drive = (control.clone(), orders);
    // Signals are handled from here on, whatever the start waits for.
    tokio::select! {
        ended = async {
            Sidecar::prepare(settings, dropped, false, None, to_drive).await?.notifying(systemd).run().await;
            Ok(ExitCode::SUCCESS)
        } => ended,
        code = obey(signals, control) => Ok(code),
    }
}

/// Resigns at the first signal; resolves at the second.
async fn obey(mut signals: Signals, control: Control) -> ExitCode {
    let number = signals.terminating().await;
    tracing::info!(signal = number, "resigning; a second signal ends at once");
    control.resign().await;
    ExitCode::from(128 + signals.terminating().await)
}

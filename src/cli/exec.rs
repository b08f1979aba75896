//! `tenure exec`: runs a command only while this instance leads. It connects [`crate::sidecar`],
//! which runs the election, with [`crate::exec`], which runs the command.

use std::ffi::OsString;
use std::pin::pin;
use std::process::ExitCode;

use nix::sys::signal::SigSet;

use super::{ExecSettingsArgs, settings, terminal};
use crate::config::{Environment, ExecOptions, Faults, Loaded, Settings, Verb, command_line, load};
use crate::driver::Control;
use crate::exec::kernel::Linux;
use crate::exec::watchdog_client::{OURSELVES, Task, WatchdogClient};
use crate::exec::{Mode, Supervisor, SupervisorExit, nesting, reexec};
use crate::logs::{self, Logs};
use crate::process::privacy::keep_memory_private;
use crate::process::signals::Signals;
use crate::publish::systemd::Systemd;
use crate::sidecar::Sidecar;
use crate::timer;

/// The arguments of `tenure exec`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Longest time to wait for a live holder, then exit with 75; 0s tries once. A holder that renews no
    /// more is waited out, where instances count the lease (all stores but azure: and file:)
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, help_heading = "Command")]
    wait: Option<String>,
    /// Exit code if another instance still holds the lease when --wait is over, instead of 75; with 0
    /// a job that another one does already is a success
    #[arg(long, value_name = "CODE", requires = "wait", help_heading = "Command")]
    conflict_exit_code: Option<u8>,
    /// Run CMD once, as under a lock, and exit with its code; 76 if leadership is lost meanwhile
    #[arg(long, help_heading = "Command")]
    once: bool,
    /// Longest time that CMD may run before it is stopped; with --once the exit code is then 124
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, help_heading = "Command")]
    max_hold: Option<String>,
    #[command(flatten)]
    settings: ExecSettingsArgs,
    /// The command and its arguments, run without a shell
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Reads settings and options; returns all faults at once.
fn read(args: &Args, environment: &Environment) -> Result<(Loaded, ExecOptions), Faults> {
    let loaded = load(&args.settings.flags, environment, Verb::Exec);
    let options = ExecOptions::parse(args.wait.as_deref(), args.max_hold.as_deref());
    match (loaded, options) {
        (Ok(loaded), Ok(options)) => Ok((loaded, options)),
        (loaded, options) => {
            let mut faults = loaded.err().map_or_else(Vec::new, |it| it.0);
            faults.extend(options.err().unwrap_or_default());
            Err(Faults(faults))
        }
    }
}

/// Runs the command while this instance leads. Exits with 0 after an orderly end, 1 when it cannot
/// begin, 2 on wrong settings, 126 or 127 when the command cannot be run; for other codes see the
/// help.
pub async fn run(args: Args, environment: Environment) -> ExitCode {
    // The parent process may have blocked signals; Tenure's own process 1 does.
    let _ = SigSet::empty().thread_set_mask();
    // In a nested `exec`, this variable names the status file of the outer one.
    let environment = match environment.get(nesting::VARIABLE) {
        Some(_) => environment.without("TENURE_STATUS_FILE"),
        None => environment,
    };
    keep_memory_private();
    let (loaded, options) = match read(&args, &environment) {
        Ok(read) => read,
        Err(faults) => {
            terminal::complain(&faults.to_string());
            return ExitCode::from(2);
        }
    };
    let settings = &loaded.settings;
    if let Some(refusal) = nesting::refusal(settings, &environment) {
        terminal::complain(&refusal);
        return ExitCode::from(2);
    }
    if settings.observe {
        terminal::complain("observe: an observer never leads, so the command would never run");
        return ExitCode::from(2);
    }
    let task = match task(args.command, settings, &environment) {
        Ok(task) => task,
        Err(code) => return ExitCode::from(code),
    };
    if let Err(error) = reexec::reachable() {
        terminal::complain(&format!(
            "{OURSELVES} cannot be run, which the command's watchdog needs: {error}; mount /proc"
        ));
        return ExitCode::FAILURE;
    }
    if loaded.is_default_store {
        // Plain, whatever the log level: without a shared store the command is locked on one host.
        terminal::complain(&format!(
            "store is not set, so only {} compete for the lease; set --store to a store that all \
             hosts share",
            settings.store.competitors()
        ));
    }
    let mode = Mode { once: args.once, conflict_exit_code: args.conflict_exit_code, options };
    let outcome = match logs::start(settings.log_format, &settings.log_level) {
        Ok(logs) => {
            settings::log(&loaded);
            // On the heap: some 70 KB, which each of the futures around it would hold once more.
            Box::pin(lead(loaded.settings, &environment, task, mode, &logs)).await
        }
        Err(error) => Err(error),
    };
    outcome.unwrap_or_else(|error| {
        terminal::complain(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

/// Resolves the command, before any lease is acquired for it.
fn task(
    command: Vec<OsString>,
    settings: &Settings,
    environment: &Environment,
) -> Result<Task, u8> {
    let mut words = command.into_iter();
    let name = words.next().unwrap_or_default();
    let found = match name.to_str() {
        Some(text) => command_line::find(text, environment.get("PATH")),
        None => Ok(name.clone().into()),
    };
    let program = found.map_err(|unusable| {
        terminal::complain(&format!("the command {unusable}"));
        match unusable {
            command_line::Unusable::NotFound(_) => reexec::NOT_FOUND,
            command_line::Unusable::NotExecutable(_) => reexec::CANNOT_RUN,
        }
    })?;
    Ok(Task {
        tenure: OURSELVES.into(),
        program: program.into(),
        name,
        arguments: words.collect(),
        stop_timeout: settings.stop_timeout,
        withheld: settings.withheld.clone(),
    })
}

async fn lead(
    settings: Settings,
    environment: &Environment,
    task: Task,
    mode: Mode,
    logs: &Logs,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::of_exec()?;
    let dropped = logs.dropped();
    let mut variables = vec![
        ("TENURE_ELECTION", settings.election.clone().into()),
        ("TENURE_IDENTITY", settings.identity.clone().into()),
    ];
    if let Some(file) = settings.status_files.first() {
        variables.push(("TENURE_STATUS_FILE", file.path.clone().into()));
    }
    let known = settings.clone();
    // Signals are handled from here on, whatever the start waits for.
    let sidecar = tokio::select! {
        sidecar = Sidecar::prepare(settings, dropped, true, mode.options.wait, Control::new()) => sidecar?.notifying(Systemd::from(environment)),
        number = signals.next() => {
            tracing::info!(signal = number, "stopped before the start");
            let code = if mode.once { 128 + number } else { 0 };
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
        }
    };
    variables.extend(sidecar.url().map(|it| ("TENURE_URL", it.into())));
    // The store's directory exists now, so its path resolves to a unique name.
    variables.push((nesting::VARIABLE, nesting::handed_down(&known, environment).into()));
    let supervisor = Supervisor {
        task,
        variables,
        mode,
        control: sidecar.control(),
        published: sidecar.published(),
        metrics: sidecar.metrics(),
        signals,
        start: WatchdogClient::start,
        kernel: &Linux,
        timer: timer::sleep,
    };
    Ok(ExitCode::from(together(sidecar, supervisor).await?))
}

/// Runs the sidecar and the supervisor until the lease has been released or a second signal
/// arrives.
async fn together(sidecar: Sidecar, supervisor: Supervisor) -> anyhow::Result<u8> {
    let mut signals = None;
    let (mut lead, mut supervise) = (pin!(sidecar.run()), pin!(supervisor.run()));
    let mut code = None;
    loop {
        tokio::select! {
            biased;
            (over, handlers) = &mut supervise, if code.is_none() => match over {
                SupervisorExit::AtOnce(code) => return Ok(code),
                SupervisorExit::AfterRelease { code: it, asked } => {
                    code = Some(it);
                    signals = Some((handlers, asked));
                }
            },
            number = last(&mut signals) => return Ok(u8::try_from(128 + number).unwrap_or(u8::MAX)),
            () = &mut lead => {
                if let Some(code) = code {
                    return Ok(code);
                }
                // The supervisor has not seen the last publication yet.
                let (SupervisorExit::AtOnce(code) | SupervisorExit::AfterRelease { code, .. }, _) =
                    supervise.await;
                return Ok(code);
            }
        }
    }
}

/// Resolves with the signal that ends the process at once after the command has ended for good;
/// pending before that.
async fn last(signals: &mut Option<(Signals, bool)>) -> i32 {
    match signals {
        Some((signals, asked)) => signals.last(asked).await,
        None => std::future::pending().await,
    }
}

//! The binary: parses the arguments, runs the verb, and returns its exit code.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use tenure::cli::first_process::ended_by_signals;
use tenure::cli::operate::Verb;
use tenure::cli::{self, Command, usage};
use tenure::config::Environment;

fn main() -> ExitCode {
    // Checked first: a stage of `exec` must stay small and sets up nothing else.
    if let Some(code) = tenure::exec::reexec::run() {
        return code;
    }
    let cli = match usage::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let environment = Environment::of_process();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(_) => return ExitCode::FAILURE,
    };
    let code = runtime.block_on(run(cli.command, &environment));
    // Does not wait for blocking tasks: a name resolution without an answer must not delay the
    // exit.
    runtime.shutdown_background();
    code
}

async fn run(command: Command, environment: &Environment) -> ExitCode {
    let competes = matches!(command, Command::Run(_) | Command::Exec(_));
    let verb = start(command, environment);
    if competes { verb.await } else { ended_by_signals(verb).await }
}

async fn start(command: Command, environment: &Environment) -> ExitCode {
    match command {
        Command::Run(args) => cli::run::run(*args, environment).await,
        Command::Exec(args) => cli::exec::run(*args, environment.clone()).await,
        Command::Status(args) => cli::status::run(args, environment).await,
        Command::Check(args) => cli::check::run(args, environment).await,
        Command::Wait(args) => cli::wait::run(args, environment).await,
        Command::Watch(args) => cli::watch::run(args, environment).await,
        Command::Doctor(args) => cli::doctor::run(*args, environment).await,
        Command::StepDown(it) => cli::operate::run(Verb::StepDown(it), environment).await,
        Command::Transfer(it) => cli::operate::run(Verb::Transfer(it), environment).await,
        Command::Pause(it) => cli::operate::run(Verb::Pause(it), environment).await,
        Command::Resume(it) => cli::operate::run(Verb::Resume(it), environment).await,
        Command::Drained(it) => cli::operate::run(Verb::Drained(it), environment).await,
        Command::Migrate(args) => cli::migrate::run(*args, environment).await,
        Command::Break(args) => cli::break_lease::run(*args, environment).await,
        Command::Install(args) => cli::install::run(&args),
        Command::Completions(args) => cli::completions::run(&args),
        Command::Kubectl(plugin) => cli::kubectl::run(*plugin, environment).await,
    }
}

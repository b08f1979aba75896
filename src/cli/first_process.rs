//! Signal handling for subcommands that run as process 1 of a container. For process 1 the kernel
//! drops every signal without a handler, so that SIGTERM would have no effect and the container
//! would end only by SIGKILL.
//!
//! `run` and `exec` have signal handlers of their own.

use std::process::ExitCode;

use crate::process::signals::Signals;

/// Runs a subcommand; as process 1, ends it on SIGTERM or SIGINT with exit code 128 plus the
/// signal's number, as the kernel's default would for any other process.
pub async fn ended_by_signals(verb: impl Future<Output = ExitCode>) -> ExitCode {
    if std::process::id() != 1 {
        return verb.await;
    }
    let Ok(mut signals) = Signals::of_first_process() else {
        return verb.await;
    };
    tokio::select! {
        code = verb => code,
        number = signals.terminating() => ExitCode::from(128 + number),
    }
}

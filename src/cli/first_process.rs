//! A verb as process 1 of a container, where the kernel drops each signal that nobody has asked for:
//! SIGTERM would do nothing, and an end by it would wait for the SIGKILL that follows.
//!
//! What it does not do: `run` and `exec` have an end of their own, and any other process has the
//! kernel's.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// Ends a verb by a signal as the kernel would end it, were it not process 1: with 128 and the
/// signal's number.
pub async fn ended_by_signals(verb: impl Future<Output = ExitCode>) -> ExitCode {
    if std::process::id() != 1 {
        return verb.await;
    }
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return verb.await;
    };
    tokio::select! {
        code = verb => code,
        _ = terminate.recv() => ExitCode::from(128 + 15),
        _ = interrupt.recv() => ExitCode::from(128 + 2),
    }
}

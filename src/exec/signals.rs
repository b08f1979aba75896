//! The signals of `tenure exec`: those that end it, and those that are forwarded. SIGTSTP has its
//! default action and stops Tenure; the watchdog then ends the command before the belief ends.

use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGHUP.
pub(super) const HUP: i32 = 1;
/// SIGINT.
pub(super) const INT: i32 = 2;
/// SIGQUIT.
pub(super) const QUIT: i32 = 3;
/// SIGTERM.
pub(super) const TERM: i32 = 15;
/// SIGCONT.
pub(super) const CONT: i32 = 18;
/// SIGTSTP.
pub(super) const TSTP: i32 = 20;
/// SIGTTIN.
pub(super) const TTIN: i32 = 21;
/// SIGTTOU.
pub(super) const TTOU: i32 = 22;

/// SIGUSR1, SIGUSR2 and SIGWINCH, which are only forwarded.
const OTHERS: [i32; 3] = [10, 12, 28];

/// Handlers of the signals.
#[derive(Debug)]
pub struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// When the system rejects a handler.
    pub fn listen() -> std::io::Result<Self> {
        // If SIGCHLD was ignored when Tenure was started, this resets it for the child processes,
        // which could otherwise not learn how their own children exit.
        let _ = signal(SignalKind::child())?;
        let all = [INT, TERM, QUIT, HUP, CONT].into_iter().chain(OTHERS);
        all.map(|it| Ok((it, signal(SignalKind::from_raw(it))?)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns the signal that ends the process at once, after the command has ended: the next one
    /// that asks for the end, or the second one if none has been received yet (`asked`).
    ///
    /// Cancel safe: dropping the future loses no signal.
    pub async fn last(&mut self, asked: &mut bool) -> i32 {
        loop {
            let number = self.next().await;
            if !matches!(number, INT | TERM | QUIT) {
                continue;
            }
            if std::mem::replace(asked, true) {
                return number;
            }
            tracing::info!(signal = number, "leaving already; a second signal ends at once");
        }
    }

    /// Returns the number of the next signal.
    pub async fn next(&mut self) -> i32 {
        std::future::poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

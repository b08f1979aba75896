//! The signals of this process, for every subcommand: each installs its handlers once. SIGTSTP has
//! its default action and stops Tenure; the watchdog of `tenure exec` then ends the command before
//! the belief ends.

use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// SIGHUP.
pub const HUP: i32 = 1;
/// SIGINT.
pub const INT: i32 = 2;
/// SIGQUIT.
pub const QUIT: i32 = 3;
/// SIGTERM.
pub const TERM: i32 = 15;
/// SIGCONT.
pub const CONT: i32 = 18;
/// SIGTSTP.
pub const TSTP: i32 = 20;
/// SIGTTIN.
pub const TTIN: i32 = 21;
/// SIGTTOU.
pub const TTOU: i32 = 22;

/// SIGUSR1, SIGUSR2 and SIGWINCH, which are only forwarded.
const OTHERS: [i32; 3] = [10, 12, 28];

/// The handlers of this process's signals.
#[derive(Debug)]
pub struct Signals(Vec<(i32, Source)>);

/// Where one signal comes from.
#[derive(Debug)]
enum Source {
    Handler(Signal),
    Test(mpsc::Receiver<()>),
}

impl Signals {
    /// Installs the handlers of `tenure run`: SIGINT and SIGTERM end it, and SIGHUP is ignored,
    /// since there is nothing to reload.
    ///
    /// # Errors
    /// When the system rejects a handler.
    pub fn of_run() -> std::io::Result<Self> {
        Self::of([INT, TERM, HUP])
    }

    /// Installs the handlers of `tenure exec`: those that end it, and those that it forwards.
    ///
    /// # Errors
    /// When the system rejects a handler.
    pub fn of_exec() -> std::io::Result<Self> {
        // If SIGCHLD was ignored when Tenure was started, this resets it for the child processes,
        // which could otherwise not learn how their own children exit.
        let _ = signal(SignalKind::child())?;
        Self::of([INT, TERM, QUIT, HUP, CONT].into_iter().chain(OTHERS))
    }

    /// Installs the handlers of any other subcommand that runs as process 1 of a container.
    ///
    /// # Errors
    /// When the system rejects a handler.
    pub fn of_first_process() -> std::io::Result<Self> {
        Self::of([INT, TERM])
    }

    /// Returns signals that come from a test; like the kernel's, they are to be kept once each.
    pub fn of_test(sources: impl IntoIterator<Item = (i32, mpsc::Receiver<()>)>) -> Self {
        Self(sources.into_iter().map(|(number, it)| (number, Source::Test(it))).collect())
    }

    fn of(numbers: impl IntoIterator<Item = i32>) -> std::io::Result<Self> {
        let made = numbers
            .into_iter()
            .map(|it| Ok((it, Source::Handler(signal(SignalKind::from_raw(it))?))));
        made.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the number of the next SIGINT or SIGTERM.
    ///
    /// Cancel safe: dropping the future loses no signal.
    pub async fn terminating(&mut self) -> u8 {
        loop {
            match self.next().await {
                INT => return 2,
                TERM => return 15,
                _ => {}
            }
        }
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
            tracing::info!(signal = number, "already shutting down; a second signal ends at once");
        }
    }

    /// Returns the number of the next signal.
    pub async fn next(&mut self) -> i32 {
        std::future::poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                let poll = match signal {
                    Source::Handler(it) => it.poll_recv(context),
                    Source::Test(it) => it.poll_recv(context),
                };
                if poll.is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

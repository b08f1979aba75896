//! The signals that come to `tenure exec`: those that ask for the end, and those that are passed on.
//!
//! What it does not do: SIGTSTP stops Tenure as it does any other program, and the keeper ends the
//! command when the belief is over.

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

/// SIGUSR1, SIGUSR2 and SIGWINCH, which mean nothing to us.
const OTHERS: [i32; 3] = [10, 12, 28];

/// The signals, taken over.
#[derive(Debug)]
pub struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// Takes them over.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn listen() -> std::io::Result<Self> {
        // The handler of SIGCHLD is for our children: one that was ignored at our start would
        // take from them, and from a keeper, how their own children ended.
        let _ = signal(SignalKind::child())?;
        let all = [INT, TERM, QUIT, HUP, CONT].into_iter().chain(OTHERS);
        all.map(|it| Ok((it, signal(SignalKind::from_raw(it))?)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The number of the signal that ends what is left to do once nothing is left to be asked of
    /// the command: the next that asks for the end, or the one after it where none has `asked` yet.
    ///
    /// Dropping the future loses no signal.
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

    /// The next one's number.
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

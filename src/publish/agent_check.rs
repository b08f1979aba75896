//! Answers the agent checks of HAProxy: one line on each connection, which says what this instance is
//! at that moment.
//!
//! HAProxy keeps the last answer of an agent for as long as it gets no other, so the line names both
//! states that HAProxy knows of a server, and takes back what an earlier line said.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::SendFlags;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::clock::Moment;
use crate::election::State;
use crate::http::listener::{Listener, Stream, bind_tcp};
use crate::status::{Judgement, Published, Role};

/// How long a connection may stay open after its answer was sent.
const LINGER: Duration = Duration::from_secs(1);

/// The most connections that stay open after their answers; a further one is closed at once. So few
/// fit into the reserve of file descriptors.
const MAX_LINGERING: usize = 8;

/// The most bytes that are read of what a client sends, which nobody needs.
const MAX_RECEIVED: usize = 1024;

/// How long the listener rests after a failure to accept, when no file descriptor may be left.
const REST: Duration = Duration::from_millis(100);

/// The listener for agent checks.
pub struct AgentCheck {
    listener: Listener,
    published: watch::Receiver<Published>,
    now: fn() -> Moment,
}

impl AgentCheck {
    /// Binds the address.
    ///
    /// # Errors
    /// When the address is in use or may not be bound, with the address in the message.
    pub fn bind(
        address: SocketAddr,
        published: watch::Receiver<Published>,
        now: fn() -> Moment,
    ) -> anyhow::Result<Self> {
        let (listener, _) = bind_tcp(address, "--agent-check")?;
        Ok(Self { listener, published, now })
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> String {
        self.listener.address()
    }

    /// Answers each connection, until the driver has ended.
    pub async fn serve(self) {
        let mut driver = self.published.clone();
        let gone = async { while driver.changed().await.is_ok() {} };
        tokio::select! {
            () = self.answer_all() => {}
            () = gone => {}
        }
    }

    async fn answer_all(&self) {
        let mut tasks = JoinSet::new();
        let mut failing = false;
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = tasks.join_next() => continue,
            };
            match accepted {
                Ok(stream) => {
                    failing = false;
                    let Stream::Tcp(stream) = stream else { continue };
                    let line = line(&self.published.borrow(), (self.now)());
                    // The buffer of a new connection has room for a line, before tokio knows of it.
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    let sent = rustix::net::send(&stream, line.as_bytes(), flags);
                    if sent.is_ok() && tasks.len() < MAX_LINGERING {
                        tasks.spawn(async { timeout(LINGER, finish(stream)).await.is_ok() });
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!("failed to accept an agent check: {error}");
                    }
                    sleep(REST).await;
                }
            }
        }
    }
}

/// Returns the line for HAProxy. A drain lets the sessions of the last leadership end; `maint` admits
/// none, not even by persistence.
fn line(published: &Published, now: Moment) -> &'static str {
    let judgement = Judgement::of(&published.status, now);
    match (judgement.role(), judgement.state) {
        (Role::Active, _) => "up ready\n",
        (Role::Passive, State::Draining) => "up drain\n",
        (Role::Passive, _) => "up maint\n",
    }
}

/// Waits until the client has closed its side: a connection that is closed while received bytes are
/// unread is reset, and the client may lose the answer.
async fn finish(mut stream: TcpStream) {
    let mut received = 0;
    let mut buffer = [0; 256];
    let _ = stream.shutdown().await;
    while received < MAX_RECEIVED {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => received += count,
        }
    }
}

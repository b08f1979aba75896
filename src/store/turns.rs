//! The servers of one store, which are asked in turn: all requests of one call go to one server, and if that
//! does not answer the last of them, the next call goes to the next server. Nothing is repeated here.

use std::sync::atomic::{AtomicUsize, Ordering};

use url::Url;

/// The servers.
pub(super) struct Turns {
    servers: Vec<Url>,
    /// The server that the next call goes to.
    next: AtomicUsize,
}

impl Turns {
    /// Begins with the first of these servers, of which there is one at least.
    pub(super) fn new(servers: Vec<Url>) -> Self {
        Self { servers, next: AtomicUsize::new(0) }
    }

    /// Returns the server of a new call.
    pub(super) fn turn(&self) -> Turn<'_> {
        self.turn_of(self.next.load(Ordering::Relaxed) % self.servers.len())
    }

    /// Returns the server of this number.
    pub(super) fn turn_of(&self, at: usize) -> Turn<'_> {
        Turn { turns: self, at, is_answered: true }
    }
}

/// The server of one call.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    at: usize,
    /// Whether the server answered the last request.
    is_answered: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            // Another call may have moved on from this server already.
            let (next, after) = (&self.turns.next, (self.at + 1) % self.turns.servers.len());
            let _ = next.compare_exchange(self.at, after, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl<'a> Turn<'a> {
    /// Records whether the server has answered the last request; not yet, while it is under way.
    pub(super) fn set_answered(&mut self, is_answered: bool) {
        self.is_answered = is_answered;
    }

    /// Returns the URL of the server, to be completed.
    pub(super) fn url(&self) -> Url {
        self.turns.servers[self.at].clone()
    }

    /// Returns host and port of the server.
    pub(super) fn name(&self) -> &'a str {
        self.turns.servers[self.at].authority()
    }
}

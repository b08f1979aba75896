//! Which of the servers of one store is asked next.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of the server that the next call goes to.
pub(super) struct NextServer {
    at: AtomicUsize,
    servers: usize,
}

impl NextServer {
    /// Begins with the first of so many servers; there is one at least.
    pub(super) fn new(servers: usize) -> Self {
        Self { at: AtomicUsize::new(0), servers }
    }

    /// Returns the number.
    pub(super) fn get(&self) -> usize {
        self.at.load(Ordering::Relaxed)
    }

    /// Sets the number.
    #[cfg(any(
        feature = "mongodb",
        feature = "postgres",
        feature = "redis",
        feature = "zookeeper"
    ))]
    pub(super) fn set(&self, at: usize) {
        self.at.store(at, Ordering::Relaxed);
    }

    /// Goes on to the server after this one, unless another call has done so already. Returns whether the
    /// next call goes to another server by this.
    pub(super) fn move_on(&self, from: usize) -> bool {
        let after = (from + 1) % self.servers;
        let moved = self.at.compare_exchange(from, after, Ordering::Relaxed, Ordering::Relaxed);
        moved.is_ok() && after != from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_calls_that_found_a_server_gone_the_first_one_goes_on_to_the_next() {
        let next = NextServer::new(2);
        assert_eq!(next.get(), 0);
        assert!(next.move_on(0));
        assert_eq!(next.get(), 1);
        assert!(!next.move_on(0), "another call has gone on already");
        assert_eq!(next.get(), 1);
        assert!(next.move_on(1));
        assert_eq!(next.get(), 0, "the first comes after the last");
        next.set(1);
        assert_eq!(next.get(), 1);
    }

    #[test]
    fn there_is_no_other_than_the_only_server() {
        let next = NextServer::new(1);
        assert!(!next.move_on(0));
        assert_eq!(next.get(), 0);
    }
}

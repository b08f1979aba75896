//! The socket between Tenure and a watchdog.

use std::collections::{BTreeSet, VecDeque};

use rustix::io::Errno;
use tenure::exec::wire::{End, RECORD, WatchdogCommand};

use crate::{Instant, MILLI};

#[derive(Debug)]
pub struct Link {
    pub term: u64,
    to_watchdog: VecDeque<u8>,
    pub to_tenure: VecDeque<u8>,
    /// Whether Tenure may still send.
    open: bool,
    /// The processes that have the watchdog's end open.
    holders: BTreeSet<i32>,
    /// Tenure's sends are not accepted before this.
    pub full_until: Instant,
    /// The next order is accepted in part.
    pub breaks: bool,
    read: Vec<u8>,
    /// What the watchdog has read.
    pub known: Known,
}

/// What a watchdog has been told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    pub end: Option<End>,
    /// When it was told to end the command, and by how long after it must have ended.
    pub terminated: Option<(Instant, Instant)>,
    pub killed: bool,
}

impl Link {
    pub fn new(term: u64, reaper: i32) -> Self {
        Self {
            term,
            to_watchdog: VecDeque::new(),
            to_tenure: VecDeque::new(),
            open: true,
            holders: BTreeSet::from([reaper]),
            full_until: 0,
            breaks: false,
            read: Vec::new(),
            known: Known::default(),
        }
    }

    /// A process inherits the watchdog's end.
    pub fn join(&mut self, id: i32) {
        self.holders.insert(id);
    }

    /// A process has ended, and with it its end of the socket.
    pub fn leave(&mut self, id: i32) {
        self.holders.remove(&id);
        if id == super::table::TENURE {
            self.close();
        }
    }

    /// Tenure sends nothing more.
    pub fn close(&mut self) {
        self.open = false;
    }

    /// Returns whether nobody is left at the watchdog's end.
    pub fn is_over(&self) -> bool {
        self.holders.is_empty()
    }

    pub fn send(&mut self, bytes: &[u8], now: Instant) -> Result<usize, Errno> {
        if self.is_over() || !self.open {
            return Err(Errno::PIPE);
        }
        if now < self.full_until {
            return Err(Errno::AGAIN);
        }
        let taken = if std::mem::take(&mut self.breaks) { RECORD / 2 } else { bytes.len() };
        self.to_watchdog.extend(&bytes[..taken]);
        Ok(taken)
    }

    /// Returns whether the watchdog would read something, or the end.
    pub fn is_readable(&self) -> bool {
        !self.open || !self.to_watchdog.is_empty()
    }

    /// Returns whether the first order is there, or never comes.
    pub fn has_first(&self) -> bool {
        !self.open || self.to_watchdog.len() >= RECORD
    }

    /// Returns up to `most` bytes for the watchdog; none if Tenure sends nothing more.
    pub fn receive(&mut self, most: usize, now: Instant) -> Result<Vec<u8>, Errno> {
        if self.to_watchdog.is_empty() {
            if self.open {
                return Err(Errno::AGAIN);
            }
            self.known.killed = true;
            return Ok(Vec::new());
        }
        let got: Vec<u8> = self.to_watchdog.drain(..most.min(self.to_watchdog.len())).collect();
        self.read.extend(&got);
        while let Some((order, _)) = self.read.split_first_chunk::<RECORD>() {
            let order = WatchdogCommand::of_bytes(order);
            self.read.drain(..RECORD);
            self.known.learn(order, now);
        }
        Ok(got)
    }

    /// Fills the socket for a while.
    pub fn fill(&mut self, now: Instant) {
        self.full_until = now + 900 * MILLI;
    }
}

impl Known {
    fn learn(&mut self, order: WatchdogCommand, now: Instant) {
        match order {
            WatchdogCommand::Belief(end) => self.end = Some(end),
            WatchdogCommand::Terminate { within, .. } => {
                let until = now + crate::span(within);
                let until = self.terminated.map_or(until, |(_, earlier)| earlier.min(until));
                self.terminated = Some((self.terminated.map_or(now, |it| it.0), until));
            }
            WatchdogCommand::Kill => self.killed = true,
            WatchdogCommand::Signal(_) => {}
        }
    }
}

//! What can happen to the processes of a term, and scripts of it.

use std::fmt;
use std::str::FromStr;

use anyhow::Context;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command exits by itself.
    Exit,
    /// The command and what it has started ignore SIGTERM from here on.
    Stubborn,
    /// The command starts a process in its group, which ignores SIGTERM.
    Fork,
    /// It starts one that leaves group and session, and ignores SIGTERM.
    Escape,
    /// It starts one that leaves group and session, whose parent ends at once.
    Orphan,
    /// The command is in a call that no signal interrupts, for a while.
    Stuck,
    /// The command is stopped.
    StopCommand,
    /// The watchdog is stopped.
    StopWatchdog,
    /// The reaper is stopped.
    StopReaper,
    /// Reaper, watchdog and command do not run for longer than the lease.
    Freeze,
    /// The watchdog does not run for a moment.
    DelayWatchdog,
    /// The watchdog does not run for longer than the lease.
    StallWatchdog,
    /// Tenure does not run for a moment.
    DelayTenure,
    /// Tenure does not run for longer than the lease.
    StallTenure,
    /// The machine is suspended for longer than the lease.
    Suspend,
    KillTenure,
    KillWatchdog,
    KillReaper,
    /// The watchdog and its reaper are killed.
    KillBoth,
    /// Tenure and the watchdog are killed.
    KillTenureToo,
    /// The store does not answer for longer than the lease.
    Away,
    /// The lease is freed behind the holder's back.
    Lost,
    /// Tenure receives SIGTERM.
    Term,
    /// Tenure receives a signal that it forwards.
    Forward,
    /// An operator makes the leader step down.
    StepDown,
    /// The connection accepts no order for a moment.
    Full,
    /// The connection accepts the next order in part.
    Breaks,
    /// The next process cannot be started.
    NoFork,
}

impl Event {
    pub const ALL: [Self; 28] = [
        Self::Exit,
        Self::Stubborn,
        Self::Fork,
        Self::Escape,
        Self::Orphan,
        Self::Stuck,
        Self::StopCommand,
        Self::StopWatchdog,
        Self::StopReaper,
        Self::Freeze,
        Self::DelayWatchdog,
        Self::StallWatchdog,
        Self::DelayTenure,
        Self::StallTenure,
        Self::Suspend,
        Self::KillTenure,
        Self::KillWatchdog,
        Self::KillReaper,
        Self::KillBoth,
        Self::KillTenureToo,
        Self::Away,
        Self::Lost,
        Self::Term,
        Self::Forward,
        Self::StepDown,
        Self::Full,
        Self::Breaks,
        Self::NoFork,
    ];

    /// Returns whether the command must survive it alone.
    fn is_harmless(self) -> bool {
        matches!(
            self,
            Self::Stubborn
                | Self::Fork
                | Self::Escape
                | Self::Orphan
                | Self::Stuck
                | Self::StopCommand
                | Self::StopWatchdog
                | Self::DelayWatchdog
                | Self::DelayTenure
                | Self::Forward
                | Self::Full
        )
    }

    /// Returns whether what it does lasts for a while.
    pub fn lasts(self) -> bool {
        matches!(
            self,
            Self::Stuck
                | Self::StopCommand
                | Self::StopWatchdog
                | Self::StopReaper
                | Self::Freeze
                | Self::StallWatchdog
                | Self::StallTenure
                | Self::Suspend
                | Self::Away
        )
    }

    /// Returns whether what it does outlasts every later bound: Tenure then need not lead again.
    pub fn ends_tenure(self) -> bool {
        matches!(self, Self::KillTenure | Self::KillTenureToo | Self::Term)
    }
}

/// Events, each at the number of a place in the course of the world, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Whether the command runs once, as under a lock.
    pub once: bool,
    pub events: Vec<(usize, Event)>,
}

impl Script {
    pub fn has(&self, is: impl Fn(Event) -> bool) -> bool {
        self.events.iter().any(|(_, event)| is(*event))
    }
}

impl Script {
    /// Returns whether the command must survive it. Of events that delay an order, it survives one.
    pub fn is_harmless(&self) -> bool {
        let delays = |it: &&(usize, Event)| {
            matches!(it.1, Event::DelayTenure | Event::DelayWatchdog | Event::Full)
        };
        self.events.iter().all(|it| it.1.is_harmless())
            && self.events.iter().filter(delays).count() < 2
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let once = self.once.then(|| "once".to_owned());
        let events = self.events.iter().map(|(place, event)| format!("{event:?}@{place}"));
        f.write_str(&once.into_iter().chain(events).collect::<Vec<_>>().join(" "))
    }
}

impl FromStr for Script {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut script = Self::default();
        for word in text.split_whitespace() {
            if word == "once" {
                script.once = true;
                continue;
            }
            let (name, place) = word.split_once('@').with_context(|| format!("{word}: no @"))?;
            let named = Event::ALL.into_iter().find(|it| format!("{it:?}") == name);
            let event = named.with_context(|| format!("no such event: {name}"))?;
            script.events.push((place.parse()?, event));
        }
        Ok(script)
    }
}

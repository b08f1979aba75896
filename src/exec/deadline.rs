//! Decides when a command is to be ended; pure.
//!
//! SIGTERM is sent stop-timeout before the deadline of the belief, SIGKILL at the deadline, so that
//! the whole margin of the lease remains for clock drift and pauses. A graceful stop has its own
//! time limit, and never outlasts the belief.

use std::time::Duration;

use super::wire::{End, WatchdogCommand};
use crate::clock::Moment;

/// What to do with the command's group at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing, but ask again within this time.
    Wait(Duration),
    /// Send this signal once.
    Signal(i32),
    /// Send SIGKILL repeatedly until no process is left.
    Kill,
}

/// The number of SIGTERM.
pub const TERM: i32 = 15;

/// What a watchdog knows of how long its command may run.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    stop_timeout: Duration,
    end: End,
    ending: Option<Ending>,
    over: bool,
    /// Whether the deadline of the belief has required the command to end.
    overdue: bool,
    /// The last reading of the clocks.
    last: Moment,
}

/// A stop that has begun, with its time limit.
#[derive(Clone, Copy, Debug)]
struct Ending {
    since: Moment,
    within: Duration,
}

impl Rule {
    /// Creates the rule for a command that is started at `now` under a belief whose deadline is
    /// `end`.
    #[must_use]
    pub fn new(stop_timeout: Duration, end: End, now: Moment) -> Self {
        Self { stop_timeout, end, ending: None, over: false, overdue: false, last: now }
    }

    /// Processes an order; returns a signal to send at once, if there is one.
    pub fn obey(&mut self, order: WatchdogCommand, now: Moment) -> Option<i32> {
        match order {
            WatchdogCommand::Belief(end) => self.end = end,
            WatchdogCommand::Terminate { signal, within } => {
                // A stop that has begun can be shortened, but not extended.
                let within = self.ending.map_or(within, |it| it.remaining(now).min(within));
                let begun = self.ending.replace(Ending { since: now, within });
                return begun.is_none().then_some(signal);
            }
            WatchdogCommand::Kill => self.over = true,
            WatchdogCommand::Signal(signal) => return Some(signal),
        }
        None
    }

    /// Records that the command has ended by itself, which ends its other processes too. Returns a
    /// signal to send at once, if there is one.
    pub fn main_ended(&mut self, now: Moment) -> Option<i32> {
        let within = self.stop_timeout;
        self.obey(WatchdogCommand::Terminate { signal: TERM, within }, now)
    }

    /// Returns whether the deadline of the belief has required the command to end.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Returns what to do at `now`.
    pub fn judge(&mut self, now: Moment) -> Action {
        // A deadline cannot be judged by a clock that went back.
        let back = now.boot < self.last.boot || now.raw < self.last.raw;
        self.last = now;
        let left = self.end.remaining(now);
        if self.over || back || left.is_zero() {
            self.overdue |= !self.over;
            self.over = true;
            return Action::Kill;
        }
        let Some(ending) = self.ending else {
            let calm = left.saturating_sub(self.stop_timeout);
            if !calm.is_zero() {
                return Action::Wait(calm);
            }
            // A later renewal does not cancel this stop: a command that ignores SIGTERM would keep
            // running in an undefined state.
            self.ending = Some(Ending { since: now, within: left });
            self.overdue = true;
            return Action::Signal(TERM);
        };
        let left = left.min(ending.remaining(now));
        if left.is_zero() {
            self.over = true;
            return Action::Kill;
        }
        Action::Wait(left)
    }
}

impl Ending {
    fn remaining(self, now: Moment) -> Duration {
        self.within.saturating_sub(self.since.elapsed_max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(boot: u64) -> Moment {
        Moment { boot: ms(boot), raw: ms(boot), wall: ms(boot) }
    }

    fn end(at: u64) -> End {
        End { boot: ms(at), raw: ms(at) }
    }

    fn rule() -> Rule {
        Rule::new(ms(3_000), end(10_000), at(0))
    }

    #[test]
    fn term_comes_a_stop_timeout_before_the_end_and_kill_at_the_end() {
        let mut rule = rule();
        assert_eq!(rule.judge(at(0)), Action::Wait(ms(7_000)));
        assert_eq!(rule.judge(at(6_999)), Action::Wait(ms(1)));
        assert!(!rule.is_overdue());
        assert_eq!(rule.judge(at(7_000)), Action::Signal(TERM));
        assert!(rule.is_overdue());
        assert_eq!(rule.judge(at(7_001)), Action::Wait(ms(2_999)));
        assert_eq!(rule.judge(at(9_999)), Action::Wait(ms(1)));
        assert_eq!(rule.judge(at(10_000)), Action::Kill);
        assert_eq!(rule.judge(at(10_001)), Action::Kill);
    }

    #[test]
    fn a_renewal_puts_both_off_and_one_after_term_puts_off_neither() {
        let mut rule = rule();
        assert_eq!(rule.obey(WatchdogCommand::Belief(end(12_000)), at(2_000)), None);
        assert_eq!(rule.judge(at(8_999)), Action::Wait(ms(1)));
        assert_eq!(rule.judge(at(9_000)), Action::Signal(TERM));
        rule.obey(WatchdogCommand::Belief(end(19_000)), at(9_100));
        assert_eq!(rule.judge(at(9_100)), Action::Wait(ms(2_900)));
        assert_eq!(rule.judge(at(12_000)), Action::Kill);
        // A later belief does not revoke the kill.
        rule.obey(WatchdogCommand::Belief(end(30_000)), at(12_001));
        assert_eq!(rule.judge(at(12_001)), Action::Kill);
    }

    #[test]
    fn either_clock_alone_ends_it() {
        for (boot, raw) in [(10_000, 1), (1, 10_000)] {
            let now = Moment { boot: ms(boot), raw: ms(raw), wall: ms(1) };
            assert_eq!(rule().judge(now), Action::Kill);
        }
    }

    #[test]
    fn a_clock_that_goes_back_ends_it() {
        for (boot, raw) in [(4_999, 4_999), (4_999, 5_001), (5_001, 4_999)] {
            let mut rule = rule();
            rule.judge(at(5_000));
            let now = Moment { boot: ms(boot), raw: ms(raw), wall: ms(5_000) };
            assert_eq!(rule.judge(now), Action::Kill, "{boot}, {raw}");
            assert_eq!(rule.judge(at(5_002)), Action::Kill);
        }
    }

    #[test]
    fn only_the_end_of_the_belief_is_an_overdue_end() {
        let mut late = rule();
        assert_eq!(late.judge(at(10_000)), Action::Kill);
        assert!(late.is_overdue());
        let mut killed = rule();
        killed.obey(WatchdogCommand::Kill, at(1));
        assert_eq!(killed.judge(at(2)), Action::Kill);
        assert!(!killed.is_overdue());
        // Neither is that of a belief that ends while a process does not die.
        let mut asked = rule();
        asked.obey(WatchdogCommand::Terminate { signal: 15, within: ms(1_000) }, at(1));
        for now in [1_001, 10_000] {
            assert_eq!(asked.judge(at(now)), Action::Kill);
            assert!(!asked.is_overdue(), "{now}");
        }
    }

    #[test]
    fn an_end_by_will_has_its_own_time_and_never_outlasts_the_belief() {
        let mut it = rule();
        let order = WatchdogCommand::Terminate { signal: 2, within: ms(5_000) };
        assert_eq!(it.obey(order, at(1_000)), Some(2));
        assert_eq!(it.obey(order, at(2_000)), None, "a second one is not sent");
        assert_eq!(it.judge(at(5_999)), Action::Wait(ms(1)));
        assert_eq!(it.judge(at(6_000)), Action::Kill);

        // Either clock alone ends it.
        for (boot, raw) in [(6_000, 1_001), (1_001, 6_000)] {
            let mut it = rule();
            it.obey(order, at(1_000));
            let now = Moment { boot: ms(boot), raw: ms(raw), wall: ms(1_000) };
            assert_eq!(it.judge(now), Action::Kill);
        }

        let mut it = rule();
        it.obey(WatchdogCommand::Terminate { signal: 15, within: ms(60_000) }, at(1_000));
        assert_eq!(it.judge(at(9_999)), Action::Wait(ms(1)));
        assert_eq!(it.judge(at(10_000)), Action::Kill);

        let mut it = rule();
        it.obey(WatchdogCommand::Terminate { signal: 15, within: ms(60_000) }, at(1_000));
        it.obey(WatchdogCommand::Terminate { signal: 15, within: ms(1_000) }, at(2_000));
        assert_eq!(it.judge(at(3_000)), Action::Kill, "a shorter one brings it forward");
    }

    #[test]
    fn processes_left_behind_get_the_stop_timeout() {
        let mut rule = rule();
        assert_eq!(rule.main_ended(at(1_000)), Some(TERM));
        assert_eq!(rule.judge(at(3_999)), Action::Wait(ms(1)));
        assert_eq!(rule.judge(at(4_000)), Action::Kill);
    }

    #[test]
    fn kill_is_at_once() {
        let mut rule = rule();
        assert_eq!(rule.obey(WatchdogCommand::Kill, at(1)), None);
        assert_eq!(rule.judge(at(1)), Action::Kill);
    }
}

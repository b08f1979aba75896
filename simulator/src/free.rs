//! When the lease can be acquired at the latest: its holder releases it, or it runs out.

use std::time::Duration;

use tenure::clock::Moment;
use tenure::election::Standing;
use tenure::lease::LeaseId;

use super::bounds::UNLAUNCHED;
use super::process::{Node, Process};
use super::requests::{Asked, Course};
use super::world::World;
use super::{MILLI, Span};

/// How long the publishers of a healthy candidate take to publish passive.
pub const PUBLISHED: Span = 50 * MILLI;

/// When the lease can be acquired at the latest.
#[derive(Clone, Copy, Debug)]
pub struct Free {
    pub within: Span,
    /// Whether that is the end of the lease, which readers of some stores know in advance.
    pub runs_out: bool,
    /// Whether its holder may renew it before.
    pub may_be_renewed: bool,
}

impl World<'_> {
    /// Returns whether a process has the lease.
    pub(super) fn holds(&self, process: &Process) -> bool {
        process.lease.is_some_and(|lease| self.store.is_leased_to(lease))
    }

    /// Returns when the lease can be acquired.
    pub(super) fn free(&self) -> Free {
        let rest = self.store.rest(self.now);
        let holder = self.nodes.iter().find_map(|it| {
            let process = it.process.as_ref()?;
            self.holds(process).then_some((it, process))
        });
        let Some((it, process)) = holder else {
            // A renewal of a candidate that is gone may be in transit.
            let transit = self.last_arrival.saturating_sub(self.now);
            let longest = self.nodes.iter().map(|it| it.plan.longest_lease()).max();
            let renewed = transit + longest.filter(|_| transit > 0).unwrap_or_default();
            let within = if self.store.rest(self.now) > 0 { rest.max(renewed) } else { rest };
            return Free { within, runs_out: true, may_be_renewed: within > rest };
        };
        let (timings, now) = (&it.plan.timings, it.moment(self.now));
        let lease = it.waits(timings.lease_duration);
        let release = self.released_within(it, process);
        let renewed = self.renewed_within(it, process);
        match (process.pace.course(), &process.status.standing) {
            (Course::Holds, Standing::Draining { .. }) => {
                Free { within: release, runs_out: false, may_be_renewed: false }
            }
            (Course::Holds, Standing::Activating) => Free {
                within: self.belief_left(it, process) + release,
                runs_out: false,
                may_be_renewed: true,
            },
            (Course::Holds, _) => {
                let again = renewed.saturating_sub(it.trip(2)) < self.belief_left(it, process);
                let extended = if again { renewed + lease } else { rest };
                Free { within: rest.max(extended), runs_out: true, may_be_renewed: again }
            }
            (Course::Bids, _) => Free { within: release, runs_out: false, may_be_renewed: true },
            (Course::Releases | Course::Left, _)
                if lapse_left(process, timings.lease_duration, now).is_none() =>
            {
                let in_flight = process.waits_for.is_some();
                // One that was tried may not be tried again.
                let tried = process.asked == Asked::Release && self.is_settling();
                let within = match (in_flight, tried) {
                    (true, _) => release.max(rest),
                    (false, true) => rest,
                    (false, false) => release.min(rest),
                };
                Free { within, runs_out: tried, may_be_renewed: in_flight }
            }
            _ => Free { within: rest, runs_out: true, may_be_renewed: false },
        }
    }

    /// Returns how long a candidate that may have a lease takes to release it.
    pub(super) fn released_within(&self, it: &Node, process: &Process) -> Span {
        let now = it.moment(self.now);
        let timings = &it.plan.timings;
        let timeout = it.waits(timings.request_timeout);
        let publishes = if self.is_settling() { timeout } else { PUBLISHED.min(timeout) };
        let busy = self.busy(it, process);
        let before = match (process.pace.course(), &process.status.standing) {
            (Course::Bids, _) if process.waits_for.is_some() => it.waits(it.period()) + it.trip(3),
            (Course::Bids, _) => it.waits(process.pace.left(now)) + it.trip(3),
            (_, Standing::Draining { began, length, .. }) => {
                let grace = timings.request_timeout * 2;
                it.waits((*length + grace).saturating_sub(began.elapsed_min(now))) + it.trip(2)
            }
            _ => {
                let window = lapse_left(process, timings.lease_duration, now);
                let tried = process.asked == Asked::Release;
                let retried = if tried { it.period() } else { Duration::ZERO };
                it.waits(window.unwrap_or_default().max(retried))
            }
        };
        let unlaunched = if it.workload.is_pending { UNLAUNCHED } else { 0 };
        busy + before.max(unlaunched) + publishes + it.trip(2)
    }
}

/// Returns how long a process waits before it releases the lease that it still has, if that lapsed: the rest
/// of the lease, or of the drain that it lapsed in.
fn lapse_left(process: &Process, lease: Duration, now: Moment) -> Option<Duration> {
    let is_held = |it: LeaseId| Some(it) == process.lease;
    let led = process.lapsed.filter(|it| is_held(it.0));
    let drained = process.lapsed_drain.filter(|it| is_held(it.0));
    let led = led.map(|(_, from)| lease.saturating_sub(from.elapsed_min(now)));
    led.max(drained.map(|(_, began, length)| length.saturating_sub(began.elapsed_min(now))))
}

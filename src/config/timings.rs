//! The rules that relate the timings, and the limits that a store sets on them. A fault shows the
//! numbers and values that would be valid.

use std::time::Duration;

use super::duration::format;
use super::faults::Problem;
use super::values::SHORTEST;

/// The least of `lease-duration − renew-deadline`.
const LEAST_MARGIN: Duration = Duration::from_millis(200);

/// The shortest and the longest finite lease in Azure.
const AZURE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(60));

/// The least retry-period in Google Cloud Storage, which throttles more than about one write of an object in
/// a second.
const GCS_PERIOD: Duration = Duration::from_secs(2);

/// The timings of the election. They must satisfy `renew-deadline ≥ 2 × retry-period +
/// request-timeout`, and leave a tenth of `lease-duration` (at least 200 ms) after
/// `renew-deadline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// From each grant to the expiry of the lease in the store.
    pub lease_duration: Duration,
    /// From the sending of the last granted request until this instance no longer reports active.
    pub renew_deadline: Duration,
    /// The time between renewals of a leader; the mean time between reads of a standby.
    pub retry_period: Duration,
    /// The bound on one request to the store.
    pub request_timeout: Duration,
    /// From the grant until the new leader reports active.
    pub activation_delay: Duration,
}

/// The lease-durations that a store supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limits {
    /// Any.
    None,
    /// Whole seconds from 15 to 60.
    Azure,
    /// Whole seconds.
    Kubernetes,
    /// Any, but no more than one write in two seconds.
    Gcs,
}

/// A rule that the timings break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// The setting to blame.
    pub(super) setting: &'static str,
    /// The other settings that the rule relates it to.
    pub(super) others: Vec<&'static str>,
    /// What is wrong.
    pub(super) problem: Problem,
}

/// Checks the timings as a whole, under `exec` with its stop-timeout.
#[must_use]
pub(super) fn check(timings: &Timings, limits: Limits, stop: Option<Duration>) -> Vec<Broken> {
    let broken = |setting, others: &[&'static str], problem| Broken {
        setting,
        others: others.to_vec(),
        problem,
    };
    let mut all = Vec::new();
    for (name, value) in
        [("retry-period", timings.retry_period), ("request-timeout", timings.request_timeout)]
    {
        if value < SHORTEST {
            let problem = format!("is shorter than {}", format(SHORTEST));
            all.push(broken(name, &[], Problem::new(problem, proposal(timings, limits, stop))));
        }
    }
    if limits == Limits::Gcs && (SHORTEST..GCS_PERIOD).contains(&timings.retry_period) {
        let problem = "is shorter than 2s, and Google Cloud Storage throttles writes of one object beyond about one \
                       in a second";
        all.push(broken(
            "retry-period",
            &[],
            Problem::new(problem, "set retry-period to 2s or more"),
        ));
    }
    let of_store = match limits {
        Limits::None | Limits::Gcs => None,
        Limits::Azure => azure(timings, stop),
        Limits::Kubernetes => kubernetes(timings, stop),
    };
    all.extend(of_store.map(|it| broken("lease-duration", &[], it)));
    if let Some((name, problem)) = renewals(timings, limits, stop) {
        let mut parts = vec!["renew-deadline", "retry-period", "request-timeout"];
        parts.extend(stop.map(|_| "stop-timeout"));
        parts.retain(|it| *it != name);
        all.push(broken(name, &parts, problem));
    }
    let margin = margin(timings, limits, stop);
    all.extend(margin.map(|it| broken("renew-deadline", &["lease-duration"], it)));
    all
}

/// Returns the least renew-deadline: one renewal may fail and, under `exec`, time is left to stop
/// the command.
fn needed(timings: &Timings, stop: Option<Duration>) -> Duration {
    timings.retry_period * 2 + timings.request_timeout + stop.unwrap_or_default()
}

/// Checks `renew-deadline ≥ 2 × retry-period + request-timeout`; under `exec`, of `renew-deadline −
/// stop-timeout`.
fn renewals(
    timings: &Timings,
    limits: Limits,
    stop: Option<Duration>,
) -> Option<(&'static str, Problem)> {
    let needed = needed(timings, stop);
    if timings.renew_deadline >= needed {
        return None;
    }
    let longest = timings.lease_duration.saturating_sub(least_margin(timings.lease_duration));
    let renewals = format!(
        "2 × retry-period + request-timeout = 2 × {} + {}",
        format(timings.retry_period),
        format(timings.request_timeout),
    );
    let room =
        timings.renew_deadline.checked_sub(self::needed(timings, None)).filter(|_| stop.is_some());
    let (name, problem) = match (stop, room) {
        (Some(_), Some(room)) => (
            "stop-timeout",
            format!(
                "leaves {} of renew-deadline, {}; needed are {renewals} = {}, so that one failed \
                 renewal does not end leadership",
                format(timings.renew_deadline.saturating_sub(stop.unwrap_or_default())),
                format(timings.renew_deadline),
                format(timings.renew_deadline.saturating_sub(room)),
            ),
        ),
        _ => {
            let stop = stop.map(|it| format!(" and under exec + stop-timeout, {},", format(it)));
            let problem = format!(
                "is shorter than {renewals}{} = {}, so one failed renewal would end leadership",
                stop.unwrap_or_default(),
                format(needed),
            );
            ("renew-deadline", problem)
        }
    };
    let shorter = room.map(|it| format!("set stop-timeout to at most {}", format(it)));
    let longer = (needed <= longest)
        .then(|| format!("set renew-deadline from {} to {}", format(needed), format(longest)));
    let remedy = match (shorter, longer) {
        (Some(shorter), Some(longer)) => format!("{shorter}, or {longer}"),
        (Some(shorter), None) if room.is_some_and(|it| !it.is_zero()) => shorter,
        (None, Some(longer)) => format!("{longer}, or shorten retry-period or request-timeout"),
        _ => proposal(timings, limits, stop),
    };
    Some((name, Problem::new(problem, remedy)))
}

/// Checks `lease-duration − renew-deadline`, the margin for clock drift and pauses.
fn margin(timings: &Timings, limits: Limits, stop: Option<Duration>) -> Option<Problem> {
    let least = least_margin(timings.lease_duration);
    if timings
        .lease_duration
        .checked_sub(timings.renew_deadline)
        .is_some_and(|margin| margin >= least)
    {
        return None;
    }
    let problem = if timings.renew_deadline >= timings.lease_duration {
        format!("is not shorter than lease-duration, {}", format(timings.lease_duration))
    } else {
        format!(
            "leaves {} to the end of lease-duration, {}; needed are {} (a tenth, and 200ms)",
            format(timings.lease_duration.saturating_sub(timings.renew_deadline)),
            format(timings.lease_duration),
            format(least),
        )
    };
    let longest = timings.lease_duration.saturating_sub(least);
    let remedy = if needed(timings, stop) <= longest {
        let lease = shortest_lease(timings.renew_deadline, limits);
        let or = match limits {
            Limits::Azure if lease > AZURE.1 => String::new(),
            Limits::Azure | Limits::Kubernetes | Limits::Gcs | Limits::None => {
                format!(", or lease-duration to at least {}", format(lease))
            }
        };
        format!("set renew-deadline to at most {}{or}", format(longest))
    } else {
        proposal(timings, limits, stop)
    };
    Some(Problem::new(problem, remedy))
}

/// Checks the lease-duration of a Lease, which counts whole seconds.
fn kubernetes(timings: &Timings, stop: Option<Duration>) -> Option<Problem> {
    let (lease, second) = (timings.lease_duration, Duration::from_secs(1));
    let problem = if lease < second {
        "is shorter than 1s, the minimum of a Lease in Kubernetes"
    } else if lease.subsec_nanos() > 0 {
        "is not a whole number of seconds, which a Lease in Kubernetes requires"
    } else {
        return None;
    };
    let down = Duration::from_secs(lease.as_secs()).max(second);
    let leases = [down, down + second];
    Some(Problem::new(problem, nearest(timings, leases, Limits::Kubernetes, stop)))
}

fn azure(timings: &Timings, stop: Option<Duration>) -> Option<Problem> {
    let lease = timings.lease_duration;
    let (shortest, longest) = AZURE;
    let whole = lease.subsec_nanos() == 0;
    if (shortest..=longest).contains(&lease) && whole {
        return None;
    }
    let problem = if whole || lease < shortest || lease > longest {
        "is outside the 15s to 60s that Azure allows"
    } else {
        "is not a whole number of seconds, which Azure requires"
    };
    let down = Duration::from_secs(lease.as_secs()).clamp(shortest, longest);
    let up = Duration::from_secs(lease.as_secs() + 1).clamp(shortest, longest);
    Some(Problem::new(problem, nearest(timings, [down, up], Limits::Azure, stop)))
}

/// Returns the remedy for an unsupported lease-duration: the first of `leases` that is valid with
/// the other timings, if one is.
fn nearest(
    timings: &Timings,
    leases: [Duration; 2],
    limits: Limits,
    stop: Option<Duration>,
) -> String {
    let fits = |lease: &Duration| {
        check(&Timings { lease_duration: *lease, ..*timings }, limits, stop).is_empty()
    };
    match leases.into_iter().find(fits) {
        Some(nearest) => format!("set lease-duration to {}", format(nearest)),
        None => proposal(timings, limits, stop),
    }
}

fn least_margin(lease: Duration) -> Duration {
    (lease / 10).max(LEAST_MARGIN)
}

/// Returns the shortest lease-duration that leaves the margin after this deadline.
fn shortest_lease(deadline: Duration, limits: Limits) -> Duration {
    let exact = (deadline + LEAST_MARGIN).max(deadline * 10 / 9);
    let up = Duration::from_secs(exact.as_secs() + u64::from(exact.subsec_nanos() > 0));
    // Rounded up to whole seconds if the store requires it, or if the lease is long enough for the
    // difference not to matter.
    let whole = !matches!(limits, Limits::None | Limits::Gcs) || exact >= Duration::from_secs(2);
    if whole { up } else { exact + Duration::from_millis(1) }
}

/// Proposes timings that are valid together, in the proportions of the defaults.
fn proposal(timings: &Timings, limits: Limits, stop: Option<Duration>) -> String {
    let lease = match limits {
        Limits::None => timings.lease_duration.max(SHORTEST * 100),
        // With the proportions of the defaults, the retry-period is 2 s.
        Limits::Gcs => timings.lease_duration.max(GCS_PERIOD * 15 / 2),
        Limits::Kubernetes => Duration::from_secs(timings.lease_duration.as_secs().max(1)),
        Limits::Azure => {
            Duration::from_secs(timings.lease_duration.clamp(AZURE.0, AZURE.1).as_secs())
        }
    };
    let part = |of: u32| {
        let ms = u64::try_from((lease * of / 15).as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(if ms > 1_000 { ms / 100 * 100 } else { ms / 10 * 10 })
    };
    let times = format!(
        "set, for instance, lease-duration to {}, renew-deadline to {}, retry-period to {}",
        format(lease),
        format(part(10)),
        format(part(2)),
    );
    match stop {
        None => format!("{times} and request-timeout to {}", format(part(2))),
        // Three of the four parts that remain for it, to leave room for rounding.
        Some(_) => format!(
            "{times}, request-timeout to {} and stop-timeout to {}",
            format(part(2)),
            format(part(3)),
        ),
    }
}

#[cfg(test)]
mod tests;

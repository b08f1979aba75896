//! The rule that binds the timings, and the limits that a store sets on them.
//!
//! What it does not do: it mends nothing. It says with numbers what is wrong, and which values
//! would be valid.

use std::time::Duration;

use super::Timings;
use super::duration::format;
use super::faults::Problem;

/// The shortest period and time-out: below, the loop does nothing but ask.
const SHORTEST: Duration = Duration::from_millis(10);

/// The least distance from belief's end to the lease's end.
const LEAST_MARGIN: Duration = Duration::from_millis(200);

/// Shortest and longest lease of Azure's that has an end.
const AZURE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(60));

/// The lease-durations that a store takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limits {
    /// Any.
    None,
    /// Whole seconds from 15 to 60.
    Azure,
}

/// Checks the timings as a whole; each problem comes with the setting that it is most about.
#[must_use]
pub(super) fn check(timings: &Timings, limits: Limits) -> Vec<(&'static str, Problem)> {
    let mut problems = Vec::new();
    for (name, value) in
        [("retry-period", timings.retry_period), ("request-timeout", timings.request_timeout)]
    {
        if value < SHORTEST {
            let problem = format!("is shorter than {}", format(SHORTEST));
            problems.push((name, Problem::new(problem, proposal(timings, limits))));
        }
    }
    if limits == Limits::Azure {
        problems.extend(azure(timings).map(|it| ("lease-duration", it)));
    }
    problems.extend(renewals(timings, limits).map(|it| ("renew-deadline", it)));
    problems.extend(margin(timings, limits).map(|it| ("renew-deadline", it)));
    problems
}

/// `renew-deadline ≥ 2 × retry-period + request-timeout`: one renewal may fail.
fn renewals(it: &Timings, limits: Limits) -> Option<Problem> {
    let needed = it.retry_period * 2 + it.request_timeout;
    if it.renew_deadline >= needed {
        return None;
    }
    let problem = format!(
        "is shorter than 2 × retry-period + request-timeout = 2 × {} + {} = {}, so that one \
         renewal that fails would cost the lead",
        format(it.retry_period),
        format(it.request_timeout),
        format(needed),
    );
    let longest = it.lease_duration.saturating_sub(least_margin(it.lease_duration));
    let remedy = if needed <= longest {
        format!(
            "set renew-deadline from {} to {}, or shorten retry-period or request-timeout",
            format(needed),
            format(longest),
        )
    } else {
        proposal(it, limits)
    };
    Some(Problem::new(problem, remedy))
}

/// `lease-duration − renew-deadline` is what drift and pauses may eat.
fn margin(it: &Timings, limits: Limits) -> Option<Problem> {
    let least = least_margin(it.lease_duration);
    if it.lease_duration.checked_sub(it.renew_deadline).is_some_and(|margin| margin >= least) {
        return None;
    }
    let problem = if it.renew_deadline >= it.lease_duration {
        format!("is not shorter than lease-duration, {}", format(it.lease_duration))
    } else {
        format!(
            "leaves {} to the end of lease-duration, {}; needed are {} (a tenth, and 200ms)",
            format(it.lease_duration.saturating_sub(it.renew_deadline)),
            format(it.lease_duration),
            format(least),
        )
    };
    let longest = it.lease_duration.saturating_sub(least);
    let remedy = if it.retry_period * 2 + it.request_timeout <= longest {
        let lease = shortest_lease(it.renew_deadline);
        let or = match limits {
            Limits::Azure if lease > AZURE.1 => String::new(),
            Limits::Azure | Limits::None => {
                format!(", or lease-duration to at least {}", format(lease))
            }
        };
        format!("set renew-deadline to at most {}{or}", format(longest))
    } else {
        proposal(it, limits)
    };
    Some(Problem::new(problem, remedy))
}

fn azure(it: &Timings) -> Option<Problem> {
    let lease = it.lease_duration;
    let (shortest, longest) = AZURE;
    let whole = lease.subsec_nanos() == 0;
    if (shortest..=longest).contains(&lease) && whole {
        return None;
    }
    let (problem, nearest) = if whole || lease < shortest || lease > longest {
        ("is outside of the 15s to 60s that Azure allows", lease.clamp(shortest, longest))
    } else {
        ("is no whole number of seconds, as Azure wants it", Duration::from_secs(lease.as_secs()))
    };
    Some(Problem::new(
        problem,
        format!(
            "set lease-duration to {}, or to any whole number of seconds from 15s to 60s",
            format(nearest)
        ),
    ))
}

fn least_margin(lease: Duration) -> Duration {
    (lease / 10).max(LEAST_MARGIN)
}

/// The shortest lease in whole seconds that leaves the margin after this deadline.
fn shortest_lease(deadline: Duration) -> Duration {
    let exact = (deadline + LEAST_MARGIN).max(deadline * 10 / 9);
    let up = Duration::from_secs(exact.as_secs() + u64::from(exact.subsec_nanos() > 0));
    // Only long leases have room for rounding up that nobody minds.
    if exact < Duration::from_secs(2) { exact + Duration::from_millis(1) } else { up }
}

/// Timings that are valid together, in the proportions of the defaults.
fn proposal(it: &Timings, limits: Limits) -> String {
    let lease = match limits {
        Limits::None => it.lease_duration.max(SHORTEST * 100),
        Limits::Azure => Duration::from_secs(it.lease_duration.clamp(AZURE.0, AZURE.1).as_secs()),
    };
    let part = |of: u32| {
        let ms = u64::try_from((lease * of / 15).as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(if ms > 1_000 { ms / 100 * 100 } else { ms / 10 * 10 })
    };
    format!(
        "set, for instance, lease-duration to {}, renew-deadline to {}, retry-period to {} and \
         request-timeout to {}",
        format(lease),
        format(part(10)),
        format(part(2)),
        format(part(2)),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::duration::parse;
    use super::*;

    fn timings(lease: &str, deadline: &str, retry: &str, timeout: &str) -> Timings {
        let parse = |text| parse(text).unwrap();
        Timings {
            lease_duration: parse(lease),
            renew_deadline: parse(deadline),
            retry_period: parse(retry),
            request_timeout: parse(timeout),
            activation_delay: Duration::ZERO,
        }
    }

    #[test]
    fn the_documented_profiles_are_valid_everywhere() {
        for (lease, deadline, retry) in
            [("15s", "10s", "2s"), ("30s", "20s", "4s"), ("60s", "28s", "5s")]
        {
            let timings = timings(lease, deadline, retry, "2s");
            assert_eq!(check(&timings, Limits::None), []);
            assert_eq!(check(&timings, Limits::Azure), []);
        }
    }

    #[test]
    fn the_bounds_of_the_rule_are_exact() {
        assert_eq!(check(&timings("15s", "6s", "2s", "2s"), Limits::None), []);
        assert_eq!(check(&timings("15s", "13s500ms", "2s", "2s"), Limits::None), []);
        assert_eq!(check(&timings("1s", "800ms", "100ms", "100ms"), Limits::None), []);
        for (it, words) in [
            (timings("15s", "5s999ms", "2s", "2s"), "2 × 2s + 2s = 6s"),
            (timings("15s", "13s501ms", "2s", "2s"), "leaves 1s499ms"),
            (timings("1s", "801ms", "100ms", "100ms"), "needed are 200ms"),
            (timings("10s", "10s", "2s", "2s"), "not shorter than lease-duration, 10s"),
            (timings("15s", "10s", "9ms", "2s"), "shorter than 10ms"),
        ] {
            let problems = check(&it, Limits::None);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].1.problem.contains(words), "{problems:?}");
        }
    }

    #[test]
    fn azure_wants_whole_seconds_from_15_to_60() {
        for (lease, nearest) in [("14s", "15s"), ("61s", "1m"), ("15s500ms", "15s,"), ("5m", "1m")]
        {
            let it = timings(lease, "10s", "2s", "2s");
            let problems = check(&it, Limits::Azure);
            assert_eq!(problems.len(), 1, "{lease}: {problems:?}");
            assert!(problems[0].1.remedy.contains(nearest), "{problems:?}");
            assert_eq!(check(&it, Limits::None), []);
        }
    }

    #[test]
    fn the_remedies_name_values_that_are_valid() {
        let (name, problem) = check(&timings("5s", "10s", "2s", "2s"), Limits::None).remove(0);
        assert_eq!(name, "renew-deadline");
        assert!(problem.remedy.contains("renew-deadline to 3s300ms"), "{problem:?}");
        assert_eq!(check(&timings("5s", "3s300ms", "660ms", "660ms"), Limits::None), []);
    }

    proptest! {
        #[test]
        fn every_proposal_is_valid(
            lease in 0_u64..100_000, deadline in 0_u64..100_000,
            retry in 0_u64..50_000, timeout in 0_u64..50_000, azure: bool,
        ) {
            let ms = Duration::from_millis;
            let limits = if azure { Limits::Azure } else { Limits::None };
            let it = Timings {
                lease_duration: ms(lease), renew_deadline: ms(deadline), retry_period: ms(retry),
                request_timeout: ms(timeout), activation_delay: ms(0),
            };
            let text = proposal(&it, limits);
            let words: Vec<Duration> =
                text.split([' ', ',']).filter_map(|word| parse(word).ok()).collect();
            let [lease, deadline, retry, timeout] = words[..] else { panic!("{text}") };
            let proposed = Timings {
                lease_duration: lease, renew_deadline: deadline, retry_period: retry,
                request_timeout: timeout, activation_delay: ms(0),
            };
            prop_assert_eq!(check(&proposed, limits), vec![], "{}", text);
            // And a lease that a remedy calls long enough is.
            let mended = Timings { lease_duration: shortest_lease(it.renew_deadline), ..it };
            prop_assert!(margin(&mended, Limits::None).is_none());
        }
    }
}

//! Tests of the rules of the timings: bounds, and remedies that are valid themselves.

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
        assert_eq!(check(&timings, Limits::None, None), []);
        assert_eq!(check(&timings, Limits::Azure, None), []);
        assert_eq!(check(&timings, Limits::Kubernetes, None), []);
    }
}

#[test]
fn the_bounds_of_the_rule_are_exact() {
    assert_eq!(check(&timings("15s", "6s", "2s", "2s"), Limits::None, None), []);
    assert_eq!(check(&timings("15s", "13.5s", "2s", "2s"), Limits::None, None), []);
    assert_eq!(check(&timings("1s", "800ms", "100ms", "100ms"), Limits::None, None), []);
    for (it, words) in [
        (timings("15s", "5s999ms", "2s", "2s"), "2 × 2s + 2s = 6s"),
        (timings("15s", "13s501ms", "2s", "2s"), "leaves 1.499s"),
        (timings("1s", "801ms", "100ms", "100ms"), "needed are 200ms"),
        (timings("10s", "10s", "2s", "2s"), "not shorter than lease-duration, 10s"),
        (timings("15s", "10s", "9ms", "2s"), "shorter than 10ms"),
    ] {
        let problems = check(&it, Limits::None, None);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].problem.problem.contains(words), "{problems:?}");
    }
}

#[test]
fn azure_requires_whole_seconds_from_15_to_60() {
    for (lease, nearest) in [("14s", "15s"), ("61s", "1m"), ("15s500ms", "to 15s"), ("5m", "1m")] {
        let it = timings(lease, "10s", "2s", "2s");
        let problems = check(&it, Limits::Azure, None);
        assert_eq!(problems.len(), 1, "{lease}: {problems:?}");
        assert!(problems[0].problem.remedy.contains(nearest), "{problems:?}");
        assert_eq!(check(&it, Limits::None, None), []);
    }
}

#[test]
fn the_remedies_name_values_that_are_valid() {
    let Broken { setting, problem, .. } =
        check(&timings("5s", "10s", "2s", "2s"), Limits::None, None).remove(0);
    assert_eq!(setting, "renew-deadline");
    assert!(problem.remedy.contains("renew-deadline to 3.3s"), "{problem:?}");
    assert_eq!(check(&timings("5s", "3.3s", "660ms", "660ms"), Limits::None, None), []);
}

#[test]
fn under_exec_time_is_left_to_stop_the_command() {
    let stop = |text| Some(parse(text).unwrap());
    let usual = timings("15s", "10s", "2s", "2s");
    for fits in ["0s", "3s", "4s"] {
        assert_eq!(check(&usual, Limits::Azure, stop(fits)), [], "{fits}");
    }
    for (it, long, name, words, remedies) in [
        (
            usual,
            "4s1ms",
            "stop-timeout",
            "leaves 5.999s of renew-deadline, 10s; needed are 2 × retry-period + \
             request-timeout = 2 × 2s + 2s = 6s",
            "stop-timeout to at most 4s, or set renew-deadline from 10.001s to 13.5s",
        ),
        (usual, "20s", "stop-timeout", "leaves 0s", "set stop-timeout to at most 4s"),
        (timings("15s", "6s", "2s", "2s"), "9s", "stop-timeout", "leaves 0s", "stop-timeout to 3s"),
        (
            timings("15s", "5s", "2s", "2s"),
            "3s",
            "renew-deadline",
            "2 × 2s + 2s and under exec + stop-timeout, 3s, = 9s",
            "renew-deadline from 9s to 13.5s",
        ),
    ] {
        let problems = check(&it, Limits::Azure, stop(long));
        let [Broken { setting, problem, .. }] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!(*setting, name);
        assert!(problem.problem.contains(words), "{problem:?}");
        assert!(problem.remedy.ends_with(remedies) || problem.remedy.contains(remedies));
    }
}

/// Extracts the timings that a remedy names: one for each alternative, two for a range.
fn remedied(
    remedy: &str,
    it: &Timings,
    stop: Option<Duration>,
) -> Vec<(Timings, Option<Duration>)> {
    let mut all = Vec::new();
    for alternative in remedy.split(", or ") {
        let (mut first, mut last) = ((*it, stop), (*it, stop));
        let mut name = "";
        let mut values = 0;
        for word in alternative.split([' ', ',']) {
            match parse(word) {
                Ok(value) => {
                    values += 1;
                    let both = if values == 2 && alternative.contains(" from ") {
                        vec![&mut last]
                    } else {
                        vec![&mut first, &mut last]
                    };
                    for (timings, stop) in both {
                        match name {
                            "lease-duration" => timings.lease_duration = value,
                            "renew-deadline" => timings.renew_deadline = value,
                            "retry-period" => timings.retry_period = value,
                            "request-timeout" => timings.request_timeout = value,
                            "stop-timeout" => *stop = Some(value),
                            other => panic!("{other} in {remedy}"),
                        }
                    }
                }
                Err(_) if word.contains('-') => name = word,
                Err(_) => {}
            }
        }
        if values > 0 {
            all.extend([first, last]);
        }
    }
    all
}

proptest! {
    #[test]
    fn every_proposal_and_every_remedy_is_valid(
        lease in 0_u64..100_000, deadline in 0_u64..100_000, retry in 0_u64..50_000,
        timeout in 0_u64..50_000, stop in proptest::option::of(0_u64..80_000),
        scale in 1_u64..20,
        limits in prop::sample::select(vec![Limits::None, Limits::Azure, Limits::Kubernetes]),
    ) {
        let ms = |it: u64| Duration::from_millis(it / scale);
        let it = Timings {
            lease_duration: ms(lease), renew_deadline: ms(deadline), retry_period: ms(retry),
            request_timeout: ms(timeout), activation_delay: ms(0),
        };
        let stop = stop.map(ms);
        let text = proposal(&it, limits, stop);
        for (timings, stop) in remedied(&text, &it, stop) {
            prop_assert_eq!(check(&timings, limits, stop), vec![], "{}", text);
        }
        // The remedy of a single fault corrects it.
        if let [Broken { problem, .. }] = &check(&it, limits, stop)[..] {
            for (timings, stop) in remedied(&problem.remedy, &it, stop) {
                prop_assert_eq!(check(&timings, limits, stop), vec![], "{:?}", problem);
            }
        }
    }
}

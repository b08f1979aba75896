//! The settings that the simulator draws: accepted by `tenure run`, and over the whole range of what is.

use std::time::Duration;

use simulator::scenario::{NodePlan, Scenario};
use simulator::settings::Timings;
use simulator::store::Kind;
use tenure::config::{self, Environment, Flags, Verb, duration};

/// The candidates of many episodes, with their stores.
fn drawn(episodes: u64) -> impl Iterator<Item = (Kind, NodePlan)> {
    let scenarios = (0..episodes).map(Scenario::draw);
    scenarios.flat_map(|it| it.nodes.clone().into_iter().map(move |node| (it.store, node)))
}

fn settings(episodes: u64) -> impl Iterator<Item = (Kind, Timings)> {
    drawn(episodes).flat_map(|(kind, it)| it.settings().map(|timings| (kind, timings)))
}

#[test]
fn drawn_settings_are_accepted() {
    let environment = Environment::of(Vec::<(String, String)>::new());
    for (kind, timings) in settings(300) {
        let mut flags = Flags::from([("store", vec!["memory:".to_owned()])]);
        for (name, value) in [
            ("lease-duration", timings.lease_duration),
            ("renew-deadline", timings.renew_deadline),
            ("retry-period", timings.retry_period),
            ("request-timeout", timings.request_timeout),
            ("activation-delay", timings.activation_delay),
            ("drain-timeout", timings.drain_timeout),
        ] {
            flags.insert(name, vec![duration::format(value)]);
        }
        if let Err(faults) = config::load(&flags, &environment, Verb::Run) {
            panic!("{timings:?}: {faults}");
        }
        let lease = timings.lease_duration;
        let is_whole = lease.subsec_nanos() == 0;
        match kind {
            Kind::Blob => assert!(is_whole && (15..=60).contains(&lease.as_secs()), "{lease:?}"),
            Kind::Host | Kind::Register(_) => {}
        }
    }
}

#[test]
fn drawn_settings_reach_the_bounds() {
    let ms = Duration::from_millis;
    let some = |what: &str, is_it: &dyn Fn(Kind, Timings) -> bool| {
        let count = settings(2_000).filter(|(kind, it)| is_it(*kind, *it)).count();
        assert!(count > 20, "{what}: {count}");
    };
    some("the shortest lease", &|_, it| it.lease_duration == ms(230));
    some("a long lease", &|_, it| it.lease_duration > ms(300_000));
    some("the shortest retry-period", &|_, it| it.retry_period == ms(10));
    some("the shortest request-timeout", &|_, it| it.request_timeout == ms(10));
    some("the longest request-timeout", &|_, it| it.request_timeout * 2 > it.lease_duration);
    some("no room for another retry", &|_, it| {
        it.renew_deadline - it.retry_period * 2 - it.request_timeout < ms(3)
    });
    some("the least margin", &|_, it| {
        it.lease_duration - it.renew_deadline <= (it.lease_duration / 10).max(ms(200)) + ms(1)
    });
    some("a drain longer than the lease", &|_, it| it.drain_timeout > it.lease_duration);
    some("an activation longer than the lease", &|_, it| it.activation_delay > it.lease_duration);
    let wrong = drawn(200).filter(|(_, it)| it.wall_ahead.abs() > 3_600_000_000_000).count();
    let restarted = drawn(200).filter(|(_, it)| it.restarted.is_some()).count();
    assert!(wrong > 50 && restarted > 50, "{wrong} wall clocks, {restarted} other settings");
}

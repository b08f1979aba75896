//! Warnings about settings that are valid but may not do what was intended. Settings that are
//! unsafe or cannot work are faults instead.

use std::net::IpAddr;
use std::time::Duration;

use super::duration;
use super::environment::Environment;
use super::faults::Warning;
use super::health::Probe;
use super::settings::{Settings, StoreSettings};
use super::shutdown_budget::Ending;
use super::table::Verb;
use super::variables;

/// The default of Kubernetes' `terminationGracePeriodSeconds`, in seconds.
const KUBERNETES: u64 = 30;

/// The default of systemd's `TimeoutStopSec`, in seconds.
const SYSTEMD: u64 = 90;

/// Returns all warnings about valid settings.
#[must_use]
pub(super) fn of(settings: &Settings, environment: &Environment, verb: Verb) -> Vec<Warning> {
    [
        drain_hook(settings),
        short_drain(settings, verb),
        own_probe(settings, verb),
        open_peers(settings),
        shutdown(settings, environment),
        short_lease(settings),
    ]
    .into_iter()
    .flatten()
    .chain(variables::warnings(&settings.store, environment))
    .collect()
}

/// Warns of a drain hook that may still run when the drain is over.
fn drain_hook(settings: &Settings) -> Option<Warning> {
    let (drain, hook) = (settings.drain_timeout, settings.hooks.timeout);
    settings.hooks.on_drain.as_ref().filter(|_| hook > drain)?;
    Some(Warning {
        subject: "on-drain",
        problem: format!(
            "it may run for hook-timeout, {}, but the lease is released after drain-timeout, {}: \
             the rest of its work would run while another instance may lead",
            duration::format(hook),
            duration::format(drain)
        ),
        remedy: format!("set drain-timeout to at least {}", duration::format(hook)),
    })
}

/// Warns of a command that has less time to stop in a graceful handover than when renewals fail.
fn short_drain(settings: &Settings, verb: Verb) -> Option<Warning> {
    let (drain, stop) = (settings.drain_timeout, settings.stop_timeout);
    if verb == Verb::Run || drain >= stop {
        return None;
    }
    Some(Warning {
        subject: "drain-timeout",
        problem: format!(
            "a graceful shutdown leaves the command {} between SIGTERM and SIGKILL, less than \
             stop-timeout, {}, when renewals fail",
            duration::format(drain),
            duration::format(stop)
        ),
        remedy: format!("set drain-timeout to at least {}", duration::format(stop)),
    })
}

/// Warns of a probe of this host under `exec`, where the command starts only after the probe
/// succeeds.
fn own_probe(settings: &Settings, verb: Verb) -> Option<Warning> {
    let here = |host: &str| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let address = host.parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|it| it.is_loopback())
    };
    let asks_here = |it: &&Probe| match it {
        Probe::Http(url) => url.host_str().is_some_and(here),
        Probe::Tcp { host, .. } => here(host),
        Probe::File { .. } | Probe::Exec(_) => false,
    };
    let probe = settings.health.probes.iter().find(asks_here).filter(|_| verb == Verb::Exec)?;
    Some(Warning {
        subject: "health",
        problem: format!(
            "{probe} must succeed before the command is started: if the command itself answers \
             it, the command is never started"
        ),
        remedy: "probe what the command needs; its exit is noticed without a probe".to_owned(),
    })
}

/// Warns of handovers to candidates that need no certificate.
fn open_peers(settings: &Settings) -> Option<Warning> {
    let has_authorities = settings.tls.as_ref().is_some_and(|it| it.client_ca.is_some());
    if settings.peers.is_none() || settings.rank.preempt_after.is_none() || has_authorities {
        return None;
    }
    Some(Warning {
        subject: "preempt-after",
        problem: "candidates need no certificate, since tls-client-ca is not set: whoever can read the \
                  store's record, or repeats a request that was seen on the network, can bring about a \
                  handover, at most once in ten minutes"
            .to_owned(),
        remedy: "set tls-cert, tls-key and tls-client-ca on all candidates".to_owned(),
    })
}

/// Warns of a shutdown that takes longer than the default grace period of Kubernetes or systemd.
fn shutdown(settings: &Settings, environment: &Environment) -> Option<Warning> {
    let ending = Ending::of(settings);
    let (who, waits, setting) = if environment.in_kubernetes() {
        ("Kubernetes", KUBERNETES, format!("terminationGracePeriodSeconds: {}", ending.seconds()))
    } else if environment.under_systemd() {
        ("systemd", SYSTEMD, format!("TimeoutStopSec={}", ending.seconds()))
    } else {
        return None;
    };
    if ending.seconds() <= waits {
        return None;
    }
    Some(Warning {
        subject: "shutdown",
        problem: format!(
            "{who} sends SIGKILL {waits}s after SIGTERM by default, and shutdown may take {ending}"
        ),
        remedy: format!("set {setting}, or more"),
    })
}

/// Warns of a lease that may end while the servers of a store elect a leader of their own.
fn short_lease(settings: &Settings) -> Option<Warning> {
    let (servers, seconds) = match settings.store {
        StoreSettings::Etcd(_) => ("etcd", 3),
        StoreSettings::Consul(_) => ("Consul", 10),
        StoreSettings::Zookeeper(_) => ("ZooKeeper", 10),
        _ => return None,
    };
    let (lease, least) = (settings.timings.lease_duration, Duration::from_secs(seconds));
    (lease < least).then(|| Warning {
        subject: "lease-duration",
        problem: format!(
            "{} is shorter than {}: with the defaults of {servers}, leadership is lost whenever its servers elect \
             another leader of their own",
            duration::format(lease),
            duration::format(least)
        ),
        remedy: format!(
            "set lease-duration to at least {}, or shorten the election time-out of {servers}",
            duration::format(least)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Flags, load};
    use super::*;

    fn warnings(verb: Verb, flags: &[(&'static str, &str)], variable: &str) -> Vec<Warning> {
        let flags: Flags =
            flags.iter().map(|(name, value)| (*name, vec![(*value).to_owned()])).collect();
        let surroundings = Environment::of([(variable, "x"), ("TENURE_STORE", "memory:")]);
        load(&flags, &surroundings, verb).unwrap().warnings
    }

    #[test]
    fn the_defaults_cause_no_warning() {
        for verb in [Verb::Run, Verb::Exec] {
            for variable in ["A", "KUBERNETES_SERVICE_HOST", "INVOCATION_ID"] {
                assert_eq!(warnings(verb, &[], variable), []);
            }
        }
    }

    #[test]
    fn a_hook_of_the_drain_should_fit_into_the_drain() {
        let of = |drain| warnings(Verb::Run, &[("on-drain", "sh"), ("drain-timeout", drain)], "A");
        assert_eq!(of("10s"), []);
        let found = of("9.999s");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].problem.contains("hook-timeout, 10s"), "{found:?}");
        assert_eq!(found[0].remedy, "set drain-timeout to at least 10s");
        assert_eq!(warnings(Verb::Run, &[("on-active", "sh")], "A"), []);
    }

    #[test]
    fn a_graceful_shutdown_should_not_be_shorter_than_a_forced_one() {
        assert_eq!(warnings(Verb::Exec, &[("drain-timeout", "3s")], "A"), []);
        let found = warnings(Verb::Exec, &[("drain-timeout", "1s")], "A");
        assert!(found[0].problem.contains("leaves the command 1s"), "{found:?}");
        assert_eq!(warnings(Verb::Run, &[("drain-timeout", "1s")], "A"), []);
    }

    #[test]
    fn a_probe_of_what_may_be_the_command_itself_is_warned_of() {
        for (probe, warned) in [
            ("http://127.0.0.1:8080/healthz", true),
            ("http://[::1]:8080/", true),
            ("tcp://localhost:5432", true),
            ("tcp://database:5432", false),
            ("https://example.org/", false),
            ("file:/run/ready", false),
        ] {
            let found = warnings(Verb::Exec, &[("health", probe)], "A");
            assert_eq!(found.iter().any(|it| it.problem.contains(probe)), warned, "{found:?}");
            assert_eq!(warnings(Verb::Run, &[("health", probe)], "A"), []);
        }
    }

    #[test]
    fn handovers_to_candidates_without_a_certificate_are_warned_of() {
        let peers = [("peers", "on"), ("peer-address", "127.0.0.1:4040")];
        let found = warnings(Verb::Run, &[&peers[..], &[("preempt-after", "30s")]].concat(), "A");
        assert!(found.iter().any(|it| it.remedy.contains("tls-client-ca")), "{found:?}");
        assert_eq!(warnings(Verb::Run, &peers, "A"), []);
        let directory = tempfile::tempdir().unwrap();
        let (own, ca) = crate::tls::testing::write(directory.path(), "web", 4_000);
        let [cert, key, ca] = [&own.cert, &own.key, &ca].map(|it| it.to_str().unwrap());
        let address = ("listen", "192.0.2.1:4040");
        let tls = [address, ("tls-cert", cert), ("tls-key", key), ("tls-client-ca", ca)];
        let all = [&peers[..], &tls, &[("preempt-after", "30s")]].concat();
        assert_eq!(warnings(Verb::Run, &all, "A"), []);
        let all = [&peers[..], &tls[..3], &[("preempt-after", "30s")]].concat();
        assert_eq!(warnings(Verb::Run, &all, "A").len(), 1);
    }

    #[test]
    fn a_shutdown_longer_than_the_default_grace_is_warned_of_with_its_sum() {
        // 2 × 2s and 1s are added to the drain-timeout.
        let of = |drain, variable| warnings(Verb::Run, &[("drain-timeout", drain)], variable);
        assert_eq!(of("25s", "KUBERNETES_SERVICE_HOST"), []);
        let found = of("25.001s", "KUBERNETES_SERVICE_HOST");
        let words = "31s = drain-timeout 25.001s + 2 × request-timeout 2s + 1s";
        assert!(found[0].problem.contains(words), "{found:?}");
        assert_eq!(found[0].remedy, "set terminationGracePeriodSeconds: 31, or more");
        assert_eq!(of("85s", "INVOCATION_ID"), []);
        assert_eq!(of("86s", "INVOCATION_ID")[0].remedy, "set TimeoutStopSec=91, or more");
        assert_eq!(of("86s", "A"), []);
    }

    #[test]
    fn hooks_that_a_shutdown_runs_take_their_time() {
        for (hook, seconds) in
            [("on-active", 18), ("on-passive", 29), ("on-drain", 29), ("on-leader-change", 29)]
        {
            let flags = Flags::from([
                (hook, vec!["sh".to_owned()]),
                ("drain-timeout", vec!["2s".to_owned()]),
            ]);
            let settings = load(&flags, &Environment::of([("A", "")]), Verb::Run).unwrap().settings;
            assert_eq!(Ending::of(&settings).seconds(), seconds, "{hook}");
        }
    }
}

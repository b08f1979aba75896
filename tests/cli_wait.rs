//! `tenure wait` as a user meets it, against a sidecar that serves the documented status.
#![allow(clippy::disallowed_methods, reason = "tests wait on real processes, by the real clock")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/command.rs"]
mod command;
#[path = "support/sidecar.rs"]
mod sidecar;

use std::io::{BufRead, BufReader};

use command::{Running, tenure};
use sidecar::Sidecar;

#[test]
fn wait_ends_when_it_is_so_and_with_1_when_the_time_is_up() {
    let sidecar = Sidecar::start();
    let url = sidecar.url();
    assert_eq!(tenure(&["wait", "--for", "passive", "--url", &url], &[]).code, 0);

    let ran = tenure(&["wait", "--for", "active", "--timeout", "100ms", "--url", &url], &[]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("not active within 100ms; last: passive, standby"), "{}", ran.err);

    let polls = sidecar.count("/watch?index=");
    let waiting = Running::start(&["wait", "--for", "active", "--url", &url], &[]);
    sidecar.wait_for("/watch?index=1");
    sidecar.say("active", "leader", Some(42), 60_000);
    assert_eq!(waiting.end().code, 0);
    assert!(sidecar.count("/watch?index=") <= polls + 1, "by one long poll, and not by asking on");

    let waiting = Running::start(&["wait", "--for", "passive", "--url", &url], &[]);
    sidecar.wait_for("/watch?index=2");
    sidecar.say("passive", "standby", None, 0);
    assert_eq!(waiting.end().code, 0);
}

#[test]
fn wait_survives_a_sidecar_that_is_not_up_yet_or_restarts() {
    let sidecar = Sidecar::start();
    let (address, url) = (sidecar.address, sidecar.url());
    drop(sidecar);
    let mut waiting = Running::start(&["wait", "--for", "active", "--url", &url], &[]);
    let mut err = BufReader::new(waiting.0.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    assert!(line.contains("nothing answers"), "{line}");

    let sidecar = Sidecar::start_at(address);
    sidecar.wait_for("/watch?index=");
    drop(sidecar);
    let sidecar = Sidecar::start_at(address);
    sidecar.say("active", "leader", Some(43), 60_000);
    let status = waiting.0.wait().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn wait_pauses_between_polls_that_end_at_once() {
    let sidecar = Sidecar::start();
    sidecar.end_polls_at_once();
    let url = sidecar.url();
    let ran = tenure(&["wait", "--for", "active", "--timeout", "2s", "--url", &url], &[]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    // Four a second, at most.
    let polls = sidecar.count("/watch?index=");
    assert!((1..=9).contains(&polls), "{polls} polls in 2 s");
}

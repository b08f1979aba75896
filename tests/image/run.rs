//! The image in containers without privileges: it leads, answers requests, resolves names, trusts
//! the certificates of its own file, and releases the lease on SIGTERM.

use testkit::faults::{resolver, tls_front};
use testkit::processes::sidecar;
use testkit::tools::{containers, image};

use std::net::Ipv4Addr;
use std::process::Output;
use std::time::Duration;

use containers::{Engine, Started, TIGHT, until};
use image::image;
use resolver::{Reply, Resolver};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use sidecar::Sidecar;
use tls_front::{Authority, TlsFront};

/// Timings with a lease that outlasts the test: another candidate can only lead after a release.
const LONG: &[&str] = &["--lease-duration", "20m", "--renew-deadline", "10m"];

fn output_of(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Waits until `tenure check` in the container exits with this code: 0 active, 1 passive.
fn answers(container: &Started<'_>, code: i32) {
    until("the sidecar answers", || {
        let output = container.exec(&["/tenure", "check"]);
        (output.status.code() == Some(code)).then_some(())
    });
}

#[test]
fn as_process_1_without_privileges_it_leads_and_releases_within_a_second_of_sigterm() {
    let engine = Engine::new();
    let lease = format!("--volume={}:/lease", engine.volume("lease").display());
    let options = [TIGHT, &[&lease]].concat();
    let arguments = [&["run", "--store", "file:///lease"], LONG].concat();

    let mut first = engine.start("first", &options, &image().name, &arguments);
    answers(&first, 0);
    let process = Pid::from_raw(first.process()).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
    let status = status.unwrap();
    for line in ["Uid:\t65532\t65532", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{line} in {status}");
    }
    let sent = tenure::clock::now();
    kill_process(process, Signal::TERM).unwrap();
    until("process 1 is gone", || test_kill_process(process).is_err().then_some(()));
    let took = sent.elapsed_max(tenure::clock::now());
    assert!(took <= Duration::from_secs(1), "{took:?}");
    assert_eq!(first.ended(), 0);
    eprintln!("from SIGTERM to the end of process 1: {took:?}");

    let second = engine.start("second", &options, &image().name, &arguments);
    answers(&second, 0);
}

#[test]
fn on_a_read_only_filesystem_the_default_store_is_refused_and_a_writable_run_leads() {
    let engine = Engine::new();
    let refused = engine.run(TIGHT, &image().name, &["run"]);
    assert_eq!(refused.status.code(), Some(2), "{}", output_of(&refused));
    let remedy = "remedy: set --store to a store that all candidates share";
    assert!(output_of(&refused).contains(remedy), "{}", output_of(&refused));

    let options = [TIGHT, &["--tmpfs=/run"]].concat();
    let active = engine.start("somewhere", &options, &image().name, &[]);
    answers(&active, 0);
}

#[test]
fn names_are_resolved_by_the_hosts_file_and_by_dns() {
    let engine = Engine::new();
    let sidecar = Sidecar::start();
    let port = sidecar.address.port();
    let check = |options: &[&str], name: &str| {
        let url = format!("http://{name}:{port}");
        let options = [TIGHT, &["--network=host"], options].concat();
        engine.run(&options, &image().name, &["check", "--url", &url])
    };
    let resolver = Resolver::start(engine.path(), Reply::Address(Ipv4Addr::LOCALHOST));
    let servers = format!("--volume={}:/etc/resolv.conf:ro", resolver.file());

    let known = check(&["--add-host=orders.example:127.0.0.1", &servers], "orders.example");
    assert_eq!(known.status.code(), Some(1), "{}", output_of(&known));
    assert_eq!(resolver.queries(), 0, "the file comes first");

    let answer = check(&[&servers], "payments.example");
    assert_eq!(answer.status.code(), Some(1), "{}", output_of(&answer));
    assert!(resolver.queries() > 0);

    resolver.reply(Reply::NoSuchName);
    let unknown = check(&[&servers], "nobody.example");
    assert_eq!(unknown.status.code(), Some(2), "{}", output_of(&unknown));
    assert!(output_of(&unknown).contains("nobody.example"), "{}", output_of(&unknown));
}

#[test]
fn the_trusted_roots_are_in_the_ca_file_of_the_image() {
    let engine = Engine::new();
    let authority = Authority::new("the tests' own");
    let service = Sidecar::start();
    let front = TlsFront::start(service.address, authority.sign("localhost", 2096));
    let health = format!("https://localhost:{}/status", front.address.port());
    let arguments =
        ["run", "--store", "memory:", "--listen", "unix:/run/t.sock", "--health", &health];
    let file = authority.write(engine.path());
    let trusting = format!("--volume={}:/etc/ssl/certs/ca-certificates.crt:ro", file.display());
    let options = [TIGHT, &["--network=host", "--tmpfs=/run"]].concat();
    let asks = |container: &Started<'_>, code: i32, words: &str| {
        until("the check has its result", || {
            let check = ["/tenure", "check", "--url", "unix:/run/t.sock"];
            let output = container.exec(&check);
            (output.status.code() == Some(code) && container.log().contains(words)).then_some(())
        });
    };
    let wary = engine.start("wary", &options, &image().name, &arguments);
    asks(&wary, 1, "certificate");
    let options = [&options[..], &[&trusting]].concat();
    let trustful = engine.start("trustful", &options, &image().name, &arguments);
    asks(&trustful, 0, "");
}

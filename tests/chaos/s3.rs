//! Faults of a server of S3 itself, with real candidates: it is killed and stopped, answers break off, the
//! disk is full, rights are taken away, its certificate is replaced. Fault 46.

use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::small_disk::SmallDisk;
use testkit::processes::cluster::{Cluster, Timings};
use testkit::s3::server::{S3Server, at, variables};

use std::cell::RefCell;
use std::time::Duration;

use rustix::process::Signal;

use super::on_server::{
    LONG, compete, keeps_its_term, outlasts, outlasts_taken_rights, outlasts_two_leases,
    survives_half_answers,
};

/// A lease with a margin of two seconds, and a renew-deadline for a busy machine.
const ON_S3: Timings = Timings {
    lease_duration: Duration::from_secs(8),
    renew_deadline: Duration::from_secs(6),
    retry_period: Duration::from_millis(500),
    request_timeout: Duration::from_millis(1_500),
};

fn on(server: &S3Server) -> Cluster {
    compete(server.arguments(), variables(), ON_S3, &["a", "b", "c"])
}

#[test]
fn fault_46_a_server_of_s3_is_killed_and_restarted() {
    let server = RefCell::new(S3Server::start());
    let cluster = on(&server.borrow());
    outlasts(cluster, || server.borrow_mut().process.kill(), || server.borrow_mut().restart());
}

#[test]
fn fault_46_a_server_of_s3_is_stopped_for_two_leases() {
    let server = S3Server::start();
    let go_on = || {
        server.signal(Signal::CONT);
        server.becomes_ready();
    };
    outlasts_two_leases(on(&server), &ON_S3, || server.signal(Signal::STOP), go_on);
}

#[test]
fn fault_46_connections_to_s3_are_reset_half_way_through_an_answer() {
    let server = S3Server::start();
    let proxy = HalfAnswer::before(server.port, b"HTTP/1.1");
    let endpoint = format!("http://127.0.0.1:{}", proxy.port);
    survives_half_answers(compete(at(&endpoint), variables(), LONG, &["a", "b"]), &proxy, 5);
}

#[test]
fn fault_46_the_disk_of_a_server_of_s3_is_full() {
    let disk = SmallDisk::new(2_048);
    let server = S3Server::on(disk.path());
    outlasts(on(&server), || disk.fill(), || disk.empty());
}

#[test]
fn fault_46_rights_to_a_bucket_are_taken_away_while_leading() {
    let server = S3Server::start();
    let (take, give) = (|| server.take_rights(), || server.give_rights());
    outlasts_taken_rights(on(&server), take, give, &["correct horse"]);
}

#[test]
fn fault_46_the_certificate_of_a_server_of_s3_is_replaced_while_leading() {
    let server = RefCell::new(S3Server::secured());
    let cluster = on(&server.borrow());
    keeps_its_term(cluster, || server.borrow_mut().replace_certificate());
}

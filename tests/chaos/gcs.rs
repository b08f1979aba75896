//! Faults of an emulator of Google Cloud Storage, with real candidates: it is killed and stopped, answers break
//! off, the disk is full, rights are taken away, its certificate is replaced. Fault 46.

use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::small_disk::SmallDisk;
use testkit::gcs::front::TOKEN;
use testkit::gcs::server::GcsServer;
use testkit::processes::cluster::{Cluster, Timings};

use std::cell::RefCell;
use std::time::Duration;

use rustix::process::Signal;

use super::on_server::{
    LONG, compete, keeps_its_term, outlasts, outlasts_taken_rights, outlasts_two_leases,
    survives_half_answers,
};

/// A lease with a margin of two seconds, and a renew-deadline for a busy machine.
const ON_GCS: Timings = Timings {
    lease_duration: Duration::from_secs(9),
    renew_deadline: Duration::from_secs(7),
    retry_period: Duration::from_secs(2),
    request_timeout: Duration::from_millis(1_500),
};

fn on(server: &GcsServer) -> Cluster {
    compete(server.arguments(), server.variables(&server.url()), ON_GCS, &["a", "b", "c"])
}

#[test]
fn fault_46_google_cloud_storage_is_killed_and_restarted() {
    let server = RefCell::new(GcsServer::start());
    let cluster = on(&server.borrow());
    outlasts(cluster, || server.borrow_mut().process.kill(), || server.borrow_mut().restart());
}

#[test]
fn fault_46_google_cloud_storage_is_stopped_for_two_leases() {
    let server = GcsServer::start();
    let go_on = || {
        server.signal(Signal::CONT);
        server.becomes_ready();
    };
    outlasts_two_leases(on(&server), &ON_GCS, || server.signal(Signal::STOP), go_on);
}

#[test]
fn fault_46_connections_to_google_cloud_storage_are_reset_half_way_through_an_answer() {
    let server = GcsServer::start();
    let proxy = HalfAnswer::before(server.front.port, b"HTTP/1.1");
    let endpoint = format!("http://127.0.0.1:{}", proxy.port);
    let timings = Timings { retry_period: ON_GCS.retry_period, ..LONG };
    let cluster = compete(server.arguments(), server.variables(&endpoint), timings, &["a", "b"]);
    survives_half_answers(cluster, &proxy, 2);
}

#[test]
fn fault_46_the_disk_of_google_cloud_storage_is_full() {
    let disk = SmallDisk::new(2_048);
    let server = GcsServer::on(disk.path());
    outlasts(on(&server), || disk.fill(), || disk.empty());
}

#[test]
fn fault_46_rights_to_a_bucket_of_google_are_taken_away_while_leading() {
    let server = GcsServer::start();
    let (take, give) = (|| server.front.deny(true), || server.front.deny(false));
    let secrets = [TOKEN, "the-client-secret", "the-refresh-token"];
    outlasts_taken_rights(on(&server), take, give, &secrets);
}

#[test]
fn fault_46_the_certificate_of_google_cloud_storage_is_replaced_while_leading() {
    let server = GcsServer::secured();
    keeps_its_term(on(&server), || server.replace_certificate());
}

//! Faults of an emulator of Google Cloud Storage, with real candidates: it is killed and stopped, answers break
//! off, the disk is full, rights are taken away, its certificate is replaced. Fault 46.

use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::small_disk::SmallDisk;
use testkit::gcs::front::TOKEN;
use testkit::gcs::server::GcsServer;
use testkit::processes::cluster::{Cluster, Timings};

use std::time::Duration;

use super::on_server::{
    LONG, compete, keeps_its_term, lease_of, outlasts, outlasts_a_stop, outlasts_taken_rights,
    survives_half_answers,
};

/// Google throttles writes of one object beyond one in a second.
const ON_GCS: Timings = Timings { retry_period: Duration::from_secs(2), ..lease_of(9) };

fn on(server: &GcsServer) -> Cluster {
    compete(server.arguments(), server.variables(&server.url()), ON_GCS, &["a", "b", "c"])
}

#[test]
fn fault_46_google_cloud_storage_is_killed_and_restarted() {
    let mut server = GcsServer::start();
    outlasts(on(&server), &mut server, |it| it.process.kill(), GcsServer::restart);
}

#[test]
fn fault_46_google_cloud_storage_is_stopped_for_two_leases() {
    let server = GcsServer::start();
    outlasts_a_stop(on(&server), |it| server.signal(it), || server.becomes_ready());
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
    let mut disk = SmallDisk::new(2_048);
    let server = GcsServer::on(disk.path());
    outlasts(on(&server), &mut disk, |it| it.fill(), |it| it.empty());
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

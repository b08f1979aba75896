//! Faults of a server of S3 itself, with real candidates: it is killed and stopped, answers break off, the
//! disk is full, rights are taken away, its certificate is replaced. Fault 46.

use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::small_disk::SmallDisk;
use testkit::processes::cluster::Cluster;
use testkit::s3::server::{S3Server, at, variables};

use super::on_server::{
    LONG, compete, keeps_its_term, lease_of, outlasts, outlasts_a_stop, outlasts_taken_rights,
    survives_half_answers,
};

fn on(server: &S3Server) -> Cluster {
    compete(server.arguments(), variables(), lease_of(8), &["a", "b", "c"])
}

#[test]
fn fault_46_a_server_of_s3_is_killed_and_restarted() {
    let mut server = S3Server::start();
    outlasts(on(&server), &mut server, |it| it.process.kill(), S3Server::restart);
}

#[test]
fn fault_46_a_server_of_s3_is_stopped_for_two_leases() {
    let server = S3Server::start();
    outlasts_a_stop(on(&server), |it| server.signal(it), || server.becomes_ready());
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
    let mut disk = SmallDisk::new(2_048);
    let server = S3Server::on(disk.path());
    outlasts(on(&server), &mut disk, |it| it.fill(), |it| it.empty());
}

#[test]
fn fault_46_rights_to_a_bucket_are_taken_away_while_leading() {
    let server = S3Server::start();
    let (take, give) = (|| server.take_rights(), || server.give_rights());
    outlasts_taken_rights(on(&server), take, give, &["correct horse"]);
}

#[test]
fn fault_46_the_certificate_of_a_server_of_s3_is_replaced_while_leading() {
    let mut server = S3Server::secured();
    keeps_its_term(on(&server), || server.replace_certificate());
}

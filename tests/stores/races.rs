//! Races on every store but a Lease, on which the ring `control_plane` runs them.

use std::sync::Arc;

use testkit::races::courses::{Course, FileCourse, MemoryCourse, ServerCourse, TableCourse};
use testkit::races::run::{Plan, run};

async fn races(course: impl Course + 'static) {
    let result = run(Arc::new(course), Plan::from_environment()).await;
    assert!(result.first.is_none(), "{}", result.first.unwrap_or_default());
    assert!(result.races > 0, "no race in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_in_memory_are_linearizable() {
    races(MemoryCourse).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_on_a_file_in_memory_are_linearizable() {
    races(FileCourse::tmpfs()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_on_a_file_on_disk_are_linearizable() {
    races(FileCourse::disk()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_on_azure_by_the_tables_are_linearizable() {
    races(TableCourse::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_on_azurite_are_linearizable() {
    races(ServerCourse::azurite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_on_consul_are_linearizable() {
    races(ServerCourse::consul()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_on_etcd_are_linearizable() {
    races(ServerCourse::etcd()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_on_postgres_are_linearizable() {
    races(ServerCourse::postgres()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_on_redis_are_linearizable() {
    races(ServerCourse::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_on_s3_are_linearizable() {
    races(ServerCourse::s3()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_on_google_cloud_storage_are_linearizable() {
    races(ServerCourse::gcs()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_on_zookeeper_are_linearizable() {
    races(ServerCourse::zookeeper()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_on_mongodb_are_linearizable() {
    races(ServerCourse::mongodb()).await;
}

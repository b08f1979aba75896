//! The checks of `tenure doctor` for a bucket of Google Cloud Storage.

use reqwest::Method;
use serde_json::Value;

use super::Bucket;
use crate::store::Finding;
use crate::store::register::doctor::{Examination, PATIENCE, VERSIONING, Words, unusable};

const WORDS: Words = Words {
    settings: "STORAGE_EMULATOR_HOST, if it is set",
    page: "docs/stores/gcs.md",
    right: "storage.objects.create and storage.objects.delete",
    ..Words::BUCKET
};

/// Runs all checks, as far as it gets.
pub(super) async fn examine(bucket: &Bucket) -> Vec<Finding> {
    let patient = match Bucket::open(&bucket.settings, PATIENCE) {
        Ok(patient) => patient,
        Err(error) => return unusable(WORDS, &error),
    };
    let mut examination = Examination::new(&patient, WORDS);
    if examination.object().await {
        examination.conditions().await;
        versioning(&mut examination).await;
        examination.timings(bucket.settings.request_timeout).await;
    }
    examination.finish()
}

/// Looks for old versions, of which each renewal would leave one, also by the soft deletion that new
/// buckets have.
async fn versioning(examination: &mut Examination<'_, Bucket>) {
    let bucket = examination.register;
    let (path, place) = (format!("/storage/v1/b/{}", bucket.settings.bucket), bucket.bucket());
    let asked = bucket.request(Method::GET, &path, &[], Vec::new(), &place);
    let answer = match asked.await {
        Ok(answer) => answer,
        Err(error) if error.is_answer() => {
            let detail = "the credential may not ask for it, which is no fault";
            return examination.findings.passed(VERSIONING, detail);
        }
        Err(error) => return examination.findings.skipped(VERSIONING, error),
    };
    let json: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let kept = json["softDeletePolicy"]["retentionDurationSeconds"].as_str().unwrap_or("0");
    let what = match (json["versioning"]["enabled"].as_bool(), kept) {
        (Some(true), _) => "the bucket keeps old versions of objects",
        (_, "0") => {
            let detail = "the bucket keeps no old versions of objects";
            return examination.findings.passed(VERSIONING, detail);
        }
        _ => "the bucket keeps deleted and replaced objects for a while (soft delete)",
    };
    let detail = format!("{what}, and each renewal leaves one, which is paid for");
    let remedy = "use a bucket without versioning and soft delete: gcloud storage buckets update --no-versioning \
                  --clear-soft-delete";
    examination.findings.warning(VERSIONING, detail, remedy);
}

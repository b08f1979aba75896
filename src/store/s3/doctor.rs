//! The checks of `tenure doctor` for a bucket of S3.

use reqwest::Method;
use reqwest::header::HeaderMap;

use super::{Bucket, Place};
use crate::store::Finding;
use crate::store::register::doctor::{Examination, PATIENCE, VERSIONING, Words, unusable};
use crate::store::s3::xml::Elements;

const WORDS: Words = Words {
    settings: "--s3-endpoint and --s3-region",
    page: "docs/stores/s3.md",
    right: "s3:PutObject on the objects",
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

/// Looks for old versions, of which each renewal would leave one.
async fn versioning(examination: &mut Examination<'_, Bucket>) {
    let asked = examination.register.request(
        Method::GET,
        Place::Bucket,
        &[("versioning", "")],
        HeaderMap::new(),
        Vec::new(),
    );
    let answer = match asked.await {
        Ok(answer) => answer,
        Err(error) if error.is_answer() => {
            let detail =
                "the credential may not ask for it, or the server has none, which is no fault";
            return examination.findings.passed(VERSIONING, detail);
        }
        Err(error) => return examination.findings.skipped(VERSIONING, error),
    };
    let elements = Elements::read(&answer.body).unwrap_or_default();
    if elements.text("Status") == Some("Enabled") {
        let detail = "the bucket keeps old versions of objects, and each renewal leaves one";
        let remedy = "add a lifecycle rule that deletes noncurrent versions after a day, or use a bucket without \
                      versioning";
        return examination.findings.warning(VERSIONING, detail, remedy);
    }
    examination.findings.passed(VERSIONING, "the bucket keeps no old versions of objects");
}

//! The checks of `tenure doctor` for a bucket, in the order in which an operator would fix them. The
//! object of the election is only read; conditions are tried on one of its own, which stays.

use std::time::Duration;

use reqwest::Method;
use reqwest::header::HeaderMap;
use time::OffsetDateTime;

use super::errors::S3Error;
use super::xml::Elements;
use super::{Bucket, Place};
use crate::clock::{self, Moment};
use crate::config::AwsCredential;
use crate::store::Finding;
use crate::store::client::date;
use crate::store::finding::{Findings, TIMED, of_timings};
use crate::store::register::{self, Register, Slot};

/// The longest time that one request may take; longer than any sensible request-timeout, to tell a slow
/// server from a dead one.
const PATIENCE: Duration = Duration::from_secs(10);

/// The clock difference, in seconds, from which on it is reported; S3 refuses requests from 15 minutes on.
const SKEWED: i64 = 60;

const SERVER: &str = "server";
const CREDENTIAL: &str = "credential";
const BUCKET: &str = "bucket";
const OBJECT: &str = "object";
const CONDITIONS: &str = "conditional writes";
const VERSIONING: &str = "versioning";
const SKEW: &str = "clock skew";
const TIMINGS: &str = "timings";

/// All subjects, in order.
const SUBJECTS: [&str; 8] =
    [SERVER, CREDENTIAL, BUCKET, OBJECT, CONDITIONS, VERSIONING, SKEW, TIMINGS];

/// Runs all checks, as far as it gets.
pub(super) async fn examine(bucket: &Bucket) -> Vec<Finding> {
    let mut findings = Findings::new(&SUBJECTS);
    let patient = match Bucket::open(&bucket.settings, PATIENCE) {
        Ok(patient) => patient,
        Err(error) => {
            findings.failed(SERVER, format!("{error:#}"), "check --store-ca-file");
            return findings.finish();
        }
    };
    let mut examination = Examination {
        bucket: &patient,
        request_timeout: bucket.settings.request_timeout,
        findings,
    };
    if examination.object().await {
        examination.conditions().await;
        examination.versioning().await;
        examination.timings().await;
    }
    examination.findings.finish()
}

/// One run of the checks.
struct Examination<'a> {
    bucket: &'a Bucket,
    request_timeout: Duration,
    findings: Findings,
}

impl Examination<'_> {
    /// Reads the object of the election; returns whether that is allowed.
    async fn object(&mut self) -> bool {
        let sent = clock::now();
        let read = self.bucket.object(Slot::Lease).await;
        let answered = clock::now();
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                self.fault(&error);
                return false;
            }
        };
        self.reached(CREDENTIAL);
        self.findings.passed(BUCKET, format!("{} can be read", self.bucket.settings.bucket));
        let place = self.bucket.place(Slot::Lease);
        let content = read.as_ref().map(|it| it.0.content.as_slice());
        match register::shown(content, &place) {
            Ok((detail, true)) => self.findings.passed(OBJECT, detail),
            Ok((detail, false)) => {
                let remedy = "run `tenure doctor --create` to avoid that wait; nothing, if an instance was just \
                              elected";
                self.findings.warning(OBJECT, detail, remedy);
            }
            Err(failure) => {
                self.findings.failed(OBJECT, failure.message, "see above");
                return false;
            }
        }
        if let Some((_, headers)) = read {
            self.skew(date(&headers), sent, answered);
        }
        true
    }

    /// Reports that the server answered and, beyond that, that it accepts the credential.
    fn reached(&mut self, also: &'static str) {
        let settings = &self.bucket.settings;
        let scheme = if settings.tls.is_some() { "TLS" } else { "plain HTTP" };
        let detail =
            format!("{} answered over {scheme}, region {}", self.bucket.server, settings.region);
        self.findings.passed(SERVER, detail);
        if also == CREDENTIAL {
            self.findings.passed(CREDENTIAL, self.credential());
        }
    }

    fn credential(&self) -> String {
        let how = match &self.bucket.settings.credential {
            AwsCredential::Keys { .. } => "AWS_ACCESS_KEY_ID".to_owned(),
            AwsCredential::Profile { name, .. } => format!("the profile {name}"),
            AwsCredential::WebIdentity { role, .. } => format!("the role {role}"),
            AwsCredential::Container { .. } => "the role of this task or pod".to_owned(),
            AwsCredential::Machine { .. } => "the role of this machine".to_owned(),
        };
        let id = self.bucket.keys.known().map(|it| it.id.clone()).unwrap_or_default();
        format!("the server accepts the key {id} of {how}")
    }

    /// Records the error of a request that should have succeeded.
    fn fault(&mut self, error: &S3Error) {
        let detail = error.to_string();
        match error {
            S3Error::Credential(_) => {
                if self.bucket.keys.known().is_some() {
                    self.reached(SERVER);
                }
                self.findings.failed(
                    CREDENTIAL,
                    detail,
                    "set a credential that the server accepts",
                );
            }
            S3Error::Denied(_) => {
                self.reached(CREDENTIAL);
                let remedy = "give the rights that docs/stores/s3.md lists";
                self.findings.failed(BUCKET, detail, remedy);
            }
            S3Error::Invalid(_) | S3Error::Missing(_) | S3Error::Condition(_) => {
                self.reached(SERVER);
                self.findings.failed(BUCKET, detail, "correct the settings that it names");
            }
            _ => {
                let remedy = "check --s3-endpoint and --s3-region, firewalls, and the server";
                self.findings.failed(SERVER, detail, remedy);
            }
        }
    }

    /// Proves that conditions are honoured.
    async fn conditions(&mut self) {
        match register::proof::prove(self.bucket).await {
            Ok(seen) => self.findings.passed(CONDITIONS, format!("honoured: the server {seen}")),
            Err(error) => {
                let remedy = "give s3:PutObject on the objects, or use a server that honours conditions, without \
                              a proxy that removes them";
                self.findings.failed(CONDITIONS, error.to_string(), remedy);
            }
        }
    }

    /// Looks for old versions, of which each renewal would leave one.
    async fn versioning(&mut self) {
        let query = [("versioning", "")];
        let asked =
            self.bucket.request(Method::GET, Place::Bucket, &query, HeaderMap::new(), Vec::new());
        let status = match asked.await {
            Ok(answer) => {
                Elements::read(&answer.body).and_then(|it| it.text("Status").map(str::to_owned))
            }
            Err(_) => {
                let detail =
                    "the credential may not ask for it, or the server has none, which is no fault";
                return self.findings.passed(VERSIONING, detail);
            }
        };
        if status.as_deref() == Some("Enabled") {
            let detail = "the bucket keeps old versions of objects, and each renewal leaves one";
            let remedy = "add a lifecycle rule that deletes noncurrent versions after a day, or use a bucket without \
                          versioning";
            return self.findings.warning(VERSIONING, detail, remedy);
        }
        self.findings.passed(VERSIONING, "the bucket keeps no old versions of objects");
    }

    /// Compares the server's date, taken at some time between request and answer, with this host's clock.
    fn skew(&mut self, date: Option<OffsetDateTime>, asked: Moment, answered: Moment) {
        let Some(date) = date else { return };
        let ahead = asked.date() - date.saturating_add(time::Duration::SECOND);
        let behind = date - answered.date();
        let apart = ahead.max(behind).max(time::Duration::ZERO).whole_seconds();
        let detail = format!("the clocks of this host and of the server are {apart} s apart");
        if apart >= SKEWED {
            let remedy =
                "synchronize both clocks (NTP): no lease depends on them, but signatures do";
            return self.findings.warning(SKEW, detail, remedy);
        }
        self.findings.passed(SKEW, detail);
    }

    /// Times some requests over an open connection.
    async fn timings(&mut self) {
        let mut slowest = Duration::ZERO;
        for _ in 0..TIMED {
            let sent = clock::now();
            // One that fails takes its time too.
            let _ = self.bucket.object(Slot::Lease).await;
            slowest = slowest.max(sent.elapsed_max(clock::now()));
        }
        let check = "check the way to the server";
        self.findings.timings(TIMINGS, of_timings(slowest, 1, self.request_timeout, check));
    }
}

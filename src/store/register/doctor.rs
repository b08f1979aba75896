//! The checks of `tenure doctor` that all registers have in common, in the order in which an operator would
//! fix them. The value of the election is only read; conditions are tried on one of its own, which stays.

use std::time::Duration;

use time::OffsetDateTime;

use super::{Body, Register, RegisterError, Slot, foreign};
#[cfg(any(feature = "gcs", feature = "mongodb", feature = "s3"))]
use super::{Trials, proof};
use crate::clock::{self, Moment};
#[cfg(any(feature = "gcs", feature = "mongodb", feature = "s3"))]
use crate::lease::Cause;
use crate::store::Finding;
use crate::store::finding::{Findings, TIMED, of_timings};
use crate::store::server_finding::ServerClock;

/// The longest time that one request may take; longer than any sensible request-timeout, to tell a slow
/// server from a dead one.
pub(in crate::store) const PATIENCE: Duration = Duration::from_secs(10);

/// Servers refuse signatures from some minutes on.
const CLOCK: ServerClock = ServerClock {
    of: "the server",
    unit: time::Duration::SECOND,
    skewed: 60,
    remedy: "synchronize both clocks (NTP): no lease depends on them, but signatures do",
};

pub(in crate::store) const SERVER: &str = "server";
pub(in crate::store) const CREDENTIAL: &str = "credential";
#[cfg(any(feature = "gcs", feature = "s3"))]
const BUCKET: &str = "bucket";
#[cfg(any(feature = "gcs", feature = "s3"))]
const OBJECT: &str = "object";
#[cfg(any(feature = "gcs", feature = "mongodb", feature = "s3"))]
pub(in crate::store) const CONDITIONS: &str = "conditional writes";
#[cfg(any(feature = "gcs", feature = "s3"))]
pub(in crate::store) const VERSIONING: &str = "versioning";
pub(in crate::store) const SKEW: &str = "clock skew";
pub(in crate::store) const TIMINGS: &str = "timings";

/// What a kind of server says in its report.
#[derive(Clone, Copy)]
pub(in crate::store) struct Words {
    /// All subjects, in order.
    pub(in crate::store) subjects: &'static [&'static str],
    /// The subject of the place that holds the values.
    pub(in crate::store) holder: &'static str,
    /// The subject of the value of the election.
    pub(in crate::store) value: &'static str,
    /// The settings to check where the server does not answer.
    pub(in crate::store) settings: &'static str,
    /// The page with the rights.
    pub(in crate::store) page: &'static str,
    /// The right to write.
    pub(in crate::store) right: &'static str,
}

impl Words {
    /// The words of a bucket.
    #[cfg(any(feature = "gcs", feature = "s3"))]
    pub(in crate::store) const BUCKET: Self = Self {
        subjects: &[SERVER, CREDENTIAL, BUCKET, OBJECT, CONDITIONS, VERSIONING, SKEW, TIMINGS],
        holder: BUCKET,
        value: OBJECT,
        settings: "",
        page: "",
        right: "",
    };
}

/// One run of the checks.
pub(in crate::store) struct Examination<'a, R> {
    pub(in crate::store) register: &'a R,
    pub(in crate::store) findings: Findings,
    /// How to give the rights; else a page lists them.
    pub(in crate::store) grant: Option<String>,
    words: Words,
}

impl<'a, R: Register> Examination<'a, R> {
    /// Begins a report on a register whose requests may take longer than usual.
    pub(in crate::store) fn new(register: &'a R, words: Words) -> Self {
        Self { register, findings: Findings::new(words.subjects), grant: None, words }
    }

    /// Reads the value of the election; returns whether that is allowed, and the value is of Tenure.
    pub(in crate::store) async fn object(&mut self) -> bool {
        let sent = clock::now();
        let read = self.register.get(Slot::Lease).await;
        let answered = clock::now();
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                self.fault(&error);
                return false;
            }
        };
        self.reached(true);
        self.findings.passed(self.words.holder, "can be read");
        let body = read.as_ref().map(|it| it.body.clone()).transpose();
        let place = self.register.place(Slot::Lease);
        match body {
            Ok(body) => {
                let Body { held, record, .. } = body.unwrap_or_default();
                let holder = held.map(|it| match it.is_breaking {
                    true => format!("held by {:?}, and broken", it.identity),
                    false => format!("held by {:?}", it.identity),
                });
                self.findings.term(self.words.value, &place, record.term, holder.as_deref());
            }
            Err(what) => {
                self.findings.failed(self.words.value, foreign(&place, &what), "see above");
                return false;
            }
        }
        if !self.findings.has(SKEW) {
            self.skew(read.and_then(|it| it.date), sent, answered);
        }
        true
    }

    /// Reports that the server answered and, beyond that, that it accepts the credential.
    fn reached(&mut self, is_accepted: bool) {
        if !self.findings.has(SERVER) {
            self.findings.passed(SERVER, self.register.answered());
        }
        if is_accepted && let Some(credential) = self.register.credential() {
            self.findings.passed(CREDENTIAL, format!("the server accepts {credential}"));
        }
    }

    /// Records the error of a request that should have succeeded.
    pub(in crate::store) fn fault(&mut self, error: &RegisterError) {
        let detail = error.to_string();
        match error {
            RegisterError::Local(_) => self.findings.local(detail),
            RegisterError::Credential(_) => {
                // Without one, nothing was sent to this server.
                let remedy = match self.register.credential() {
                    Some(_) => {
                        self.reached(false);
                        "set a credential that the server accepts"
                    }
                    None => "correct what it names: the server was not asked",
                };
                self.findings.failed(CREDENTIAL, detail, remedy);
            }
            RegisterError::Denied(_) => {
                self.reached(true);
                let remedy = self.permit();
                self.findings.failed(self.words.holder, detail, &remedy);
            }
            RegisterError::Invalid(_)
            | RegisterError::Missing(_)
            | RegisterError::Condition(_)
            | RegisterError::Foreign(_) => {
                self.reached(false);
                self.findings.failed(
                    self.words.holder,
                    detail,
                    "correct the settings that it names",
                );
            }
            RegisterError::Concurrent(_)
            | RegisterError::Lost(_)
            | RegisterError::Throttled(_)
            | RegisterError::Unavailable(_)
            | RegisterError::Network(_) => {
                let remedy = format!("check {}, firewalls, and the server", self.words.settings);
                self.findings.failed(SERVER, detail, &remedy);
            }
        }
    }

    /// Returns the remedy of a denied request.
    fn permit(&self) -> String {
        let Words { page, right, .. } = self.words;
        let listed = || format!("give the rights that {page} lists, such as {right}");
        self.grant.clone().unwrap_or_else(listed)
    }

    /// Reports whether values in a place can be written.
    #[cfg(any(feature = "consul", feature = "etcd"))]
    pub(in crate::store) fn rights(
        &mut self,
        subject: &'static str,
        place: &str,
        tried: Result<(), RegisterError>,
    ) {
        let Err(error) = tried else {
            return self.findings.passed(subject, format!("reads and writes keys in {place}"));
        };
        let remedy = match error {
            RegisterError::Denied(_) => self.permit(),
            _ => "check the cluster, and run `tenure doctor` again".to_owned(),
        };
        self.findings.failed(subject, error.to_string(), &remedy);
    }

    /// Proves that conditions are honoured, in a race too.
    #[cfg(any(feature = "gcs", feature = "mongodb", feature = "s3"))]
    pub(in crate::store) async fn conditions(&mut self) {
        let is_raced = self.register.trials() == Trials::InARace;
        let mut proof = proof::in_order(self.register).await.map(drop);
        if proof.is_ok() && is_raced {
            proof = proof::in_a_race(self.register).await;
        }
        let error = match proof {
            Ok(()) => {
                let place = self.register.place(Slot::Trial);
                let race = if is_raced { "; of writes at the same time it did one" } else { "" };
                let seen = format!(
                    "honoured: the server neither created {place} again, nor wrote it on the condition of a \
                     state that was over{race}"
                );
                return self.findings.passed(CONDITIONS, seen);
            }
            Err(error) => error,
        };
        let remedy = match error.failure().cause {
            Cause::Settings => {
                "use a server that honours conditions, without a proxy that removes them".to_owned()
            }
            Cause::Auth => self.permit(),
            _ => "nothing is known of the conditions: run `tenure doctor` again".to_owned(),
        };
        self.findings.failed(CONDITIONS, error.to_string(), &remedy);
    }

    /// Compares the server's date, taken at some time between request and answer, with this host's clock.
    pub(in crate::store) fn skew(
        &mut self,
        date: Option<OffsetDateTime>,
        asked: Moment,
        answered: Moment,
    ) {
        self.findings.skew(SKEW, &CLOCK, date, (asked, answered));
    }

    /// Times some requests over an open connection, for this request-timeout.
    pub(in crate::store) async fn timings(&mut self, request_timeout: Duration) {
        let mut slowest = Duration::ZERO;
        for _ in 0..TIMED {
            let sent = clock::now();
            if let Err(error) = self.register.get(Slot::Lease).await {
                return self.findings.skipped(TIMINGS, error);
            }
            slowest = slowest.max(sent.elapsed_max(clock::now()));
        }
        let check = "check the way to the server";
        self.findings.timings(TIMINGS, of_timings(slowest, 1, request_timeout, check));
    }

    /// Ends the report.
    pub(in crate::store) fn finish(self) -> Vec<Finding> {
        self.findings.finish()
    }
}

/// Returns a report of a client that cannot be made.
pub(in crate::store) fn unusable(words: Words, error: &anyhow::Error) -> Vec<Finding> {
    let mut findings = Findings::new(words.subjects);
    findings.local(format!("{error:#}"));
    findings.finish()
}

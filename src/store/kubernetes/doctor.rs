//! The checks of `tenure doctor` for a cluster, in the order in which an operator would fix them.
//! They change nothing: creating a Lease is tried as a dry run, and permissions are reviewed by the
//! server.

use std::collections::BTreeMap;
use std::time::Duration;

use time::OffsetDateTime;

use super::token::Token;
use super::{Kubernetes, record};
use crate::clock::{self, Moment};
use crate::kube::objects::{AccessSpec, Lease, Metadata, SelfSubjectAccessReview};
use crate::kube::{Dated, Kube, KubeError, KubeObject, rule};
use crate::lease::Snapshot;
use crate::store::finding::{TIMED, apart, of_timings};
use crate::store::{Finding, Verdict};

/// The longest time that one request may take; longer than any sensible request-timeout, to tell a
/// slow server from a dead one.
const PATIENCE: Duration = Duration::from_secs(25);

/// A token that expires sooner than this should have been replaced. The kubelet does so when a
/// fifth of its lifetime is left, which is about an hour by default.
const SOON: time::Duration = time::Duration::minutes(5);

/// The clock difference, in seconds, from which on it is reported.
const SKEWED: i64 = 31;

const TOKEN: &str = "token";
const SERVER: &str = "API server";
const NAMESPACE: &str = "namespace";
const RIGHTS: &str = "permissions";
const LEASE: &str = "Lease";
const SKEW: &str = "clock skew";
const TIMINGS: &str = "timings";

/// All subjects, in order; those not reached are reported as skipped.
const SUBJECTS: [&str; 7] = [SERVER, TOKEN, NAMESPACE, RIGHTS, LEASE, SKEW, TIMINGS];

/// One run of the checks.
struct Examination<'a> {
    store: &'a Kubernetes,
    kube: Kube,
    /// The user of the token, by its own claims.
    user: String,
    /// Whether the Lease exists.
    exists: bool,
    found: Vec<Finding>,
}

/// Runs all checks, as far as it gets.
pub(super) async fn examine(store: &Kubernetes) -> Vec<Finding> {
    let patient = Kube::open(&store.settings.access, PATIENCE);
    let kube = patient.unwrap_or_else(|_| store.kube.clone());
    let mut examination =
        Examination { store, kube, user: String::new(), exists: false, found: Vec::new() };
    examination.token().await;
    if examination.reach().await {
        examination.namespace().await;
        examination.rights().await;
        examination.timings().await;
    }
    examination.finish()
}

impl Examination<'_> {
    fn add(
        &mut self,
        subject: &'static str,
        verdict: Verdict,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let remedy = Some(remedy.into()).filter(|it| !it.is_empty());
        self.found.push(Finding {
            subject: subject.into(),
            verdict,
            detail: detail.into(),
            remedy,
        });
    }

    /// Records the error of a request that should have succeeded, with the remedy.
    fn fault(&mut self, error: &KubeError) {
        let subject = match error {
            KubeError::Unauthorized(_) | KubeError::Files(_) => TOKEN,
            KubeError::Forbidden(_) => RIGHTS,
            KubeError::NoNamespace(_) => NAMESPACE,
            _ => SERVER,
        };
        let wrong = |it: &Finding| it.subject == subject && it.verdict == Verdict::Failed;
        if !self.found.iter().any(wrong) {
            let remedy = match error {
                KubeError::Disconnected(_) | KubeError::Timeout(_) => {
                    "check --kube-api, network policies and firewalls"
                }
                KubeError::Throttled { .. } | KubeError::Unavailable(_) => {
                    "check the control plane, and run `tenure doctor` again"
                }
                _ => "",
            };
            self.add(subject, Verdict::Failed, error.to_string(), remedy);
        }
    }

    /// Checks the claims of the token.
    async fn token(&mut self) {
        let read = match self.kube.token().await {
            Ok(None) => {
                let detail = "none is sent: the server requires none, or a proxy adds it";
                return self.add(TOKEN, Verdict::Passed, detail, "");
            }
            Ok(Some(read)) => Token::read(&read),
            Err(why) => {
                return self.add(TOKEN, Verdict::Failed, why, "");
            }
        };
        let Some(token) = read else {
            let detail = "present; its expiry is unknown";
            return self.add(TOKEN, Verdict::Passed, detail, "");
        };
        let whose = format!("of {} for {}", token.subject, token.audience());
        match token.end().map(|end| (end, end - clock::now().date())) {
            Some((end, left)) if !left.is_positive() => {
                let detail = format!("{whose}: it expired on {end}");
                let remedy = "replace it; the kubelet does so for a projected volume, but not if \
                              it is mounted with subPath";
                self.add(TOKEN, Verdict::Failed, detail, remedy);
            }
            Some((end, left)) if left < SOON => {
                let detail = format!("{whose}: it expires on {end} and has not been replaced yet");
                self.add(
                    TOKEN,
                    Verdict::Warning,
                    detail,
                    "check that it is mounted as a projected volume",
                );
            }
            Some((end, _)) => self.add(TOKEN, Verdict::Passed, format!("{whose}, until {end}"), ""),
            None => self.add(TOKEN, Verdict::Passed, format!("{whose}, without expiry"), ""),
        }
        self.user = token.subject;
    }

    /// Reads the Lease; returns whether the server can be used.
    async fn reach(&mut self) -> bool {
        let settings = &self.store.settings;
        let read = self.kube.get::<Lease>(&settings.namespace, &settings.name).await;
        let tls = settings.access.api.scheme() == "https";
        let answers = || {
            let over = if tls { "TLS" } else { "plain HTTP" };
            format!("{} answers over {over}", self.kube.host())
        };
        match read {
            Ok(Dated { object, .. }) => {
                self.add(SERVER, Verdict::Passed, answers(), "");
                self.lease(Some(&object));
                self.exists = true;
            }
            Err(KubeError::Missing(_)) => {
                self.add(SERVER, Verdict::Passed, answers(), "");
                self.lease(None);
            }
            Err(error @ (KubeError::Forbidden(_) | KubeError::Unauthorized(_))) => {
                self.add(SERVER, Verdict::Passed, answers(), "");
                let KubeError::Forbidden(why) = &error else {
                    self.fault(&error);
                    return false;
                };
                // The permissions are checked below, verb by verb.
                if let Some((user, _)) = why.split_once(" cannot ") {
                    self.user = user.to_owned();
                }
            }
            Err(error) => {
                self.fault(&error);
                return false;
            }
        }
        true
    }

    /// Reports the state of the Lease.
    fn lease(&mut self, lease: Option<&Lease>) {
        let place = self.store.place();
        let create = "run `tenure doctor --create` to avoid that wait";
        let Some(lease) = lease else {
            let detail =
                format!("{place} does not exist: the first leader waits for a lease-duration");
            return self.add(LEASE, Verdict::Warning, detail, create);
        };
        let Snapshot { record, claim, .. } = match record::snapshot(lease, &place) {
            Ok(snapshot) => snapshot,
            Err(failure) => {
                return self.add(LEASE, Verdict::Failed, failure.message, "");
            }
        };
        let who = match (record::holder(lease), &record.holder, &claim) {
            (None, ..) => "not held".to_owned(),
            (Some(_), Some(holder), _) => format!("held or last held by {}", holder.identity),
            (Some(holder), None, Some(claim)) => format!(
                "held or last held by {}, which has written no term: another kind of \
                 candidate, or an instance that was just elected; respected for {} s after each \
                 renewal",
                record::shown(holder),
                claim.lease_duration.as_secs()
            ),
            (Some(holder), None, None) => format!("held by {}", record::shown(holder)),
        };
        match record.term {
            Some(term) => {
                self.add(LEASE, Verdict::Passed, format!("{place}: term {term}, {who}"), "")
            }
            None => {
                let detail = format!(
                    "{place} has no term, {who}: the first leader waits for a lease-duration"
                );
                // A first term may be written only while nobody leads, and this holder may lead.
                let remedy = if claim.is_none() { create } else { "" };
                self.add(LEASE, Verdict::Warning, detail, remedy);
            }
        }
    }

    /// Tries to create a Lease as a dry run, which shows whether the namespace exists.
    async fn namespace(&mut self) {
        let settings = &self.store.settings;
        let name = format!("{}-doctor", settings.name);
        let probe =
            Lease { metadata: Metadata::named(&settings.namespace, &name), ..Lease::default() };
        let namespace = settings.namespace.clone();
        match self.kube.try_create(&probe).await {
            Ok(_) | Err(KubeError::Exists(_)) => {
                self.add(
                    NAMESPACE,
                    Verdict::Passed,
                    format!("{namespace} exists and accepts Leases"),
                    "",
                );
            }
            // Checked below.
            Err(KubeError::Forbidden(why)) if why.contains(" cannot ") => (),
            Err(KubeError::Forbidden(why)) => {
                let remedy =
                    "check quotas, admission webhooks, and whether the namespace is being deleted";
                self.add(NAMESPACE, Verdict::Failed, why, remedy);
            }
            Err(error) => self.fault(&error),
        }
    }

    /// Checks the permissions.
    async fn rights(&mut self) {
        let mut missing = Vec::new();
        for verb in Lease::RESOURCE.verbs.split(',') {
            let asked = clock::now();
            match self.may(verb).await {
                Ok(answer) => {
                    self.skew(answer.date, asked, clock::now());
                    if !answer.object.status.allowed {
                        missing.push(verb);
                    }
                }
                Err(error) => {
                    let detail = format!("failed to read the permissions: {error}");
                    return self.add(RIGHTS, Verdict::Warning, detail, "");
                }
            }
        }
        let namespace = &self.store.settings.namespace;
        let all = Lease::RESOURCE.verbs.replace(',', ", ");
        if missing.is_empty() {
            return self.add(
                RIGHTS,
                Verdict::Passed,
                format!("{all} on leases in {namespace}"),
                "",
            );
        }
        let user = match self.user.as_str() {
            "" => "system:serviceaccount:NAMESPACE:NAME",
            known => known,
        };
        let remedy = rule(&Lease::RESOURCE, namespace, user);
        let detail = format!("not allowed on leases in {namespace}: {}", missing.join(", "));
        // Without `watch` a release is seen later; without `create` a deleted Lease is not created
        // again.
        let bearable = |verb: &&str| *verb == "watch" || (*verb == "create" && self.exists);
        let verdict = if missing.iter().all(bearable) { Verdict::Warning } else { Verdict::Failed };
        self.add(RIGHTS, verdict, detail, remedy);
    }

    async fn may(&self, verb: &str) -> Result<Dated<SelfSubjectAccessReview>, KubeError> {
        let settings = &self.store.settings;
        let mut resource_attributes = BTreeMap::new();
        let mut put = |name: &str, value: &str| {
            resource_attributes.insert(name.to_owned(), value.to_owned());
        };
        put("verb", verb);
        put("group", Lease::RESOURCE.group);
        put("resource", Lease::RESOURCE.plural);
        put("namespace", &settings.namespace);
        // Rules with a resource name do not apply to `create`.
        if verb != "create" {
            put("name", &settings.name);
        }
        let review = SelfSubjectAccessReview {
            spec: AccessSpec { resource_attributes },
            ..SelfSubjectAccessReview::default()
        };
        self.kube.create(&review).await
    }

    /// Compares the server's date, taken at some time between request and answer, with this host's
    /// clock.
    fn skew(&mut self, date: Option<OffsetDateTime>, asked: Moment, answered: Moment) {
        let (Some(date), None) = (date, self.found.iter().find(|it| it.subject == SKEW)) else {
            return;
        };
        let apart = apart(date, time::Duration::SECOND, asked, answered).whole_seconds();
        let detail = format!("the clock of this host is {apart} s off");
        if apart >= SKEWED {
            let remedy = "synchronize the clock of this host (NTP): no lease depends on it, but \
                          the times that `kubectl get lease` shows and the validity of tokens do";
            return self.add(SKEW, Verdict::Warning, detail, remedy);
        }
        self.add(SKEW, Verdict::Passed, detail, "");
    }

    /// Times some requests over an open connection.
    async fn timings(&mut self) {
        let settings = &self.store.settings;
        let mut slowest = Duration::ZERO;
        for _ in 0..TIMED {
            let sent = clock::now();
            let read = self.kube.get::<Lease>(&settings.namespace, &settings.name).await;
            let answered = clock::now();
            slowest = slowest.max(sent.elapsed_max(answered));
            if let Ok(Dated { date, .. }) = read {
                self.skew(date, sent, answered);
            }
        }
        // A renewal is a read and a write.
        let (verdict, detail, remedy) =
            of_timings(slowest, 2, settings.request_timeout, "check the control plane");
        let remedy = remedy.unwrap_or_default();
        self.add(TIMINGS, verdict, detail, remedy);
    }

    /// Sorts the findings, and adds those that were skipped.
    fn finish(self) -> Vec<Finding> {
        let mut found = self.found;
        for subject in SUBJECTS {
            if !found.iter().any(|it| it.subject == subject) {
                found.push(Finding {
                    subject: subject.into(),
                    verdict: Verdict::Skipped,
                    detail: "skipped because of another error".to_owned(),
                    remedy: None,
                });
            }
        }
        found.sort_by_key(|it| SUBJECTS.iter().position(|subject| it.subject == *subject));
        found
    }
}

//! The checks of `tenure doctor` for an Azure account, in the order in which an operator would fix
//! them. Permissions are tried on a probe blob, which is removed afterwards; the lease and the
//! record of the election are not touched.

use std::time::Duration;

use azure_core::error::Error;
use azure_core::http::headers::Headers;
use azure_core::http::{Method, Request};
use time::OffsetDateTime;
use tokio::time::timeout;
use url::Url;

use super::access::Access;
use super::errors::{Op, answer_headers, is_missing};
use super::findings::{BLOB, CONNECTION, CONTAINER, NAMES, SIGN_IN, SKEW, SUBJECTS, TIER, TIMINGS};
use super::rejected::IMMUTABLE;
use super::{Azure, date, header, permissions, record, sas};
use crate::clock::{self, Moment};
use crate::config::is_loopback;
use crate::http::resolver::Resolver;
use crate::lease::{Record, StoreError};
use crate::status::document::rfc3339;
use crate::store::Finding;
use crate::store::finding::{Findings, TIMED, apart, of_timings};

/// The longest time that one step may take; longer than any sensible request-timeout, to tell a
/// slow account from a dead one.
const PATIENCE: Duration = Duration::from_secs(25);

/// Runs all checks, as far as it gets.
pub(super) async fn examine(store: &Azure) -> Vec<Finding> {
    let mut findings = Findings::new(&SUBJECTS);
    let access = patiently(store.credential.first()).await;
    let is_secret = store.settings.credential.secret().is_some();
    // A secret is judged before the network is used; a sign-in needs the network itself.
    if is_secret && !matches!(access, Some(Ok(_))) {
        signed_in(access, &mut findings);
    } else if reach(store, &store.settings.endpoint, &mut findings).await
        && let Some(access) = signed_in(access, &mut findings)
    {
        account(store, &access, &mut findings).await;
    }
    findings.finish()
}

pub(super) async fn patiently<T>(step: impl Future<Output = T>) -> Option<T> {
    timeout(PATIENCE, step).await.ok()
}

/// Checks whether the endpoint can be reached at all.
async fn reach(store: &Azure, endpoint: &Url, findings: &mut Findings) -> bool {
    let host = endpoint.host_str().unwrap_or_default();
    let port = endpoint.port_or_known_default().unwrap_or(443);
    if store.settings.proxy.is_some() && !is_loopback(endpoint) {
        findings.passed(NAMES, format!("{host} is resolved by the proxy unless NO_PROXY lists it"));
    } else {
        let found = patiently(Resolver::default().resolve(host, port)).await;
        match found.and_then(Result::ok).and_then(|it| it.first().copied()) {
            Some(address) => {
                findings.passed(NAMES, format!("{host} resolves to {}", address.ip()));
            }
            None => {
                let remedy =
                    "check --store, --azure-endpoint and the DNS configuration of this host";
                findings.failed(NAMES, format!("failed to resolve {host}"), remedy);
                return false;
            }
        }
    }
    let over = if endpoint.scheme() == "https" { "TLS" } else { "plain HTTP" };
    // Unsigned: any answer shows that the endpoint is there.
    let request = Request::new(endpoint.clone(), Method::Get);
    match patiently(store.transport.execute_request(&request)).await {
        Some(Ok(_)) if over == "TLS" || is_loopback(endpoint) => {
            findings.passed(CONNECTION, format!("{host} answers over {over}"));
        }
        Some(Ok(_)) => {
            let detail = format!("{host} answers over {over}: requests are not encrypted");
            findings.warning(CONNECTION, detail, "use an https endpoint");
        }
        Some(Err(error)) => {
            let why = store.failed(Op::Read, &error).to_string();
            let remedy = "check firewalls, HTTPS_PROXY and, for TLS, the certificate authorities \
                          of this host (SSL_CERT_FILE)";
            findings.failed(CONNECTION, why, remedy);
            return false;
        }
        None => {
            findings.failed(
                CONNECTION,
                format!("{host} does not answer"),
                "check firewalls and HTTPS_PROXY",
            );
            return false;
        }
    }
    true
}

type Got<T> = Option<Result<T, StoreError>>;

fn signed_in(
    access: Got<std::sync::Arc<Access>>,
    findings: &mut Findings,
) -> Option<std::sync::Arc<Access>> {
    let remedy = "fix the credential, or set another; the README lists the order";
    let access = match access {
        Some(Ok(access)) => access,
        Some(Err(error)) => {
            findings.failed(SIGN_IN, error.to_string(), remedy);
            return None;
        }
        None => {
            findings.failed(SIGN_IN, "sign-in timed out", remedy);
            return None;
        }
    };
    let now = clock::now().date();
    match (sas::start(&access.proof), sas::end(&access.proof)) {
        (_, Some(end)) if end <= now => {
            let detail = format!("the SAS expired at {}", rfc3339(end));
            findings.failed(SIGN_IN, detail, "create a new one");
        }
        (Some(start), _) if start > now => findings.failed(
            SIGN_IN,
            format!("the SAS is not valid before {}", rfc3339(start)),
            "wait until then, or create one that begins earlier",
        ),
        (_, Some(end)) if end - now < time::Duration::WEEK => {
            let detail = format!("the SAS expires at {}, in less than a week", rfc3339(end));
            findings.warning(SIGN_IN, detail, "replace it before it expires");
        }
        _ => findings.passed(SIGN_IN, "a key, SAS or token is available"),
    }
    Some(access)
}

/// Checks container, blob, permissions and clocks with the credential.
async fn account(store: &Azure, access: &Access, findings: &mut Findings) {
    let asked = clock::now();
    let looked = patiently(access.lock.get_properties(None)).await;
    let answered = clock::now();
    let container = &store.settings.container;
    let (headers, there) = match &looked {
        Some(Ok(answer)) => (Some(answer.headers()), true),
        Some(Err(error)) => (answer_headers(error), is_missing(error)),
        None => (None, false),
    };
    if let Some(date) = headers.and_then(date) {
        skew(date, asked, answered, findings);
    }
    match looked {
        Some(Ok(answer)) => {
            findings.passed(CONTAINER, format!("{container} exists"));
            blob(store, answer.headers(), findings);
        }
        Some(Err(error)) if is_missing(&error) => {
            if !missing(store, &error, findings) {
                return;
            }
        }
        Some(Err(error)) => {
            let why = store.failed(Op::Read, &error).to_string();
            let remedy = "fix the cause, and run `tenure doctor` again";
            findings.failed(CONTAINER, why, remedy);
        }
        None => findings.failed(CONTAINER, "no answer within 25 s", "try again later"),
    }
    if there {
        permissions::examine(store, access, findings).await;
        timings(store, access, findings).await;
    }
}

/// Reports what is missing; returns whether the container exists.
fn missing(store: &Azure, error: &Error, findings: &mut Findings) -> bool {
    let container = &store.settings.container;
    let code = super::code(error).map_or("", |(_, code)| code);
    if code == "ContainerNotFound" {
        let remedy = "run `tenure doctor --create`, or create the container";
        findings.failed(CONTAINER, format!("{container} does not exist"), remedy);
        return false;
    }
    findings.passed(CONTAINER, format!("{container} exists"));
    let url = store.settings.lock_url();
    let detail = format!("{url} does not exist: the first leader waits a minute");
    findings.warning(BLOB, detail, "run `tenure doctor --create` to avoid that wait");
    findings.passed(TIER, "a new blob gets the account's default tier");
    true
}

fn blob(store: &Azure, headers: &Headers, findings: &mut Findings) {
    let place = store.settings.lock_url().to_string();
    let state = header(headers, "x-ms-lease-state").unwrap_or("in an unknown state");
    match record::read(headers, &place) {
        Ok(Record { term: Some(term), holder, .. }) => {
            let is_endless = header(headers, "x-ms-lease-duration") == Some("infinite");
            let who = match (holder, state) {
                _ if is_endless => "held by another tool, without an end".to_owned(),
                (Some(holder), "leased" | "breaking") => format!("held by {}", holder.identity),
                (Some(holder), _) => format!("last held by {}", holder.identity),
                (None, _) => "never held".to_owned(),
            };
            findings.passed(BLOB, format!("{place}: term {term}, {who}, lease {state}"));
        }
        Ok(_) => {
            let detail = format!("{place} has no term: the first leader waits a minute");
            findings.warning(BLOB, detail, "run `tenure doctor --create` to avoid that wait");
        }
        Err(failure) => {
            let remedy = "choose another --election or --azure-blob-prefix, or delete the blob if \
                          it is not in use";
            findings.failed(BLOB, failure.message, remedy);
        }
    }
    let is_held = header(headers, "x-ms-legal-hold") == Some("true");
    if is_held || header(headers, "x-ms-immutability-policy-until-date").is_some() {
        findings.failed(BLOB, IMMUTABLE, "use a container without, or remove the policy");
    }
    match (header(headers, "x-ms-access-tier"), header(headers, "x-ms-archive-status")) {
        (Some("Archive"), _) | (_, Some(_)) => {
            let remedy = "move the blob to the hot tier, and exclude it from lifecycle rules: a \
                          renewal does not count as a modification for them";
            findings.failed(TIER, "the blob is archived and cannot be leased", remedy);
        }
        (tier, _) => findings.passed(TIER, tier.unwrap_or("none, so always available")),
    }
}

/// Compares the store's date, taken at some time between request and answer, with this host's
/// clock.
fn skew(date: OffsetDateTime, asked: Moment, answered: Moment, findings: &mut Findings) {
    let seconds = apart(date, time::Duration::SECOND, asked, answered).whole_seconds();
    let remedy = "synchronize the clock of this host (NTP)";
    match seconds {
        900.. => findings.failed(
            SKEW,
            format!(
                "the clock of this host is {seconds} s off; from 900 s on the store rejects what is \
                 signed with a key"
            ),
            remedy,
        ),
        31.. => {
            findings.warning(SKEW, format!("the clock of this host is {seconds} s off"), remedy)
        }
        _ => findings.passed(SKEW, format!("the clock of this host is {seconds} s off")),
    }
}

/// Times some requests over an open connection.
async fn timings(store: &Azure, access: &Access, findings: &mut Findings) {
    let mut slowest = Duration::ZERO;
    for _ in 0..TIMED {
        let sent = clock::now();
        if patiently(access.lock.get_properties(None)).await.is_none() {
            findings.failed(TIMINGS, "a request was not answered within 25 s", "check the network");
            return;
        }
        slowest = slowest.max(sent.elapsed_max(clock::now()));
    }
    let bound = store.settings.request_timeout;
    let check = "use an account in a nearer region";
    findings.timings(TIMINGS, of_timings(slowest, 1, bound, check));
}

//! Findings about the sidecar's surroundings: the shutdown time, the health probes, the hooks, TLS, the
//! admin listener, agent checks and the maintenance of the machine.
//!
//! No hook is run and no webhook called, since that would announce a change that did not happen.
//! Each probe runs once.

use std::net::SocketAddr;

use rustix::fs::Access;

use super::doctor::finding;
use crate::clock;
use crate::config::{Admin, Ending, Hook, Loaded, Settings, Warning};
use crate::maintenance;
use crate::probe::Probes;
use crate::store::{Finding, Verdict};
use crate::tls::{ServerFiles, ServerTls};

/// Returns all findings; runs each probe once.
pub(super) async fn examine(loaded: &Loaded) -> Vec<Finding> {
    let settings = &loaded.settings;
    let mut findings = vec![competitors(loaded), end(settings)];
    findings.extend(health(settings).await);
    findings.extend(settings.hooks.iter().map(|(name, it)| hook(name, it)));
    findings.extend(settings.tls.as_ref().map(tls));
    findings.extend(settings.admin.as_ref().map(admin));
    findings.extend(settings.agent_check.as_ref().map(agent_check));
    if let Some(source) = &settings.scheduled_events {
        findings.extend(maintenance::examine(source, clock::now()).await);
    }
    findings.extend(loaded.warnings.iter().map(doubt));
    findings
}

/// Tells who can compete. A default store is only a note: it may be intended.
fn competitors(loaded: &Loaded) -> Finding {
    let detail = loaded.settings.store.competitors();
    match loaded.is_default_store {
        false => finding(Verdict::Passed, "competitors", detail),
        true => Finding {
            remedy: Some("set --store to a store that all hosts share".to_owned()),
            ..finding(Verdict::Warning, "competitors", format!("{detail}: store is not set"))
        },
    }
}

fn end(settings: &Settings) -> Finding {
    let ending = Ending::of(settings);
    let seconds = ending.seconds();
    finding(
        Verdict::Passed,
        "end",
        format!(
            "shutdown takes at most {ending}: set terminationGracePeriodSeconds: {seconds} in \
             Kubernetes (default 30), TimeoutStopSec={seconds} in systemd (default 90)"
        ),
    )
}

/// A failing probe is only a note: the service may not be running while doctor examines.
async fn health(settings: &Settings) -> Vec<Finding> {
    let probes = match Probes::new(&settings.health, clock::now) {
        Ok(probes) => probes,
        Err(error) => {
            return vec![finding(
                Verdict::Failed,
                "health",
                format!("failed to set up the probes: {error:#}"),
            )];
        }
    };
    let one = |(name, succeeded, message): (String, bool, String)| Finding {
        remedy: (!succeeded).then(|| {
            "this instance does not compete until the probe succeeds; start the service, or fix \
             the probe"
                .to_owned()
        }),
        ..finding(
            if succeeded { Verdict::Passed } else { Verdict::Warning },
            "health",
            format!("{name} {}: {message}", if succeeded { "succeeded" } else { "failed" }),
        )
    };
    probes.once().await.into_iter().map(one).collect()
}

fn hook(name: &'static str, hook: &Hook) -> Finding {
    let does = match hook {
        Hook::Command(_) => format!("runs {hook}, which exists and is executable"),
        Hook::Webhook(_) => format!("posts to {hook}, which was not tried"),
    };
    finding(Verdict::Passed, name, does)
}

/// Names the dates of the certificate; one that is not valid is among the warnings.
fn tls(files: &ServerFiles) -> Finding {
    let validity = ServerTls::load(files).ok().and_then(|it| it.validity());
    let validity = validity.map_or("cannot be read".to_owned(), |it| format!("is {it}"));
    let clients = if files.client_ca.is_some() { "must" } else { "need not" };
    let cert = files.own.cert.display();
    let detail =
        format!("the certificate in {cert} {validity}; clients {clients} present one of their own");
    finding(Verdict::Passed, "tls", detail)
}

fn admin(admin: &Admin) -> Finding {
    let directory = match admin {
        Admin::Tcp { address, token_file } => {
            let detail =
                format!("listens on {address}, with the token in {}", token_file.display());
            return finding(Verdict::Passed, "admin", detail);
        }
        Admin::Unix(path) => path.parent().unwrap_or(path),
    };
    if rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return Finding {
            remedy: Some(format!("make {} writable for this user", directory.display())),
            ..finding(
                Verdict::Failed,
                "admin",
                format!("{admin} cannot be created: its directory is not writable"),
            )
        };
    }
    let detail = if admin.is_taken() {
        format!("{admin} is in use: by the sidecar, if it is running")
    } else {
        format!("{admin} can be created")
    };
    finding(Verdict::Passed, "admin", detail)
}

/// HAProxy keeps the last answer of an agent that answers no more.
fn agent_check(address: &SocketAddr) -> Finding {
    Finding {
        remedy: Some(
            "give each server a health check beside it, of /livez on the status listener: \
             docs/haproxy.md"
                .to_owned(),
        ),
        ..finding(
            Verdict::Passed,
            "agent check",
            format!(
                "HAProxy is answered on {address}; it keeps the last answer of an instance that died"
            ),
        )
    }
}

fn doubt(doubt: &Warning) -> Finding {
    Finding {
        remedy: Some(doubt.remedy.clone()),
        ..finding(Verdict::Warning, doubt.subject, doubt.problem.clone())
    }
}

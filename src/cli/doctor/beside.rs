//! Findings about the sidecar's surroundings: the shutdown time, the health probes, the hooks and
//! the admin listener.
//!
//! No hook is run and no webhook called, since that would announce a change that did not happen.
//! Each probe runs once.

use rustix::fs::Access;

use super::finding;
use crate::clock;
use crate::config::{Admin, Ending, Hook, Loaded, Settings, Warning};
use crate::probe::Probes;
use crate::store::{Finding, Verdict};

/// Returns all findings; runs each probe once.
pub(super) async fn examine(loaded: &Loaded) -> Vec<Finding> {
    let settings = &loaded.settings;
    let mut findings = vec![end(settings)];
    findings.extend(health(settings).await);
    findings.extend(settings.hooks.iter().map(|(name, it)| hook(name, it)));
    findings.extend(settings.admin.as_ref().map(admin));
    findings.extend(loaded.warnings.iter().map(doubt));
    findings
}

fn end(settings: &Settings) -> Finding {
    let ending = Ending::of(settings);
    let seconds = ending.seconds();
    finding(
        Verdict::Well,
        "end",
        format!(
            "an end by SIGTERM takes at most {ending}: leave it that time by \
             terminationGracePeriodSeconds: {seconds} in Kubernetes (30 if unset), \
             TimeoutStopSec={seconds} in systemd (90 if unset)"
        ),
    )
}

/// A failing probe is only a note: the service may not be running while doctor examines.
async fn health(settings: &Settings) -> Vec<Finding> {
    let probes = match Probes::new(&settings.health, clock::now) {
        Ok(probes) => probes,
        Err(error) => {
            return vec![finding(Verdict::Wrong, "health", format!("cannot be asked: {error:#}"))];
        }
    };
    let one = |(name, well, said): (String, bool, String)| Finding {
        remedy: (!well).then(|| {
            "nobody competes here until it is well; start the service, or mend the probe".to_owned()
        }),
        ..finding(
            if well { Verdict::Well } else { Verdict::Doubtful },
            "health",
            format!("{name} {}: {said}", if well { "is well" } else { "is not well" }),
        )
    };
    probes.once().await.into_iter().map(one).collect()
}

fn hook(name: &'static str, hook: &Hook) -> Finding {
    let does = match hook {
        Hook::Command(_) => format!("runs {hook}, which is there and can be run"),
        Hook::Webhook(_) => format!("is posted to {hook}, which was not tried"),
    };
    finding(Verdict::Well, name, does)
}

fn admin(admin: &Admin) -> Finding {
    let directory = match admin {
        Admin::Tcp { address, token_file } => {
            let detail =
                format!("listens at {address}, with the token of {}", token_file.display());
            return finding(Verdict::Well, "admin", detail);
        }
        Admin::Unix(path) => path.parent().unwrap_or(path),
    };
    if rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return Finding {
            remedy: Some(format!("let our user write to {}", directory.display())),
            ..finding(
                Verdict::Wrong,
                "admin",
                format!("{admin} cannot be made: we may not write to its directory"),
            )
        };
    }
    let detail = if admin.is_taken() {
        format!("{admin} is listened at: by the sidecar, if it is up")
    } else {
        format!("{admin} can be made, for our own user")
    };
    finding(Verdict::Well, "admin", detail)
}

fn doubt(doubt: &Warning) -> Finding {
    Finding {
        remedy: Some(doubt.remedy.clone()),
        ..finding(Verdict::Doubtful, doubt.subject, doubt.problem.clone())
    }
}

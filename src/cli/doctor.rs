//! `tenure doctor`: examines settings, store and timings, and prints findings with remedies.
//!
//! It changes nothing unless `--create` is given, and acquires no lease.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::ExecSettingsArgs;
use super::terminal::{self, Colour, Style, Unconfirmed, harmless};
use super::{identity_checks, peer_checks, surroundings};
use crate::clock;
use crate::config::{Environment, Faults, Setting, Settings, Verb, duration, load_to_examine};
use crate::election::LARGEST_TERM;
use crate::lease::text::INVALID_NAME;
use crate::lease::{Anomaly, Snapshot};
use crate::publish::route;
use crate::status::words::spoken;
use crate::store::{self, Finding, LeaseAdmin, Verdict};

/// The bound on the store's examination: a dozen requests, each of which may time out.
const EXAMINATION: Duration = Duration::from_secs(90);

/// The most characters that are printed of a detail, which may quote what others wrote.
const LONGEST_DETAIL: usize = 2_000;

/// Below this margin, a pause of a virtual machine during its migration (typically 5 s) may exceed
/// it.
const GOOD_MARGIN: Duration = Duration::from_secs(5);

/// The settings of `tenure run` or `tenure exec`, and whether to create what is missing.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Reads the settings of `tenure run`, or with --exec those of `tenure exec`, from the same flags,
variables and file.

Examples:
  tenure doctor --store azure://myaccount/elections --election orders
  tenure doctor --store azure://myaccount/elections --election orders --create
      creates container and lock, so that the first leader need not wait a minute

Exit codes: 0 no errors found, 1 an error was found, 2 bad usage")]
pub struct Args {
    #[command(flatten)]
    settings: ExecSettingsArgs,
    /// Check the settings of `tenure exec` instead of `tenure run`
    #[arg(long, help_heading = "Command")]
    exec: bool,
    /// Create what is missing in the store
    #[arg(long, help_heading = "Creating")]
    create: bool,
    /// Do not ask whether a leader is alive
    #[arg(long, requires = "create", help_heading = "Creating")]
    yes: bool,
}

/// Runs the examination and prints each finding as soon as it is available. Exits with 0 if all is
/// well, 1 if something is wrong, 2 on wrong usage.
pub async fn run(args: Args, environment: &Environment) -> ExitCode {
    let mut printer = Printer { style: Style::of_stdout(environment), wrong: false, output: None };
    let flags = args.settings.flags;
    let of_exec = args.exec || flags.keys().any(|it| is_of_exec_alone(it));
    let verb = if of_exec { Verb::Exec } else { Verb::Run };
    let loaded = match load_to_examine(&flags, environment, verb) {
        Ok(loaded) => loaded,
        Err(faults) => {
            of_faults(&faults).into_iter().for_each(|it| printer.print(&it));
            printer.print(&finding(Verdict::Skipped, "store", "fix the settings first"));
            return printer.end();
        }
    };
    let settings = &loaded.settings;
    printer.print(&finding(Verdict::Passed, "settings", settings.summary()));
    let mut seen = None;
    match store::open(settings) {
        Ok(store) => {
            if args.create && !create(&store, settings, args.yes, &mut printer).await {
                return ExitCode::from(2);
            }
            match tokio::time::timeout(EXAMINATION, store.examine()).await {
                Ok(findings) => {
                    findings.iter().for_each(|it| printer.print(it));
                    seen = read(&store).await;
                    let anomalies = seen.as_mut().map(|it| of_anomalies(it, settings));
                    anomalies.iter().flatten().for_each(|it| printer.print(it));
                    seen.iter().filter_map(of_move).for_each(|it| printer.print(&it));
                }
                Err(_) => printer.print(&Finding {
                    remedy: Some("check for a firewall between this host and the store".to_owned()),
                    ..finding(
                        Verdict::Failed,
                        "store",
                        format!("not finished after {}", duration::format(EXAMINATION)),
                    )
                }),
            }
        }
        Err(error) => printer.print(&Finding {
            remedy: Some("fix the settings of the store".to_owned()),
            ..finding(Verdict::Failed, "store", format!("failed to open: {error:#}"))
        }),
    }
    identity_checks::examine(settings, seen.as_ref()).await.iter().for_each(|it| printer.print(it));
    of_timings(settings).iter().for_each(|it| printer.print(it));
    surroundings::examine(&loaded).await.iter().for_each(|it| printer.print(it));
    if let Some(it) = &settings.peers {
        peer_checks::examine(it, seen.as_ref()).await.iter().for_each(|it| printer.print(it));
    }
    if let Some(it) = &settings.kubernetes {
        route::examine(it).await.iter().for_each(|it| printer.print(it));
    }
    printer.end()
}

/// Returns whether a flag exists for `tenure exec` only.
fn is_of_exec_alone(flag: &str) -> bool {
    Setting::named(flag).is_some_and(|it| !it.is_flag_of(Verb::Run))
}

pub(super) fn finding(
    verdict: Verdict,
    subject: &'static str,
    detail: impl Into<String>,
) -> Finding {
    Finding { subject: subject.into(), verdict, detail: detail.into(), remedy: None }
}

/// Reads the lease; `None` if it cannot be read, which is for the store's own examination.
async fn read(store: &Arc<dyn LeaseAdmin>) -> Option<Snapshot> {
    tokio::time::timeout(EXAMINATION, store.read()).await.ok()?.ok()
}

/// Reports what no candidate of Tenure writes, and removes it.
fn of_anomalies(seen: &mut Snapshot, settings: &Settings) -> Vec<Finding> {
    let term = seen.record.term.filter(|term| *term >= LARGEST_TERM).map(|term| Finding {
        remedy: Some(
            "once you are sure that no leader is active, delete the record and run `tenure doctor \
             --create`"
                .to_owned(),
        ),
        ..finding(Verdict::Failed, "term", format!("{term} is so large that none can follow"))
    });
    let found = seen.admit(settings.timings.lease_duration).into_iter().map(|it| match it {
        Anomaly::Name => Finding {
            remedy: Some(
                "find out who writes to this store; the next leader replaces the record, and \
                 `tenure break` ends the leadership of this one"
                    .to_owned(),
            ),
            ..finding(
                Verdict::Failed,
                "names",
                format!(
                    "the record has a name that is not 1 to 128 printable characters, so no \
                     candidate of Tenure wrote it; it is shown as {INVALID_NAME}"
                ),
            )
        },
        Anomaly::Peer => Finding {
            remedy: Some(
                "find out who writes to this store; the next leader replaces the record".to_owned(),
            ),
            ..finding(
                Verdict::Failed,
                "peer",
                "the record has the URL of a peer that no candidate of Tenure writes, so nobody \
                 connects to it"
                    .to_owned(),
            )
        },
        Anomaly::EndlessLease(ends_in) => Finding {
            remedy: Some(
                "once you are sure that its holder is dead, free it with `tenure break --now`"
                    .to_owned(),
            ),
            ..finding(
                Verdict::Failed,
                "length",
                format!(
                    "the lease {}, and lease-duration is {}: no candidate of Tenure asks for that",
                    if ends_in == Duration::MAX {
                        "never expires".to_owned()
                    } else {
                        format!("is held for {} unless it is renewed", spoken(ends_in))
                    },
                    duration::format(settings.timings.lease_duration),
                ),
            )
        },
    });
    term.into_iter().chain(found).collect()
}

/// Reports that the election has moved to another store.
fn of_move(seen: &Snapshot) -> Option<Finding> {
    let to = seen.record.moved_to()?;
    Some(Finding {
        remedy: Some(format!(
            "start the instances with --store {to}, or take the election back with `tenure migrate --undo`"
        )),
        ..finding(
            Verdict::Failed,
            "moved",
            format!("the election has moved to {to}, so that no instance bids in this store"),
        )
    })
}

fn of_faults(faults: &Faults) -> Vec<Finding> {
    let one = |fault: &crate::config::Fault| Finding {
        subject: fault.setting.clone().into(),
        verdict: Verdict::Failed,
        detail: format!("{}: {}", fault.subject(), fault.problem),
        remedy: Some(fault.remedy.clone()),
    };
    faults.0.iter().map(one).collect()
}

/// Explains what the timings mean in practice.
fn of_timings(settings: &Settings) -> Vec<Finding> {
    let it = &settings.timings;
    let margin = it.lease_duration.saturating_sub(it.renew_deadline);
    let roomy = margin >= GOOD_MARGIN;
    let pauses = Finding {
        remedy: (!roomy).then(|| {
            format!(
                "if machines may be paused for up to {}, as in live migration, raise \
                 lease-duration, or let the resource check the term",
                duration::format(GOOD_MARGIN)
            )
        }),
        ..finding(
            if roomy { Verdict::Passed } else { Verdict::Warning },
            "pauses",
            format!(
                "tolerates {} of clock drift and undetected pauses together (lease-duration minus \
                 renew-deadline)",
                duration::format(margin)
            ),
        )
    };
    let read_interval = it.retry_period + it.retry_period / 2;
    let retries = finding(
        Verdict::Passed,
        "outages",
        format!(
            "a leader survives store outages of up to {}",
            duration::format(it.renew_deadline.saturating_sub(it.retry_period))
        ),
    );
    let handover = finding(
        Verdict::Passed,
        "handover",
        format!(
            "within about {} after a shutdown, {} after a crash",
            duration::format(settings.drain_timeout + read_interval + it.activation_delay),
            duration::format(it.lease_duration + read_interval + it.activation_delay)
        ),
    );
    let health = &settings.health;
    let ill = health.interval * health.failures + settings.drain_timeout;
    let dead_service = finding(
        Verdict::Passed,
        "dead service",
        if health.probes.is_empty() {
            "is not detected: --health is not set".to_owned()
        } else {
            format!("another instance leads within about {}", duration::format(ill + read_interval))
        },
    );
    vec![pauses, retries, handover, dead_service]
}

/// Creates what is missing in the store, after a confirmation. Returns false if there is no
/// terminal to ask on.
async fn create(
    store: &Arc<dyn LeaseAdmin>,
    settings: &Settings,
    yes: bool,
    printer: &mut Printer,
) -> bool {
    if !yes {
        let question = format!("Are you sure that no leader of {:?} is alive?", settings.election);
        let confirmed = terminal::confirm(
            "A new term lets the first leader start at once. That is safe only while no instance \
             leads.",
            &question,
        );
        let confirmed = confirmed.await;
        if confirmed == Err(Unconfirmed::NobodyToAsk) {
            terminal::complain(
                "--create asks whether no leader is alive, but standard input or standard error is \
                 not a terminal\n  confirm with --yes",
            );
            return false;
        }
        if confirmed.is_err() {
            printer.print(&Finding {
                remedy: Some("stop all candidates of this election first".to_owned()),
                ..finding(
                    Verdict::Failed,
                    "create",
                    "nothing was created, since a leader may be alive",
                )
            });
            return true;
        }
    }
    // R11: a term that starts at unix milliseconds is larger than any term that was lost.
    let floor = u64::try_from(clock::now().wall.as_millis()).unwrap_or(u64::MAX);
    match tokio::time::timeout(EXAMINATION, store.create(floor)).await {
        Ok(Ok(made)) if made.is_empty() => {
            printer.print(&finding(Verdict::Passed, "create", "nothing was missing"));
        }
        Ok(Ok(made)) => {
            made.into_iter().for_each(|it| printer.print(&finding(Verdict::Passed, "create", it)));
        }
        Ok(Err(error)) => printer.print(&finding(Verdict::Failed, "create", error.to_string())),
        Err(_) => printer.print(&finding(Verdict::Failed, "create", "the store did not answer")),
    }
    true
}

/// Prints findings, and records whether one of them was wrong.
struct Printer {
    style: Style,
    wrong: bool,
    /// The first error of standard output.
    output: Option<io::Error>,
}

impl Printer {
    fn print(&mut self, finding: &Finding) {
        self.wrong |= finding.verdict == Verdict::Failed;
        self.output = self.output.take().or(terminal::write(&line(finding, self.style)).err());
    }

    fn end(self) -> ExitCode {
        let code = if self.wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        self.output.map_or(code, |error| terminal::unwritten(&error, code))
    }
}

fn line(finding: &Finding, style: Style) -> String {
    let (sign, label, colour) = match finding.verdict {
        Verdict::Passed => ("✓", "ok", Colour::Green),
        Verdict::Warning => ("!", "note", Colour::Yellow),
        Verdict::Failed => ("✗", "WRONG", Colour::Red),
        Verdict::Skipped => ("–", "skipped", Colour::Dim),
    };
    let mark = if style.signs { sign.to_owned() } else { format!("{label:<7}") };
    let mark = style.paint(colour, &mark);
    let detail: String = finding.detail.chars().take(LONGEST_DETAIL).collect();
    let mut text = format!("{mark} {}: {}\n", finding.subject, harmless(&detail));
    if let Some(remedy) = &finding.remedy {
        let indent = if style.signs { "  " } else { "        " };
        text.push_str(&format!("{indent}→ {}\n", harmless(remedy)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Record, Successor, Version};

    #[test]
    fn findings_are_lines_with_a_mark_and_their_remedy() {
        let it = Finding {
            remedy: Some("do that".to_owned()),
            ..finding(Verdict::Failed, "container", "is not there")
        };
        let plain = Style { colour: false, signs: false };
        assert_eq!(line(&it, plain), "WRONG   container: is not there\n        → do that\n");
        let signs = Style { colour: true, signs: true };
        assert_eq!(line(&it, signs), "\x1b[31m✗\x1b[0m container: is not there\n  → do that\n");
    }

    #[test]
    fn an_election_that_has_moved_is_wrong_here() {
        let record = |successor| Record { term: Some(7), successor, ..Record::default() };
        let seen = |record| Snapshot {
            free: true,
            record,
            version: Version("1".into()),
            claim: None,
            ends_in: None,
        };
        assert!(of_move(&seen(record(None))).is_none());
        let found = of_move(&seen(record(Some(Successor::store("gs://locks"))))).unwrap();
        assert_eq!(found.verdict, Verdict::Failed);
        let told = found.detail.contains("moved to gs://locks");
        assert!(told && found.remedy.unwrap().contains("--store gs://locks"), "{}", found.detail);
    }

    #[test]
    fn timings_are_explained() {
        let of = |flags: &[(&'static str, &str)]| {
            let flags =
                flags.iter().map(|(name, value)| (*name, vec![(*value).to_owned()])).collect();
            let loaded = load_to_examine(&flags, &Environment::of([("A", "")]), Verb::Run);
            of_timings(&loaded.unwrap().settings)
        };
        let findings = of(&[]);
        assert!(findings.iter().all(|it| it.verdict == Verdict::Passed), "{findings:?}");
        assert!(findings[2].detail.contains("within about 3s after a shutdown"), "{findings:?}");
        assert!(findings[2].detail.contains("18s after a crash"), "{findings:?}");
        assert!(findings[3].detail.contains("--health is not set"), "{findings:?}");
        assert_eq!(of(&[("renew-deadline", "13s")])[0].verdict, Verdict::Warning);
        let findings = of(&[("health", "tcp://a:1"), ("drain-timeout", "4s")]);
        assert!(findings[2].detail.contains("within about 7s after a shutdown"), "{findings:?}");
        assert!(findings[3].detail.contains("within about 13s"), "{findings:?}");
    }
}

//! `tenure step-down`, `transfer`, `pause`, `resume` and `drained`: send an operator's command to
//! the admin listener of a running sidecar.
//!
//! They wait until the command is done, which they see by the status that the same listener gives. They
//! never repeat a command.

use std::process::ExitCode;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::admin_client::{AdminArgs, AdminListener, Answer};
use super::document::Document;
use super::outcome::{Goal, Waiting, is_last};
use super::terminal::{self, Unconfirmed, complain, harmless, print};
use crate::admin::{LONGEST_HOLD_OFF, USUAL_HOLD_OFF};
use crate::config::{Environment, Problem, arguments, duration};
use crate::status::words::spoken;

/// How often the status is asked for until the command is done.
const PACE: Duration = Duration::from_millis(50);

/// The hold-off of a command.
#[derive(clap::Args, Clone, Debug)]
pub struct HoldOff {
    /// How long this instance does not compete, or the others wait: 1ms to 1h; `pause` is for longer
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = hold_off, allow_hyphen_values = true)]
    pub(super) hold_off: Duration,
}

/// Arguments of `step-down`.
#[derive(clap::Args, Clone, Debug)]
pub struct StepDown {
    #[command(flatten)]
    hold_off: HoldOff,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of `transfer`.
#[derive(clap::Args, Clone, Debug)]
pub struct Transfer {
    /// The identity of the candidate that is to lead
    #[arg(long, value_name = "IDENTITY")]
    to: String,
    /// Transfer even if the leader's peers do not have it, or it cannot lead now
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    hold_off: HoldOff,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of `pause`.
#[derive(clap::Args, Clone, Debug)]
pub struct Pause {
    /// Do not ask whether nobody is to lead, where this is the last candidate that can
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of `drained`.
#[derive(clap::Args, Clone, Debug)]
pub struct Drained {
    /// The term whose work has ended (TENURE_TERM of the service), so that a late call does not end
    /// the drain of a later term
    #[arg(long, value_name = "N", value_parser = term, allow_hyphen_values = true)]
    term: Option<u64>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// A command with its arguments.
#[derive(Clone, Debug)]
pub enum Verb {
    /// Step down.
    StepDown(StepDown),
    /// Hand leadership to a named successor.
    Transfer(Transfer),
    /// Leave the election.
    Pause(Pause),
    /// Rejoin the election.
    Resume(AdminArgs),
    /// Report that the service has finished its work.
    Drained(Drained),
}

/// The help of `step-down`.
pub const STEP_DOWN: &str = "\
The leader reports passive at once, gives its service up to --drain-timeout to finish its work, \
releases the lease, and does not compete for --hold-off, so that another instance acquires it. If no \
other is healthy, it leads again after that. The command waits until another instance leads, and says which \
and after which time.

Examples:
  tenure step-down --admin unix:/run/tenure/admin.sock
  tenure step-down --hold-off 1m --no-wait

Exit codes: 0 another leads, with --no-wait: begun; 1 refused, or no other took over; 2 bad usage";

/// The help of `transfer`.
pub const TRANSFER: &str = "\
As step-down, and the other candidates wait for the successor for --hold-off, each by its own clock. \
A successor that is dead or unknown costs that time, and nothing else. With --peers the leader refuses one \
that is not connected to it or cannot lead now, unless --force is given. The command waits until the successor \
leads.

Examples:
  tenure transfer --to web-2
  tenure transfer --to web-2 --force

Exit codes: 0 it leads, with --no-wait: begun; 1 refused, or it did not take over; 2 bad usage";

/// The help of `pause`.
pub const PAUSE: &str = "\
A leader resigns first: it drains and releases, and another leads. That is unlike Patroni's pause, \
which keeps the leader where it is. A pause ends with `tenure resume`, or with the process. The command waits \
until it is done and, after a leader's, another instance leads. For the last candidate that can lead, by the \
peers, it asks first: nobody would lead.

Examples:
  tenure pause
  tenure pause --yes    in a script, also where nobody leads then
  tenure resume

Exit codes: 0 paused; 1 refused, or no other instance leads; 2 bad usage, or --yes is missing";

/// The help of `resume`.
pub const RESUME: &str = "\
Ends a pause. An instance that holds off after `step-down`, or waits for a successor that does not \
come, competes again at once. The command waits until a leader is known.

Example:
  tenure resume";

/// The help of `drained`.
pub const DRAINED: &str = "\
For a service that is passive now and has finished all work that it began as leader: the lease is \
released at once instead of at the end of --drain-timeout. The exit of --on-drain, or of the command of \
exec, has the same effect.

Example:
  tenure drained --term \"$TENURE_TERM\"";

fn hold_off(text: &str) -> Result<Duration, Problem> {
    let usual = duration::format(USUAL_HOLD_OFF);
    let it = arguments::positive_duration(text, &format!("write a duration such as {usual}"))?;
    if it > LONGEST_HOLD_OFF {
        let problem = format!("is longer than {}", duration::format(LONGEST_HOLD_OFF));
        return Err(Problem::new(problem, "use tenure pause for a longer time"));
    }
    Ok(it)
}

fn term(text: &str) -> Result<u64, Problem> {
    arguments::number(text, 1, "write the service's TENURE_TERM, a number such as 42")
}

impl Verb {
    fn admin(&self) -> &AdminArgs {
        match self {
            Self::StepDown(it) => &it.admin,
            Self::Transfer(it) => &it.admin,
            Self::Drained(it) => &it.admin,
            Self::Pause(it) => &it.admin,
            Self::Resume(it) => it,
        }
    }

    fn path(&self) -> &'static str {
        match self {
            Self::StepDown(_) => "/v1/step-down",
            Self::Transfer(_) => "/v1/transfer",
            Self::Pause(_) => "/v1/pause",
            Self::Resume(_) => "/v1/resume",
            Self::Drained(_) => "/v1/drained",
        }
    }

    fn body(&self) -> Value {
        let written = |it: &HoldOff| duration::format(it.hold_off);
        match self {
            Self::StepDown(it) => json!({ "hold_off": written(&it.hold_off) }),
            Self::Transfer(it) if it.force => {
                json!({ "to": it.to, "hold_off": written(&it.hold_off), "force": true })
            }
            Self::Transfer(it) => json!({ "to": it.to, "hold_off": written(&it.hold_off) }),
            Self::Drained(Drained { term: Some(term), .. }) => json!({ "term": term }),
            Self::Pause(_) | Self::Resume(_) | Self::Drained(_) => json!({}),
        }
    }
}

/// Sends the command and waits until it is done. Exits with 0 when it is, or has begun where it is not
/// waited for; 1 when it is not possible, the sidecar cannot be reached, or what it was for did not come; 2
/// when the arguments are wrong or a confirmation is missing.
pub async fn run(verb: Verb, environment: &Environment) -> ExitCode {
    let listener = match AdminListener::of(verb.admin(), environment).await {
        Ok(listener) => listener,
        Err(fault) => {
            complain(&fault);
            return ExitCode::from(2);
        }
    };
    let sent = async {
        let before = listener.status().await.map_err(|error| (error, ExitCode::FAILURE))?;
        verb.confirm(before.as_ref()).await?;
        let waiting = before.as_ref().map(|it| Waiting::new(verb.goal(it), it));
        let answer = listener.post(verb.path(), &verb.body()).await;
        Ok((answer.map_err(|error| (error, ExitCode::FAILURE))?, waiting))
    };
    match sent.await {
        Ok((answer, waiting)) if answer.code.is_success() => {
            report(&verb, &listener, answer, waiting).await
        }
        Ok((answer, _)) => {
            let invalid = answer.code == StatusCode::BAD_REQUEST;
            let code = if invalid { ExitCode::from(2) } else { ExitCode::FAILURE };
            complain(&answer.refusal());
            if verb.admin().json {
                print(&format!("{}\n", harmless(&answer.raw)), code)
            } else {
                code
            }
        }
        Err((error, code)) => {
            complain(&error);
            code
        }
    }
}

/// Prints what was begun, waits until it is done unless that is not wanted, and prints what came of it.
async fn report(
    verb: &Verb,
    listener: &AdminListener,
    answer: Answer,
    waiting: Option<Waiting>,
) -> ExitCode {
    let json = verb.admin().json;
    if let Some(warning) = answer.text("warning") {
        complain(&harmless(warning));
    }
    let text = if json { harmless(&answer.raw) } else { begun(verb, &answer) };
    let waiting = waiting.filter(|_| !verb.admin().no_wait);
    let Some(mut waiting) = waiting else {
        return print(&format!("{text}\n"), ExitCode::SUCCESS);
    };
    if !json && let Err(error) = terminal::write(&format!("{text}\n")) {
        return terminal::unwritten(&error, ExitCode::SUCCESS);
    }
    waiting.allow(answer.milliseconds("another_leads_in_ms"), verb.hold_off());
    let ask = async || {
        let status = listener.status().await?;
        status.ok_or_else(|| "it is of another version by now".to_owned())
    };
    let outcome = waiting.outcome(PACE, ask).await;
    let code = if outcome.succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    match json {
        true => {
            let text = harmless(&Value::Object(outcome.within(answer.fields)).to_string());
            print(&format!("{text}\n"), code)
        }
        false if outcome.succeeded => print(&format!("{}\n", outcome.words), code),
        false => {
            complain(&outcome.words);
            code
        }
    }
}

impl Verb {
    /// Asks before a pause after which nobody leads; an error says what to do, with the exit code.
    async fn confirm(&self, before: Option<&Document>) -> Result<(), (String, ExitCode)> {
        let (Self::Pause(Pause { yes: false, .. }), Some(before)) = (self, before) else {
            return Ok(());
        };
        match is_last(before) {
            Some(false) => return Ok(()),
            None => {
                complain(
                    "without --peers it is not known whether another candidate can lead: if there is \
                     none, nobody leads until tenure resume",
                );
                return Ok(());
            }
            Some(true) => {}
        }
        let problem = format!(
            "{} is the last candidate of {:?} that can lead: nobody will lead until tenure resume",
            harmless(&before.identity),
            before.election
        );
        let confirmed = terminal::confirm(&problem, "Pause it?").await;
        confirmed.map_err(|unconfirmed| match unconfirmed {
            Unconfirmed::Declined => ("nothing was done".to_owned(), ExitCode::FAILURE),
            Unconfirmed::NobodyToAsk => {
                (format!("{problem}\n  confirm with --yes"), ExitCode::from(2))
            }
        })
    }

    /// Returns what the command is to bring about, by the status before it.
    fn goal(&self, before: &Document) -> Goal {
        let led = matches!(&*before.state, "leader" | "jeopardy" | "activating" | "draining");
        match self {
            Self::StepDown(_) => Goal::Handover { to: None },
            Self::Transfer(it) => Goal::Handover { to: Some(it.to.clone()) },
            Self::Pause(it) => {
                Goal::Pause { led, alone: is_last(before) == Some(true), accepted: it.yes }
            }
            Self::Resume(_) => Goal::Resume,
            Self::Drained(_) => Goal::Drained,
        }
    }

    fn hold_off(&self) -> Duration {
        match self {
            Self::StepDown(StepDown { hold_off, .. })
            | Self::Transfer(Transfer { hold_off, .. }) => hold_off.hold_off,
            Self::Pause(_) | Self::Resume(_) | Self::Drained(_) => Duration::ZERO,
        }
    }
}

/// Formats what was done and what follows from it.
fn begun(verb: &Verb, answer: &Answer) -> String {
    let leaving = leaving(answer);
    match verb {
        Verb::StepDown(it) => format!(
            "{leaving}; this instance does not compete for {} after that",
            duration::format(it.hold_off.hold_off)
        ),
        Verb::Transfer(it) => {
            let (to, hold_off) = (harmless(&it.to), duration::format(it.hold_off.hold_off));
            format!(
                "{leaving}; the other candidates wait for {to} for {hold_off}; `tenure resume` on \
                 another candidate ends its wait"
            )
        }
        Verb::Pause(_) if answer.code == StatusCode::OK => {
            "paused: does not compete until tenure resume".to_owned()
        }
        Verb::Pause(_) => format!("{leaving}; then it does not compete until tenure resume"),
        Verb::Resume(_) => "resumed: competes again".to_owned(),
        Verb::Drained(_) => "the drain has ended: the lease is released now".to_owned(),
    }
}

/// Formats how the leader steps down: its state, when the lease is free, and when another leads.
fn leaving(answer: &Answer) -> String {
    let state = harmless(answer.text("state").unwrap_or("passive"));
    let release = match answer.milliseconds("drain_remaining_ms") {
        Some(left) if !left.is_zero() => format!("releases the lease within {}", spoken(left)),
        _ => "releases the lease now".to_owned(),
    };
    let mut text = format!("{state}: passive at once, {release}");
    if let Some(wait) = answer.milliseconds("another_leads_in_ms") {
        let next = match answer.text("to") {
            Some(successor) => format!("{}, if it is healthy,", harmless(successor)),
            None => "another instance, if one is healthy,".to_owned(),
        };
        text += &format!("; {next} leads within about {}", spoken(wait));
    }
    text
}

//! `tenure step-down`, `transfer`, `pause`, `resume` and `drained`: send an operator's command to
//! the admin listener of a running sidecar.
//!
//! They do not wait until a command that has begun is done; `tenure wait` does. They never repeat a
//! request.

use std::process::ExitCode;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::admin_client::{AdminArgs, AdminListener, Answer};
use super::terminal::{complain, harmless, print};
use crate::admin::{LONGEST_HOLD_OFF, USUAL_HOLD_OFF};
use crate::config::{Environment, Problem, arguments, duration};
use crate::status::words::spoken;

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
    #[command(flatten)]
    hold_off: HoldOff,
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
    Pause(AdminArgs),
    /// Rejoin the election.
    Resume(AdminArgs),
    /// Report that the service has finished its work.
    Drained(Drained),
}

/// The help of `step-down`.
pub const STEP_DOWN: &str = "\
The leader reports passive at once, gives its service up to --drain-timeout to finish its work, \
releases the lease, and does not compete for --hold-off, so that another instance acquires it. If no \
other is healthy, it leads again after that.

Examples:
  tenure step-down --admin unix:/run/tenure/admin.sock
  tenure step-down --hold-off 1m && tenure wait --for passive";

/// The help of `transfer`.
pub const TRANSFER: &str = "\
As step-down, and the other candidates wait for the successor for --hold-off, each by its own clock. \
A successor that is dead or unknown costs that time, and nothing else.

Example:
  tenure transfer --to web-2";

/// The help of `pause`.
pub const PAUSE: &str = "\
A leader resigns first: it drains and releases, and another leads. That is unlike Patroni's pause, \
which keeps the leader where it is. A pause ends with `tenure resume`, or with the process.

Examples:
  tenure pause && tenure wait --for passive
  tenure resume";

/// The help of `resume`.
pub const RESUME: &str = "\
Ends a pause. An instance that holds off after `step-down`, or waits for a successor that does not \
come, competes again at once.

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
            Self::Pause(it) | Self::Resume(it) => it,
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
            Self::Transfer(it) => json!({ "to": it.to, "hold_off": written(&it.hold_off) }),
            Self::Drained(Drained { term: Some(term), .. }) => json!({ "term": term }),
            Self::Pause(_) | Self::Resume(_) | Self::Drained(_) => json!({}),
        }
    }
}

/// Sends the command. Exits with 0 when it is done or begun, 1 when it is not possible or the
/// sidecar cannot be reached, 2 when the arguments are wrong.
pub async fn run(verb: Verb, environment: &Environment) -> ExitCode {
    let listener = match AdminListener::of(verb.admin(), environment).await {
        Ok(listener) => listener,
        Err(fault) => {
            complain(&fault);
            return ExitCode::from(2);
        }
    };
    let answer = match listener.post(verb.path(), &verb.body()).await {
        Ok(answer) => answer,
        Err(error) => {
            complain(&error);
            return ExitCode::FAILURE;
        }
    };
    let json = verb.admin().json;
    if answer.code.is_success() {
        let text = if json { harmless(&answer.raw) } else { outcome(&verb, &answer) };
        return print(&format!("{text}\n"), ExitCode::SUCCESS);
    }
    let invalid = answer.code == StatusCode::BAD_REQUEST;
    let code = if invalid { ExitCode::from(2) } else { ExitCode::FAILURE };
    let error = answer.text("error").map_or_else(|| answer.code.to_string(), harmless);
    match answer.remedy().map(harmless) {
        Some(remedy) => complain(&format!("{error}\n  {remedy}")),
        None => complain(&error),
    }
    if json { print(&format!("{}\n", harmless(&answer.raw)), code) } else { code }
}

/// Formats what was done and what follows from it.
fn outcome(verb: &Verb, answer: &Answer) -> String {
    let leaving = leaving(answer);
    match verb {
        Verb::StepDown(it) => format!(
            "{leaving}; this instance does not compete for {} after that",
            duration::format(it.hold_off.hold_off)
        ),
        Verb::Transfer(it) => {
            let (to, hold_off) = (harmless(&it.to), duration::format(it.hold_off.hold_off));
            format!(
                "{leaving}; the other candidates wait for {to} for {hold_off}\n  if no healthy \
                 candidate has the identity {to}, nobody leads until then; `tenure resume` on \
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

//! A command in the leader's pod that hands leadership over, and what comes of it.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value};

use super::access::Kubectl;
use super::election::Row;
use super::{Cluster, Refusal, Waits};
use crate::cli::outcome::{Goal, Outcome, Waiting};
use crate::cli::terminal::{Output, complain, harmless, print};

/// The pause between two requests to a pod for what came of a command.
const PACE: Duration = Duration::from_millis(200);

/// A handover that a command begins.
pub(super) struct Handover {
    /// The identity of the successor, if one is named.
    pub(super) to: Option<String>,
    pub(super) hold_off: Duration,
    pub(super) waits: Waits,
}

impl Handover {
    /// Runs a command in the leader's pod, waits until another candidate leads, and prints what came of it.
    pub(super) async fn run(
        self,
        cluster: &Cluster,
        leader: &Row,
        words: &[&str],
    ) -> Result<ExitCode, Refusal> {
        let candidate = &leader.candidate;
        let is_json = cluster.output == Output::Json;
        let admin = candidate.admin.as_ref().map(|it| format!("--admin={it}"));
        // The wait is for this side: it needs no connection that lasts, and has a limit for each request.
        let mut words = words.to_vec();
        words.extend(admin.as_deref());
        words.push("--no-wait");
        if is_json || !self.waits.no_wait {
            words.push("--json");
        }
        let kubectl = Kubectl::of(cluster);
        let before = leader.document().ok_or_else(|| "the leader has no status".to_owned())?;
        let mut waiting = Waiting::new(Goal::Handover { to: self.to }, before);
        let ran = kubectl.exec(candidate, &words).await?;
        let pod = &candidate.pod;
        if let Some(failure) = ran.failure {
            if is_json && !ran.out.trim().is_empty() {
                print(&format!("{}\n", harmless_lines(ran.out.trim_end())), ExitCode::FAILURE);
            }
            let code = if ran.code == Some(2) { ExitCode::from(2) } else { ExitCode::FAILURE };
            let mut message = format!("pod {pod}: {failure}");
            if ran.code.is_none() {
                message += "\n  the command may have been carried out: see kubectl tenure status";
            }
            return Err(Refusal { message, code });
        }
        if self.waits.no_wait {
            let out = harmless_lines(ran.out.trim_end());
            let text = if is_json { format!("{out}\n") } else { format!("{pod}: {out}\n") };
            return Ok(print(&text, ExitCode::SUCCESS));
        }
        let answer: Map<String, Value> = serde_json::from_str(&ran.out).map_err(|_| {
            format!("pod {pod}: the answer to the command is not JSON: see kubectl tenure status")
        })?;
        if let Some(warning) = answer.get("warning").and_then(Value::as_str) {
            complain(&harmless(warning));
        }
        let expected = answer.get("another_leads_in_ms").and_then(Value::as_u64);
        waiting.allow(expected.map(Duration::from_millis), self.hold_off);
        let ask = async || kubectl.status(candidate).await.map(|it| it.document);
        let outcome = waiting.outcome(PACE, ask).await;
        finish(pod, is_json.then_some(answer), &outcome)
    }
}

/// Prints what came of a command: as text, or within its answer.
fn finish(
    pod: &str,
    answer: Option<Map<String, Value>>,
    outcome: &Outcome,
) -> Result<ExitCode, Refusal> {
    let code = if outcome.succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    match answer {
        Some(answer) => {
            let text = harmless(&Value::Object(outcome.within(answer)).to_string());
            Ok(print(&format!("{text}\n"), code))
        }
        None if outcome.succeeded => Ok(print(&format!("{pod}: {}\n", outcome.words), code)),
        None => Err(Refusal { message: format!("pod {pod}: {}", outcome.words), code }),
    }
}

fn harmless_lines(text: &str) -> String {
    text.lines().map(harmless).collect::<Vec<_>>().join("\n")
}

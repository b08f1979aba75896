//! One run of a hook: its environment or request, its time limit, and its result. Hooks are never
//! repeated, so a webhook that fails has been called once.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;

use super::queue::HookEvent;
use super::{Name, Outcome};
use crate::config::{CommandLine, HOOK_GRACE, Hook, Withheld, duration};
use crate::http::client;
use crate::process::command::{self, Bounds, CommandExit, Output, Variable};
use crate::status::document::Document;

/// The result of a run.
pub(super) struct HookResult {
    pub(super) outcome: Outcome,
    /// The result in words.
    pub(super) words: String,
    /// Whether the hook has done its work: a command that ran to its end, whatever its exit code; a
    /// webhook that returned a success.
    pub(super) ended: bool,
}

/// Runs a command.
pub(super) async fn by_command(
    line: &CommandLine,
    withheld: &Withheld,
    event: HookEvent,
    document: &Document<'_>,
    url: Option<&str>,
    time: Duration,
) -> HookResult {
    let bounds = Bounds { time, grace: HOOK_GRACE };
    let environment = environment(event, document, url);
    let output = Output::Log(event.name.as_str());
    let ended = command::run(line, withheld, &environment, bounds, output).await;
    let (outcome, words, ended) = match ended.end {
        CommandExit::Exited(0) => (Outcome::Ok, "exit code 0".to_owned(), true),
        CommandExit::Exited(code) => (Outcome::Failed, format!("exit code {code}"), true),
        CommandExit::Killed(signal) => {
            (Outcome::Failed, format!("killed by signal {signal}"), true)
        }
        CommandExit::TimedOut => (Outcome::Timeout, over(time), false),
        CommandExit::NotStarted(why) => (Outcome::Failed, format!("failed to start: {why}"), false),
    };
    HookResult { outcome, words, ended }
}

/// Posts the status document to a webhook.
pub(super) async fn by_webhook(
    client: &reqwest::Client,
    url: &url::Url,
    event: HookEvent,
    document: &Document<'_>,
    time: Duration,
) -> HookResult {
    let body = serde_json::to_vec(document).expect("a document is JSON");
    let mut request = client
        .post(url.clone())
        .header(CONTENT_TYPE, "application/json")
        .header("tenure-event", event.name.event())
        .body(body);
    if let Some(term) = event.term {
        request = request.header("tenure-term", term);
    }
    let answer = tokio::time::timeout(time, client::status(request)).await;
    let (outcome, words) = match answer {
        Ok(Ok(code)) if code.is_success() => (Outcome::Ok, code.to_string()),
        Ok(Ok(code)) => (Outcome::Failed, code.to_string()),
        Ok(Err(why)) => (Outcome::Failed, why),
        Err(_) => (Outcome::Timeout, over(time)),
    };
    HookResult { ended: outcome == Outcome::Ok, outcome, words }
}

fn over(time: Duration) -> String {
    format!("not finished within {}", duration::format(time))
}

/// Returns whether a hook needs the HTTP client.
pub(super) fn is_webhook(hook: &Hook) -> bool {
    matches!(hook, Hook::Webhook(_))
}

/// Returns whether a hook needs TLS.
pub(super) fn over_tls(hook: &Hook) -> bool {
    matches!(hook, Hook::Webhook(url) if url.scheme() == "https")
}

/// Returns the variables of a command. A variable without a value is unset, even if it would be
/// inherited.
fn environment(event: HookEvent, document: &Document<'_>, url: Option<&str>) -> Vec<Variable> {
    let number = |it: u64| Some(it.to_string());
    let text = |it: &str| Some(it.to_owned());
    let holder = document.holder.as_ref();
    // For on-passive, the term that has ended.
    let term = if event.name == Name::LeaderChange { document.term } else { event.term };
    vec![
        ("TENURE_EVENT", text(event.name.event())),
        ("TENURE_TERM", term.and_then(number)),
        ("TENURE_ELECTION", text(&document.election)),
        ("TENURE_IDENTITY", text(&document.identity)),
        ("TENURE_ROLE", text(document.role.as_str())),
        ("TENURE_STATE", text(&document.state)),
        ("TENURE_VALID_FOR_MS", number(document.valid_for_ms)),
        ("TENURE_VALID_UNTIL_BOOTTIME_NS", number(document.valid_until_boottime_ns)),
        ("TENURE_BOOT_ID", text(&document.boot_id)),
        ("TENURE_DRAIN_REMAINING_MS", document.drain_remaining_ms.and_then(number)),
        ("TENURE_PROTECTED_FOR_MS", document.protected_for_ms.and_then(number)),
        ("TENURE_HOLDER", holder.and_then(|it| text(&it.identity))),
        ("TENURE_HOLDER_ADDRESS", holder.and_then(|it| text(it.address.as_deref()?))),
        ("TENURE_HOLDER_TERM", holder.and_then(|it| number(it.term))),
        ("TENURE_URL", url.and_then(text)),
    ]
}

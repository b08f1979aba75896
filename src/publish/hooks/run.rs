//! One run of a hook: its environment or request, its time limit, and its result. Hooks are never
//! repeated, so a webhook that fails has been called once.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use serde::Serialize;

use super::queue::HookEvent;
use super::{Name, Outcome};
use crate::config::{CommandLine, HOOK_GRACE, Hook, Withheld, duration};
use crate::election::Reason;
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

/// What a hook is run for: an event, and what led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Occasion<'a> {
    /// The name of the event.
    #[serde(rename = "name")]
    pub(super) event: Name,
    /// The term of this instance that has begun, drains or has ended; `None` for another's.
    pub(super) term: Option<u64>,
    /// Why: the reason of a transition of this instance, or of the end of the previous leadership; `None` if
    /// that is not known.
    pub(super) reason: Option<&'a str>,
    /// The holder of the leadership before, or of the one that has ended.
    pub(super) previous_holder: Option<&'a str>,
    /// Its term.
    pub(super) previous_term: Option<u64>,
}

impl<'a> Occasion<'a> {
    /// Returns what led to an event, by the document of that time.
    pub(super) fn of(event: HookEvent, document: &'a Document<'_>) -> Self {
        let HookEvent { name, term } = event;
        let last = document.last_holder.as_ref();
        let leads = |state: &str| matches!(state, "leader" | "jeopardy");
        let past = |is_it: fn(bool, bool, &str) -> bool| {
            let of_term = document.transitions.iter().filter(|it| it.term == term);
            let mut found = of_term.filter(|it| is_it(leads(&it.from), leads(&it.to), &it.to));
            found.next().map(|it| &*it.reason)
        };
        let reason = match name {
            Name::Active => past(|from, to, _| !from && to),
            Name::Drain => past(|_, _, to| to == "draining"),
            // The clock alone ends a leadership before the election has turned.
            Name::Passive => past(|from, to, _| from && !to).or(Some(Reason::Lapsed.as_str())),
            Name::LeaderChange => last.and_then(|it| it.reason.as_deref()),
        };
        let previous = match name {
            Name::Passive => term.map(|term| (&*document.identity, term)),
            _ => last.map(|it| (&*it.identity, it.term)),
        };
        let (previous_holder, previous_term) = previous.unzip();
        Self { event: name, term, reason, previous_holder, previous_term }
    }
}

/// The status document with the event, as a webhook receives it.
#[derive(Serialize)]
struct Notification<'a> {
    event: Occasion<'a>,
    #[serde(flatten)]
    document: &'a Document<'a>,
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
    let notification = Notification { event: Occasion::of(event, document), document };
    let body = serde_json::to_vec(&notification).expect("a document is JSON");
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
    let holder = document.holder.as_ref().filter(|it| !it.stale);
    let occasion = Occasion::of(event, document);
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
        ("TENURE_REASON", occasion.reason.and_then(text)),
        ("TENURE_PREVIOUS_HOLDER", occasion.previous_holder.and_then(text)),
        ("TENURE_PREVIOUS_TERM", occasion.previous_term.and_then(number)),
        ("TENURE_HOLDER", holder.and_then(|it| text(&it.identity))),
        ("TENURE_HOLDER_ADDRESS", holder.and_then(|it| text(it.address.as_deref()?))),
        ("TENURE_HOLDER_TERM", holder.and_then(|it| number(it.term))),
        ("TENURE_URL", url.and_then(text)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(transitions: &str, last_holder: &str) -> Document<'static> {
        let text = format!(
            r#"{{"identity":"us","state":"standby","role":"passive","valid_for_ms":0,"index":1,
            "transitions":[{transitions}],"last_holder":{last_holder}}}"#
        );
        serde_json::from_str(Box::leak(text.into_boxed_str())).unwrap()
    }

    const BEGAN: &str =
        r#"{"at":"","from":"activating","to":"leader","reason":"term-written","term":8}"#;
    const DRAINS: &str =
        r#"{"at":"","from":"jeopardy","to":"draining","reason":"stepped-down","term":8}"#;
    const ENDED: &str = r#"{"at":"","from":"draining","to":"standby","reason":"drained","term":8}"#;
    const LOST: &str = r#"{"at":"","from":"leader","to":"standby","reason":"lost","term":8}"#;

    #[test]
    fn each_event_tells_its_reason_and_the_leadership_before() {
        let them = r#"{"identity":"them","term":7,"until":"","reason":"released"}"#;
        let drained = format!("{ENDED},{DRAINS},{BEGAN}");
        for (name, term, transitions, last, reason, previous) in [
            (Name::Active, Some(8), BEGAN, them, Some("term-written"), Some(("them", 7))),
            (Name::Active, Some(8), BEGAN, "null", Some("term-written"), None),
            (Name::Drain, Some(8), &drained, them, Some("stepped-down"), Some(("them", 7))),
            (Name::Passive, Some(8), &drained, them, Some("stepped-down"), Some(("us", 8))),
            (Name::Passive, Some(8), LOST, them, Some("lost"), Some(("us", 8))),
            (Name::Passive, Some(8), BEGAN, them, Some("lapsed"), Some(("us", 8))),
            (Name::LeaderChange, None, LOST, them, Some("released"), Some(("them", 7))),
            (Name::LeaderChange, None, "", "null", None, None),
        ] {
            let document = document(transitions, last);
            let it = Occasion::of(HookEvent { name, term }, &document);
            let found = (it.reason, it.previous_holder.zip(it.previous_term));
            assert_eq!(found, (reason, previous), "{name:?}");
        }
    }

    #[test]
    fn a_webhook_receives_the_document_with_the_event() {
        let document = document(LOST, "null");
        let event = HookEvent { name: Name::Passive, term: Some(8) };
        let notification =
            Notification { event: Occasion::of(event, &document), document: &document };
        let json = serde_json::to_value(&notification).unwrap();
        let expected = serde_json::json!({"name": "passive", "term": 8, "reason": "lost",
            "previous_holder": "us", "previous_term": 8});
        assert_eq!((&json["event"], &json["identity"]), (&expected, &"us".into()));
    }
}

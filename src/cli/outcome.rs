//! Waits for what comes of an operator's command: who leads after it, and when.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::document::{Document, Role};
use super::terminal::harmless;
use crate::clock::{self, Moment};
use crate::config::duration;
use crate::status::words::spoken;

/// How many requests in a row may fail before the wait is given up.
const FAILURES: u32 = 3;

/// How long is waited beyond the time that a handover takes by the settings.
const SLACK: Duration = Duration::from_secs(15);

/// What the command is to bring about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Another candidate leads: this one if it is named.
    Handover { to: Option<String> },
    /// This instance is paused. If it led, another one leads, unless none can; that none does is accepted or
    /// not.
    Pause { led: bool, alone: bool, accepted: bool },
    /// This instance competes again, and a leader is known.
    Resume,
    /// The drain is over.
    Drained,
}

/// A command whose outcome is waited for.
pub(super) struct Waiting {
    goal: Goal,
    /// The term that was the last one when the command was sent.
    last_term: u64,
    /// When it was sent.
    sent: Moment,
    /// How long the outcome may take.
    within: Duration,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leader {
    identity: String,
    term: u64,
    /// Whether it is the instance that answers.
    is_own: bool,
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) succeeded: bool,
    /// In words, with how long it took.
    pub(super) words: String,
    /// Who leads now, if that is known.
    leader: Option<Leader>,
}

impl Waiting {
    /// Prepares the wait for a command that is sent now. `before` is the status before it.
    pub(super) fn new(goal: Goal, before: &Document) -> Self {
        let held = before.term.into_iter().chain(before.holder.as_ref().map(|it| it.term));
        let last_term = held.max().unwrap_or_default();
        Self { goal, last_term, sent: clock::now(), within: SLACK }
    }

    /// Allows for the time until another instance is expected to lead, and for a hold-off.
    pub(super) fn allow(&mut self, expected: Option<Duration>, hold_off: Duration) {
        self.within = 2 * expected.unwrap_or_default() + hold_off + SLACK;
    }

    /// Asks for the status at this pace until it shows the outcome, or the time is over.
    pub(super) async fn outcome(
        &self,
        pace: Duration,
        mut ask: impl AsyncFnMut() -> Result<Document, String>,
    ) -> Outcome {
        let mut failures = 0;
        loop {
            let answer = ask().await;
            let is_late = self.sent.elapsed_max(clock::now()) >= self.within;
            match answer {
                Ok(status) => {
                    failures = 0;
                    let leader = leader_of(&status);
                    if let Some((succeeded, words)) = self.judge(&status, leader.as_ref()) {
                        return self.ended(succeeded, &words, leader);
                    }
                    if is_late {
                        return self.late(&status.state, leader);
                    }
                }
                Err(error) => {
                    failures += 1;
                    if is_late || failures >= FAILURES {
                        return self.unanswered(&error);
                    }
                }
            }
            tokio::time::sleep(pace).await;
        }
    }

    /// Returns whether the goal is reached, and what to say; `None` while that is open.
    fn judge(&self, status: &Document, leader: Option<&Leader>) -> Option<(bool, String)> {
        let next = leader.filter(|it| it.term > self.last_term);
        let words = next.map(|it| it.words());
        match (&self.goal, next) {
            (Goal::Drained, _) => {
                let words = "the drain is over, and the lease is free for the next leader";
                (status.state != "draining").then(|| (true, words.to_owned()))
            }
            (Goal::Resume, _) => match &*status.state {
                "paused" | "starting" | "activating" => None,
                "unhealthy" => {
                    Some((true, "resumed, but it does not compete: it is unhealthy".to_owned()))
                }
                _ => leader.map(|it| (true, format!("resumed: {}", it.words()))),
            },
            (Goal::Pause { .. }, _) if status.state != "paused" => None,
            (Goal::Pause { led, alone, .. }, _) if !led || *alone => {
                let leads = leader.map_or_else(|| "nobody leads".to_owned(), Leader::words);
                Some((true, format!("paused: {leads}")))
            }
            (Goal::Pause { .. }, Some(_)) => words.map(|it| (true, format!("paused: {it}"))),
            (Goal::Handover { .. }, Some(leader)) if leader.is_own => Some((
                false,
                format!(
                    "no other candidate took over: this instance leads again, in term {}",
                    leader.term
                ),
            )),
            (Goal::Handover { to: Some(to) }, Some(leader)) if leader.identity != *to => {
                words.map(|it| (false, format!("{} did not take over: {it}", harmless(to))))
            }
            (Goal::Handover { .. }, Some(_)) => words.map(|it| (true, it)),
            (Goal::Pause { .. } | Goal::Handover { .. }, None) => None,
        }
    }

    fn ended(&self, succeeded: bool, words: &str, leader: Option<Leader>) -> Outcome {
        let took = spoken(self.sent.elapsed_max(clock::now()));
        Outcome { succeeded, words: format!("{words} after {took}"), leader }
    }

    /// Returns the outcome of a wait whose time is over.
    fn late(&self, state: &str, leader: Option<Leader>) -> Outcome {
        let is_paused = state == "paused";
        let (succeeded, what) = match &self.goal {
            Goal::Handover { .. } => (false, "no other candidate leads"),
            Goal::Resume => (false, "no leader is known"),
            Goal::Pause { accepted, .. } if is_paused => (*accepted, "paused: nobody leads"),
            Goal::Pause { .. } => (false, "not paused"),
            Goal::Drained => (false, "the drain is not over"),
        };
        let remedy = "tenure status shows the candidates, and what they wait for";
        let remedy = if succeeded { String::new() } else { format!("\n  {remedy}") };
        let took = duration::format(self.within);
        Outcome { succeeded, words: format!("{what} after {took}{remedy}"), leader }
    }

    fn unanswered(&self, error: &str) -> Outcome {
        if self.goal == Goal::Drained {
            // It has shut down, for which the drain was.
            return self.ended(true, "the drain is over, and tenure run has ended", None);
        }
        let words =
            format!("the command was carried out, and what came of it is not known: {error}");
        Outcome { succeeded: false, words, leader: None }
    }
}

impl Outcome {
    /// Adds the outcome to the answer to the command.
    pub(super) fn within(&self, mut answer: Map<String, Value>) -> Map<String, Value> {
        let leader =
            self.leader.as_ref().map(|it| json!({ "identity": it.identity, "term": it.term }));
        answer.insert("result".to_owned(), self.words.as_str().into());
        answer.insert("leader".to_owned(), leader.into());
        if self.succeeded {
            answer.insert("outcome".to_owned(), "done".into());
        }
        answer
    }
}

impl Leader {
    fn words(&self) -> String {
        let Self { identity, term, is_own } = self;
        match is_own {
            true => format!("this instance leads in term {term}"),
            false => format!("{} leads in term {term}", harmless(identity)),
        }
    }
}

/// Returns who leads, if the status shows that somebody does.
fn leader_of(status: &Document) -> Option<Leader> {
    if let (Role::Active, Some(term)) = (status.role, status.term) {
        let identity = status.identity.to_string();
        return Some(Leader { identity, term, is_own: true });
    }
    let holder = status.holder.as_ref().filter(|it| it.is_leader())?;
    // It has the lease until it has drained.
    let is_own = status.term == Some(holder.term);
    let identity = holder.identity.to_string();
    (!is_own).then_some(Leader { identity, term: holder.term, is_own: false })
}

/// Returns whether nobody can lead while this instance is paused, by its peers: `None` if that is not
/// known.
pub(super) fn is_last(status: &Document) -> Option<bool> {
    let competes = !matches!(&*status.state, "paused" | "observing" | "stopped");
    let another_leads = leader_of(status).is_some_and(|it| !it.is_own);
    if !competes || another_leads {
        return Some(false);
    }
    let cannot = ["paused", "observing", "stopped", "unhealthy"];
    let candidates = status.candidates.as_deref()?;
    Some(
        !candidates.iter().any(|it| {
            it.instance != status.instance && it.connected && !cannot.contains(&&*it.state)
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: &str, more: &str) -> Document {
        let role = if state == "leader" { "active" } else { "passive" };
        let text = format!(
            r#"{{"identity":"web-1","instance":"i-1","state":"{state}","role":"{role}",
            "valid_for_ms":0,"index":1{more}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn waiting(goal: Goal) -> Waiting {
        Waiting::new(
            goal,
            &status("leader", r#","term":42,"holder":{"identity":"web-1","term":42}"#),
        )
    }

    /// Returns the outcome of a goal by one status; `None` while it is open.
    fn judged(goal: &Goal, state: &str, more: &str) -> Option<(bool, String)> {
        let status = status(state, more);
        waiting(goal.clone()).judge(&status, leader_of(&status).as_ref())
    }

    const NEXT: &str = r#","holder":{"identity":"web-2","term":43}"#;

    #[test]
    fn a_handover_is_over_when_another_or_the_same_instance_leads_in_a_later_term() {
        let any = Goal::Handover { to: None };
        for (state, more) in [
            ("draining", r#","term":42,"holder":{"identity":"web-1","term":42}"#),
            ("standby", r#","holder":{"identity":"web-1","term":42}"#),
            ("standby", r#","holder":null"#),
            ("standby", r#","holder":{"identity":"web-2","term":43,"stale":true}"#),
            ("standby", r#","holder":{"identity":"web-2","term":43,"overdue":true}"#),
            ("activating", ""),
        ] {
            assert_eq!(judged(&any, state, more), None, "{state} {more}");
        }
        assert_eq!(
            judged(&any, "standby", NEXT),
            Some((true, "web-2 leads in term 43".to_owned()))
        );
        let (succeeded, words) = judged(&any, "leader", r#","term":43"#).unwrap();
        assert!(!succeeded && words.contains("this instance leads again, in term 43"), "{words}");
        let named = |it: &str| Goal::Handover { to: Some(it.to_owned()) };
        assert!(judged(&named("web-2"), "standby", NEXT).unwrap().0);
        let (succeeded, words) = judged(&named("web-3"), "standby", NEXT).unwrap();
        assert!(!succeeded, "{words}");
        assert_eq!(words, "web-3 did not take over: web-2 leads in term 43");
    }

    #[test]
    fn a_pause_is_over_when_another_leads_unless_none_is_expected_to() {
        let goal = |led, alone| Goal::Pause { led, alone, accepted: false };
        assert_eq!(judged(&goal(true, false), "draining", NEXT), None);
        assert_eq!(judged(&goal(true, false), "paused", ""), None);
        for (goal, more, words) in [
            (goal(true, false), NEXT, "paused: web-2 leads in term 43"),
            (goal(true, true), "", "paused: nobody leads"),
            (goal(false, false), "", "paused: nobody leads"),
            (goal(false, false), NEXT, "paused: web-2 leads in term 43"),
        ] {
            assert_eq!(judged(&goal, "paused", more), Some((true, words.to_owned())));
        }
    }

    #[test]
    fn a_resume_is_over_when_a_leader_is_known_and_a_drain_with_its_state() {
        assert_eq!(judged(&Goal::Resume, "paused", NEXT), None);
        assert_eq!(judged(&Goal::Resume, "standby", ""), None);
        let own = judged(&Goal::Resume, "leader", r#","term":43"#).unwrap();
        assert_eq!(own.1, "resumed: this instance leads in term 43");
        assert!(judged(&Goal::Resume, "unhealthy", "").unwrap().1.contains("unhealthy"));
        assert_eq!(judged(&Goal::Drained, "draining", ""), None);
        assert!(judged(&Goal::Drained, "standby", "").unwrap().0);
    }

    #[test]
    fn a_pause_after_which_nobody_leads_succeeds_where_that_was_accepted() {
        for (accepted, state, succeeded) in
            [(true, "paused", true), (false, "paused", false), (true, "draining", false)]
        {
            let goal = Goal::Pause { led: true, alone: false, accepted };
            let late = waiting(goal).late(state, None);
            assert_eq!(late.succeeded, succeeded, "{}", late.words);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sidecar_that_has_ended_is_asked_three_times() {
        for (goal, succeeded) in [(Goal::Drained, true), (Goal::Resume, false)] {
            let mut asked = 0;
            let waiting = waiting(goal);
            let ask = async || {
                asked += 1;
                Err("nothing answers".to_owned())
            };
            let outcome = waiting.outcome(Duration::from_millis(50), ask).await;
            assert_eq!((asked, outcome.succeeded), (FAILURES, succeeded), "{}", outcome.words);
        }
    }

    #[test]
    fn the_last_candidate_is_known_by_the_peers() {
        let candidate = |state: &str, connected: bool| {
            format!(
                r#","candidates":[{{"instance":"i-1","state":"leader","connected":true}},
                {{"instance":"i-2","state":"{state}","connected":{connected}}}]"#
            )
        };
        for (state, more, is) in [
            ("leader", r#","term":42"#.to_owned(), None),
            ("standby", String::new(), None),
            ("standby", NEXT.to_owned(), Some(false)),
            ("paused", String::new(), Some(false)),
            ("leader", candidate("standby", true), Some(false)),
            ("leader", candidate("standby", false), Some(true)),
            ("leader", candidate("paused", true), Some(true)),
            ("leader", candidate("unhealthy", true), Some(true)),
            ("leader", r#","candidates":[]"#.to_owned(), Some(true)),
        ] {
            assert_eq!(is_last(&status(state, &more)), is, "{state} {more}");
        }
    }
}

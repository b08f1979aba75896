//! What the page signals at a glance: the tone of its band, dot, icon and figures, and in each bad state a
//! headline with the runbook for it. It goes by the judgement in the status document.

use super::{Document, while_known};
use crate::election::State;
use crate::status::Role;

/// Where the runbooks are, as in the links of the alerts.
const RUNBOOKS: &str = "https://tenure.dev/docs/runbooks";

/// How a state is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// This instance leads.
    Live,
    /// Another instance leads, and nothing is wrong.
    Calm,
    /// Something is about to fail, or is not known.
    Warn,
    /// Nobody leads.
    Down,
}

impl Tone {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Calm => "calm",
            Self::Warn => "warn",
            Self::Down => "down",
        }
    }

    /// Returns the icon: each tone has a shape of its own, for those who cannot tell the colours.
    pub(super) fn icon(self) -> &'static str {
        match self {
            Self::Live => {
                "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
                 %3Ccircle cx='8' cy='8' r='7' fill='%2312a068'/%3E%3C/svg%3E"
            }
            Self::Calm => {
                "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
                 %3Ccircle cx='8' cy='8' r='5.5' fill='none' stroke='%238a857c' stroke-width='3'/%3E%3C/svg%3E"
            }
            Self::Warn => {
                "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
                 %3Cpath d='M8 1 15.5 15H.5z' fill='%23e08a00'/%3E%3C/svg%3E"
            }
            Self::Down => {
                "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
                 %3Cpath d='M3 3l10 10M13 3L3 13' stroke='%23d3263a' stroke-width='4'/%3E%3C/svg%3E"
            }
        }
    }
}

/// A state that the page calls attention to.
pub(super) struct Alarm {
    pub(super) tone: Tone,
    headline: &'static str,
    runbook: Option<&'static str>,
}

impl Alarm {
    /// Returns the alarm of a document; `None` if nothing is wrong.
    pub(super) fn of(document: &Document<'_>) -> Option<Self> {
        let alarm = |tone, headline, runbook| Some(Self { tone, headline, runbook });
        let state = &*document.state;
        let fails = document.store.failures > 0;
        let store = || alarm(Tone::Warn, "Requests to the store fail", Some("TenureStoreFailing"));
        if document.store.moved_to.is_some() {
            return alarm(Tone::Warn, "The election has moved to another store", None);
        }
        if document.role == Role::Active {
            let jeopardy = "In jeopardy: renewals fail";
            return match state == State::Jeopardy.as_str() {
                true => alarm(Tone::Warn, jeopardy, Some("TenureRenewalsFailing")),
                false => None,
            };
        }
        if document.leader().is_some() {
            return match state {
                "standby" if fails || document.can_take_over == Some(false) => store(),
                "unhealthy" => {
                    alarm(Tone::Warn, "This instance is unhealthy", Some("TenureNoStandby"))
                }
                _ => None,
            };
        }
        let Some(holder) = &document.holder else {
            return match document.store.last_success_ms_ago {
                None if fails => store(),
                None => None,
                Some(_) => alarm(Tone::Down, "No leader", Some("TenureNoLeader")),
            };
        };
        match holder.leaving.as_deref() {
            _ if holder.stale && fails => {
                alarm(Tone::Warn, "It is not known who leads", Some("TenureStoreFailing"))
            }
            _ if holder.stale => {
                alarm(Tone::Warn, "It is not known who leads", Some("TenureNoLeader"))
            }
            Some("draining") => alarm(Tone::Warn, "The leader hands over", None),
            Some(_) => alarm(Tone::Down, "No leader", Some("TenureNoLeader")),
            None if holder.overdue => {
                alarm(Tone::Warn, "The leader is overdue", Some("TenureNoLeader"))
            }
            None => alarm(Tone::Warn, "The leader hands over", None),
        }
    }

    /// Returns the band.
    pub(super) fn band(&self) -> String {
        let runbook =
            self.runbook.map(|it| format!(" <a href=\"{RUNBOOKS}/{it}.md\">Runbook {it}</a>"));
        let headline = while_known(&format!("<b>{}</b>", self.headline));
        format!("<p class=\"band\">{headline}{}</p>\n", runbook.unwrap_or_default())
    }
}

//! An election by the answers of its candidates: who leads, why nobody is known to, and to which pod
//! a command goes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::pods::Candidate;
use crate::cli::document::{Document, Heard, HolderDocument, Role};
use crate::cli::terminal::harmless;
use crate::clock::Moment;

/// What a candidate answered.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// Its status.
    Status(Box<Heard>),
    /// Nothing: its container does not run, for this reason.
    NotRunning(String),
    /// Nothing, for this reason.
    Failed(String),
}

/// A candidate and its answer.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) candidate: Candidate,
    pub(super) answer: Answer,
}

/// What is known of a candidate at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Active,
    Passive,
    /// It cannot lead, as its container does not run.
    NotRunning,
    /// It did not answer, or its answer is no longer valid: it may lead.
    Unknown,
}

/// An election, by the pods that are its candidates.
#[derive(Clone, Debug)]
pub(super) struct Election {
    pub(super) namespace: String,
    /// Its name; `None` for pods that do not say.
    pub(super) name: Option<String>,
    pub(super) rows: Vec<Row>,
}

/// Who leads.
#[derive(Debug)]
pub(super) enum Verdict<'a> {
    One(&'a Row),
    /// All that run have answered, and none is active.
    Nobody,
    /// None is active of those that have answered, and others have not.
    Unknown,
    Several(Vec<&'a Row>),
}

impl Row {
    pub(super) fn document(&self) -> Option<&Document> {
        match &self.answer {
            Answer::Status(heard) => Some(&heard.document),
            Answer::NotRunning(_) | Answer::Failed(_) => None,
        }
    }

    /// Returns the name of its election: the pod's label, else what it answers.
    fn election(&self) -> Option<String> {
        let answered = || self.document().map(|it| it.election.to_string());
        self.candidate.election.clone().or_else(answered).filter(|it| !it.is_empty())
    }

    fn identity(&self) -> Option<&str> {
        self.document().map(|it| &*it.identity)
    }

    pub(super) fn standing(&self, now: Moment) -> Standing {
        match &self.answer {
            Answer::NotRunning(_) => Standing::NotRunning,
            Answer::Failed(_) => Standing::Unknown,
            Answer::Status(heard) => match (heard.role(now), heard.document.role) {
                (Role::Active, _) => Standing::Active,
                (Role::Passive, Role::Passive) => Standing::Passive,
                (Role::Passive, Role::Active) => Standing::Unknown,
            },
        }
    }

    /// Returns what there is to say beyond the columns.
    pub(super) fn note(&self, now: Moment) -> String {
        let heard = match &self.answer {
            Answer::NotRunning(why) => return why.clone(),
            Answer::Failed(why) => return format!("no answer: {why}"),
            Answer::Status(heard) => heard,
        };
        if self.standing(now) == Standing::Unknown {
            return "was active, but its answer is no longer valid: ask again".to_owned();
        }
        let document = &heard.document;
        let mut note = document.activity();
        if document.own_candidate().is_some_and(|it| it.heir) {
            note = format!("next in line; {note}");
        }
        if document.identity != self.candidate.pod {
            note = format!("identity {}: {note}", document.identity);
        }
        note
    }
}

/// Groups the candidates by their election.
pub(super) fn grouped(rows: Vec<Row>) -> Vec<Election> {
    let mut groups: BTreeMap<(String, Option<String>), Vec<Row>> = BTreeMap::new();
    for row in rows {
        let key = (row.candidate.namespace.clone(), row.election());
        groups.entry(key).or_default().push(row);
    }
    let elections = groups.into_iter();
    elections.map(|((namespace, name), rows)| Election { namespace, name, rows }).collect()
}

impl Election {
    pub(super) fn title(&self) -> String {
        self.name.as_deref().map_or_else(|| "(unknown)".to_owned(), harmless)
    }

    fn standing(&self, standing: Standing, now: Moment) -> Vec<&Row> {
        self.rows.iter().filter(|it| it.standing(now) == standing).collect()
    }

    /// Determines who leads.
    pub(super) fn verdict(&self, now: Moment) -> Verdict<'_> {
        let active = self.standing(Standing::Active, now);
        match active[..] {
            [leader] => Verdict::One(leader),
            [] if self.standing(Standing::Unknown, now).is_empty() => Verdict::Nobody,
            [] => Verdict::Unknown,
            _ => Verdict::Several(active),
        }
    }

    /// Says who leads, in one sentence.
    pub(super) fn summary(&self, now: Moment) -> String {
        let silent = names(&self.standing(Standing::Unknown, now));
        match self.verdict(now) {
            Verdict::One(leader) if silent.is_empty() => format!("{} leads", named(leader)),
            Verdict::One(leader) => {
                format!("{} leads; no valid answer from {silent}", named(leader))
            }
            Verdict::Nobody => format!("no leader{}", self.why_nobody()),
            Verdict::Unknown => {
                let mut text = format!("unknown leader: no valid answer from {silent}");
                if let Some((holder, by)) = self.holder() {
                    text += &format!("; {by} reports that {} has the lease", shown(holder));
                }
                text
            }
            Verdict::Several(active) => {
                let active: Vec<String> = active.into_iter().map(named).collect();
                let mut text = format!(
                    "{} pods report active at the same time: {}; only the highest term has the \
                     lease, see docs/runbooks/TenureTwoLeaders.md",
                    active.len(),
                    active.join(", ")
                );
                if !silent.is_empty() {
                    text += &format!("; no valid answer from {silent}");
                }
                text
            }
        }
    }

    /// Says why nobody leads, as far as the answers tell.
    fn why_nobody(&self) -> String {
        let draining =
            self.rows.iter().find(|it| it.document().is_some_and(|it| it.state == "draining"));
        if let Some(row) = draining {
            return format!(": {} is draining", harmless(&row.candidate.pod));
        }
        if self.rows.iter().all(|it| it.document().is_none()) {
            return ": no candidate runs".to_owned();
        }
        match self.holder() {
            Some((holder, by))
                if self.rows.iter().any(|it| it.identity() == Some(&*holder.identity)) =>
            {
                format!(
                    ": {by} reports that {} has the lease, which reports passive: leadership is \
                     changing, ask again",
                    shown(holder)
                )
            }
            Some((holder, by)) => format!(
                " among these pods: {by} reports that {} has the lease, which is a pod without these \
                 labels, or one that is gone",
                shown(holder)
            ),
            None => ": all candidates that run report passive".to_owned(),
        }
    }

    /// Returns the holder of the lease that was seen last, and the candidate that has seen it.
    fn holder(&self) -> Option<(&HolderDocument<'static>, String)> {
        let holders = self.rows.iter().filter_map(|row| {
            let holder = row.document()?.holder.as_ref().filter(|it| !it.stale)?;
            Some((holder, harmless(&row.candidate.pod)))
        });
        holders.max_by_key(|(it, _)| (it.term, Reverse(it.seen_ms_ago)))
    }

    /// Says why there is no pod to send a command to, with a remedy.
    pub(super) fn no_target(&self, now: Moment) -> String {
        let (title, summary) = (self.title(), self.summary(now));
        let problem = format!("{title}: {summary}\n  nothing was done: ");
        let remedy = match self.verdict(now) {
            Verdict::Unknown => {
                let reasons = self.standing(Standing::Unknown, now).into_iter();
                let reasons: Vec<String> = reasons
                    .map(|it| {
                        format!("\n  {}: {}", harmless(&it.candidate.pod), harmless(&it.note(now)))
                    })
                    .collect();
                return format!(
                    "{problem}the leader may be a pod that did not answer{}",
                    reasons.concat()
                );
            }
            Verdict::Several(_) => {
                "delete the pod with the lower term: it must not lead, and cannot be trusted to stop \
                 by a command"
            }
            Verdict::Nobody | Verdict::One(_) => {
                "there is no leadership to give up. Wait for a leader: kubectl tenure status; if none \
                 comes, see docs/runbooks/TenureNoLeader.md"
            }
        };
        problem + remedy
    }

    /// Returns the identity of the successor that was named by its pod or its identity.
    pub(super) fn successor(&self, to: &str, leader: &Row) -> Result<String, String> {
        let others = || self.rows.iter().filter(|it| it.candidate.pod != leader.candidate.pod);
        if leader.candidate.pod == to || leader.identity() == Some(to) {
            return Err(format!("{} leads already\n  nothing was done", harmless(to)));
        }
        let by_pod = others().find(|it| it.candidate.pod == to);
        let found = by_pod.or_else(|| others().find(|it| it.identity() == Some(to)));
        let Some(row) = found else {
            let there = names(&others().collect::<Vec<_>>());
            let there = if there.is_empty() { "none".to_owned() } else { there };
            return Err(format!(
                "{} is no candidate of {}\n  the other candidates are: {there}",
                harmless(to),
                self.title()
            ));
        };
        let pod = harmless(&row.candidate.pod);
        let cannot = |why: &str| {
            Err(format!(
                "{pod} cannot take over: {}\n  nothing was done; name another candidate with --to",
                harmless(why)
            ))
        };
        match &row.answer {
            Answer::Failed(why) => cannot(&format!("no answer: {why}")),
            Answer::NotRunning(why) => cannot(why),
            Answer::Status(heard) => {
                let document = &heard.document;
                if document.state == "standby" && document.can_take_over != Some(false) {
                    return Ok(document.identity.to_string());
                }
                cannot(&format!("it {}", document.activity()))
            }
        }
    }
}

fn named(row: &Row) -> String {
    let term = row.document().and_then(|it| it.term);
    let term = term.map_or_else(String::new, |it| format!(" (term {it})"));
    format!("{}{term}", harmless(&row.candidate.pod))
}

fn shown(holder: &HolderDocument<'_>) -> String {
    let doubt = holder.doubt(true).map_or_else(String::new, |it| format!(": {it}"));
    harmless(&format!("{} (term {}{doubt})", holder.identity, holder.term))
}

fn names(rows: &[&Row]) -> String {
    rows.iter().map(|it| harmless(&it.candidate.pod)).collect::<Vec<_>>().join(", ")
}

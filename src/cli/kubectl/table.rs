//! The answers of the candidates: who leads by them, and how they are shown.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::pods::Candidate;
use crate::cli::document::{Document, Heard, HolderDocument, Role};
use crate::cli::terminal::{Colour, Style, columns, harmless, harmless_json};
use crate::clock::Moment;
use crate::status::words::spoken;

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
    fn document(&self) -> Option<&Document> {
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
    fn note(&self, now: Moment) -> String {
        let heard = match &self.answer {
            Answer::NotRunning(why) => return why.clone(),
            Answer::Failed(why) => return format!("no answer: {why}"),
            Answer::Status(heard) => heard,
        };
        if self.standing(now) == Standing::Unknown {
            return "was active, but its answer is no longer valid: ask again".to_owned();
        }
        let document = &heard.document;
        let hold_off = document.hold_off_remaining_ms.filter(|_| document.state == "standby");
        let mut note = match hold_off {
            Some(left) => format!("holds off for {}", spoken(Duration::from_millis(left))),
            None => document.activity(),
        };
        if document.own_candidate().is_some_and(|it| it.heir) {
            note = format!("next in line; {note}");
        }
        if document.identity != self.candidate.pod {
            note = format!("identity {}: {note}", document.identity);
        }
        note
    }

    fn cells(&self, now: Moment, style: Style) -> Vec<String> {
        let dash = || "-".to_owned();
        let standing = self.standing(now);
        let (role, colour) = match standing {
            Standing::Active => ("active", Colour::Green),
            Standing::Passive => ("passive", Colour::Dim),
            Standing::NotRunning => ("-", Colour::Yellow),
            Standing::Unknown => ("unknown", Colour::Red),
        };
        let document = self.document();
        let colour = match document {
            Some(it) if standing != Standing::Unknown => {
                Colour::of_state(standing == Standing::Active, &it.state)
            }
            _ => colour,
        };
        let left = match &self.answer {
            Answer::Status(heard) => Some(heard.remaining(now)).filter(|it| !it.is_zero()),
            _ => None,
        };
        vec![
            harmless(&self.candidate.pod),
            style.paint(colour, role),
            document.map_or_else(dash, |it| harmless(&it.state)),
            document.and_then(|it| it.term).map_or_else(dash, |it| it.to_string()),
            left.map_or_else(dash, spoken),
            harmless(&self.note(now)),
        ]
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
    fn title(&self) -> String {
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
    fn summary(&self, now: Moment) -> String {
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
    format!("{} (term {})", harmless(&holder.identity), holder.term)
}

fn names(rows: &[&Row]) -> String {
    rows.iter().map(|it| harmless(&it.candidate.pod)).collect::<Vec<_>>().join(", ")
}

/// Formats one table of all candidates, then a line for each election that says who leads.
pub(super) fn table(
    elections: &[Election],
    is_everywhere: bool,
    now: Moment,
    style: Style,
) -> String {
    let mut head = vec!["election", "pod", "role", "state", "term", "left", "note"];
    if is_everywhere {
        head.insert(0, "namespace");
    }
    let mut rows: Vec<Vec<String>> =
        vec![head.iter().map(|it| style.paint(Colour::Dim, it)).collect()];
    let mut summaries = String::new();
    for election in elections {
        let mut place = vec![election.title()];
        if is_everywhere {
            place.insert(0, harmless(&election.namespace));
        }
        rows.extend(
            election
                .rows
                .iter()
                .map(|row| place.iter().cloned().chain(row.cells(now, style)).collect()),
        );
        let summary = election.summary(now);
        let summary = match election.verdict(now) {
            Verdict::One(_) => summary,
            Verdict::Nobody | Verdict::Unknown => style.paint(Colour::Yellow, &summary),
            Verdict::Several(_) => style.paint(Colour::Red, &summary),
        };
        summaries += &format!("{}: {summary}\n", place.join("/"));
    }
    format!("{}\n{summaries}", columns(&rows))
}

/// Formats all elections as one JSON document.
pub(super) fn json(elections: &[Election], now: Moment) -> String {
    let elections: Vec<Value> = elections.iter().map(|it| it.json(now)).collect();
    let text = format!("{:#}\n", json!({ "elections": elections }));
    harmless_json(&text)
}

impl Election {
    fn json(&self, now: Moment) -> Value {
        let (verdict, leader) = match self.verdict(now) {
            Verdict::One(leader) => ("one", Some(&leader.candidate.pod)),
            Verdict::Nobody => ("none", None),
            Verdict::Unknown => ("unknown", None),
            Verdict::Several(_) => ("several", None),
        };
        json!({
            "namespace": self.namespace,
            "election": self.name,
            "leaders": verdict,
            "leader": leader,
            "summary": self.summary(now),
            "candidates": self.rows.iter().map(|it| it.json(now)).collect::<Vec<_>>(),
        })
    }
}

impl Row {
    fn json(&self, now: Moment) -> Value {
        let role = match self.standing(now) {
            Standing::Active => "active",
            Standing::Passive => "passive",
            Standing::NotRunning => "not-running",
            Standing::Unknown => "unknown",
        };
        let (status, error, remaining) = match &self.answer {
            Answer::Status(heard) => {
                let status: Value = serde_json::from_str(&heard.raw).unwrap_or_default();
                (status, None, u64::try_from(heard.remaining(now).as_millis()).ok())
            }
            Answer::NotRunning(why) | Answer::Failed(why) => (Value::Null, Some(why), None),
        };
        json!({
            "pod": self.candidate.pod,
            "role": role,
            "remaining_ms": remaining,
            "error": error,
            "status": status,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { colour: false, signs: false };

    fn at(ms: u64) -> Moment {
        let start = Duration::from_secs(1_795_165_200) + Duration::from_millis(ms);
        Moment { boot: start, raw: start, wall: start }
    }

    fn row(pod: &str, answer: Answer) -> Row {
        let candidate = Candidate {
            namespace: "shop".to_owned(),
            pod: pod.to_owned(),
            election: Some("orders".to_owned()),
            release: None,
            container: "tenure".to_owned(),
            has_container: true,
            program: "/tenure".to_owned(),
            admin: None,
            not_running: None,
        };
        Row { candidate, answer }
    }

    fn status(pod: &str, more: &str) -> Row {
        let raw = format!(r#"{{"election":"orders","identity":"{pod}","index":1,{more}}}"#);
        let document = serde_json::from_str(&raw).unwrap();
        row(pod, Answer::Status(Box::new(Heard { document, raw, sent: at(0) })))
    }

    fn leader(pod: &str, term: u64) -> Row {
        let more = r#""state":"leader","role":"active","valid_for_ms":8200"#;
        status(pod, &format!(r#"{more},"term":{term}"#))
    }

    const STANDBY: &str =
        r#""state":"standby","role":"passive","valid_for_ms":0,"can_take_over":true"#;

    fn standby(pod: &str) -> Row {
        status(pod, STANDBY)
    }

    fn heir(pod: &str) -> Row {
        let candidates = r#"[{"instance":"1","heir":false},{"instance":"2","heir":true}]"#;
        status(pod, &format!(r#"{STANDBY},"instance":"2","candidates":{candidates}"#))
    }

    fn silent(pod: &str) -> Row {
        row(pod, Answer::Failed("refused".to_owned()))
    }

    fn election(rows: Vec<Row>) -> Election {
        let mut elections = grouped(rows);
        assert_eq!(elections.len(), 1);
        elections.pop().unwrap()
    }

    #[test]
    fn one_table_shows_all_candidates_and_a_line_for_each_election() {
        let mut other = leader("x-1", 7);
        other.candidate.election = Some("payments".to_owned());
        let crashed = row("web-3", Answer::NotRunning("the pod is pending".to_owned()));
        let all = vec![
            standby("web-2"),
            leader("web-1", 42),
            crashed,
            silent("web-4"),
            heir("web-5"),
            other,
        ];
        let elections = grouped(all);
        let text = "\
election  pod    role     state    term  left  note
orders    web-2  passive  standby  -     -     is a standby, ready to take over
orders    web-1  active   leader   42    8.1s  leads
orders    web-3  -        -        -     -     the pod is pending
orders    web-4  unknown  -        -     -     no answer: refused
orders    web-5  passive  standby  -     -     next in line; is a standby, ready to take over
payments  x-1    active   leader   7     8.1s  leads

orders: web-1 (term 42) leads; no valid answer from web-4
payments: x-1 (term 7) leads
";
        assert_eq!(table(&elections, false, at(100), PLAIN), text);
        let everywhere = table(&elections, true, at(100), PLAIN);
        assert!(everywhere.starts_with("namespace  election  pod "), "{everywhere}");
        assert!(everywhere.contains("\nshop/payments: x-1"), "{everywhere}");
        let document: Value = serde_json::from_str(&json(&elections, at(100))).unwrap();
        let orders = &document["elections"][0];
        assert_eq!((&orders["leaders"], &orders["leader"]), (&json!("one"), &json!("web-1")));
        assert_eq!(orders["candidates"][1]["remaining_ms"], 8_100);
        assert_eq!(orders["candidates"][2]["role"], "not-running");
        assert_eq!(orders["candidates"][3]["error"], "refused");
    }

    #[test]
    fn the_sentence_says_who_leads_or_why_nobody_is_known_to() {
        let holder = r#""state":"standby","role":"passive","valid_for_ms":0,"holder":{"identity":"web-9","term":42"#;
        let seen = || status("web-2", &format!("{holder}}}"));
        let stale = || status("web-2", &format!(r#"{holder},"stale":true}}"#));
        let draining = r#""state":"draining","role":"passive","valid_for_ms":0"#;
        let down = || row("web-3", Answer::NotRunning("the pod is pending".to_owned()));
        for (rows, words) in [
            (vec![leader("web-1", 42), standby("web-2")], "web-1 (term 42) leads"),
            (vec![standby("web-2"), down()], "no leader: all candidates that run report passive"),
            (vec![down()], "no leader: no candidate runs"),
            (vec![stale()], "no leader: all candidates that run report passive"),
            (vec![seen()], "no leader among these pods: web-2 reports that web-9 (term 42)"),
            (
                vec![seen(), standby("web-9")],
                "no leader: web-2 reports that web-9 (term 42) has the lease, which reports passive",
            ),
            (vec![seen(), status("web-1", draining)], "no leader: web-1 is draining"),
            (
                vec![seen(), silent("web-9")],
                "unknown leader: no valid answer from web-9; web-2 reports that web-9 (term 42) has the lease",
            ),
            (vec![silent("web-9"), stale()], "unknown leader: no valid answer from web-9"),
            (
                vec![leader("web-1", 41), leader("web-2", 42), silent("web-3")],
                "2 pods report active at the same time: web-1 (term 41), web-2 (term 42); only the highest",
            ),
        ] {
            let summary = election(rows).summary(at(100));
            assert!(summary.starts_with(words), "{words}: {summary}");
        }
    }

    #[test]
    fn an_answer_that_is_no_longer_valid_counts_as_none() {
        let late = election(vec![leader("web-1", 42)]);
        assert!(matches!(late.verdict(at(8_199)), Verdict::One(_)));
        assert!(matches!(late.verdict(at(8_200)), Verdict::Unknown));
        let text = table(&[late], false, at(8_200), PLAIN);
        assert!(text.contains("unknown  leader  42    -     was active, but its answer"), "{text}");
    }

    #[test]
    fn a_successor_is_named_by_pod_or_identity_and_must_be_able_to_lead() {
        let named = status("id-5", r#""state":"standby","role":"passive","valid_for_ms":0"#);
        let mut named = named;
        named.candidate.pod = "web-5".to_owned();
        let cut_off =
            r#""state":"standby","role":"passive","valid_for_ms":0,"can_take_over":false"#;
        let ill = r#""state":"unhealthy","role":"passive","valid_for_ms":0"#;
        let rows = vec![
            leader("web-1", 42),
            standby("web-2"),
            silent("web-3"),
            status("web-4", cut_off),
            named,
            status("web-6", ill),
        ];
        let election = election(rows);
        let leader = &election.rows[0];
        let of = |to: &str| election.successor(to, leader);
        assert_eq!(of("web-2"), Ok("web-2".to_owned()));
        assert_eq!(of("web-5"), Ok("id-5".to_owned()));
        assert_eq!(of("id-5"), Ok("id-5".to_owned()));
        for (to, words) in [
            ("web-1", "web-1 leads already"),
            ("web-3", "web-3 cannot take over: no answer: refused"),
            ("web-4", "web-4 cannot take over: it is a standby, but cannot take over"),
            ("web-6", "web-6 cannot take over: it is unhealthy"),
            ("web-9", "web-9 is no candidate of orders\n  the other candidates are: web-2, web-3"),
        ] {
            let error = of(to).unwrap_err();
            assert!(error.starts_with(words), "{words}: {error}");
        }
    }

    #[test]
    fn foreign_text_cannot_control_the_terminal() {
        let mut rows =
            vec![standby("web-1"), row("web-2", Answer::Failed("a\x1b[31mb".to_owned()))];
        rows[0].candidate.pod = "x\x1b[2Jy".to_owned();
        let elections = grouped(rows);
        for text in [table(&elections, false, at(0), PLAIN), json(&elections, at(0))] {
            assert!(!text.contains('\x1b'), "{text}");
        }
    }
}

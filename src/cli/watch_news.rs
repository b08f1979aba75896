//! Describes what differs between two status documents, beyond the transitions.

use super::document::{CandidateDocument, Document, Role};
use super::terminal::harmless;
use crate::status::words;

/// Describes a change that is not a transition, in a few words.
pub(super) fn news(last: Option<&Document>, document: &Document) -> String {
    let error = |it: &Document| it.store.last_error.clone();
    let Some(last) = last else {
        return "present state".to_owned();
    };
    if last.instance != document.instance {
        return "another process answers".to_owned();
    }
    if last.role == Role::Active && document.role == Role::Passive {
        return "the lease expired".to_owned();
    }
    let known = |it: &Document| {
        let holder = it.holder.as_ref()?;
        let judged = (holder.overdue, holder.stale, holder.leaving.clone());
        Some((holder.identity.clone(), holder.term, judged))
    };
    if known(last) != known(document) {
        let leads = || format!("{} leads", document.leader().unwrap_or("nobody"));
        return harmless(&document.doubt().unwrap_or_else(leads));
    }
    if error(last) == error(document)
        && let Some(words) = of_candidates(last, document)
    {
        return words;
    }
    match (error(last), error(document)) {
        (_, Some(error)) => format!("store: {error}"),
        (Some(_), None) => "the store answers again".to_owned(),
        (None, None) => document.activity(),
    }
}

/// Describes what has changed among the candidates; `None` if nothing has.
fn of_candidates(last: &Document, document: &Document) -> Option<String> {
    let (before, after) = (last.candidates.as_deref()?, document.candidates.as_deref()?);
    let is_connected = |all: &[CandidateDocument<'_>]| all.iter().any(|it| it.connected);
    match (is_connected(before), is_connected(after)) {
        (true, false) => return Some("no contact with the leader".to_owned()),
        (false, true) => return Some("in contact with the leader".to_owned()),
        _ => {}
    }
    let find = |all: &'_ [CandidateDocument<'static>], one: &CandidateDocument<'_>| {
        all.iter().find(|it| it.instance == one.instance).cloned()
    };
    let mut words: Vec<String> = after
        .iter()
        .filter_map(|it| match find(before, it) {
            Some(old) => of_candidate(&old, it, it.instance == document.instance),
            None => Some(format!("{} has joined", harmless(&it.identity))),
        })
        .collect();
    let gone = before.iter().filter(|it| find(after, it).is_none());
    words.extend(gone.map(|it| format!("{} is no candidate any more", harmless(&it.identity))));
    let heir = |all: &[CandidateDocument<'static>]| all.iter().find(|it| it.heir).cloned();
    let (old, new) = (heir(before), heir(after));
    if old.as_ref().map(|it| &it.instance) != new.as_ref().map(|it| &it.instance) {
        let name = new.map_or("nobody".to_owned(), |it| harmless(&it.identity));
        words.push(format!("{name} is next in line"));
    }
    (!words.is_empty()).then(|| words.join("; "))
}

/// Describes what has changed about one candidate. This instance's own state is in its transitions.
fn of_candidate(
    old: &CandidateDocument<'_>,
    new: &CandidateDocument<'_>,
    is_own: bool,
) -> Option<String> {
    let words = match (&old.failing, &new.failing) {
        _ if old.connected && !new.connected => "has disconnected".to_owned(),
        _ if !old.connected && new.connected => "is connected again".to_owned(),
        _ if old.state != new.state && !is_own => words::state(&new.state).to_owned(),
        (None, Some(failing)) => format!("fails its probe {failing}"),
        (Some(_), None) => "passes its probes again".to_owned(),
        _ => return None,
    };
    Some(format!("{} {}", harmless(&new.identity), harmless(&words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(candidates: &str) -> Document {
        let text = format!(
            r#"{{"instance":"2","state":"standby","role":"passive","valid_for_ms":0,"index":1,
            "candidates":{candidates}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    /// Returns a candidate, whose identity is `web-` and its instance.
    fn candidate(instance: u8, more: &str) -> String {
        format!(
            r#"{{"identity":"web-{instance}","instance":"{instance}","state":"standby","connected":true{more}}}"#
        )
    }

    #[test]
    fn each_change_among_the_candidates_has_its_words() {
        let heir = r#","heir":true"#;
        let before = [candidate(1, ""), candidate(2, heir), candidate(3, "")];
        let change = |after: &[String]| {
            let last = document(&format!("[{}]", before.join(",")));
            news(Some(&last), &document(&format!("[{}]", after.join(","))))
        };
        let with = |third: String| [before[0].clone(), before[1].clone(), third];
        let ill = r#","state":"unhealthy""#;
        let third = |more: &str| with(candidate(3, "").replace(r#","state":"standby""#, more));
        for (after, words) in [
            (&before[..], "is a standby, ready to take over"),
            (&before[..2], "web-3 is no candidate any more"),
            (&third(ill), "web-3 is unhealthy and does not compete"),
            (&with(candidate(4, "")), "web-4 has joined; web-3 is no candidate any more"),
            (
                &with(candidate(3, r#","failing":"tcp://db:1: re\u001bfused""#)),
                "web-3 fails its probe tcp://db:1: re fused",
            ),
            (&with(candidate(3, "").replace("true", "false")), "web-3 has disconnected"),
            (&[before[0].clone(), candidate(2, ""), candidate(3, heir)], "web-3 is next in line"),
            (&[before[0].clone(), candidate(2, ""), before[2].clone()], "nobody is next in line"),
            (&before.clone().map(|it| it.replace("true", "false")), "no contact with the leader"),
        ] {
            assert_eq!(change(after), words);
        }
    }

    #[test]
    fn the_state_of_this_instance_and_a_table_without_peers_are_no_news() {
        let own = |state: &str| format!("[{}]", candidate(2, "").replace("standby", state));
        let words = news(Some(&document(&own("paused"))), &document(&own("standby")));
        assert_eq!(words, "is a standby, ready to take over");
        let words = news(Some(&document("null")), &document(&own("standby")));
        assert_eq!(words, "is a standby, ready to take over");
    }
}

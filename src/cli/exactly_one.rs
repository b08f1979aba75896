//! `tenure wait --for exactly-one`: polls all sidecars until enough of them answer and exactly one
//! is active.
//!
//! A handover is not an error: the leader may change between two requests of one round. Two leaders
//! are reported only if both were active, in the same terms, in two rounds in a row.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;

use super::client::{RequestError, Sidecar};
use super::document::{Heard, Role};
use super::terminal::harmless;
use crate::clock;

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(250);

/// The active instances: (instance, term) to a name for messages.
type Leaders = BTreeMap<(String, Option<u64>), String>;

/// The answers of one round.
struct Answers {
    leaders: Leaders,
    /// How many instances answered.
    heard: usize,
    /// Why a sidecar did not answer, if one did not.
    trouble: Option<RequestError>,
}

/// Resolves when at least `of` instances answer, no request fails, and exactly one instance is
/// active. Writes the result of each unsuccessful round to `last`.
///
/// # Errors
/// Two instances are active at the same time.
pub(super) async fn until(
    sidecars: &[Sidecar],
    of: usize,
    last: &mut String,
) -> Result<(), String> {
    let mut before = Leaders::new();
    loop {
        let Answers { leaders, heard, trouble } = ask(sidecars).await;
        let twice = leaders.iter().filter(|(it, _)| before.contains_key(*it));
        let twice: Vec<&str> = twice.map(|(_, who)| who.as_str()).collect();
        if twice.len() > 1 {
            return Err(format!("{} are active at the same time", twice.join(" and ")));
        }
        if leaders.len() == 1 && heard >= of && trouble.is_none() {
            return Ok(());
        }
        *last = format!("{} of {heard} active, {of} expected to answer", leaders.len());
        if let Some(trouble) = trouble {
            last.push_str(&format!("; {}", trouble.problem()));
        }
        before = leaders;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn ask(sidecars: &[Sidecar]) -> Answers {
    let found = join_all(sidecars.iter().map(Sidecar::each)).await;
    let mut trouble = None;
    let mut keep = |it: RequestError| trouble = Some(it);
    let each: Vec<Sidecar> =
        found.into_iter().flat_map(|it| it.map_err(&mut keep).unwrap_or_default()).collect();
    let answers = join_all(each.iter().map(Sidecar::status)).await;
    let heard: Vec<Heard> =
        answers.into_iter().filter_map(|it| it.map_err(&mut keep).ok()).collect();
    let now = clock::now();
    // One instance may be reached at several addresses.
    let all: BTreeMap<&str, &Heard> = heard.iter().map(|it| (&*it.document.instance, it)).collect();
    let leaders = all.iter().filter(|(_, it)| it.role(now) == Role::Active);
    let leaders = leaders
        .map(|(instance, it)| (((*instance).to_owned(), it.document.term), name(it)))
        .collect();
    Answers { leaders, heard: all.len(), trouble }
}

fn name(heard: &Heard) -> String {
    let term = heard.document.term.map_or(String::new(), |it| format!(" (term {it})"));
    format!("{}{term}", harmless(&heard.document.identity))
}

//! Plays scripts of one event, of every pair of events, and of some triples.

use super::event::{Event, Script};
use super::world::play;

/// Which scripts to play.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Whether the command runs once; both if unset.
    pub once: Option<bool>,
    /// Of the single events, the pairs and the triples, play one of so many; 0 for none.
    pub each: [usize; 3],
    /// After how many failures to stop.
    pub failures: usize,
    /// Of as many parts as the second number says, play the one with the first number.
    pub part: (usize, usize),
}

/// The result of an exploration.
#[derive(Debug, Default)]
pub struct Found {
    /// The number of scripts, by the number of their events.
    pub played: [u64; 4],
    /// The scripts that violate a property, and which; the first for each combination of events.
    pub failures: Vec<(Script, String)>,
}

/// Plays scripts until so many violate a property.
pub fn explore(extent: Extent) -> Found {
    let mut explorer = Explorer { extent, found: Found::default(), counts: [0; 3] };
    for once in [false, true].into_iter().filter(|it| extent.once.is_none_or(|once| once == *it)) {
        explorer.extend(&Script { once, events: Vec::new() });
    }
    explorer.found
}

struct Explorer {
    extent: Extent,
    found: Found,
    /// The number of scripts so far with so many events, played or left out.
    counts: [usize; 3],
}

impl Explorer {
    /// Plays a script, and those with one more event.
    fn extend(&mut self, script: &Script) {
        let outcome = play(script, false);
        let length = script.events.len();
        self.found.played[length] += 1;
        if let Some(violation) = outcome.violation {
            let events = |it: &Script| it.events.iter().map(|it| it.1).collect::<Vec<_>>();
            if !self.found.failures.iter().any(|it| events(&it.0) == events(script)) {
                self.found.failures.push((script.clone(), violation));
            }
            return;
        }
        let Some(each) = self.extent.each.get(length).copied().filter(|it| *it > 0) else {
            return;
        };
        let first = script.events.last().map_or(1, |it| it.0);
        for place in first..=outcome.window {
            for event in Event::ALL {
                if self.found.failures.len() >= self.extent.failures {
                    return;
                }
                self.counts[length] += 1;
                let count = self.counts[length];
                let (part, parts) = self.extent.part;
                let is_ours = length > 0 || count % parts == part;
                if is_ours && count.is_multiple_of(each) {
                    let mut longer = script.clone();
                    longer.events.push((place, event));
                    self.extend(&longer);
                }
            }
        }
    }
}

//! The report of a soak test: overlaps, terms, the time of each handover, and the time without a
//! leader.

#![allow(clippy::print_stdout, reason = "its report")]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::recorder::{Claim, Verdict};

/// A longer time between two claims counts as time without a leader. Longer than the polling
/// interval.
const GAP: Duration = Duration::from_millis(300);

/// One fault of the soak test.
#[derive(Clone, Debug)]
pub struct Injected {
    pub kind: &'static str,
    /// When it began, on the raw monotonic clock.
    pub at: Duration,
    /// The candidate that it affected, if it was a single one.
    pub victim: Option<String>,
    /// Whether that candidate led.
    pub leader: bool,
}

/// The report of a soak test.
pub struct Report {
    pub minutes: f64,
    pub seed: u64,
    pub injected: Vec<Injected>,
    pub claims: Vec<Claim>,
    pub verdict: Verdict,
    pub unexpected: Vec<String>,
    /// Resident memory of each candidate, in KiB.
    pub memory_before: Vec<u64>,
    pub memory_after: Vec<u64>,
}

impl Report {
    /// Returns, sorted, how long after each fault of a kind that affected the leader another led.
    fn handovers(&self, kind: &str) -> Vec<Duration> {
        let mut times: Vec<Duration> =
            self.injected
                .iter()
                .filter(|it| it.kind == kind && it.leader)
                .filter_map(|fault| {
                    let victim = fault.victim.as_deref()?;
                    let next = self.claims.iter().filter(|it| it.sent > fault.at);
                    let next = next.filter(|it| it.instance != victim).min_by_key(|it| it.sent)?;
                    // If the victim stayed leader, there was no handover.
                    let kept = self.claims.iter().any(|it| {
                        it.instance == victim && it.sent > fault.at && it.sent > next.sent
                    });
                    (!kept).then(|| next.sent - fault.at)
                })
                .collect();
        times.sort_unstable();
        times
    }

    /// Returns the share of the time without a claim of leadership, in percent.
    fn leaderless(&self) -> f64 {
        let mut sent: Vec<Duration> = self.claims.iter().map(|it| it.sent).collect();
        sent.sort_unstable();
        let gaps: Duration =
            sent.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > GAP).sum();
        let all =
            sent.last().zip(sent.first()).map_or(Duration::ZERO, |(last, first)| *last - *first);
        100.0 * gaps.as_secs_f64() / all.as_secs_f64().max(1.0)
    }

    /// Prints the report as text, followed by a line of JSON.
    pub fn print(&self) {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for fault in &self.injected {
            *kinds.entry(fault.kind).or_default() += 1;
        }
        println!("faults: {kinds:?}");
        let mut handovers = serde_json::Map::new();
        for kind in ["kill -9", "SIGTERM", "SIGSTOP", "cut off"] {
            let times = self.handovers(kind);
            if let (Some(worst), false) = (times.last(), times.is_empty()) {
                let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64();
                println!(
                    "{kind} → next leader: {} times, median {:.2} s, p99 {:.2} s, worst {:.2} s",
                    times.len(),
                    at(50),
                    at(99),
                    worst.as_secs_f64()
                );
                handovers.insert(
                    kind.to_owned(),
                    serde_json::json!({"times": times.len(), "median_s": at(50), "p99_s": at(99)}),
                );
            }
        }
        let line = serde_json::json!({
            "minutes": self.minutes,
            "seed": self.seed,
            "faults": self.injected.len(),
            "claims": self.verdict.claims,
            "terms": self.verdict.terms.len(),
            "overlaps": self.verdict.duals.len(),
            "shared_terms": self.verdict.shared.len(),
            "term_falls": self.verdict.falls.len(),
            "unexpected_ends": self.unexpected.len(),
            "leaderless_percent": (self.leaderless() * 100.0).round() / 100.0,
            "handovers": handovers,
            "resident_kib_before": self.memory_before,
            "resident_kib_after": self.memory_after,
        });
        println!("{line}");
    }
}

/// Returns the resident memory of a process in KiB.
pub fn resident(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

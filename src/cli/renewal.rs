//! Watches a lease in the store for a renewal: its holder is alive.

use std::sync::Arc;
use std::time::Duration;

use super::direct;
use crate::clock::{self, Moment};
use crate::config::Timings;
use crate::lease::Snapshot;
use crate::status::words::spoken;
use crate::store::LeaseAdmin;

/// How many reads there are in a retry-period, and the shortest pause between two.
const READS: u32 = 10;
const SHORTEST: Duration = Duration::from_millis(50);

/// What was seen of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// It was renewed between the last two reads, or its holder has changed.
    Seen {
        /// The holder, for messages.
        holder: String,
        /// When it was seen.
        at: Moment,
        /// How long the lease lasts from then on.
        ends_in: Option<Duration>,
    },
    /// It was not renewed in 1.5 retry-periods, or it is free by now.
    NotSeen,
    /// The store does not show renewals.
    NotShown,
}

/// Reads the lease that was `seen` held until it is renewed, for at most 1.5 retry-periods.
pub(super) async fn watch(
    store: &Arc<dyn LeaseAdmin>,
    seen: &Snapshot,
    timings: &Timings,
) -> Result<Renewal, String> {
    match (&seen.claim, seen.ends_in) {
        (None, None) => return Ok(Renewal::NotShown),
        // It has no end, so nobody renews it.
        (None, Some(Duration::MAX)) => return Ok(Renewal::NotSeen),
        _ => {}
    }
    let began = clock::now();
    let within = timings.retry_period + timings.retry_period / 2;
    let mut before = seen.clone();
    while began.elapsed_max(clock::now()) < within {
        tokio::time::sleep((timings.retry_period / READS).max(SHORTEST)).await;
        let next = direct::read(store).await?;
        if next.free {
            return Ok(Renewal::NotSeen);
        }
        if is_renewed(&before, &next) {
            let claimed = next.claim.as_ref().map(|it| it.lease_duration);
            return Ok(Renewal::Seen {
                holder: direct::named(&next.record),
                at: clock::now(),
                ends_in: next.ends_in.or(claimed),
            });
        }
        before = next;
    }
    Ok(Renewal::NotSeen)
}

/// Returns whether a lease was renewed between two reads: where observers count the time, its claim has
/// changed; where the store counts, it ends later than it did, which no clock that runs makes it.
fn is_renewed(before: &Snapshot, next: &Snapshot) -> bool {
    let has_changed =
        (before.record.term, before.record.nonce) != (next.record.term, next.record.nonce);
    let ends_later = match (before.ends_in, next.ends_in) {
        (Some(before), Some(next)) => next > before,
        _ => false,
    };
    has_changed || before.claim != next.claim || ends_later
}

impl Renewal {
    /// Says what breaking the lease costs, if its holder may be alive.
    pub(super) fn outage(&self, seen: &Snapshot, timings: &Timings) -> Option<String> {
        match self {
            Self::Seen { holder, at, ends_in } => {
                let ago = spoken(at.elapsed_max(clock::now()));
                let longest = spoken(ends_in.unwrap_or(timings.lease_duration));
                Some(format!(
                    "{holder}, renewed {ago} ago and leads: once its lease is broken, there will be no \
                     leader for up to {longest}"
                ))
            }
            Self::NotShown => Some(format!(
                "{} holds the lease. This store does not show renewals, so it may be alive and lead; \
                 then there will be no leader for up to {}",
                direct::named(&seen.record),
                spoken(timings.lease_duration)
            )),
            Self::NotSeen => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Claim, Record, Version};

    fn held() -> Snapshot {
        Snapshot {
            free: false,
            record: Record { term: Some(42), ..Record::default() },
            version: Version("1".into()),
            claim: None,
            ends_in: None,
        }
    }

    #[test]
    fn a_renewal_is_a_later_end_another_claim_or_another_holder() {
        let ends = |ms| Snapshot { ends_in: Some(Duration::from_millis(ms)), ..held() };
        let claim = |spec: &str| {
            let claim =
                Claim { spec: Version(spec.into()), lease_duration: Duration::from_secs(15) };
            Snapshot { claim: Some(claim), ..held() }
        };
        let term =
            |term| Snapshot { record: Record { term: Some(term), ..Record::default() }, ..held() };
        for (before, next, is) in [
            (ends(9_000), ends(8_800), false),
            (ends(9_000), ends(9_000), false),
            (ends(9_000), ends(9_900), true),
            (claim("a"), claim("a"), false),
            (claim("a"), claim("b"), true),
            (term(42), term(42), false),
            (term(42), term(43), true),
        ] {
            assert_eq!(is_renewed(&before, &next), is, "{before:?} {next:?}");
        }
    }
}

//! The one writer of the status: what the election says becomes a publication, numbered.
//!
//! What it does not do: it waits for no reader, and knows none but the status files' word that
//! they have said what they were to say (R8).

use tokio::sync::watch;

use crate::election::Status;
use crate::publish::Published;
use crate::publish::file::Acknowledgements;

/// Publishes, and knows whether passive has been said everywhere.
pub struct Publisher {
    sender: watch::Sender<Published>,
    acknowledgements: Acknowledgements,
    /// The publication that first said passive after active, until every file has said so.
    ending: Option<u64>,
}

impl Publisher {
    /// Publishes to `sender`, whose files answer through `acknowledgements`.
    #[must_use]
    pub fn new(sender: watch::Sender<Published>, acknowledgements: Acknowledgements) -> Self {
        Self { sender, acknowledgements, ending: None }
    }

    /// Publishes a status, unless it is the one that was published last.
    pub(super) fn publish(&mut self, status: Status) {
        let (ends, sequence) = {
            let last = self.sender.borrow();
            if last.status == status {
                return;
            }
            let leads = |status: &Status| status.standing.state().is_leading();
            (leads(&last.status) && !leads(&status), last.sequence + 1)
        };
        if ends {
            self.ending = Some(sequence);
        }
        self.sender.send_modify(|last| {
            if differs(&last.status, &status) {
                last.index += last.step();
            }
            last.sequence = sequence;
            last.status = status;
        });
    }

    /// Resolves once for each end of a leadership, when every status file has said passive or has
    /// failed to; never while none has ended. May be dropped and called again.
    pub(super) async fn announced(&mut self) {
        let Some(sequence) = self.ending else {
            return std::future::pending().await;
        };
        self.acknowledgements.reached(sequence).await;
        self.ending = None;
    }
}

/// Whether people would call it a change: the state, the term, the holder, what the store's
/// trouble is; not a renewal.
fn differs(before: &Status, after: &Status) -> bool {
    let outcome = |status: &Status| status.store.last_error.as_ref().map(|error| error.outcome());
    before.standing.state() != after.standing.state()
        || before.term() != after.term()
        || before.holder != after.holder
        || outcome(before) != outcome(after)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Moment;
    use crate::election::{Belief, Standing, StoreHealth};

    fn at(seconds: u64) -> Moment {
        let reading = Duration::from_secs(seconds);
        Moment { boot: reading, raw: reading, wall: reading }
    }

    fn standing(standing: Standing) -> Status {
        Status { standing, since: at(0), holder: None, store: StoreHealth::default() }
    }

    fn leader(sent: u64, jeopardy: bool) -> Status {
        let belief = Belief { sent: at(sent), length: Duration::from_secs(10), suspended: false };
        standing(Standing::Leader { term: 7, belief, jeopardy })
    }

    #[test]
    fn the_index_tells_each_change_from_all_before_even_the_clocks_own() {
        let first = Published { status: standing(Standing::Standby), index: 1, sequence: 1 };
        let (sender, published) = watch::channel(first);
        let mut publisher = Publisher::new(sender, Acknowledgements::of_no_files());
        let index = |now| published.borrow().index_at(at(now));
        let mut seen = vec![index(0)];
        publisher.publish(leader(0, false));
        seen.push(index(9));
        publisher.publish(leader(5, false));
        assert_eq!(index(14), *seen.last().unwrap(), "a renewal is no change");
        seen.push(index(15));
        publisher.publish(leader(5, true));
        seen.extend([index(14), index(15)]);
        publisher.publish(leader(20, false));
        seen.extend([index(20), index(30)]);
        publisher.publish(standing(Standing::Standby));
        seen.push(index(30));
        assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
        assert_eq!(published.borrow().sequence, 6);
    }
}

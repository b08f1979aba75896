//! Hands over to a candidate of higher priority, where `preempt-after` asks for it.
//!
//! When the lease was last handed over to a named candidate is written in the record, so that this happens
//! once in a time for the election, whoever leads and however often processes are started anew.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::sleep;

use super::registry::Registry;
use crate::clock::Moment;
use crate::driver::Control;
use crate::election::{Command, State};
use crate::lease::{Nonce, Successor};
use crate::status::Published;

/// How often it is checked whether to hand over.
const CHECK: Duration = Duration::from_secs(1);

/// The shortest time between two handovers. Hosts compare their wall clocks for it, which decides nothing
/// about who may lead.
const REST: Duration = Duration::from_secs(600);

/// For how many retry-periods the other candidates defer to the one that is to lead.
const HOLD_OFF: u32 = 5;

/// Checks whether to hand over, while this instance leads.
pub(super) struct Preemption {
    pub(super) priority: u8,
    /// For how long the other candidate has to be connected and eligible.
    pub(super) after: Duration,
    pub(super) retry_period: Duration,
    pub(super) published: watch::Receiver<Published>,
    pub(super) registry: Registry,
    pub(super) control: Control,
    pub(super) now: fn() -> Moment,
}

impl Preemption {
    /// Hands over when it is time to, until the driver has ended.
    pub(super) async fn run(self) {
        let mut last = None;
        while self.published.has_changed().is_ok() {
            sleep(CHECK).await;
            let now = (self.now)();
            let Some(identity) = self.successor(last, now) else { continue };
            tracing::info!(
                successor = identity,
                "a candidate of higher priority has been connected and healthy for preempt-after: \
                 handing over to it"
            );
            let hold_off = HOLD_OFF * self.retry_period;
            let transfer = Command::Transfer(Successor { identity, hold_off });
            // Refused if the leadership has ended meanwhile.
            if self.control.command(transfer).await.is_ok() {
                last = Some(now);
            }
        }
    }

    /// Returns the identity of the candidate to hand over to at `now`, if the last handover of the election
    /// was long enough ago, and the `last` one that this process has asked for, whether or not it was
    /// recorded.
    fn successor(&self, last: Option<Moment>, now: Moment) -> Option<String> {
        let (leads, recorded) = {
            let status = &self.published.borrow().status;
            let nonce = status.holder.as_ref().and_then(|it| it.nonce);
            (status.state(now) == State::Leader, nonce.and_then(Nonce::handover))
        };
        // A date that is far in the future is wrong.
        let was_lately = |it: OffsetDateTime| (now.date() - it).abs() < REST;
        let is_rested = last.is_none_or(|it| it.elapsed_min(now) >= REST);
        if !leads || !is_rested || recorded.is_some_and(was_lately) {
            return None;
        }
        self.registry.superior(self.priority, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Report;
    use super::super::tests::{belief, metrics, now, pass, published, report};
    use super::*;
    use std::sync::Arc;

    use crate::election::{Holder, Standing};
    use crate::http::listener::Peer;
    use crate::lease::Candidate;

    #[test]
    fn a_leader_hands_over_to_a_superior_and_then_not_for_ten_minutes() {
        let registry = Registry::new(metrics(), now);
        let (publisher, receiver) = watch::channel(published(Standing::Standby));
        let it = Preemption {
            priority: 50,
            after: Duration::from_secs(3),
            retry_period: Duration::from_secs(2),
            published: receiver,
            registry: registry.clone(),
            control: Control::new().0,
            now,
        };
        let superior = Report { priority: 51, ..report("b", State::Standby) };
        let _place = registry.join(superior, Peer::Local);
        pass(3);
        assert_eq!(it.successor(None, now()), None, "it does not lead");
        let leader = |jeopardy| Standing::Leader { term: 7, belief: belief(0), jeopardy };
        publisher.send_replace(published(leader(true)));
        assert_eq!(it.successor(None, now()), None, "its renewals fail");
        publisher.send_replace(published(leader(false)));
        assert_eq!(it.successor(None, now()).as_deref(), Some("b"));
        let last = Some(now());
        pass(599);
        let belief = crate::election::Belief { sent: now(), ..belief(0) };
        publisher.send_replace(published(Standing::Leader { term: 8, belief, jeopardy: false }));
        assert_eq!(it.successor(last, now()), None);
        pass(1);
        assert_eq!(it.successor(last, now()).as_deref(), Some("b"));
    }
    #[test]
    fn the_last_handover_that_the_record_knows_of_counts_whoever_made_it() {
        let registry = Registry::new(metrics(), now);
        let standing = Standing::Leader { term: 7, belief: belief(0), jeopardy: false };
        let (publisher, receiver) = watch::channel(published(standing));
        let it = Preemption {
            priority: 50,
            after: Duration::ZERO,
            retry_period: Duration::from_secs(2),
            published: receiver,
            registry: registry.clone(),
            control: Control::new().0,
            now,
        };
        let superior = Report { priority: 51, ..report("b", State::Standby) };
        let _place = registry.join(superior, Peer::Local);
        let ago = |seconds| Some(now().date() - time::Duration::seconds(seconds));
        for (handover, hands_over) in [
            (None, true),
            (ago(0), false),
            (ago(599), false),
            (ago(600), true),
            // By a clock that is ahead; and by one that is wrong.
            (ago(-599), false),
            (ago(-600), true),
        ] {
            let candidate = Arc::new(Candidate {
                identity: "us".to_owned(),
                instance: "us-1".to_owned(),
                address: None,
                peer: None,
            });
            let nonce = Some(Nonce(1).with_handover(handover));
            publisher.send_modify(|it| {
                let candidate = Arc::clone(&candidate);
                it.status.holder = Some(Holder { candidate, term: 7, nonce });
            });
            assert_eq!(it.successor(None, now()).is_some(), hands_over, "{handover:?}");
        }
    }
}

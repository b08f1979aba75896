//! Hands over to a candidate of higher priority, where `preempt-after` asks for it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::registry::Registry;
use crate::clock::Moment;
use crate::driver::Control;
use crate::election::{Command, State};
use crate::lease::Successor;
use crate::status::Published;

/// How often it is checked whether to hand over.
const CHECK: Duration = Duration::from_secs(1);

/// The shortest time between two handovers.
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

    /// Returns the identity of the candidate to hand over to at `now`, if the `last` handover was long
    /// enough ago.
    fn successor(&self, last: Option<Moment>, now: Moment) -> Option<String> {
        let is_rested = last.is_none_or(|it| it.elapsed_min(now) >= REST);
        let leads = self.published.borrow().status.state(now) == State::Leader;
        if !is_rested || !leads {
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
    use crate::election::Standing;
    use crate::http::listener::Peer;

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
}

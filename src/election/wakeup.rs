//! Wake-ups by the store: something may have changed. A wake-up is a hint, never evidence.

use super::{Election, Entropy, Op, Role};
use crate::clock::Moment;

impl Election {
    /// Makes the next read of a standby due now, unless it backs off. During a read or a bid it counts
    /// from the answer, which may be of before.
    pub(super) fn handle_wakeup(&mut self, now: Moment, entropy: Entropy) {
        self.woken = true;
        let reads = self.in_flight.as_ref().is_some_and(|request| matches!(request.op, Op::Read));
        if !reads {
            self.apply_wakeup(now);
        }
        self.handle_timeout(now, entropy);
    }

    /// Makes the next read due if there was a wake-up, unless a bid is still to be answered.
    pub(super) fn apply_wakeup(&mut self, now: Moment) {
        match &mut self.role {
            Role::Standby { bidding: Some(_), .. } => {}
            Role::Standby { next_read, bidding: None } => {
                if std::mem::take(&mut self.woken) {
                    next_read.make_due(now);
                }
            }
            _ => self.woken = false,
        }
    }
}

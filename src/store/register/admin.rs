//! What an operator does with the lease of a register.

use std::time::Duration;

use async_trait::async_trait;

use super::{If, Register, Registered, Slot, body};
use crate::lease::{Cause, Failure, StoreError};
use crate::store::{BreakOutcome, Finding, LeaseAdmin, Presence};

#[async_trait]
impl<R: Register> LeaseAdmin for Registered<R> {
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError> {
        let Some((tag, mut body)) = self.see().await? else { return Ok(BreakOutcome::NotHeld) };
        let Some(held) = &body.held else { return Ok(BreakOutcome::NotHeld) };
        let free_in = if at_once { Duration::ZERO } else { held.lease_duration };
        let record = body.shown_record();
        if at_once {
            body.free();
        } else if held.is_breaking {
            return Ok(BreakOutcome::Held { record, free_in });
        } else {
            body.mark_broken(self.register.draw());
        }
        if self.try_write(If::Tagged(&tag), &mut body).await?.is_none() {
            let message = "the lease was modified concurrently, so nothing was broken: try again";
            return Err(StoreError::Unknown(Failure::new(Cause::Lease, message)));
        }
        Ok(BreakOutcome::Held { record, free_in })
    }

    async fn presence(&self) -> Result<Presence, StoreError> {
        if self.register.get(Slot::Lease).await?.is_some() {
            return Ok(Presence::Exists);
        }
        let missing = format!("no {}", self.place().trim_start_matches("the "));
        Ok(Presence::Missing { missing, others: self.register.others().await })
    }

    async fn examine(&self) -> Vec<Finding> {
        self.register.examine().await
    }

    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError> {
        let place = self.place();
        let Some((tag, mut body)) = self.see().await? else {
            self.write(If::Absent, body::first(floor)).await?;
            return Ok(vec![format!("created {place} with the first term {floor}")]);
        };
        if body.record.term.is_some() {
            return Ok(Vec::new());
        }
        body.record.term = Some(floor);
        self.write(If::Tagged(&tag), body).await?;
        Ok(vec![format!("wrote the first term {floor} to {place}")])
    }
}

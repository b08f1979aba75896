//! The lease of a blob: Microsoft's tables, row by row, as a pure value.

use std::time::Duration;

/// A status and a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub u16, pub &'static str);

const MISMATCH: Refusal = Refusal(409, "LeaseIdMismatchWithLeaseOperation");
const NOT_PRESENT: Refusal = Refusal(409, "LeaseNotPresentWithLeaseOperation");

/// The state of the lease after the last request; `Id` identifies a holder.
#[derive(Clone, Debug, Default)]
pub enum Lease<Id> {
    /// Not held.
    #[default]
    Available,
    /// Held until then, or without end.
    Leased { id: Id, length: Option<Duration>, until: Option<Duration> },
    /// Held until then, and not renewable.
    Breaking { id: Id, until: Duration },
    /// Broken.
    Broken { id: Id },
    /// Expired; a renewal restores it for its length.
    Expired { id: Id, length: Option<Duration> },
}

impl<Id: Clone + PartialEq> Lease<Id> {
    /// Returns the name of the state at a time.
    pub fn state(&mut self, now: Duration) -> &'static str {
        self.settle(now);
        match self {
            Self::Available => "available",
            Self::Leased { .. } => "leased",
            Self::Breaking { .. } => "breaking",
            Self::Broken { .. } => "broken",
            Self::Expired { .. } => "expired",
        }
    }

    /// Returns whether it is held without end.
    pub fn is_endless(&self) -> bool {
        matches!(self, Self::Leased { until: None, .. })
    }

    /// Applies the passing of time.
    fn settle(&mut self, now: Duration) {
        match self {
            Self::Leased { id, length, until: Some(until) } if *until <= now => {
                *self = Self::Expired { id: id.clone(), length: *length };
            }
            Self::Breaking { id, until } if *until <= now => {
                *self = Self::Broken { id: id.clone() };
            }
            _ => (),
        }
    }

    /// Acquires the lease for `length`, or without end; renews it if this id holds it.
    pub fn acquire(
        &mut self,
        proposed: Id,
        length: Option<Duration>,
        now: Duration,
    ) -> Result<(), Refusal> {
        self.settle(now);
        match self {
            Self::Leased { id, .. } | Self::Breaking { id, .. } if *id != proposed => {
                return Err(Refusal(409, "LeaseAlreadyPresent"));
            }
            Self::Breaking { .. } => {
                return Err(Refusal(409, "LeaseIsBreakingAndCannotBeAcquired"));
            }
            _ => (),
        }
        let until = length.map(|length| now + length);
        *self = Self::Leased { id: proposed, length, until };
        Ok(())
    }

    /// Renews the lease, also an expired one.
    pub fn renew(&mut self, asked: &Id, now: Duration) -> Result<(), Refusal> {
        self.settle(now);
        match self {
            Self::Leased { id, length, .. } | Self::Expired { id, length } if id == asked => {
                let until = length.map(|length| now + length);
                *self = Self::Leased { id: asked.clone(), length: *length, until };
                Ok(())
            }
            Self::Breaking { id, .. } | Self::Broken { id } if id == asked => {
                Err(Refusal(409, "LeaseIsBrokenAndCannotBeRenewed"))
            }
            _ => Err(MISMATCH),
        }
    }

    /// Releases the lease.
    pub fn release(&mut self, asked: &Id, now: Duration) -> Result<(), Refusal> {
        self.settle(now);
        match self {
            Self::Leased { id, .. }
            | Self::Breaking { id, .. }
            | Self::Broken { id }
            | Self::Expired { id, .. }
                if id == asked =>
            {
                *self = Self::Available;
                Ok(())
            }
            _ => Err(MISMATCH),
        }
    }

    /// Changes the id of the lease, without renewing it.
    pub fn change(&mut self, asked: &Id, proposed: &Id, now: Duration) -> Result<(), Refusal> {
        self.settle(now);
        match self {
            Self::Leased { id, .. } if id == asked || id == proposed => {
                proposed.clone_into(id);
                Ok(())
            }
            Self::Leased { .. } => Err(MISMATCH),
            Self::Breaking { id, .. } if id == asked => {
                Err(Refusal(409, "LeaseIsBreakingAndCannotBeChanged"))
            }
            Self::Breaking { .. } => Err(MISMATCH),
            _ => Err(NOT_PRESENT),
        }
    }

    /// Breaks the lease after `period`, if that is shorter than what is left, and returns how long it
    /// still lasts.
    pub fn break_lease(
        &mut self,
        period: Option<Duration>,
        now: Duration,
    ) -> Result<Duration, Refusal> {
        self.settle(now);
        let (id, rest) = match self {
            Self::Available => return Err(NOT_PRESENT),
            Self::Leased { id, until: Some(until), .. } | Self::Breaking { id, until } => {
                let rest = until.saturating_sub(now);
                (id.clone(), period.map_or(rest, |period| period.min(rest)))
            }
            Self::Leased { id, until: None, .. } => (id.clone(), period.unwrap_or_default()),
            Self::Broken { id } | Self::Expired { id, .. } => (id.clone(), Duration::ZERO),
        };
        *self = if rest.is_zero() {
            Self::Broken { id }
        } else {
            Self::Breaking { id, until: now + rest }
        };
        Ok(rest)
    }

    /// Returns whether a write with this lease id is allowed.
    pub fn check_write(&mut self, given: Option<&Id>, now: Duration) -> Result<(), Refusal> {
        self.settle(now);
        match (&*self, given) {
            (Self::Available | Self::Broken { .. } | Self::Expired { .. }, None) => Ok(()),
            (Self::Available, Some(_)) => Err(Refusal(412, "LeaseNotPresentWithBlobOperation")),
            (Self::Leased { id, .. } | Self::Breaking { id, .. }, Some(given)) if id == given => {
                Ok(())
            }
            (Self::Leased { .. }, Some(_)) => Err(Refusal(409, "LeaseIdMismatchWithBlobOperation")),
            (Self::Leased { .. } | Self::Breaking { .. }, None) => {
                Err(Refusal(412, "LeaseIdMissing"))
            }
            (Self::Breaking { .. }, Some(_)) => {
                Err(Refusal(412, "LeaseIdMismatchWithBlobOperation"))
            }
            (Self::Broken { .. } | Self::Expired { .. }, Some(_)) => Err(Refusal(412, "LeaseLost")),
        }
    }

    /// Records a write: an expired lease can no longer be renewed after it.
    pub fn written(&mut self, now: Duration) {
        if matches!(self.state(now), "broken" | "expired") {
            *self = Self::Available;
        }
    }
}

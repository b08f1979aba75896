//! The lease of a blob: Microsoft's tables, row by row, as a pure value.

use std::time::Duration;

/// A status and a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub u16, pub &'static str);

const MISMATCH: Refusal = Refusal(409, "LeaseIdMismatchWithLeaseOperation");
const NOT_PRESENT: Refusal = Refusal(409, "LeaseNotPresentWithLeaseOperation");

/// The lease, as it was when it was last touched; `Id` is what tells one holder from another.
#[derive(Clone, Debug, Default)]
pub enum Lease<Id> {
    /// Nobody has it.
    #[default]
    Available,
    /// Somebody has it until then, or without end.
    Leased { id: Id, length: Option<Duration>, until: Option<Duration> },
    /// Somebody has it until then, and cannot renew it.
    Breaking { id: Id, until: Duration },
    /// It was broken.
    Broken { id: Id },
    /// It ran out; its length would count anew with a renewal.
    Expired { id: Id, length: Option<Duration> },
}

impl<Id: Clone + PartialEq> Lease<Id> {
    /// The state's name at a time.
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

    /// Whether somebody has it without end.
    pub fn is_endless(&self) -> bool {
        matches!(self, Self::Leased { until: None, .. })
    }

    /// Lets time do its work.
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

    /// Takes the lease for `length`, or without end; counts anew where it is held by this id.
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

    /// Counts the lease anew, one that ran out too.
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

    /// Frees the lease.
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

    /// Gives the lease another id, without counting it anew.
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

    /// Breaks the lease after `period`, if that is shorter than what is left of it, and says how
    /// long it lasts yet.
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

    /// Says whether a write with this lease id may be done.
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

    /// A write was done: a lease that had ended is gone for good, and cannot be renewed.
    pub fn written(&mut self, now: Duration) {
        if matches!(self.state(now), "broken" | "expired") {
            *self = Self::Available;
        }
    }
}

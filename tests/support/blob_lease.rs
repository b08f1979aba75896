//! The lease of a blob: Microsoft's tables, row by row, as a pure value.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::time::Duration;

/// A status and a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub u16, pub &'static str);

const MISMATCH: Refusal = Refusal(409, "LeaseIdMismatchWithLeaseOperation");
const NOT_PRESENT: Refusal = Refusal(409, "LeaseNotPresentWithLeaseOperation");

/// The lease, as it was when it was last touched.
#[derive(Debug, Default)]
pub enum Lease {
    /// Nobody has it.
    #[default]
    Available,
    /// Somebody has it until then, or without end.
    Leased { id: String, length: Option<Duration>, until: Option<Duration> },
    /// Somebody has it until then, and cannot renew it.
    Breaking { id: String, until: Duration },
    /// It was broken.
    Broken { id: String },
    /// It ran out; its length would count anew with a renewal.
    Expired { id: String, length: Option<Duration> },
}

/// What a lease request says.
#[derive(Debug)]
pub struct Given {
    action: String,
    id: Option<String>,
    proposed: Option<String>,
    length: Option<Duration>,
    period: Option<Duration>,
}

impl Given {
    /// Reads and checks the headers.
    pub fn new<'a>(
        action: &str,
        header: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Self, Refusal> {
        let invalid = Refusal(400, "InvalidHeaderValue");
        let guid = |name: &str| match header(name) {
            Some(id) if uuid::Uuid::try_parse(id).is_ok() => Ok(Some(id.to_ascii_lowercase())),
            Some(_) => Err(invalid),
            None => Ok(None),
        };
        let number = |name: &str| match header(name).map(str::parse::<i64>) {
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(invalid),
            None => Ok(None),
        };
        let length = match (action, number("x-ms-lease-duration")?) {
            ("acquire", None) => return Err(Refusal(400, "MissingRequiredHeader")),
            ("acquire", Some(-1)) | (_, None) => None,
            ("acquire", Some(it @ 15..=60)) => Some(Duration::from_secs(it.unsigned_abs())),
            _ => return Err(invalid),
        };
        let period = match number("x-ms-lease-break-period")? {
            Some(it @ 0..=60) => Some(Duration::from_secs(it.unsigned_abs())),
            Some(_) => return Err(invalid),
            None => None,
        };
        let (id, proposed) = (guid("x-ms-lease-id")?, guid("x-ms-proposed-lease-id")?);
        let missing = (matches!(action, "renew" | "release" | "change") && id.is_none())
            || (action == "change" && proposed.is_none());
        if missing {
            return Err(Refusal(400, "MissingRequiredHeader"));
        }
        Ok(Self { action: action.to_owned(), id, proposed, length, period })
    }
}

type Answer = (u16, Vec<(String, String)>);

fn with_id(status: u16, id: &str) -> Answer {
    (status, vec![("x-ms-lease-id".to_owned(), id.to_owned())])
}

impl Lease {
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

    /// Lets time do its work.
    fn settle(&mut self, now: Duration) {
        match self {
            Self::Leased { id, length, until: Some(until) } if *until <= now => {
                *self = Self::Expired { id: std::mem::take(id), length: *length };
            }
            Self::Breaking { id, until } if *until <= now => {
                *self = Self::Broken { id: std::mem::take(id) };
            }
            _ => (),
        }
    }

    /// Does a lease operation.
    pub fn operate(&mut self, given: &Given, now: Duration) -> Result<Answer, Refusal> {
        self.settle(now);
        let id = given.id.as_deref().unwrap_or_default();
        match given.action.as_str() {
            "acquire" => self.acquire(given, now),
            "renew" => self.renew(id, now),
            "release" => self.release(id),
            "change" => self.change(id, given.proposed.as_deref().unwrap_or_default()),
            "break" => self.break_lease(given.period, now),
            _ => Err(Refusal(400, "InvalidHeaderValue")),
        }
    }

    fn acquire(&mut self, given: &Given, now: Duration) -> Result<Answer, Refusal> {
        let proposed = given.proposed.clone();
        match self {
            Self::Leased { id, .. } if proposed.as_ref() != Some(id) => {
                return Err(Refusal(409, "LeaseAlreadyPresent"));
            }
            Self::Breaking { id, .. } if proposed.as_ref() != Some(id) => {
                return Err(Refusal(409, "LeaseAlreadyPresent"));
            }
            Self::Breaking { .. } => {
                return Err(Refusal(409, "LeaseIsBreakingAndCannotBeAcquired"));
            }
            _ => (),
        }
        let id = proposed.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let until = given.length.map(|length| now + length);
        *self = Self::Leased { id: id.clone(), length: given.length, until };
        Ok(with_id(201, &id))
    }

    fn renew(&mut self, asked: &str, now: Duration) -> Result<Answer, Refusal> {
        match self {
            Self::Leased { id, length, .. } | Self::Expired { id, length } if id == asked => {
                let until = length.map(|length| now + length);
                *self = Self::Leased { id: asked.to_owned(), length: *length, until };
                Ok(with_id(200, asked))
            }
            Self::Breaking { id, .. } | Self::Broken { id } if id == asked => {
                Err(Refusal(409, "LeaseIsBrokenAndCannotBeRenewed"))
            }
            _ => Err(MISMATCH),
        }
    }

    fn release(&mut self, asked: &str) -> Result<Answer, Refusal> {
        match self {
            Self::Leased { id, .. }
            | Self::Breaking { id, .. }
            | Self::Broken { id }
            | Self::Expired { id, .. }
                if id == asked =>
            {
                *self = Self::Available;
                Ok((200, Vec::new()))
            }
            _ => Err(MISMATCH),
        }
    }

    fn change(&mut self, asked: &str, proposed: &str) -> Result<Answer, Refusal> {
        match self {
            Self::Leased { id, .. } if id == asked || id == proposed => {
                proposed.clone_into(id);
                Ok(with_id(200, proposed))
            }
            Self::Leased { .. } => Err(MISMATCH),
            Self::Breaking { id, .. } if id == asked => {
                Err(Refusal(409, "LeaseIsBreakingAndCannotBeChanged"))
            }
            Self::Breaking { .. } => Err(MISMATCH),
            _ => Err(NOT_PRESENT),
        }
    }

    fn break_lease(&mut self, period: Option<Duration>, now: Duration) -> Result<Answer, Refusal> {
        let (id, rest) = match self {
            Self::Available => return Err(NOT_PRESENT),
            Self::Leased { id, until: Some(until), .. } => {
                let rest = until.saturating_sub(now);
                (id.clone(), period.map_or(rest, |period| period.min(rest)))
            }
            Self::Leased { id, until: None, .. } => (id.clone(), period.unwrap_or_default()),
            Self::Breaking { id, until } => {
                let rest = until.saturating_sub(now);
                (id.clone(), period.map_or(rest, |period| period.min(rest)))
            }
            Self::Broken { id } | Self::Expired { id, .. } => (id.clone(), Duration::ZERO),
        };
        *self = if rest.is_zero() {
            Self::Broken { id }
        } else {
            Self::Breaking { id, until: now + rest }
        };
        Ok((202, vec![("x-ms-lease-time".to_owned(), rest.as_secs().to_string())]))
    }

    /// Says whether a write with this lease id may be done.
    pub fn check_write(&mut self, given: Option<&str>, now: Duration) -> Result<(), Refusal> {
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

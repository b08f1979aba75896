//! A lease request, parsed from the headers of a blob request, and its effect on a lease.

use std::time::Duration;

use simulator::store::blob_lease::{Lease, Refusal};

/// A parsed lease request.
#[derive(Debug)]
pub struct Given {
    action: String,
    id: Option<String>,
    proposed: Option<String>,
    length: Option<Duration>,
    period: Option<Duration>,
}

impl Given {
    /// Parses and validates the headers.
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

/// A status and headers.
pub type Answer = (u16, Vec<(String, String)>);

fn with_id(status: u16, id: &str) -> Answer {
    (status, vec![("x-ms-lease-id".to_owned(), id.to_owned())])
}

impl Given {
    /// Applies the request to a lease.
    pub fn apply(&self, lease: &mut Lease<String>, now: Duration) -> Result<Answer, Refusal> {
        let id = self.id.clone().unwrap_or_default();
        let proposed = self.proposed.clone();
        match self.action.as_str() {
            "acquire" => {
                let id = proposed.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
                lease.acquire(id.clone(), self.length, now).map(|()| with_id(201, &id))
            }
            "renew" => lease.renew(&id, now).map(|()| with_id(200, &id)),
            "release" => lease.release(&id, now).map(|()| (200, Vec::new())),
            "change" => {
                let proposed = proposed.unwrap_or_default();
                lease.change(&id, &proposed, now).map(|()| with_id(200, &proposed))
            }
            "break" => {
                let rest = lease.break_lease(self.period, now)?;
                Ok((202, vec![("x-ms-lease-time".to_owned(), rest.as_secs().to_string())]))
            }
            _ => Err(Refusal(400, "InvalidHeaderValue")),
        }
    }
}

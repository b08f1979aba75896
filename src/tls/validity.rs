//! The time for which a certificate is valid.

use std::fmt;
use std::time::Duration;

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};
use time::OffsetDateTime;

use crate::clock::Moment;

/// A time after the end of any certificate: the year 9999 is the last that one can name.
const NEVER: u64 = 1 << 40;

/// From when until when a certificate is valid, in seconds of unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    begin: u64,
    end: u64,
}

impl Validity {
    /// Returns the validity of a certificate; `None` if it has no valid one.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        // rustls does not show the dates, but names the one that a time is beyond.
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        let at = |seconds| {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            verify_server_cert_signed_by_trust_anchor(
                &parsed,
                &RootCertStore::empty(),
                &[],
                now,
                &[],
            )
        };
        let end = match at(NEVER) {
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext {
                not_after, ..
            })) => not_after.as_secs(),
            _ => return None,
        };
        let begin = match at(0) {
            Err(Error::InvalidCertificate(CertificateError::NotValidYetContext {
                not_before,
                ..
            })) => not_before.as_secs(),
            _ => 0,
        };
        Some(Self { begin, end })
    }

    /// Returns why a certificate is not valid by the wall clock; `None` if it is.
    #[must_use]
    pub fn objection(&self, now: Moment) -> Option<String> {
        let seconds = u64::try_from(now.date().unix_timestamp()).unwrap_or_default();
        if seconds > self.end {
            Some(format!("expired on {}", date(self.end)))
        } else if seconds < self.begin {
            Some(format!("is not valid before {}", date(self.begin)))
        } else {
            None
        }
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "valid until {}", date(self.end))
    }
}

/// Formats a unix time as a date and a time of day.
fn date(seconds: u64) -> String {
    let at =
        i64::try_from(seconds).ok().and_then(|it| OffsetDateTime::from_unix_timestamp(it).ok());
    let Some(at) = at else { return "a date after the year 9999".to_owned() };
    let (date, time) = (at.date(), at.time());
    format!("{date} {:02}:{:02} UTC", time.hour(), time.minute())
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::super::{ServerFiles, ServerTls};
    use super::*;
    use crate::clock;

    fn validity(until: i32) -> Validity {
        let directory = tempfile::tempdir().unwrap();
        let (own, _) = testing::write(directory.path(), "a", until);
        let loaded = ServerTls::load(&ServerFiles { own, client_ca: None }).unwrap();
        loaded.validity().unwrap()
    }

    #[test]
    fn the_dates_of_a_certificate_are_found() {
        let valid = validity(2_100);
        assert_eq!(valid.to_string(), "valid until 2100-12-31 00:00 UTC");
        assert_eq!(valid.objection(clock::now()), None);
        let expired = validity(2_001).objection(clock::now());
        assert_eq!(expired.as_deref(), Some("expired on 2001-12-31 00:00 UTC"));
        let begins = Validity { begin: valid.end - 60, ..valid }.objection(clock::now());
        assert_eq!(begins.as_deref(), Some("is not valid before 2100-12-30 23:59 UTC"));
        assert_eq!(validity(9_999).to_string(), "valid until 9999-12-31 00:00 UTC");
    }
}

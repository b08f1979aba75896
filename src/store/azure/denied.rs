//! Why Azure denied access: 401 and 403 have many causes, of which the code tells few. What is known comes
//! first: the clocks, then the time of a SAS. Then what is likely: the firewall and the private
//! endpoint, the role or the permissions, the key.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use url::Url;

use super::auth::Proof;
use super::{rejected, sas};
use crate::config::duration;
use crate::lease::Cause;

/// How far the clock of this host may be off before Azure rejects what it has signed.
pub(super) const CLOCK_BOUND: time::Duration = time::Duration::minutes(15);

const ROLE: &str = "the role \"Storage Blob Data Contributor\" on the container";

/// What is known about a request that was denied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence<'a> {
    /// What it was signed with, if there was anything.
    pub(super) proof: Option<&'a Proof>,
    /// The account in the settings.
    pub(super) account: &'a str,
    /// The endpoint that it was sent to.
    pub(super) endpoint: &'a Url,
    /// The store's date in its answer.
    pub(super) date: Option<OffsetDateTime>,
    /// The date of this host when the answer came.
    pub(super) now: OffsetDateTime,
}

impl Evidence<'_> {
    /// Returns by how much the clock of this host is wrong, in words, if that alone is refused.
    fn clock(&self) -> Option<String> {
        let off = self.now - self.date?;
        let direction = if off.is_negative() { "behind" } else { "ahead of" };
        (off.abs() > CLOCK_BOUND).then(|| {
            let off = duration::format(Duration::from_secs(off.whole_seconds().unsigned_abs()));
            format!(
                "the clock of this host is {off} {direction} the store's, which rejects what is \
                 signed more than 15 minutes off: synchronize it (NTP)"
            )
        })
    }

    /// Returns why a SAS is not valid now, by the store's clock if it is known: only that counts.
    fn time_of_sas(&self) -> Option<String> {
        let now = self.date.unwrap_or(self.now);
        let proof = self.proof?;
        let shown = |time: OffsetDateTime| time.format(&Rfc3339).unwrap_or_default();
        if let Some(end) = sas::end(proof).filter(|end| *end <= now) {
            return Some(format!("the SAS expired at {}: create a new one", shown(end)));
        }
        let start = sas::start(proof).filter(|start| *start > now)?;
        Some(format!(
            "the SAS is not valid before {}: wait until then, or create one that begins earlier",
            shown(start)
        ))
    }

    fn parameter(&self, name: &str) -> &str {
        self.proof.and_then(|it| sas::parameter(it, name)).unwrap_or_default()
    }

    /// Names the account's network rules.
    fn network(&self) -> String {
        let host = self.endpoint.host_str().unwrap_or_default();
        format!(
            "the firewall of the account {} does not let this host in (allow its network), or \
             {host} does not resolve to the account's private endpoint here",
            self.account
        )
    }

    /// Says how to grant what the lease needs.
    fn permissions(&self) -> String {
        match self.proof {
            Some(Proof::Sas(_)) => match self.parameter("sp") {
                "" => "give the SAS the permissions read, create and write".to_owned(),
                sp => format!(
                    "the SAS has the permissions sp={sp}: it needs read, create and write (rcw)"
                ),
            },
            _ => format!("grant the identity {ROLE}"),
        }
    }

    /// Says what is wrong with the proof itself.
    fn proof(&self) -> String {
        match self.proof {
            Some(Proof::Key { account, .. }) => format!(
                "the account key does not match the account {account}: copy a current key of that \
                 account"
            ),
            Some(Proof::Sas(_)) => match self.parameter("si") {
                "" => "the signature of the SAS is not valid: copy the whole SAS, or create a new \
                       one if the key that it was made with was replaced"
                    .to_owned(),
                policy => format!(
                    "the signature of the SAS is not valid: check that its stored access policy \
                     {policy} exists and has not expired, and copy the whole SAS"
                ),
            },
            Some(Proof::Token(_)) | None => {
                "the token was rejected: it expired, or is for another tenant or service".to_owned()
            }
        }
    }
}

/// Returns the cause and the words for a code of 401 or 403.
pub(super) fn explain(code: &str, known: &Evidence<'_>) -> (Cause, String) {
    if let Some(certain) = by_code(code, known) {
        return certain;
    }
    let time_of_sas = known.time_of_sas();
    let is_explained = time_of_sas.is_some()
        || (known.clock().is_some() && matches!(known.proof, Some(Proof::Key { .. })));
    let likely = match code {
        "AuthenticationFailed" | "InvalidAuthenticationInfo" | "NoAuthenticationInformation" => {
            known.proof()
        }
        "AuthorizationFailure" => {
            let last = match known.proof {
                Some(Proof::Key { .. }) => known.proof(),
                _ => known.permissions(),
            };
            format!("access denied: {}; otherwise {last}", known.network())
        }
        _ => format!("permission denied: {}", known.permissions()),
    };
    let is_network = code == "AuthorizationFailure";
    let facts: Vec<String> = known.clock().into_iter().chain(time_of_sas).collect();
    let words = match facts.join("; ") {
        facts if facts.is_empty() => likely,
        facts if is_explained && !is_network => facts,
        facts => format!("{facts}; otherwise {likely}"),
    };
    (Cause::Auth, words)
}

/// Explains the codes that name their cause.
fn by_code(code: &str, known: &Evidence<'_>) -> Option<(Cause, String)> {
    let sas = |what: &str| (Cause::Settings, format!("the SAS {what}"));
    Some(match code {
        "AuthorizationSourceIPMismatch" => sas(&format!(
            "allows only requests from the addresses sip={}, and this host's is another: create one \
             without sip, or with the address that the store sees",
            known.parameter("sip")
        )),
        "AuthorizationProtocolMismatch" => {
            sas("allows https only (spr=https): use an https endpoint")
        }
        "AuthorizationResourceTypeMismatch" => sas(&format!(
            "is not for blobs in a container (srt={}, sr={}): create one for the resource types \
             container and object (srt=co), or for the container (sr=c)",
            known.parameter("srt"),
            known.parameter("sr")
        )),
        "AuthorizationServiceMismatch" => sas(&format!(
            "is not for the blob service (ss={}): create one with ss=b",
            known.parameter("ss")
        )),
        "KeyBasedAuthenticationNotPermitted" => (
            Cause::Auth,
            "the account does not allow keys, nor a SAS made with one: use workload identity or \
             managed identity"
                .to_owned(),
        ),
        "AccountIsDisabled" => (
            Cause::Settings,
            format!("the account {} or its subscription is disabled: enable it", known.account),
        ),
        "InsufficientAccountPermissions" => {
            let host = known.endpoint.host_str().unwrap_or_default();
            let words = if host.split('.').next().is_some_and(|it| it.ends_with("-secondary")) {
                format!(
                    "{host} is the secondary endpoint of the account, which can only be read: use \
                     the primary one, without -secondary"
                )
            } else {
                format!(
                    "the account {} does not allow this operation at present: it can only be read, \
                     or not even that; check its state, and that the endpoint is the primary one",
                    known.account
                )
            };
            (Cause::Settings, words)
        }
        _ => return rejected::by_code(code),
    })
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2030-01-02 12:00 UTC);
    const HOUR: time::Duration = time::Duration::HOUR;

    fn key() -> Proof {
        Proof::Key { account: "acct".to_owned(), key: "a2V5".into() }
    }

    fn token() -> Proof {
        Proof::Token(azure_core::credentials::Secret::new("t"))
    }

    fn sas(more: &str) -> Proof {
        Proof::sas(&format!("sv=2023-11-03&sig=SECRET{more}"))
    }

    /// Explains a code where the clock of this host is `off` from the store's.
    fn explained(code: &str, proof: &Proof, off: Option<time::Duration>) -> (Cause, String) {
        let endpoint = Url::parse("https://acct.blob.core.windows.net/").unwrap();
        let date = off.map(|off| NOW - off);
        let known =
            Evidence { proof: Some(proof), account: "acct", endpoint: &endpoint, date, now: NOW };
        let (cause, words) = explain(code, &known);
        assert!(!words.contains("SECRET"), "{words}");
        (cause, words)
    }

    /// Checks that these words follow each other, and that the others are not there.
    fn check(found: &str, in_order: &[&str], absent: &[&str]) {
        let mut rest = found;
        for words in in_order {
            let (_, after) = rest.split_once(words).unwrap_or_else(|| panic!("{words} in {found}"));
            rest = after;
        }
        for words in absent {
            assert!(!found.contains(words), "{words} in {found}");
        }
    }

    #[test]
    fn what_is_known_comes_first_and_then_what_is_likely() {
        let (clock, firewall, role) = ("the clock of this host", "firewall", "Contributor");
        let (key_words, expired) = ("the account key does not match", "the SAS expired");
        let right = Some(time::Duration::ZERO);
        let (dead, early) = ("&se=2030-01-02T11:59Z", "&st=2030-01-02T12:01Z");
        type Row<'a> = (&'a str, Proof, Option<time::Duration>, &'a [&'a str], &'a [&'a str]);
        let table: [Row; 17] = [
            ("AuthenticationFailed", key(), right, &[key_words], &[clock, firewall]),
            ("AuthenticationFailed", key(), None, &[key_words], &[clock, firewall]),
            ("AuthenticationFailed", key(), Some(HOUR), &[clock, "1h ahead of"], &[key_words]),
            ("AuthenticationFailed", key(), Some(-HOUR), &[clock, "1h behind"], &[key_words]),
            ("AuthenticationFailed", sas(dead), right, &[expired, "11:59"], &[clock, firewall]),
            ("AuthenticationFailed", sas(dead), None, &[expired], &[]),
            ("AuthenticationFailed", sas(dead), Some(HOUR), &[clock], &[expired]),
            ("AuthenticationFailed", sas(early), right, &["not valid before"], &[firewall]),
            ("AuthenticationFailed", sas(""), right, &["the signature of the SAS"], &[firewall]),
            ("AuthenticationFailed", sas("&si=p1"), right, &["stored access policy p1"], &[]),
            ("AuthenticationFailed", token(), right, &["the token was rejected"], &[firewall]),
            ("AuthorizationFailure", key(), right, &[firewall, "private endpoint", key_words], &[]),
            ("AuthorizationFailure", token(), right, &[firewall, "private endpoint", role], &[]),
            ("AuthorizationFailure", sas("&sp=r"), right, &[firewall, "sp=r:"], &[role]),
            ("AuthorizationFailure", sas(dead), right, &[expired, firewall], &[]),
            ("AuthorizationFailure", key(), Some(HOUR), &[clock, firewall, key_words], &[]),
            ("AuthorizationPermissionMismatch", token(), Some(HOUR), &[clock, role], &[firewall]),
        ];
        for (code, proof, off, in_order, absent) in table {
            let (cause, found) = explained(code, &proof, off);
            assert_eq!(cause, Cause::Auth, "{found}");
            check(&found, in_order, absent);
        }
    }

    #[test]
    fn a_clock_is_wrong_from_more_than_15_minutes_on() {
        for (off, is_wrong) in [(900, false), (901, true), (-900, false), (-901, true)] {
            let off = Some(time::Duration::seconds(off));
            let (_, found) = explained("AuthenticationFailed", &key(), off);
            assert_eq!(found.contains("the clock of this host"), is_wrong, "{found}");
        }
    }

    #[test]
    fn each_code_that_names_its_cause_has_its_own_remedy() {
        let wide = sas("&sip=10.0.0.1&srt=s&ss=q&sp=r");
        for (code, cause, words) in [
            ("AuthorizationSourceIPMismatch", Cause::Settings, "sip=10.0.0.1"),
            ("AuthorizationProtocolMismatch", Cause::Settings, "https only"),
            ("AuthorizationResourceTypeMismatch", Cause::Settings, "srt=co"),
            ("AuthorizationServiceMismatch", Cause::Settings, "ss=b"),
            ("AuthorizationPermissionMismatch", Cause::Auth, "read, create and write"),
            ("UnauthorizedBlobOverwrite", Cause::Auth, "read, create and write"),
            ("KeyBasedAuthenticationNotPermitted", Cause::Auth, "does not allow keys"),
            (
                "AccountIsDisabled",
                Cause::Settings,
                "the account acct or its subscription is disabled",
            ),
            ("InsufficientAccountPermissions", Cause::Settings, "can only be read"),
            ("KeyVaultEncryptionKeyNotFound", Cause::Settings, "key vault"),
            ("KeyVaultAccessTokenCannotBeAcquired", Cause::Settings, "key vault"),
            ("KeyVaultVaultNotFound", Cause::Settings, "key vault"),
            ("RequestForbiddenByContainerEncryptionPolicy", Cause::Settings, "encryption scope"),
        ] {
            let (found, said) = explained(code, &wide, None);
            assert_eq!(found, cause, "{code}");
            assert!(said.contains(words), "{code}: {said}");
        }
    }

    #[test]
    fn the_secondary_endpoint_is_named() {
        let endpoint = Url::parse("https://acct-secondary.blob.core.windows.net/").unwrap();
        let (date, proof) = (None, key());
        let known =
            Evidence { proof: Some(&proof), account: "acct", endpoint: &endpoint, date, now: NOW };
        let (cause, words) = explain("InsufficientAccountPermissions", &known);
        assert_eq!(cause, Cause::Settings);
        check(&words, &["acct-secondary.blob.core.windows.net", "without -secondary"], &[]);
    }
}

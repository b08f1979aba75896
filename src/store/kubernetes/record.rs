//! The contents of a Lease: its holder, the record of a leadership among its annotations, and each
//! change that Tenure makes to either. Sends no request and reads no clock.
//!
//! The fields of the spec are those of client-go, in its formats, so that other programs that read
//! Leases understand them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use crate::kube::objects::{Lease, Metadata, micro_time, read_time};
use crate::lease::text::{LONGEST_NAME, excerpt};
use crate::lease::{
    Bid, Candidate, Cause, Claim, Failure, Nonce, Record, Snapshot, Successor, Version,
};

/// Which acquisition holds the Lease. client-go keeps annotations when it acquires one, so this
/// counts only together with a matching holder.
const CLAIM: &str = "tenure.dev/claim";
/// Random in each renewal. The time alone is not enough: a second renewal within a second is written with a
/// time that another renewal may have too, after the store has lost the one in between.
const RENEWAL: &str = "tenure.dev/renewal";
const TERM: &str = "tenure.dev/term";
const NONCE: &str = "tenure.dev/nonce";
const HOLDER: &str = "tenure.dev/holder";
const INSTANCE: &str = "tenure.dev/instance";
const ADDRESS: &str = "tenure.dev/address";
const PEER: &str = "tenure.dev/peer";
const SUCCESSOR: &str = "tenure.dev/successor";
const HOLD_OFF: &str = "tenure.dev/hold-off-ms";

/// The holder that breaking a lease writes: all observers wait anew, and the previous holder finds
/// that it no longer holds the Lease (R12).
const BROKEN: &str = "broken-by-operator";

/// The version of a Lease that does not exist.
const MISSING: &str = "missing";

/// Terms stay below 2⁵³, so that every JSON reader can tell adjacent ones apart. The last one below
/// is neither written nor read, since none could follow it.
const TERM_LIMIT: u64 = 1 << 53;

/// Returns the holder identity of a candidate.
fn identity(candidate: &Candidate) -> String {
    format!("{}_{}", candidate.identity, candidate.instance)
}

/// Returns the holder of the Lease; `None` if it is free.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.holder_identity.as_deref().filter(|it| !it.is_empty())
}

/// Returns the holder of a Lease for a message; others may write anything of any length.
pub(super) fn shown(holder: &str) -> Cow<'static, str> {
    excerpt(Cow::Owned(holder.to_owned()), 2 * LONGEST_NAME)
}

/// Returns whether this acquisition holds the Lease.
pub(super) fn is_of(lease: &Lease, bid: &Bid) -> bool {
    claims(lease, bid) && holder(lease) == Some(&identity(&bid.candidate))
}

/// Returns whether this acquisition may free the Lease: one that it holds, or held until an
/// operator broke it.
pub(super) fn is_to_end(lease: &Lease, bid: &Bid) -> bool {
    is_of(lease, bid) || claims(lease, bid) && is_broken(lease)
}

/// Returns whether an operator has broken the Lease, and no candidate has acquired it since.
pub(super) fn is_broken(lease: &Lease) -> bool {
    holder(lease) == Some(BROKEN)
}

fn claims(lease: &Lease, bid: &Bid) -> bool {
    lease.metadata.annotations.get(CLAIM) == Some(&bid.nonce.to_string())
}

/// Returns the version of the Lease: all of it, since a write replaces all of it.
pub(super) fn version(lease: &Lease) -> Version {
    Version(serde_json::to_string(lease).unwrap_or_default().into())
}

/// Returns the Lease in a version; `None` if it did not exist.
pub(super) fn of_version(version: &Version) -> Option<Lease> {
    let lease: Lease = serde_json::from_str(&version.0).ok()?;
    (!lease.metadata.resource_version.is_empty()).then_some(lease)
}

/// Returns whether the Lease is still in a version. It is not if it was deleted and created again.
pub(super) fn is_in_version(lease: &Lease, version: &Version) -> bool {
    let state = |lease: &Lease| {
        let Metadata { uid, resource_version, .. } = &lease.metadata;
        (uid.clone(), resource_version.clone())
    };
    of_version(version).is_some_and(|known| state(&known) == state(lease))
}

/// Returns the acquisition that holds the Lease; `None` if it is free or broken, or if another program
/// holds it, which keeps the annotations of the last holder.
pub(super) fn held_by(lease: &Lease) -> Option<Nonce> {
    let annotation = |name| lease.metadata.annotations.get(name).map_or("", String::as_str);
    let (holder, claim) = (holder(lease)?, annotation(CLAIM));
    // Before it has written its term, an acquisition has a name that is not in the record yet.
    let is_recorded = claim == annotation(NONCE);
    let recorded = format!("{}_{}", annotation(HOLDER), annotation(INSTANCE));
    if is_broken(lease) || is_recorded && holder != recorded {
        return None;
    }
    claim.parse().ok()
}

/// Returns the result of reading a Lease that does not exist.
pub(super) fn missing() -> Snapshot {
    let version = Version(MISSING.into());
    Snapshot { free: true, record: Record::default(), version, claim: None, ends_in: None }
}

/// Returns whether a bid is for a Lease that did not exist.
pub(super) fn is_missing(seen: &Version) -> bool {
    &*seen.0 == MISSING
}

/// Returns the result of reading a Lease.
pub(super) fn snapshot(lease: &Lease, place: &str) -> Result<Snapshot, Failure> {
    let mut record = read(lease, place)?;
    let claim = claim(lease, place)?;
    if claim.is_some() && !is_broken(lease) && !wrote(lease, &record) {
        record = Record { term: record.term, ..Record::default() };
    }
    let ends_in = claim.as_ref().map(|it| it.lease_duration);
    Ok(Snapshot { free: claim.is_none(), record, version: version(lease), claim, ends_in })
}

/// Returns whether the holder of the Lease wrote the record.
fn wrote(lease: &Lease, record: &Record) -> bool {
    let claim = lease.metadata.annotations.get(CLAIM);
    let same = claim.is_some() && claim == lease.metadata.annotations.get(NONCE);
    same && holder(lease) == record.holder.as_deref().map(identity).as_deref()
}

/// Returns the claim whose time observers count: a renewal changes it, and no other write does.
pub(super) fn claim(lease: &Lease, place: &str) -> Result<Option<Claim>, Failure> {
    let Some(holder) = holder(lease) else {
        return Ok(None);
    };
    let Some(lease_duration) = lease_duration(lease) else {
        let (namespace, name) = place.split_once('/').unwrap_or_default();
        let message = format!(
            "the Lease {place} is held by {:?} without leaseDurationSeconds, so its end is \
             unknown; once that holder is gone, free it with: kubectl patch lease {name} -n \
             {namespace} --type=merge -p '{{\"spec\":{{\"holderIdentity\":\"\"}}}}'",
            shown(holder)
        );
        return Err(Failure::new(Cause::Record, message));
    };
    let spec = &lease.spec;
    let spec = format!(
        "{:?}",
        (
            holder,
            &spec.renew_time,
            &spec.acquire_time,
            spec.lease_duration_seconds,
            spec.lease_transitions,
            lease.metadata.annotations.get(CLAIM),
            lease.metadata.annotations.get(RENEWAL),
        )
    );
    Ok(Some(Claim { spec: Version(spec.into()), lease_duration }))
}

/// Returns how long the Lease lasts after each renewal; `None` if it does not say.
pub(super) fn lease_duration(lease: &Lease) -> Option<Duration> {
    let seconds = u64::try_from(lease.spec.lease_duration_seconds?).ok()?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Returns whether Tenure has written a record to the Lease.
pub(super) fn is_written_by_tenure(lease: &Lease) -> bool {
    lease.metadata.annotations.keys().any(|name| name.starts_with("tenure.dev/"))
}

/// Returns a digest of all that is of interest to a standby: everything but renewals.
pub(super) fn news(lease: &Lease) -> String {
    let ours: Vec<_> = annotations(lease).filter(|(name, _)| *name != RENEWAL).collect();
    format!("{:?}", (&lease.metadata.uid, holder(lease), ours))
}

/// Reads the record, and refuses one that Tenure cannot have written.
pub(super) fn read(lease: &Lease, place: &str) -> Result<Record, Failure> {
    let annotations = &lease.metadata.annotations;
    let foreign = |why: String| {
        let message = format!(
            "the record in the Lease {place} was not written by Tenure: {why}; remove its \
             annotations tenure.dev/…, or set another Lease"
        );
        Failure::new(Cause::Record, message)
    };
    let number = |name: &str| match annotations.get(name) {
        None => Ok(None),
        Some(text) if text.bytes().all(|it| it.is_ascii_digit()) => {
            text.parse().map(Some).map_err(|_| foreign(format!("its {name} is out of range")))
        }
        Some(_) => Err(foreign(format!("its {name} is not a number"))),
    };
    let term = number(TERM)?;
    if term.is_some_and(|it| it >= TERM_LIMIT - 1) {
        return Err(foreign(format!("its {TERM} is too large")));
    }
    let nonce = match annotations.get(NONCE) {
        None => None,
        Some(text) => {
            Some(text.parse::<Nonce>().map_err(|_| foreign(format!("its {NONCE} is invalid")))?)
        }
    };
    let text = |name: &str| annotations.get(name).cloned();
    let holder = text(HOLDER).map(|identity| {
        let instance = text(INSTANCE).unwrap_or_default();
        Arc::new(Candidate { identity, instance, address: text(ADDRESS), peer: text(PEER) })
    });
    let successor = match (annotations.get(SUCCESSOR), number(HOLD_OFF)?) {
        (Some(identity), Some(hold_off)) => Successor::recorded(identity, hold_off),
        (None, None) => None,
        _ => return Err(foreign(format!("it has only one of {SUCCESSOR} and {HOLD_OFF}"))),
    };
    Ok(Record { term, holder, nonce, successor })
}

/// Returns the term of the record, if this bid wrote it.
pub(super) fn term_of(record: &Record, bid: &Bid) -> Option<u64> {
    record.term.filter(|_| record.nonce == Some(bid.nonce))
}

/// Returns the term to write: above the last one, at least `floor`, and above client-go's count of
/// transitions. `None` if it would be too large.
pub(super) fn next_term(lease: &Lease, recorded: Option<u64>, floor: u64) -> Option<u64> {
    let counted = u64::try_from(lease.spec.lease_transitions.unwrap_or(0)).unwrap_or(0);
    let next = recorded.unwrap_or(0).max(counted).checked_add(1)?.max(floor);
    (next < TERM_LIMIT - 1).then_some(next)
}

/// Creates a Lease that a bid holds.
pub(super) fn taken_anew(namespace: &str, name: &str, bid: &Bid, now: OffsetDateTime) -> Lease {
    let metadata = Metadata::named(namespace, name);
    let mut lease = Lease { metadata, ..Lease::default() };
    take(&mut lease, bid, now);
    lease.spec.lease_transitions = Some(0);
    lease
}

/// Creates a Lease that is free, with a first term.
pub(super) fn free_with_term(namespace: &str, name: &str, term: u64) -> Lease {
    let mut lease = Lease { metadata: Metadata::named(namespace, name), ..Lease::default() };
    put_term(&mut lease, term);
    lease
}

/// Makes a bid the holder.
pub(super) fn take(lease: &mut Lease, bid: &Bid, now: OffsetDateTime) {
    let spec = &mut lease.spec;
    spec.holder_identity = Some(identity(&bid.candidate));
    spec.acquire_time = Some(micro_time(now));
    spec.renew_time = Some(micro_time(now));
    spec.lease_duration_seconds = Some(whole_seconds(bid.lease_duration));
    spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
    lease.metadata.annotations.insert(CLAIM.to_owned(), bid.nonce.to_string());
    lease.metadata.annotations.remove(RENEWAL);
}

/// Renews, so that every observer waits anew, whatever the wall clock did. The new time differs
/// from the last one in its whole seconds: client-go compares nothing finer, and would count from
/// the first of two renewals in one second. With several renewals in a second, the time runs ahead
/// of the clock.
pub(super) fn renew(lease: &mut Lease, bid: &Bid, now: OffsetDateTime) {
    let spec = &mut lease.spec;
    let last = spec.renew_time.as_deref().and_then(read_time);
    let last = last.filter(|it| it.unix_timestamp() >= now.unix_timestamp());
    let next = last.and_then(|it| it.checked_add(time::Duration::SECOND));
    spec.renew_time = Some(micro_time(next.unwrap_or(now)));
    spec.lease_duration_seconds = Some(whole_seconds(bid.lease_duration));
    let renewal = Uuid::new_v4().simple().to_string();
    lease.metadata.annotations.insert(RENEWAL.to_owned(), renewal);
}

/// Replaces the record of an earlier leadership with that of a bid.
pub(super) fn write_term(lease: &mut Lease, bid: &Bid, term: u64) {
    let annotations = &mut lease.metadata.annotations;
    for name in [HOLDER, INSTANCE, ADDRESS, PEER, SUCCESSOR, HOLD_OFF] {
        annotations.remove(name);
    }
    let mut put = |name: &str, value: String| annotations.insert(name.to_owned(), value);
    put(NONCE, bid.nonce.to_string());
    put(HOLDER, bid.candidate.identity.clone());
    put(INSTANCE, bid.candidate.instance.clone());
    if let Some(address) = bid.candidate.address.clone().filter(|it| !it.is_empty()) {
        put(ADDRESS, address);
    }
    if let Some(peer) = bid.candidate.peer.clone().filter(|it| !it.is_empty()) {
        put(PEER, peer);
    }
    put_term(lease, term);
}

/// Writes a term, and nothing else of a record.
pub(super) fn put_term(lease: &mut Lease, term: u64) {
    lease.metadata.annotations.insert(TERM.to_owned(), term.to_string());
}

/// Adds the successor to the present record.
pub(super) fn set_successor(lease: &mut Lease, successor: &Successor) {
    let annotations: &mut BTreeMap<_, _> = &mut lease.metadata.annotations;
    annotations.insert(SUCCESSOR.to_owned(), successor.identity.clone());
    annotations.insert(HOLD_OFF.to_owned(), successor.hold_off_millis().to_string());
}

/// Frees the Lease as client-go does; the record stays.
pub(super) fn free(lease: &mut Lease, now: OffsetDateTime) {
    put_holder(lease, "", now);
    lease.spec.lease_duration_seconds = Some(1);
    lease.metadata.annotations.remove(CLAIM);
    lease.metadata.annotations.remove(RENEWAL);
}

/// Replaces the holder, so that all observers wait anew. The claim annotation stays, so that the
/// previous holder may still free the Lease early.
pub(super) fn mark_broken(lease: &mut Lease, now: OffsetDateTime) {
    put_holder(lease, BROKEN, now);
}

fn put_holder(lease: &mut Lease, holder: &str, now: OffsetDateTime) {
    lease.spec.holder_identity = Some(holder.to_owned());
    lease.spec.acquire_time = Some(micro_time(now));
    lease.spec.renew_time = Some(micro_time(now));
}

/// Returns whether an answer shows all that was written: the holder, the times, and every annotation
/// of Tenure. Other fields are those of others.
pub(super) fn shows(answer: &Lease, written: &Lease) -> bool {
    let time = |text: &Option<String>| text.as_deref().and_then(read_time);
    let said = |lease: &Lease| {
        let spec = &lease.spec;
        let times = (time(&spec.acquire_time), time(&spec.renew_time));
        (times, spec.lease_duration_seconds, spec.lease_transitions)
    };
    holder(answer) == holder(written)
        && said(answer) == said(written)
        && annotations(answer).eq(annotations(written))
}

/// Returns the annotations of Tenure.
fn annotations(lease: &Lease) -> impl Iterator<Item = (&String, &String)> {
    lease.metadata.annotations.iter().filter(|(name, _)| name.starts_with("tenure.dev/"))
}

/// Rounds up to whole seconds. Settings allow whole seconds only; rounding down would be too short
/// for observers.
fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    i32::try_from(seconds).unwrap_or(i32::MAX).max(1)
}

#[cfg(test)]
mod tests;

//! The status document: the JSON of `/status`, `/watch` and, without the candidates, the status files,
//! judged at one instant.
//! The subcommands read it with the same types; fields that are not needed to judge it may be
//! missing then, so that one version of Tenure can read the document of another.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{
    About, CandidateDocument, HolderJudgement, Judgement, Maintenance, Past, ProbeState, Published,
    Role, RouteState, valid_until_boottime_ns, whole_ms,
};
use crate::clock::Moment;
use crate::election::{Activation, Holder, LastHolder, Status, Transition};

/// The status document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document<'a> {
    /// Name of the election.
    #[serde(default)]
    pub election: Cow<'a, str>,
    /// The identity of this instance, for people.
    #[serde(default)]
    pub identity: Cow<'a, str>,
    /// The unique id of this instance.
    #[serde(default)]
    pub instance: Cow<'a, str>,
    /// The state.
    pub state: Cow<'a, str>,
    /// Active or passive.
    pub role: Role,
    /// Whether this instance is a standby that would lead if the lease were free; `None` from a
    /// version that does not say.
    #[serde(default)]
    pub can_take_over: Option<bool>,
    /// The term of this instance, while it holds it.
    #[serde(default)]
    pub term: Option<u64>,
    /// How long the role active is valid, counted from the sending of the request; 0 when passive.
    pub valid_for_ms: u64,
    /// The reading of the boot clock until which the role active is valid; 0 when passive.
    #[serde(default)]
    pub valid_until_boottime_ns: u64,
    /// The boot id, which that reading refers to.
    #[serde(default)]
    pub boot_id: Cow<'a, str>,
    /// When the state began; leader and jeopardy count as one state. RFC 3339.
    #[serde(default)]
    pub since: Cow<'a, str>,
    /// Grows with each change, by one or more.
    pub index: u64,
    /// The holder of the lease that was last seen.
    #[serde(default)]
    pub holder: Option<HolderDocument<'a>>,
    /// For how long no holder has been known; `null` while there is one, and before the first answer of the
    /// store.
    #[serde(default)]
    pub leaderless_ms: Option<u64>,
    /// Whether the store showed the lease as held at the last read, whoever holds it.
    #[serde(default)]
    pub lease_held: bool,
    /// What this instance waits for while it holds the lease and does not lead yet.
    #[serde(default)]
    pub activation: Option<ActivationDocument<'a>>,
    /// Whether the lease is held by another tool, without an end: nobody known holds it.
    #[serde(default)]
    pub held_without_end: bool,
    /// The holder before the present one, or the last one if none is known.
    #[serde(default)]
    pub last_holder: Option<LastHolderDocument<'a>>,
    /// The successor that the record names.
    #[serde(default)]
    pub successor: Option<SuccessorDocument<'a>>,
    /// The rest of this instance's hold-off, after it gave up leadership.
    #[serde(default)]
    pub hold_off_remaining_ms: Option<u64>,
    /// The time until the deadline of a drain; `null` without a drain.
    #[serde(default)]
    pub drain_remaining_ms: Option<u64>,
    /// How long the lease certainly protects the work of a drain, if no renewal follows; `null`
    /// without a drain.
    #[serde(default)]
    pub protected_for_ms: Option<u64>,
    /// The health of the store.
    #[serde(default)]
    pub store: StoreDocument<'a>,
    /// The last results of the health probes; `null` if there are none.
    #[serde(default)]
    pub health: Option<HealthDocument<'a>>,
    /// The next maintenance of this machine; `null` if none is announced.
    #[serde(default)]
    pub maintenance: Option<MaintenanceDocument<'a>>,
    /// The state of the route; `null` if there is none.
    #[serde(default)]
    pub route: Option<RouteDocument<'a>>,
    /// The last transitions, newest first.
    #[serde(default)]
    pub transitions: Vec<TransitionDocument<'a>>,
    /// All candidates, the leader first, then in the order in which they are next in line; absent
    /// without peers, when an instance knows of no other than itself and the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidates: Option<Vec<CandidateDocument<'a>>>,
    /// What a person should mend although this instance works, each a sentence.
    #[serde(default)]
    pub warnings: Vec<Cow<'a, str>>,
    /// Tenure's version.
    #[serde(default)]
    pub version: Cow<'a, str>,
}

/// The holder in the status document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderDocument<'a> {
    /// Its identity.
    pub identity: Cow<'a, str>,
    /// The address of its service, if it published one.
    #[serde(default)]
    pub address: Option<Cow<'a, str>>,
    /// Its term.
    #[serde(default)]
    pub term: u64,
    /// The time since the store last answered, which is when this was last known.
    #[serde(default)]
    pub seen_ms_ago: u64,
    /// Whether its next renewal is late, by what shows renewals here: it may lead no longer.
    #[serde(default)]
    pub overdue: bool,
    /// Whether its lease must be over, or could not be read for renew-deadline: another may lead, or none.
    #[serde(default)]
    pub stale: bool,
    /// How long ago it last renewed, as far as was seen; `null` if no renewal was.
    #[serde(default)]
    pub renewed_ms_ago: Option<u64>,
    /// The time within which its lease ends, if no renewal follows; `null` if unknown.
    #[serde(default)]
    pub lease_ends_within_ms: Option<u64>,
    /// What shows its renewals here: `store`, `peers` or `nothing`; `null` from a version that does not say.
    #[serde(default)]
    pub renewals_shown_by: Option<Cow<'a, str>>,
    /// That it no longer leads, by its own word: `draining`, or the reason for which its leadership ended;
    /// `null` otherwise.
    #[serde(default)]
    pub leaving: Option<Cow<'a, str>>,
}

/// The wait of a holder before it leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivationDocument<'a> {
    /// `earlier-leader`: an earlier leader may still be active; `activation-delay`; `term`: the term is being
    /// written.
    pub waits_for: Cow<'a, str>,
    /// How long it waits at least; 0 for the term.
    #[serde(default)]
    pub remaining_ms: u64,
}

/// An earlier holder in the status document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LastHolderDocument<'a> {
    /// Its identity.
    pub identity: Cow<'a, str>,
    /// Its term.
    #[serde(default)]
    pub term: u64,
    /// When it was seen no more, RFC 3339.
    #[serde(default)]
    pub until: Cow<'a, str>,
    /// How long ago that was.
    #[serde(default)]
    pub ms_ago: u64,
    /// Why its leadership ended: `released`, `expired`, or the reason of a transition; `null` if unknown.
    #[serde(default)]
    pub reason: Option<Cow<'a, str>>,
}

/// The successor in the status document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SuccessorDocument<'a> {
    /// Its identity.
    pub identity: Cow<'a, str>,
    /// How long the others defer to it.
    #[serde(default)]
    pub hold_off_ms: u64,
}

/// The store in the status document.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StoreDocument<'a> {
    /// The kind of store.
    #[serde(default)]
    pub kind: Cow<'a, str>,
    /// The URL of the lock, without secrets; empty from a version that does not say.
    #[serde(default)]
    pub url: Cow<'a, str>,
    /// The time since the last successful request; `null` if there was none.
    #[serde(default)]
    pub last_success_ms_ago: Option<u64>,
    /// The number of failures since then.
    #[serde(default)]
    pub failures: u32,
    /// The error of the last one.
    #[serde(default)]
    pub last_error: Option<Cow<'a, str>>,
    /// The store that the election has moved to, without secrets: nobody bids in this one then.
    #[serde(default)]
    pub moved_to: Option<Cow<'a, str>>,
}

/// The health probes in the status document. Whether the instance competes is part of the state
/// instead.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HealthDocument<'a> {
    /// Whether the last result of every probe was a success.
    pub well: bool,
    /// Each probe, in the order of the settings.
    #[serde(default)]
    pub probes: Vec<ProbeDocument<'a>>,
}

/// One probe in the status document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbeDocument<'a> {
    /// The probe as configured, without credentials.
    pub probe: Cow<'a, str>,
    /// Whether its last result was a success; `null` before the first.
    #[serde(default)]
    pub well: Option<bool>,
    /// That result in words.
    #[serde(default)]
    pub said: Option<Cow<'a, str>>,
    /// The time since that result.
    #[serde(default)]
    pub ms_ago: Option<u64>,
}

/// The maintenance of this machine in the status document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaintenanceDocument<'a> {
    /// The id of the event.
    #[serde(default)]
    pub event_id: Cow<'a, str>,
    /// `Freeze`, `Reboot`, `Redeploy`, `Preempt` or `Terminate`.
    #[serde(rename = "type")]
    pub kind: Cow<'a, str>,
    /// When it begins at the earliest, RFC 3339; `null` if it has begun, or may begin at any time.
    #[serde(default)]
    pub not_before: Option<Cow<'a, str>>,
    /// `Scheduled` or `Started`.
    pub status: Cow<'a, str>,
    /// Whether this instance does not compete because of it.
    #[serde(default)]
    pub imminent: bool,
}

/// The route in the status document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteDocument<'a> {
    /// `label` or `endpointslice`.
    #[serde(default)]
    pub kind: Cow<'a, str>,
    /// The role it reports for this instance; `null` if unknown.
    #[serde(default)]
    pub says: Option<Role>,
    /// Another pod that it reports active although this instance leads, or an endpoint behind the
    /// Service that is not the leader's.
    #[serde(default)]
    pub other: Option<Cow<'a, str>>,
    /// Whether that agrees with the role of this instance, by a recent and complete verification.
    pub agrees: bool,
    /// For how long it has agreed, or has not.
    #[serde(default)]
    pub since_ms: u64,
    /// How long ago the last complete verification that succeeded began.
    #[serde(default)]
    pub verified_ms_ago: Option<u64>,
    /// The last error, until the next success.
    #[serde(default)]
    pub last_error: Option<Cow<'a, str>>,
}

/// A transition in the status document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitionDocument<'a> {
    /// When it was recorded, RFC 3339.
    pub at: Cow<'a, str>,
    /// The state before.
    #[serde(default)]
    pub from: Cow<'a, str>,
    /// The state after.
    pub to: Cow<'a, str>,
    /// The reason.
    pub reason: Cow<'a, str>,
    /// The term that began, continues, or ended.
    #[serde(default)]
    pub term: Option<u64>,
}

impl<'a> Document<'a> {
    /// Returns this instance among the candidates; `None` without peers.
    #[must_use]
    pub fn own_candidate(&self) -> Option<&CandidateDocument<'a>> {
        self.candidates.as_deref()?.iter().find(|it| it.instance == self.instance)
    }
}

impl StoreDocument<'_> {
    /// Returns the URL of the lock, with the kind of store where the URL does not begin with it.
    #[must_use]
    pub fn name(&self) -> String {
        let (kind, url) = (&*self.kind, &*self.url);
        match url.strip_prefix(kind) {
            _ if url.is_empty() => kind.to_owned(),
            Some(rest) if rest.starts_with(':') => url.to_owned(),
            _ => format!("{kind}, {url}"),
        }
    }
}

impl Published {
    /// Returns the status document as it is at `now`.
    #[must_use]
    pub fn document<'a>(&'a self, about: &'a About, now: Moment) -> Document<'a> {
        let judgement = Judgement::of(&self.status, now);
        let (store, lease) = (&self.status.store, &self.status.lease);
        Document {
            election: about.election.as_str().into(),
            identity: about.identity.as_str().into(),
            instance: about.instance.as_str().into(),
            state: judgement.state.as_str().into(),
            role: judgement.role(),
            can_take_over: Some(self.can_take_over(about, now)),
            term: judgement.term,
            valid_for_ms: judgement.valid_for_ms(),
            valid_until_boottime_ns: valid_until_boottime_ns(&judgement, now),
            boot_id: about.boot_id.as_str().into(),
            since: rfc3339(self.status.since.date()).into(),
            index: self.index_at(now),
            holder: HolderDocument::of(&self.status, now),
            leaderless_ms: lease.leaderless.map(|it| whole_ms(it.elapsed_max(now))),
            lease_held: lease.is_held,
            held_without_end: store.lease_has_no_end,
            activation: lease.activation.map(|it| ActivationDocument::of(it, now)),
            last_holder: lease.last_holder.as_ref().map(|it| LastHolderDocument::of(it, now)),
            successor: self.status.successor.as_ref().map(|successor| SuccessorDocument {
                identity: successor.identity.as_str().into(),
                hold_off_ms: whole_ms(successor.hold_off),
            }),
            hold_off_remaining_ms: self.status.hold_off.map(|it| whole_ms(it.remaining(now))),
            drain_remaining_ms: self.status.drain_remaining(now).map(whole_ms),
            protected_for_ms: self.status.protected_for(now).map(whole_ms),
            store: StoreDocument {
                kind: about.store.into(),
                url: about.store_url.as_str().into(),
                last_success_ms_ago: store.last_success.map(|then| whole_ms(then.elapsed_max(now))),
                failures: store.failures,
                last_error: store
                    .error()
                    .map(|error| Cow::from(error.failure().message.as_ref()))
                    .or_else(|| {
                        store.lease_has_no_end.then_some(super::words::HELD_WITHOUT_END.into())
                    }),
                moved_to: store.moved_to.as_deref().map(Cow::from),
            },
            health: (!self.probes.is_empty()).then(|| HealthDocument {
                well: self.is_healthy(),
                probes: self.probes.iter().map(|probe| ProbeDocument::of(probe, now)).collect(),
            }),
            maintenance: self.maintenance.as_ref().map(MaintenanceDocument::from),
            route: self.route.as_ref().map(|route| self.route_document(route, now)),
            transitions: self.history.iter().map(TransitionDocument::from).collect(),
            candidates: self.candidate_documents(about, now),
            warnings: self.warnings(about, now).into_iter().map(Cow::from).collect(),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }

    fn route_document<'a>(&self, route: &'a RouteState, now: Moment) -> RouteDocument<'a> {
        let agreement = self.route_agreement(now).expect("there is a route");
        RouteDocument {
            kind: route.kind.into(),
            says: route.report.says,
            other: route.report.other.as_deref().map(Cow::from),
            agrees: agreement.agrees,
            since_ms: whole_ms(agreement.since),
            verified_ms_ago: route.report.verified.map(|it| whole_ms(it.at.elapsed_max(now))),
            last_error: route.report.last_error.as_deref().map(Cow::from),
        }
    }
}

impl<'a> HolderDocument<'a> {
    /// Returns the holder of a status as it is judged at `now`; `None` without one.
    #[must_use]
    pub fn of(status: &'a Status, now: Moment) -> Option<Self> {
        let Holder { candidate, term, .. } = status.holder.as_ref()?;
        let judged = HolderJudgement::of(status, now)?;
        let ago = |then: Moment| whole_ms(then.elapsed_max(now));
        Some(Self {
            identity: candidate.identity.as_str().into(),
            address: candidate.address.as_deref().map(Cow::from),
            term: *term,
            seen_ms_ago: status.store.last_success.map_or(0, ago),
            overdue: judged.overdue,
            stale: judged.stale,
            renewed_ms_ago: judged.renewed.map(whole_ms),
            lease_ends_within_ms: judged.ends_within.map(whole_ms),
            renewals_shown_by: Some(judged.shown_by.into()),
            leaving: judged.leaving.map(Cow::from),
        })
    }
}

impl ActivationDocument<'_> {
    /// Returns what a holder waits for at `now`.
    #[must_use]
    pub fn of(activation: Activation, now: Moment) -> Self {
        let remaining = activation.remaining(now);
        let waits_for = match activation.for_earlier {
            _ if remaining.is_zero() => "term",
            true => "earlier-leader",
            false => "activation-delay",
        };
        Self { waits_for: waits_for.into(), remaining_ms: whole_ms(remaining) }
    }
}

impl<'a> LastHolderDocument<'a> {
    fn of(last: &'a LastHolder, now: Moment) -> Self {
        Self {
            identity: last.holder.candidate.identity.as_str().into(),
            term: last.holder.term,
            until: rfc3339(last.until.date()).into(),
            ms_ago: whole_ms(last.until.elapsed_max(now)),
            reason: last.ending.map(|it| it.as_str().into()),
        }
    }
}

impl<'a> ProbeDocument<'a> {
    fn of(state: &'a ProbeState, now: Moment) -> Self {
        let last = state.last.as_ref();
        Self {
            probe: state.probe.as_str().into(),
            well: last.map(|last| last.succeeded),
            said: last.map(|last| last.message.as_str().into()),
            ms_ago: last.map(|last| whole_ms(last.at.elapsed_max(now))),
        }
    }
}

impl<'a> From<&'a Maintenance> for MaintenanceDocument<'a> {
    fn from(announced: &'a Maintenance) -> Self {
        Self {
            event_id: announced.event_id.as_str().into(),
            kind: announced.kind.into(),
            not_before: announced.not_before.map(|it| rfc3339(it).into()),
            status: announced.status().into(),
            imminent: announced.imminent,
        }
    }
}

impl From<&Past> for TransitionDocument<'_> {
    fn from(past: &Past) -> Self {
        let Transition { from, to, reason, term, .. } = past.transition;
        Self {
            at: rfc3339(past.at.date()).into(),
            from: from.as_str().into(),
            to: to.as_str().into(),
            reason: reason.as_str().into(),
            term,
        }
    }
}

/// Formats a date in whole milliseconds.
#[must_use]
pub fn rfc3339(date: OffsetDateTime) -> String {
    let date = date.replace_millisecond(date.millisecond()).unwrap_or(date);
    date.format(&Rfc3339).expect("a date of this era can be written")
}

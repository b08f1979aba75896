//! Azure's Instance Metadata Service: the name of this machine, and the scheduled events of the group
//! of machines that it is in.
//!
//! Events are only read. To approve one would let it begin early for all machines that it names, of
//! which this instance knows only its own.

use std::time::Duration;

use reqwest::Client;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::{Rfc2822, Rfc3339};
use tokio::time::timeout;
use url::Url;

use crate::config::duration;
use crate::http::client::{self, BodyError};
use crate::http::resolver::Resolver;
use crate::lease::text::{LONGEST_NAME, excerpt, is_name};
use crate::status::Maintenance;
use crate::tls::system_client;

/// The paths of the questions, each with its documented version.
const MACHINE: &str = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";
const EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";

/// The longest answer that is read; an event has about half a kilobyte.
const LONGEST_ANSWER: usize = 256 * 1024;

/// The kinds of events, all of which interrupt the machine.
const KINDS: [&str; 5] = ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"];

/// The client of the service.
pub(super) struct MetadataService {
    client: Client,
    endpoint: Url,
}

impl MetadataService {
    pub(super) fn new(endpoint: &Url) -> anyhow::Result<Self> {
        // A connection for each question, so that none is found broken.
        let client = client::builder(system_client(false)?, Resolver::default())
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(Self { client, endpoint: endpoint.clone() })
    }

    /// Returns the name of this machine, or why it is unknown.
    pub(super) async fn machine(&self, patience: Duration) -> Result<String, String> {
        let answer = self.get(MACHINE, patience).await?;
        let name = String::from_utf8_lossy(&answer).trim().to_owned();
        if is_name(&name) {
            Ok(name)
        } else {
            Err(format!("the name of the machine that {} returned is invalid", self.shown()))
        }
    }

    /// Returns the scheduled events of all machines of the group, or why they are unknown.
    pub(super) async fn events(&self, patience: Duration) -> Result<Vec<Event>, String> {
        let answer = self.get(EVENTS, patience).await?;
        let document: Document = serde_json::from_slice(&answer).map_err(|error| {
            format!("the answer of {} is not a list of scheduled events: {error}", self.shown())
        })?;
        tracing::debug!(
            incarnation = document.incarnation,
            events = document.events.len(),
            "scheduled events"
        );
        Ok(document.events)
    }

    async fn get(&self, target: &str, patience: Duration) -> Result<Vec<u8>, String> {
        let url = self.endpoint.join(target).map_err(|error| error.to_string())?;
        let exchange = async {
            let request = self.client.get(url).header("Metadata", "true");
            let response = request
                .send()
                .await
                .map_err(|error| format!("{}: {}", self.shown(), client::reason(&error)))?;
            let status = response.status();
            if !status.is_success() {
                let path = target.split('?').next().unwrap_or_default();
                return Err(format!("{} answered {status} to {path}", self.shown()));
            }
            client::body(response, LONGEST_ANSWER).await.map_err(|error| match error {
                BodyError::TooLong => {
                    format!("the answer of {} is longer than {LONGEST_ANSWER} bytes", self.shown())
                }
                BodyError::Broken(error) => {
                    format!("{}: {}", self.shown(), client::reason(&error))
                }
            })
        };
        let over = |_| {
            let bound = duration::format(patience);
            Err(format!("{} did not answer within {bound}", self.shown()))
        };
        timeout(patience, exchange).await.unwrap_or_else(over)
    }

    /// Names the service in a message.
    pub(super) fn shown(&self) -> String {
        let host = &self.endpoint[url::Position::BeforeHost..url::Position::AfterPort];
        format!("the metadata service at {host}")
    }
}

/// The answer to the question for events.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    #[serde(rename = "DocumentIncarnation", default)]
    incarnation: i64,
    events: Vec<Event>,
}

/// A scheduled event.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Event {
    event_id: String,
    event_type: String,
    event_status: String,
    /// The names of the machines that it interrupts.
    #[serde(default)]
    resources: Vec<String>,
    /// The date before which it does not begin, as in HTTP; empty once it has begun.
    #[serde(default)]
    not_before: String,
}

impl Event {
    #[cfg(test)]
    pub(super) fn of(kind: &str, status: &str, not_before: &str, resources: &[&str]) -> Self {
        Self {
            event_id: "602d9444-d2cd-49c7-8624-8643e7171297".to_owned(),
            event_type: kind.to_owned(),
            event_status: status.to_owned(),
            resources: resources.iter().map(|&it| it.to_owned()).collect(),
            not_before: not_before.to_owned(),
        }
    }

    /// Returns whether it interrupts a machine. The case of its name does not matter to Azure.
    pub(super) fn concerns(&self, machine: &str) -> bool {
        self.resources.iter().any(|it| it.eq_ignore_ascii_case(machine))
    }

    /// Returns the maintenance that it announces, which is imminent from `lead` before; `None` for a
    /// kind that is not known to interrupt the machine.
    pub(super) fn maintenance(&self, now: OffsetDateTime, lead: Duration) -> Option<Maintenance> {
        let kind = KINDS.into_iter().find(|it| *it == self.event_type)?;
        let started = self.event_status == "Started";
        let date = OffsetDateTime::parse(&self.not_before, &Rfc2822);
        let date = date.or_else(|_| OffsetDateTime::parse(&self.not_before, &Rfc3339));
        let not_before = date.ok().filter(|_| !started);
        let event_id = excerpt(self.event_id.clone().into(), LONGEST_NAME).into_owned();
        let imminent = not_before.is_none_or(|date| date - now <= lead);
        Some(Maintenance { event_id, kind, not_before, started, imminent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_of_microsofts_page_is_read() {
        let text = r#"{"DocumentIncarnation": 2, "Events": [{
            "EventId": "C7061BAC-AFDC-4513-B24B-AA5F13A16123", "EventStatus": "Scheduled",
            "EventType": "Freeze", "ResourceType": "VirtualMachine",
            "Resources": ["WestNO_0", "WestNO_1"], "NotBefore": "Mon, 11 Apr 2022 22:26:58 GMT",
            "Description": "Virtual machine is being paused.", "EventSource": "Platform",
            "DurationInSeconds": -1}]}"#;
        let document: Document = serde_json::from_str(text).unwrap();
        assert_eq!(document.incarnation, 2);
        let [event] = &document.events[..] else { panic!("one event") };
        assert!(event.concerns("westno_1") && !event.concerns("WestNO"));
        let now = OffsetDateTime::from_unix_timestamp(1_649_716_000).unwrap();
        let found = event.maintenance(now, Duration::ZERO).unwrap();
        assert_eq!((found.kind, found.imminent), ("Freeze", false));
        assert_eq!(found.event_id, "C7061BAC-AFDC-4513-B24B-AA5F13A16123");
        assert_eq!(found.not_before.unwrap().unix_timestamp(), 1_649_716_018);
        let empty: Document =
            serde_json::from_str(r#"{"DocumentIncarnation": 1, "Events": []}"#).unwrap();
        assert!(empty.events.is_empty());
    }

    #[test]
    fn an_answer_without_events_is_no_news_that_there_are_none() {
        for text in ["{}", r#"{"error": "Bad request"}"#, "[]", r#"{"Events": [{}]}"#, "<html>"] {
            assert!(serde_json::from_str::<Document>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_kind_that_is_not_known_to_interrupt_the_machine_is_no_maintenance() {
        let now = OffsetDateTime::UNIX_EPOCH;
        let of = |kind| Event::of(kind, "Started", "", &["a"]).maintenance(now, Duration::ZERO);
        assert!(KINDS.iter().all(|kind| of(kind).is_some()));
        assert_eq!(of("Reimage"), None);
    }
}

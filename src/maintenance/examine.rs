//! The findings of `tenure doctor` on the source of scheduled events.

use std::time::Duration;

use super::azure::MetadataService;
use super::{LEAD, PATIENCE, earliest};
use crate::clock::Moment;
use crate::config::{ScheduledEvents, duration};
use crate::status::document::MaintenanceDocument;
use crate::store::{Finding, Verdict};

/// How long the examination waits for the events; the first question may take longer.
const EXAMINATION: Duration = Duration::from_secs(10);

/// Asks the source for the name of this machine and for its events, once.
pub async fn examine(source: &ScheduledEvents, now: Moment) -> Vec<Finding> {
    let ScheduledEvents::Azure(endpoint) = source;
    let service = match MetadataService::new(endpoint) {
        Ok(service) => service,
        Err(error) => {
            let words = format!("failed to set up the client: {error:#}");
            return vec![finding(Verdict::Failed, words, None)];
        }
    };
    let machine = match service.machine(PATIENCE).await {
        Ok(machine) => machine,
        Err(why) => {
            let remedy = "only a virtual machine in Azure has this service; allow TCP to port 80 of \
                          169.254.169.254, also in NetworkPolicies, or set --scheduled-events off";
            return vec![finding(Verdict::Failed, why, Some(remedy))];
        }
    };
    let answers = format!("{} answers, and calls this machine {machine}", service.shown());
    let mut findings = vec![finding(Verdict::Passed, answers, None)];
    let events = match service.events(EXAMINATION).await {
        Ok(events) => events,
        Err(why) => {
            let remedy = "the first question enables scheduled events, which takes up to two \
                          minutes: try again after that";
            findings.push(finding(Verdict::Warning, why, Some(remedy)));
            return findings;
        }
    };
    let own: Vec<_> = events.into_iter().filter(|it| it.concerns(&machine)).collect();
    findings.push(match earliest(&own, now.date()) {
        None => finding(Verdict::Passed, "none is announced for this machine".to_owned(), None),
        Some(next) => {
            let words = MaintenanceDocument::from(&next).announcement();
            let effect = if next.imminent {
                "this instance does not compete until it is over".to_owned()
            } else {
                format!("this instance hands over {} before", duration::format(LEAD))
            };
            let remedy = "to let it begin sooner: `az maintenance scheduledevents acknowledge`";
            let words = format!("{words} (event {}): {effect}", next.event_id);
            finding(Verdict::Warning, words, Some(remedy))
        }
    });
    findings
}

fn finding(verdict: Verdict, detail: String, remedy: Option<&str>) -> Finding {
    let remedy = remedy.map(str::to_owned);
    Finding { subject: "maintenance".into(), verdict, detail, remedy }
}

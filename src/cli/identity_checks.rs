//! Findings about the identity: whether another live instance has it. Asks the sidecar of this host, if one
//! listens where the settings say, so that it is not taken for another.

use super::client::{Address, Sidecar};
use super::doctor::finding;
use super::document::Document;
use crate::config::{Listen, Settings};
use crate::lease::Snapshot;
use crate::status::warnings::shared_identity;
use crate::store::{Finding, Verdict};

/// Returns a finding for each warning of this host's sidecar, or one for the holder in the store.
pub(super) async fn examine(settings: &Settings, seen: Option<&Snapshot>) -> Vec<Finding> {
    let own = own_sidecar(settings).await;
    let warnings = own.iter().flat_map(|it| &it.warnings).map(ToString::to_string);
    let warnings: Vec<_> = warnings.map(|it| warning("sidecar", it)).collect();
    if !warnings.is_empty() {
        return warnings;
    }
    let holder = seen.filter(|it| !it.free).and_then(|it| it.record.holder.as_deref());
    let is_own = |instance: &str| own.as_ref().is_some_and(|it| it.instance == instance);
    let twin = holder.filter(|it| it.identity == settings.identity && !is_own(&it.instance));
    let words = twin.and_then(|it| shared_identity(&it.identity, &[&it.instance]));
    let Some(words) = words else {
        return Vec::new();
    };
    // Without a sidecar here the holder may be one that listens elsewhere, or was just killed.
    let remedy = own.is_none().then(|| {
        "if the holder of the lease is the instance of these settings, it does not answer at --listen, \
         and nothing is wrong"
            .to_owned()
    });
    vec![Finding { remedy, ..warning("identity", words) }]
}

fn warning(subject: &'static str, words: String) -> Finding {
    finding(Verdict::Warning, subject, words)
}

/// Returns the status of the sidecar with these settings on this host; `None` if none answers.
async fn own_sidecar(settings: &Settings) -> Option<Document> {
    for listen in settings.listen.iter().filter(|it| settings.tls.is_none() || !it.is_remote()) {
        let address = match listen {
            Listen::Unix(path) => Address::Unix(path.clone()),
            Listen::Tcp(it) if it.port() == 0 => continue,
            Listen::Tcp(it) if it.ip().is_unspecified() => {
                Address::parse(&format!("127.0.0.1:{}", it.port())).ok()?
            }
            Listen::Tcp(it) => Address::parse(&it.to_string()).ok()?,
        };
        let answer = Sidecar::at(address, listen.to_string()).status().await;
        let is_same =
            |it: &Document| it.election == settings.election && it.identity == settings.identity;
        if let Some(document) = answer.ok().map(|it| it.document).filter(is_same) {
            return Some(document);
        }
    }
    None
}

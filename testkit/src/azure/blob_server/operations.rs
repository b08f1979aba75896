//! The operations on containers and blobs.

use std::time::Duration;

use simulator::store::blob_lease::{Lease, Refusal};

use super::received::Received;
use super::{Blob, Container, State};
use crate::azure::blob_request::Given;

/// The result of a successful operation.
pub(super) struct Done {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
}

impl Done {
    fn new(status: u16) -> Self {
        Self { status, headers: Vec::new() }
    }

    fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }
}

pub(super) fn apply(state: &mut State, received: &Received) -> Result<Done, Refusal> {
    let now = state.now();
    match received.op.as_str() {
        "make-container" => return make_container(state, &received.container, now),
        "delete-container" => {
            state
                .containers
                .remove(&received.container)
                .ok_or(Refusal(404, "ContainerNotFound"))?;
            state.deleted.insert(received.container.clone(), now + Duration::from_secs(30));
            return Ok(Done::new(202));
        }
        _ => (),
    }
    let etag = state.next_etag();
    let container = state.containers.get_mut(&received.container);
    let container = container.ok_or(Refusal(404, "ContainerNotFound"))?;
    if received.op == "read-container" {
        let done = Done::new(200);
        return Ok(container
            .properties
            .iter()
            .fold(done, |it, (name, value)| it.with(name, value)));
    }
    if received.op == "make" {
        return make(container, received, etag, now);
    }
    let blob = container.blobs.get_mut(&received.blob).ok_or(Refusal(404, "BlobNotFound"))?;
    let lease = received.header("x-ms-lease-id").map(str::to_owned);
    match received.op.as_str() {
        "read" => Ok(read_blob(blob, now)),
        "write" => {
            blob.lease.check_write(lease.as_ref(), now)?;
            if received.header("if-match").is_some_and(|it| it != tag(blob.etag)) {
                return Err(Refusal(412, "ConditionNotMet"));
            }
            blob.lease.written(now);
            blob.metadata = received.metadata();
            blob.etag = etag;
            Ok(Done::new(200).with("etag", tag(etag)))
        }
        "delete" => {
            blob.lease.check_write(lease.as_ref(), now)?;
            container.blobs.remove(&received.blob);
            Ok(Done::new(202))
        }
        "acquire" if blob.tier.as_deref() == Some("Archive") => Err(Refusal(409, "BlobArchived")),
        action @ ("acquire" | "renew" | "release" | "change" | "break") => {
            let given = Given::new(action, |name| received.header(name))?;
            if received.header("if-match").is_some_and(|it| it != tag(blob.etag)) {
                return Err(Refusal(412, "ConditionNotMet"));
            }
            let (status, more) = given.apply(&mut blob.lease, now)?;
            let mut done = Done::new(status).with("etag", tag(blob.etag));
            done.headers.extend(more);
            Ok(done)
        }
        _ => Err(Refusal(400, "UnsupportedHttpVerb")),
    }
}

/// Returns the answer to a write of metadata that is not performed.
pub(super) fn unwritten(state: &State, received: &Received) -> Done {
    let container = state.containers.get(&received.container);
    let blob = container.and_then(|it| it.blobs.get(&received.blob));
    Done::new(200).with("etag", tag(blob.map_or(0, |it| it.etag)))
}

fn make_container(state: &mut State, name: &str, now: Duration) -> Result<Done, Refusal> {
    if state.containers.contains_key(name) {
        return Err(Refusal(409, "ContainerAlreadyExists"));
    }
    if state.deleted.get(name).is_some_and(|until| now < *until) {
        return Err(Refusal(409, "ContainerBeingDeleted"));
    }
    state.containers.insert(name.to_owned(), Container::default());
    Ok(Done::new(201))
}

fn make(
    container: &mut Container,
    received: &Received,
    etag: u64,
    now: Duration,
) -> Result<Done, Refusal> {
    let mut lease = Lease::default();
    if let Some(blob) = container.blobs.get_mut(&received.blob) {
        let given = received.header("x-ms-lease-id").map(str::to_owned);
        blob.lease.check_write(given.as_ref(), now)?;
        if received.header("if-none-match") == Some("*") {
            return Err(Refusal(409, "BlobAlreadyExists"));
        }
        blob.lease.written(now);
        lease = std::mem::take(&mut blob.lease);
    }
    let (metadata, length) = (received.metadata(), received.length);
    let blob = Blob { etag, metadata, length, tier: None, lease };
    container.blobs.insert(received.blob.clone(), blob);
    Ok(Done::new(201).with("etag", tag(etag)))
}

fn read_blob(blob: &mut Blob, now: Duration) -> Done {
    let state = blob.lease.state(now);
    let status = if matches!(state, "leased" | "breaking") { "locked" } else { "unlocked" };
    let mut done = Done::new(200)
        .with("etag", tag(blob.etag))
        .with("content-length", blob.length)
        .with("x-ms-blob-type", "BlockBlob")
        .with("x-ms-access-tier", blob.tier.as_deref().unwrap_or("Hot"))
        .with("x-ms-lease-state", state)
        .with("x-ms-lease-status", status);
    if state == "leased" {
        let length = if blob.lease.is_endless() { "infinite" } else { "fixed" };
        done = done.with("x-ms-lease-duration", length);
    }
    for (name, value) in &blob.metadata {
        done = done.with(&format!("x-ms-meta-{name}"), value);
    }
    done
}

fn tag(number: u64) -> String {
    format!("\"0x{number:X}\"")
}

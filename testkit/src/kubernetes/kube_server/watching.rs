//! A watch: the matching changes, as one JSON object per line, sent in chunks as they occur.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::answers::Answer;
use super::forms::Selector;
use super::kinds::Target;
use super::objects::{Change, Objects};
use super::{Dropped, Shared};

/// A watch in progress.
pub struct Watching {
    shared: Arc<Shared>,
    pulse: watch::Receiver<u64>,
    target: Target,
    selector: Selector,
    /// All changes up to this revision were delivered.
    delivered: u64,
    lines: VecDeque<Value>,
    /// Whether it ends after the remaining lines.
    last: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    /// The number of cuts of all watches before it began.
    cuts: u64,
}

impl Watching {
    /// Begins a watch, or returns the answer that rejects it.
    pub fn begin(shared: &Arc<Shared>, target: Target) -> Result<Self, Box<Answer>> {
        let query = |name: &str| target.query.get(name).map_or("", String::as_str);
        let refused = |it: String| Box::new(Answer::bad_request(&it));
        let selector = Selector::parse(query("labelSelector"), query("fieldSelector"));
        let selector = selector.map_err(refused)?;
        let from = match query("resourceVersion") {
            "" | "0" => None,
            text => Some(text.parse::<u64>().map_err(|it| refused(it.to_string()))?),
        };
        // The real server draws a time between 30 and 60 minutes.
        let seconds = query("timeoutSeconds").parse().unwrap_or(1800);
        let now = now();
        let bookmarks = query("allowWatchBookmarks") == "true";
        let state = shared.lock();
        let mut it = Self {
            shared: Arc::clone(shared),
            pulse: shared.pulse.subscribe(),
            selector,
            delivered: from.unwrap_or(0),
            lines: VecDeque::new(),
            last: false,
            bookmarks,
            next_bookmark: now + state.bookmark_interval,
            end: now + Duration::from_secs(seconds),
            cuts: state.cuts,
            target,
        };
        match from {
            None => it.deliver_all(&state.objects),
            Some(from) if from < state.objects.compacted => {
                it.lines.push_back(expired(from, state.objects.compacted));
                it.last = true;
            }
            Some(_) => (),
        }
        drop(state);
        Ok(it)
    }

    /// Delivers the current objects as added.
    fn deliver_all(&mut self, objects: &Objects) {
        let all = objects.select(&self.target, &self.selector);
        self.lines.extend(all.into_iter().map(|it| json!({"type": "ADDED", "object": it})));
        self.delivered = objects.revision;
    }

    fn deliver(&mut self, change: &Change) {
        let (plural, namespace, _) = &change.key;
        let of_target = *plural == self.target.kind.plural
            && (self.target.namespace.is_empty() || *namespace == self.target.namespace);
        let fits = |it: &Option<Value>| it.as_ref().is_some_and(|it| self.selector.fits(it));
        let line = match (of_target && fits(&change.before), of_target && fits(&change.after)) {
            (false, true) => ("ADDED", &change.after),
            (true, true) => ("MODIFIED", &change.after),
            (true, false) => ("DELETED", &change.before),
            (false, false) => return,
        };
        let mut object = line.1.clone().expect("it fits");
        object["metadata"]["resourceVersion"] = change.revision.to_string().into();
        self.lines.push_back(json!({"type": line.0, "object": object}));
    }

    fn bookmark(&mut self) {
        let kind = self.target.kind;
        self.lines.push_back(json!({"type": "BOOKMARK", "object": {
            "kind": kind.kind,
            "apiVersion": kind.api_version(),
            "metadata": {"resourceVersion": self.delivered.to_string(), "creationTimestamp": null},
            "spec": {},
        }}));
    }

    /// Delivers what has changed since; returns false if the watch was cut.
    fn catch_up(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let state = shared.lock();
        if state.cuts != self.cuts {
            return false;
        }
        if self.last || state.withheld {
            return true;
        }
        let delivered = self.delivered;
        if delivered < state.objects.compacted {
            self.lines.push_back(expired(delivered, state.objects.compacted));
            self.last = true;
            return true;
        }
        for change in state.objects.history.iter().filter(|it| it.revision > delivered) {
            self.deliver(change);
        }
        self.delivered = delivered.max(state.objects.revision);
        let now = now();
        // The last bookmark is sent shortly before the end, so that the next watch starts from it.
        let ending = now >= self.end;
        if self.bookmarks && (ending || now >= self.next_bookmark) {
            self.next_bookmark = now + state.bookmark_interval;
            self.bookmark();
        }
        self.last = ending;
        true
    }

    /// Returns the next line; `None` at the end.
    async fn line(&mut self) -> Result<Option<Value>, Dropped> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Ok(Some(line));
            }
            if self.last {
                return Ok(None);
            }
            self.pulse.mark_unchanged();
            if !self.catch_up() {
                return Err(Dropped);
            }
            if self.lines.is_empty() && !self.last {
                let wake = if self.bookmarks { self.end.min(self.next_bookmark) } else { self.end };
                let _ = tokio::time::timeout_at(wake, self.pulse.changed()).await;
            }
        }
    }

    /// Returns the body of the answer.
    pub fn stream(self) -> impl Stream<Item = Result<Frame<Bytes>, Dropped>> + Send {
        futures::stream::unfold(Some(self), |it| async move {
            let mut it = it?;
            match it.line().await {
                Ok(Some(line)) => {
                    let line = Bytes::from(format!("{line}\n"));
                    Some((Ok(Frame::data(line)), Some(it)))
                }
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
    }
}

#[allow(clippy::disallowed_methods, reason = "a server's timers, on which nothing rests")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the event for a watch that begins before the retained history.
fn expired(from: u64, compacted: u64) -> Value {
    json!({"type": "ERROR", "object": {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": format!("too old resource version: {from} ({compacted})"),
        "reason": "Expired",
        "code": 410,
    }})
}

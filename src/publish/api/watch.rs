//! `/watch`: each change of the status, as an event or as the response to a long poll.
//!
//! Nothing is queued for subscribers. A slow subscriber receives the newest status when it is ready
//! for it; one that does not read at all is disconnected.
//!
//! An event is no basis for acting as leader. It says when to request the status again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, Query, State as Shares};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use serde::Deserialize;
use tokio::sync::watch::Receiver;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::reply::{bad, bad_duration, document};
use super::streams::Slot;
use crate::config::duration;
use crate::election::State;
use crate::http::listener::{Peer, Streaming};
use crate::status::{HolderJudgement, Judgement, Published, Role};

/// The longest interval between two events.
const EVERY: Duration = Duration::from_secs(10);

/// How often the clock is checked for a belief that has ended without a publication.
const GLANCE: Duration = Duration::from_secs(1);

/// The longest duration of a stream. Subscribers reconnect by themselves; one that has stopped
/// reading would occupy a slot for as long as the kernel buffers bytes for it.
const LONGEST_STREAM: Duration = Duration::from_secs(600);

/// The longest wait of a long poll, whatever it requests.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The wait of a long poll that names none.
const USUAL_WAIT: &str = "30s";

#[derive(Deserialize)]
pub(super) struct Parameters {
    index: Option<String>,
    wait: Option<String>,
}

pub(super) async fn watch(
    Shares(shared): Shares<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    Query(Parameters { index, wait }): Query<Parameters>,
) -> Response {
    let Some(slot) = shared.streams.take(peer) else {
        let body = "too many event streams, of all clients or of this one\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "5")], body).into_response();
    };
    let Some(index) = index else {
        if wait.is_some() {
            return bad("wait", "is of a long poll, which also needs the parameter index");
        }
        let mut response = Sse::new(events(shared, slot)).into_response();
        response.extensions_mut().insert(Streaming);
        return response;
    };
    let Ok(index) = index.parse::<u64>() else {
        return bad("index", "must be a whole number, the `index` of the last status document");
    };
    let wait = match duration::parse(wait.as_deref().unwrap_or(USUAL_WAIT)) {
        Ok(wait) => wait.min(LONGEST_WAIT),
        Err(error) => return bad_duration("wait", &error),
    };
    let mut changes = Changes::since(&shared, Some(index));
    // Without a change within the time, the present status is returned.
    let _ = timeout(wait, changes.next()).await;
    ([(CONTENT_TYPE, "application/json")], present(&shared)).into_response()
}

/// Returns the status document as it is now.
fn present(shared: &Shared) -> String {
    document(shared, &shared.published(), (shared.app.now)())
}

/// Returns a stream of the status: at once, at each change, and at least every ten seconds.
fn events(shared: Arc<Shared>, slot: Slot) -> impl Stream<Item = Result<Event, Infallible>> {
    let changes = Changes::since(&shared, None);
    futures::stream::unfold((shared, slot, changes), |(shared, slot, mut changes)| async {
        if timeout(EVERY, changes.next()).await == Ok(Next::Over) {
            return None;
        }
        let event = Event::default().id(changes.seen.index.to_string()).data(present(&shared));
        Some((Ok(event), (shared, slot, changes)))
    })
    .take_until(sleep(LONGEST_STREAM))
}

/// Finds changes: publications, and changes by the clock alone.
struct Changes {
    published: Receiver<Published>,
    shared: Arc<Shared>,
    seen: Face,
    fresh: bool,
}

/// What makes a change for a subscriber.
#[derive(Clone, Copy, PartialEq)]
struct Face {
    index: u64,
    state: State,
    role: Role,
    /// Whether the holder is overdue, and stale.
    doubted: Option<(bool, bool)>,
}

#[derive(PartialEq)]
enum Next {
    Change,
    /// The driver is gone; there will be no more changes.
    Over,
}

impl Changes {
    /// Finds changes after the index that a subscriber has seen; for one that has seen none, the
    /// present status is the first.
    fn since(shared: &Arc<Shared>, index: Option<u64>) -> Self {
        let mut published = shared.app.published.clone();
        published.mark_unchanged();
        let seen = face(shared);
        let fresh = index != Some(seen.index);
        Self { published, shared: Arc::clone(shared), seen, fresh }
    }

    async fn next(&mut self) -> Next {
        loop {
            let face = face(&self.shared);
            if face != self.seen || self.fresh {
                self.seen = face;
                self.fresh = false;
                return Next::Change;
            }
            tokio::select! {
                changed = self.published.changed() => {
                    if changed.is_err() {
                        return Next::Over;
                    }
                }
                () = sleep(GLANCE) => {}
            }
        }
    }
}

fn face(shared: &Shared) -> Face {
    let published = shared.app.published.borrow();
    let now = (shared.app.now)();
    let judgement = Judgement::of(&published.status, now);
    let doubted = HolderJudgement::of(&published.status, now).map(|it| (it.overdue, it.stale));
    let index = published.index_at(now);
    Face { index, state: judgement.state, role: judgement.role(), doubted }
}

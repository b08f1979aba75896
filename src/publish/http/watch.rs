//! `/watch`: each change of the status, pushed as an event or awaited by a long poll.
//!
//! Nothing is queued for anybody. A subscriber that reads slowly finds the newest status when it
//! is ready for one, and one that does not read at all is dropped by its connection.
//!
//! What it does not do: an event is no evidence. It says when to ask, not how long to act.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State as Shares};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::watch::Receiver;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::reply::{bad, bad_duration, document};
use crate::config::duration;
use crate::election::State;
use crate::listener::Streaming;
use crate::publish::{Judgement, Published, Role};

/// The longest time between two events.
const EVERY: Duration = Duration::from_secs(10);

/// How often the clock is asked whether a belief has ended without a publication.
const GLANCE: Duration = Duration::from_secs(1);

/// The longest that one stream lasts. Subscribers connect again by themselves; one that has stopped
/// reading would keep its place for as long as the kernel keeps bytes for it.
const LONGEST_STREAM: Duration = Duration::from_secs(600);

/// The longest that a long poll waits, whatever it asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// How long a long poll waits that does not say.
const USUAL_WAIT: &str = "30s";

#[derive(Deserialize)]
pub(super) struct Asked {
    index: Option<String>,
    wait: Option<String>,
}

pub(super) async fn watch(
    Shares(shared): Shares<Arc<Shared>>,
    Query(asked): Query<Asked>,
) -> Response {
    let Ok(place) = Arc::clone(&shared.streams).try_acquire_owned() else {
        let body = "there are as many event streams already as there may be\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "5")], body).into_response();
    };
    let Some(index) = asked.index else {
        let mut response = Sse::new(events(shared, place)).into_response();
        response.extensions_mut().insert(Streaming);
        return response;
    };
    let Ok(index) = index.parse::<u64>() else {
        return bad("index", "wants a whole number, the `index` of the last status document");
    };
    let wait = match duration::parse(asked.wait.as_deref().unwrap_or(USUAL_WAIT)) {
        Ok(wait) => wait.min(LONGEST_WAIT),
        Err(error) => return bad_duration("wait", &error),
    };
    let mut changes = Changes::since(&shared, Some(index));
    // No change within the time is an answer too: the document as it is.
    let _ = timeout(wait, changes.next()).await;
    ([(CONTENT_TYPE, "application/json")], document(&shared, (shared.app.now)())).into_response()
}

/// The status at once, at each change, and every ten seconds, for so long as one stream may last.
fn events(
    shared: Arc<Shared>,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let changes = Changes::since(&shared, None);
    futures::stream::unfold((shared, place, changes), |(shared, place, mut changes)| async {
        if timeout(EVERY, changes.next()).await == Ok(Next::Over) {
            return None;
        }
        let event = Event::default()
            .id(changes.seen.index.to_string())
            .data(document(&shared, (shared.app.now)()));
        Some((Ok(event), (shared, place, changes)))
    })
    .take_until(sleep(LONGEST_STREAM))
}

/// Finds changes: what was published, and what the clock alone changes.
struct Changes {
    published: Receiver<Published>,
    shared: Arc<Shared>,
    seen: Face,
    fresh: bool,
}

/// What a subscriber would call a change.
#[derive(Clone, Copy, PartialEq)]
struct Face {
    index: u64,
    state: State,
    role: Role,
}

#[derive(PartialEq)]
enum Next {
    Change,
    /// The driver is gone; there will be no more.
    Over,
}

impl Changes {
    /// Finds what changes after the index that a subscriber has seen; one that has seen none finds
    /// the present first.
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
    Face { index: published.index_at(now), state: judgement.state, role: judgement.role() }
}

//! The paths of the status listener. The status code is the answer; the body is additional.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, Query, Request, State as Shares};
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;

use super::reply::{bad_duration, document};
use super::{PATIENCE, Shared, watch};
use crate::config::duration;
use crate::election::{Standing, State};
use crate::http::listener::Peer;
use crate::metrics;
use crate::publish::page;
use crate::status::{Judgement, Role};

/// The list of paths, for clients of `/` that do not ask for HTML.
const INDEX: &str = "\
Tenure, the status listener. GET or HEAD:
  /leader   200 if this instance leads now, else 503 (also /active, /primary); ?min_remaining=5s
  /standby  200 if this instance is a standby that could take over, else 503 (also /passive, /replica)
  /readyz   200 once the store was reached; for the readiness of the sidecar
  /livez    200 while the election loop runs
  /status   the status document, JSON
  /watch    each change as a Server-Sent Event; ?index=N&wait=30s waits for the next change
  /peer     the leader's stream for its standbys, with --peers
  /metrics  Prometheus metrics
  /         a page for people, in a browser
";

/// The path that most clients ask.
pub(super) const LEADER: &str = "/leader";

/// The paths whose handlers need to know who asks.
pub(super) const WATCH: &str = "/watch";
pub(super) const PEER: &str = "/peer";

const TERM: HeaderName = HeaderName::from_static("tenure-term");
const VALID_FOR: HeaderName = HeaderName::from_static("tenure-valid-for-ms");

pub(super) fn router(shared: Arc<Shared>) -> Router {
    let paths = [(LEADER, "/standby"), ("/active", "/passive"), ("/primary", "/replica")];
    let mut router = Router::new();
    for (leader_path, standby_path) in paths {
        let leads = async |Shares(shared): Shares<Arc<Shared>>, uri: Uri| leader(&shared, &uri);
        router = router.route(leader_path, get(leads)).route(standby_path, get(standby));
    }
    router
        .route("/", get(root))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/status", get(status))
        .route("/metrics", get(metrics_text))
        .route(WATCH, get(watch::watch))
        .route(PEER, get(peer))
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such path; / lists all paths\n") })
        .with_state(shared)
}

impl Shared {
    fn judge(&self) -> Judgement {
        Judgement::of(&self.app.published.borrow().status, (self.app.now)())
    }
}

/// Returns the page to clients that ask for HTML, the list of paths to all others.
async fn root(Shares(shared): Shares<Arc<Shared>>, request: Request) -> Response {
    let accept = request.headers().get_all(ACCEPT);
    let wanted = accept.iter().any(|it| it.to_str().is_ok_and(page::is_wanted));
    let mut response = if wanted {
        page::answer(&shared.published(), &shared.app.about, (shared.app.now)())
    } else {
        INDEX.into_response()
    };
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

#[derive(Deserialize)]
struct Parameters {
    min_remaining: Option<String>,
}

/// Returns whether this instance leads, for as long as the request asks.
pub(super) fn leader(shared: &Shared, uri: &Uri) -> Response {
    let least = match least_remaining(uri) {
        Ok(least) => least,
        Err(refusal) => return *refusal,
    };
    let judgement = shared.judge();
    let ends_soon = judgement.role() == Role::Active && judgement.remaining < least;
    // The body must not say what the code denies.
    let but =
        ends_soon.then(|| format!("less than min_remaining: {} ms\n", judgement.valid_for_ms()));
    answer(judgement.role() == Role::Active && !ends_soon, judgement, but)
}

/// Returns the time that must be left for a 200. Rarely requested, so it is parsed only if needed.
fn least_remaining(uri: &Uri) -> Result<Duration, Box<Response>> {
    if uri.query().is_none() {
        return Ok(Duration::ZERO);
    }
    let Query(Parameters { min_remaining }) =
        Query::try_from_uri(uri).map_err(|error| Box::new(error.into_response()))?;
    min_remaining.as_deref().map_or(Ok(Duration::ZERO), |text| {
        duration::parse(text).map_err(|error| Box::new(bad_duration("min_remaining", &error)))
    })
}

async fn standby(Shares(shared): Shares<Arc<Shared>>) -> Response {
    let (published, now) = (shared.published(), (shared.app.now)());
    let can_take_over = published.can_take_over(&shared.app.about, now);
    let judgement = Judgement::of(&published.status, now);
    let cannot = !can_take_over && judgement.role() == Role::Passive;
    let but = cannot.then(|| match judgement.state {
        State::Standby => "cannot take over: the store does not answer\n".to_owned(),
        state => format!("{}\n", state.as_str()),
    });
    answer(can_take_over, judgement, but)
}

async fn livez(Shares(shared): Shares<Arc<Shared>>) -> Response {
    let quiet = shared.quiet.load(Ordering::Relaxed);
    if quiet < PATIENCE {
        return "the election loop runs\n".into_response();
    }
    let body = format!("the election loop has been stuck for {quiet} s\n");
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}

async fn readyz(Shares(shared): Shares<Arc<Shared>>) -> Response {
    let no = StatusCode::SERVICE_UNAVAILABLE;
    match shared.app.published.borrow().status.standing {
        Standing::Starting => (no, "the store has not been reached yet\n").into_response(),
        Standing::Stopped => (no, "stopped\n").into_response(),
        _ => "ready\n".into_response(),
    }
}

async fn status(Shares(shared): Shares<Arc<Shared>>) -> Response {
    // One status and one reading of the clock for both, so that headers and body agree.
    let (published, now) = (shared.published(), (shared.app.now)());
    let judgement = Judgement::of(&published.status, now);
    let json = document(&shared, &published, now);
    let mut response = ([(CONTENT_TYPE, "application/json")], json).into_response();
    head(&mut response, judgement);
    response
}

async fn peer(
    Shares(shared): Shares<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Response {
    match &shared.app.peers {
        Some(stream) => stream.answer(request.method(), request.headers(), peer),
        None => {
            let body = "peers are off on this instance; set --peers\n";
            (StatusCode::NOT_FOUND, body).into_response()
        }
    }
}

async fn metrics_text(Shares(shared): Shares<Arc<Shared>>) -> Response {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], shared.metrics_text()).into_response()
}

/// Returns 200 or 503 with the role, or with what else is in the way, and the validity.
fn answer(yes: bool, judgement: Judgement, but: Option<String>) -> Response {
    let code = if yes { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let role = match judgement.role() {
        Role::Active => "active\n",
        Role::Passive => "passive\n",
    };
    let body = but.map_or(Cow::from(role), Cow::from);
    let mut response = (code, body).into_response();
    head(&mut response, judgement);
    response
}

fn head(response: &mut Response, judgement: Judgement) {
    let headers = response.headers_mut();
    headers.insert(VALID_FOR, HeaderValue::from(judgement.valid_for_ms()));
    if let Some(term) = judgement.term {
        headers.insert(TERM, HeaderValue::from(term));
    }
}

//! Handles requests to the admin listener: authorizes, parses, hands the call to the driver, and
//! logs every request with its outcome, except for a flood of refusals.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State as Shares};
use axum::http::header::AUTHORIZATION;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use super::auth::{Auth, Denial};
use super::call::{self, Call, FieldError, STATUS, Verb};
use super::conflict::{self, Conflict};
use super::reply::{Outlook, Reply};
use super::{App, ConnectionState, Shared};
use crate::election::{Command, Progress, State};
use crate::status::Judgement;

/// The most bytes of a body.
const MAX_BODY: usize = 4_096;

/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(5);

/// How long the driver may take to accept a call. It awaits nothing, so it has stopped or hangs if
/// it takes longer.
const DRIVER_TIME: Duration = Duration::from_secs(5);

/// The warning of a transfer without peers.
const WITHOUT_PEERS: &str = "without --peers the leader does not know its candidates: if the successor does \
                             not exist, nobody leads until the hold-off is over";

/// The most characters of a requested path that are logged.
const MAX_LOGGED: usize = 100;

pub(super) fn router(state: ConnectionState) -> Router {
    Router::new().fallback(answer).with_state(state)
}

async fn answer(Shares(state): Shares<ConnectionState>, request: Request) -> Response {
    let path: String = request.uri().path().chars().take(MAX_LOGGED).collect();
    let request_line = format!("{} {path}", request.method());
    let mut entry = LogEntry { request_line, detail: None, is_stranger: false, is_read: false };
    let reply = state.handle(request, &mut entry).await;
    let (caller, code) = (state.caller.to_string(), reply.code.as_u16());
    let LogEntry { request_line, detail, is_stranger, is_read } = entry;
    let detail = detail.unwrap_or_else(|| reply.error());
    if is_read && reply.code.is_success() {
        tracing::debug!(caller, code, "admin call {request_line}");
    } else if reply.code.is_success() {
        tracing::info!(caller, code, "admin call {request_line}: {detail}");
    } else if !is_stranger || state.shared.refusals.is_logged((state.shared.app.now)()) {
        tracing::warn!(caller, code, "admin call {request_line} refused: {detail}");
    }
    reply.into_response()
}

/// The log line of a request.
struct LogEntry {
    request_line: String,
    /// The parsed call, or a reason that the caller does not get to see.
    detail: Option<String>,
    /// Whether the caller is not authorized.
    is_stranger: bool,
    /// Whether the caller asks for the status, which it may do again and again.
    is_read: bool,
}

impl ConnectionState {
    async fn handle(&self, request: Request, entry: &mut LogEntry) -> Reply {
        let (head, body) = request.into_parts();
        let Shared { app, auth, refusals } = &*self.shared;
        // Before the token is read, so that guesses cost little and the right one is not found out.
        if let Auth::Token { .. } = auth
            && let Some(wait) = refusals.retry_after((app.now)())
        {
            entry.is_stranger = true;
            return Reply::too_many(wait);
        }
        if let Err(denial) = auth.authorize(self.caller, &head).await {
            entry.is_stranger = true;
            // A page in a browser can send requests without a token, which guess nothing.
            if matches!(denial, Denial::Unauthorized(_)) && head.headers.contains_key(AUTHORIZATION)
            {
                refusals.guessed();
            }
            if let Denial::Unavailable(fault) = &denial {
                entry.detail = Some(fault.clone());
            }
            return Reply::denied(denial);
        }
        entry.is_read = head.uri.path() == STATUS;
        let verb = Verb::of(head.uri.path());
        if verb.is_none() && !entry.is_read {
            return Reply::unknown_path();
        }
        if head.method != Method::POST {
            return Reply::wrong_method();
        }
        if head.uri.query().is_some_and(|it| !it.is_empty()) {
            return Reply::parameters();
        }
        let body = match read(body).await {
            Ok(body) => body,
            Err(reply) => return reply,
        };
        let Some(verb) = verb else {
            let published = app.published.borrow().clone();
            return Reply::status(&published.document(&app.about, (app.now)()));
        };
        let call = match verb.read(&body, &app.about.identity) {
            Ok(call) => call,
            Err(fault) => return Reply::bad_body(fault),
        };
        let reply = app.hand_in(verb, &call).await;
        let refused = (!reply.code.is_success()).then(|| reply.error());
        let logged = call::logged(&call.command);
        entry.detail = Some(refused.map_or(logged.clone(), |it| format!("{logged}: {it}")));
        reply
    }
}

/// Reads a body, up to the limits of size and time.
async fn read(body: Body) -> Result<Bytes, Reply> {
    match timeout(BODY_TIME, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Reply::too_large(MAX_BODY)),
        Ok(Err(_)) => {
            let error = "the body is incomplete".to_owned();
            Err(Reply::bad_body(FieldError { field: None, error }))
        }
        Err(_) => Err(Reply::too_slow(BODY_TIME)),
    }
}

impl App {
    /// Sends a call to the driver and turns its answer into a response.
    async fn hand_in(&self, verb: Verb, call: &Call) -> Reply {
        let Call { command, force } = call;
        let control = &self.control;
        let was_leading = self.judge().state.is_leading();
        let mut warning = None;
        if let Command::Transfer(to) = command
            && was_leading
            && !force
        {
            let published = self.published.borrow().clone();
            let status = published.document(&self.about, (self.now)());
            if let Some(conflict) = conflict::of_successor(&to.identity, &status) {
                return Reply::impossible(conflict, self.judge().state);
            }
            warning = status.candidates.is_none().then_some(WITHOUT_PEERS);
        }
        let answer = timeout(DRIVER_TIME, control.command(command.clone()));
        let code = match answer.await {
            Err(_) => return Reply::silent(DRIVER_TIME),
            Ok(Err(refusal)) => return self.explain(verb, command, refusal.state),
            Ok(Ok(Progress::Begun)) => StatusCode::ACCEPTED,
            Ok(Ok(Progress::Done)) => StatusCode::OK,
        };
        Reply::accepted(code, command, &Outlook { warning, ..self.outlook(was_leading) })
    }

    /// Returns the response to a command that is not possible in `state`.
    fn explain(&self, verb: Verb, command: &Command, state: State) -> Reply {
        let published = self.published.borrow().clone();
        let status = published.document(&self.about, (self.now)());
        Reply::impossible(Conflict::of(verb, command, state, &status), state)
    }

    fn judge(&self) -> Judgement {
        Judgement::of(&self.published.borrow().status, (self.now)())
    }

    /// Estimates the consequences of a call from the published status.
    fn outlook(&self, was_leading: bool) -> Outlook {
        let state = self.judge().state;
        let drain_remaining = self.published.borrow().status.drain_remaining((self.now)());
        let leaves = was_leading && !state.is_leading() || drain_remaining.is_some();
        let another_leads_in =
            leaves.then(|| drain_remaining.unwrap_or_default() + self.retry_period);
        Outlook { state, drain_remaining, another_leads_in, warning: None }
    }
}

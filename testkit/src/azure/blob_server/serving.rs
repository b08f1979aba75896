//! The listener, and the path of each request through faults, authorization and operation.

use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Either, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use simulator::store::blob_lease::Refusal;
use tokio::net::TcpListener;

use super::operations::{Done, apply, unwritten};
use super::received::{Received, authorize};
use super::{Fault, Logged, State};

pub(super) async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = service_fn(move |request| serve(request, Arc::clone(&state)));
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// The connection is closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("dropped on order")]
struct Dropped;

type Body = Either<Empty<Bytes>, Full<Bytes>>;

async fn serve(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Body>, Dropped> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|it| it.to_bytes().len()).unwrap_or_default();
    let received = Received::new(&parts, body);
    let (answer, fault) = {
        let mut state = state.lock().expect("no test panicked with it");
        let fault = next_fault(&mut state, &received.op);
        let answer = match &fault {
            Some(Fault::Hang | Fault::DropBefore | Fault::Html | Fault::Redirect(_)) => None,
            Some(Fault::Answer(status, code)) => Some(Err(Refusal(*status, code))),
            Some(Fault::Unwritten) => Some(Ok(unwritten(&state, &received))),
            _ => Some(authorize(&state, &received).and_then(|()| apply(&mut state, &received))),
        };
        let status = match &answer {
            Some(Ok(done)) => done.status,
            Some(Err(refusal)) => refusal.0,
            None => 0,
        };
        state.log.push(Logged {
            op: received.op.clone(),
            url: parts.uri.to_string(),
            headers: received.headers.clone(),
            status,
        });
        let answer = answer.map(|answer| render(&state, &received, answer));
        (answer, fault)
    };
    match fault {
        Some(Fault::Hang | Fault::HangAfter) => std::future::pending().await,
        Some(Fault::DropBefore | Fault::DropAfter) => Err(Dropped),
        Some(Fault::Html) => Ok(page(if received.op == "acquire" { 201 } else { 200 })),
        Some(Fault::Redirect(to)) => {
            let answer = Response::builder().status(302).header("location", to);
            Ok(answer.body(Body::Left(Empty::new())).expect("an answer"))
        }
        Some(Fault::WrongLease) => {
            let mut answer = answer.expect("it was applied");
            let other = "11111111-2222-4333-8444-555555555555".parse().expect("a value");
            answer.headers_mut().insert("x-ms-lease-id", other);
            Ok(answer)
        }
        _ => Ok(answer.expect("it was applied")),
    }
}

fn next_fault(state: &mut State, op: &str) -> Option<Fault> {
    let faults = state.faults.iter_mut();
    faults.filter(|(wanted, _)| wanted == op || wanted == "any").find_map(|(_, it)| it.pop_front())
}

fn page(status: u16) -> Response<Body> {
    let page = Bytes::from_static(b"<html><body>Please sign in to the network</body></html>");
    let answer = Response::builder().status(status).header("content-type", "text/html");
    answer.body(Body::Right(Full::new(page))).expect("an answer")
}

fn render(state: &State, received: &Received, answer: Result<Done, Refusal>) -> Response<Body> {
    let (status, headers, body) = match answer {
        Ok(done) => (done.status, done.headers, String::new()),
        Err(Refusal(status, code)) => {
            let mut headers = vec![("x-ms-error-code".to_owned(), code.to_owned())];
            if matches!(status, 429 | 503) {
                headers.push(("retry-after".to_owned(), "60".to_owned()));
            }
            let body = format!(
                "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code>\
                 <Message>In XML.</Message></Error>"
            );
            (status, headers, body)
        }
    };
    let mut answer = Response::builder()
        .status(status)
        .header("date", state.date())
        .header("x-ms-request-id", "00000000-0000-4000-8000-000000000000")
        .header("x-ms-version", "2023-11-03");
    for (name, value) in headers {
        answer = answer.header(name, value);
    }
    let body = if received.method == "HEAD" || body.is_empty() {
        Body::Left(Empty::new())
    } else {
        Body::Right(Full::new(Bytes::from(body)))
    };
    answer.body(body).expect("an answer")
}

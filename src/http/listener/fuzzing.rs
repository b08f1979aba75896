//! Fuzz target for requests, one after the other on one connection of a listener.

use std::convert::identity;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use axum::response::IntoResponse;
use futures::future::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::time::timeout;

use super::connection::{ConnectionService, serve};
use super::limits::Connections;
use super::{Peer, Stream};

/// A connection must end within this time once its client has sent all.
const PATIENCE: Duration = Duration::from_secs(5);

/// After this many turns without an answer there is none to come.
const SILENCE: u32 = 32;

/// A listener whose one answer is "ok", and that refuses bodies.
struct Service;

impl ConnectionService for Service {
    fn router(&self, _: &Stream) -> Router {
        unreachable!("the router is handed in")
    }

    fn refusal(&self, _: &Uri, _: &HeaderMap, body: u64) -> Option<Response<Body>> {
        (body > 1_024).then(|| StatusCode::PAYLOAD_TOO_LARGE.into_response())
    }
}

/// Sends bytes, at once and in two parts: the connection ends, with the same answers except for an
/// invalid head without an end, and no more answers than lines. The first byte is where the parts
/// meet.
pub fn requests(data: &[u8]) {
    let Some((&at, bytes)) = data.split_first() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime of one thread needs nothing");
    let whole = runtime.block_on(answers(&[bytes]));
    let (head, tail) = bytes.split_at(usize::from(at).min(bytes.len()));
    let parted = runtime.block_on(answers(&[head, tail]));
    // hyper judges a head that came in parts when its end has come, and one that came whole at once:
    // whether it is valid, and has too many lines.
    let awaits_the_end = matches!(whole.split_last(), Some((400 | 431, rest)) if rest == parted);
    assert!(parted == whole || awaits_the_end, "{parted:?}, and {whole:?} at once");
    let lines = bytes.iter().filter(|it| **it == b'\n').count();
    assert!(whole.len() <= lines + 1, "{whole:?}");
    assert!(whole.iter().all(|it| [200, 400, 408, 413, 431, 505].contains(it)), "{whole:?}");
}

/// Returns the status codes of the answers to these parts.
async fn answers(parts: &[&[u8]]) -> Vec<u16> {
    let connections = Connections::new(1, 1, identity);
    let slot = connections.take(Peer::Local).await.expect("nobody else is connected");
    let (mut client, server) = duplex(256 * 1_024);
    let router = Router::new().fallback(|| async { "ok\n" });
    let serving = serve(server, slot, Arc::new(Service), router);
    let asking = async {
        for part in parts {
            // An error means that the connection was closed.
            let _ = client.write_all(part).await;
            tokio::task::yield_now().await;
        }
        let mut answer = Vec::new();
        // A client that leaves before it has read its answers gets none.
        let mut silent_turns = 0;
        while silent_turns < SILENCE {
            let got = client.read_buf(&mut answer).now_or_never();
            silent_turns = if matches!(got, Some(Ok(1..))) { 0 } else { silent_turns + 1 };
            tokio::task::yield_now().await;
        }
        let _ = client.shutdown().await;
        let _ = client.read_to_end(&mut answer).await;
        answer
    };
    let (answer, ()) =
        timeout(PATIENCE, async { tokio::join!(asking, serving) }).await.expect("it ends");
    let text = String::from_utf8_lossy(&answer);
    let codes = text.split("HTTP/1.").skip(1).map(|it| it.get(2..5).and_then(|it| it.parse().ok()));
    codes.map(|it| it.expect("an answer has a code")).collect()
}

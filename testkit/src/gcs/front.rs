//! A front for the emulator, which checks no credentials: it forwards requests that have its token, by
//! Google's page on HTTP status codes refuses others, and gives the token as Google's services do: the
//! metadata server, the token service, the Security Token Service, and the service that lends identities.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::http::wire::Message;

/// The token that it gives, and forwards requests with.
pub const TOKEN: &str = "ya29.the-token";

/// The front, on a free port of loopback. Its threads end with the test.
pub struct Front {
    pub port: u16,
    denied: Arc<AtomicBool>,
}

impl Front {
    /// Starts one before an emulator on a port of loopback.
    pub fn before(emulator: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let denied = Arc::<AtomicBool>::default();
        let shared = Arc::clone(&denied);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let denied = Arc::clone(&shared);
                std::thread::spawn(move || serve(&client, emulator, &denied));
            }
        });
        Self { port, denied }
    }

    /// Takes the rights of the token away, or gives them back.
    pub fn deny(&self, denied: bool) {
        self.denied.store(denied, Ordering::SeqCst);
    }
}

fn serve(mut client: &TcpStream, emulator: u16, denied: &AtomicBool) {
    let mut from = BufReader::new(client);
    let mut forward: Option<(TcpStream, BufReader<TcpStream>)> = None;
    while let Ok(Some(request)) = Message::request(&mut from) {
        let bytes = match own_answer(&request, denied.load(Ordering::SeqCst)) {
            Some(answer) => answer,
            None => {
                let connected = forward.take().map(Ok).unwrap_or_else(|| {
                    let stream = TcpStream::connect(("127.0.0.1", emulator))?;
                    let reader = BufReader::new(stream.try_clone()?);
                    Ok::<_, std::io::Error>((stream, reader))
                });
                let Ok((mut to, mut back)) = connected else { return };
                if to.write_all(&request.bytes).is_err() {
                    return;
                }
                let Ok(answer) = Message::answer(&mut back, &request) else { return };
                forward = Some((to, back));
                answer.bytes
            }
        };
        if client.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// Returns the answer to a request that is not for the emulator.
fn own_answer(request: &Message, denied: bool) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(&request.bytes).into_owned();
    let path = text.split(' ').nth(1).unwrap_or_default();
    let is = |name: &str, value: &str| request.header(name).is_some_and(|it| it == value);
    let given = json!({"access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer"});
    let refused = |code: u16, reason: &str, message: &str| {
        let error = json!({"code": code, "message": message, "errors": [{"reason": reason}]});
        (code, json!({"error": error}))
    };
    let (code, body) = match path {
        "/computeMetadata/v1/instance/service-accounts/default/token" => {
            if is("metadata-flavor", "Google") { (200, given) } else { (403, json!({})) }
        }
        "/token" if text.contains("jwt-bearer") && text.contains("assertion=ey") => (200, given),
        "/token" if text.contains("refresh_token=the-refresh-token") => (200, given),
        "/token" => (400, json!({"error": "invalid_grant", "error_description": "Bad Request"})),
        "/exchange" if text.contains("subject_token=the-subject-token") => (200, given),
        "/lend" if is("authorization", &format!("Bearer {TOKEN}")) => {
            (200, json!({"accessToken": TOKEN, "expireTime": "2099-01-01T00:00:00Z"}))
        }
        "/exchange" | "/lend" => (400, json!({"error": "invalid_request"})),
        _ if !is("authorization", &format!("Bearer {TOKEN}")) => {
            refused(401, "authError", "Invalid Credentials")
        }
        _ if denied => refused(403, "forbidden", "does not have storage.objects.get access"),
        _ => return None,
    };
    let body = body.to_string();
    let head = format!("HTTP/1.1 {code} x\r\ncontent-length: {}\r\n\r\n", body.len());
    Some([head, body].concat().into_bytes())
}

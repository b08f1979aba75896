//! A front for the emulator, which checks no credentials: it forwards requests that have its token, by
//! Google's page on HTTP status codes refuses others, and gives the token as Google's services do: the
//! metadata server, the token service, the Security Token Service, and the service that lends identities.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::http::front;
use crate::http::turns::Turns;
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
        let denied = Arc::<AtomicBool>::default();
        let shared = Arc::clone(&denied);
        let turns = Turns::default();
        let port = front::before(emulator, move |request, emulator| {
            let own = own_answer(request, shared.load(Ordering::SeqCst));
            own.or_else(|| {
                let line = request.first_line();
                turns.during(object(&line), line.starts_with("GET"), || {
                    emulator.forward(request, &request.bytes)
                })
            })
        });
        Self { port, denied }
    }

    /// Takes the rights of the token away, or gives them back.
    pub fn deny(&self, denied: bool) {
        self.denied.store(denied, Ordering::SeqCst);
    }
}

/// Returns the object of a read, `…/o/OBJECT?…`, or of a write, `…&name=OBJECT&…`.
fn object(line: &str) -> &str {
    let rest = line.split_once("/o/").or_else(|| line.split_once("&name="));
    rest.and_then(|(_, rest)| rest.split(['?', '&', ' ']).next()).unwrap_or_default()
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
    Some(front::answer(code, "", body.to_string().as_bytes()))
}

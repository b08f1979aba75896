//! The page at `/`: what it says, what it may do, and how a real browser shows it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "support/chromium.rs"]
mod chromium;
#[path = "support/server.rs"]
mod server;
#[path = "support/status.rs"]
mod status;

use chromium::{Chromium, keep};
use server::{Answer, Server};
use status::{Feed, failing, holder, in_jeopardy, leading, ms, now, pass, status as of};
use tenure::election::{Reason, Standing, State, Status, Transition};
use tenure::publish::Past;

async fn page(server: &Server) -> Answer {
    server.get_as("/", "text/html,application/xhtml+xml,*/*;q=0.8").await
}

/// Transitions of a life, newest first.
fn life(terms: u64) -> Vec<Past> {
    let mut past = Vec::new();
    let mut note = |from, to, reason, term| {
        let transition = Transition { from, to, reason, term, tenure: None };
        past.insert(0, Past { at: now(), transition });
        pass(ms(1_733_000));
    };
    note(State::Starting, State::Standby, Reason::Heard, None);
    for term in 0..terms {
        let term = Some(1_795_246_525_984 + term);
        note(State::Standby, State::Activating, Reason::Granted, None);
        note(State::Activating, State::Leader, Reason::Inaugurated, term);
        note(State::Leader, State::Jeopardy, Reason::RenewalFailed, term);
        note(State::Jeopardy, State::Leader, Reason::Renewed, term);
        note(State::Leader, State::Standby, Reason::Lapsed, term);
    }
    past
}

#[tokio::test]
async fn look() {
    let mut chromium = Chromium::start().await;
    let server = Server::start(Feed::new(Standing::Starting)).await;
    let url = format!("http://{}/", server.address);
    let mut shots = Vec::new();
    shots.push("begin");
    for name in ["begin", "leader", "standby", "jeopardy", "trouble"] {
        let term = 1_795_246_525_984;
        match name {
            "begin" => {}
            "leader" => {
                server.feed().remember(life(2));
                let since = now();
                pass(ms(3_843_000));
                let it = Status { since, holder: holder("us", Some("10.0.3.7:8080"), term), ..of(leading(term, ms(10_000))) };
                server.feed().change(it);
                pass(ms(1_877));
            }
            "standby" => {
                let it = Status { holder: holder("orders-7d9f6c5b8-x2xkq", Some("10.0.3.7:8080"), term), ..of(Standing::Standby) };
                server.feed().change(it);
                pass(ms(192_000));
            }
            "jeopardy" => {
                let it = Status { holder: holder("us", Some("10.0.3.7:8080"), term), store: failing(3, "no answer to renew within 2s: connection to https://myaccount.blob.core.windows.net timed out"), ..of(in_jeopardy(term, ms(10_000))) };
                server.feed().change(it);
                pass(ms(4_100));
            }
            _ => {
                let it = Status { store: failing(3, "no answer to look within 2s"), ..of(Standing::Standby) };
                server.feed().change(it);
            }
        }
        for (size, width, height) in [("desk", 1100, 900), ("phone", 390, 844)] {
            for scheme in ["light", "dark"] {
                chromium.look(width, height, scheme).await;
                chromium.open(&url).await;
                keep(&format!("{name}-{size}-{scheme}"), &chromium.picture().await);
            }
        }
    }
    eprintln!("{:#?}", chromium.complaints);
    eprintln!("{}", chromium.text().await);
}

//! The page at `/`: its content, and its content security policy.

use testkit::http::{server, status};

use std::process::{Command, Stdio};

use server::{Answer, Server};
use status::{Feed, failing, holder, in_jeopardy, leading, ms, now, pass, status as of};
use tenure::election::{
    Belief, LastHolder, LeaseView, Reason, Standing, State, Status, Transition,
};
use tenure::lease::Successor;
use tenure::status::{Maintenance, Past};

/// The Accept header of browsers.
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

pub(super) const TERM: u64 = 1_795_246_525_984;

pub(super) async fn serving(status: Status) -> Server {
    let server = Server::start(Feed::new(Standing::Standby)).await;
    server.feed().change(status);
    server
}

async fn page(server: &Server) -> Answer {
    server.get_as("/", BROWSER).await
}

pub(super) fn we_lead(length: u64) -> Status {
    Status { holder: holder("us", Some("10.0.3.7:8080"), TERM), ..of(leading(TERM, ms(length))) }
}

pub(super) fn they_lead(name: &str) -> Status {
    Status { holder: holder(name, Some("10.0.3.8:8080"), TERM), ..of(Standing::Standby) }
}

/// Returns the status of a leader that drains and has named a successor.
pub(super) fn we_drain() -> Status {
    let belief = Belief { sent: now(), length: ms(10_000), suspended: false };
    let standing = Standing::Draining { term: TERM, belief, began: now(), length: ms(6_000) };
    let successor = Successor { identity: "orders-3".to_owned(), hold_off: ms(10_000) };
    let mut status = of(standing);
    status.lease.is_own = true;
    Status { holder: holder("us", None, TERM), successor: Some(successor), ..status }
}

/// Returns as many transitions as are remembered, newest first.
pub(super) fn life() -> Vec<Past> {
    let cycle = [
        (State::Standby, State::Activating, Reason::Acquired),
        (State::Activating, State::Leader, Reason::TermWritten),
        (State::Leader, State::Jeopardy, Reason::RenewalFailed),
        (State::Jeopardy, State::Standby, Reason::Lapsed),
    ];
    let mut past = Vec::new();
    for turn in 0..5 {
        for (from, to, reason) in cycle {
            let term = (to != State::Activating).then_some(TERM + turn);
            let transition = Transition { from, to, reason, term, leadership: None };
            past.insert(0, Past { at: now(), transition });
            pass(ms(1_733_000));
        }
    }
    past
}

#[tokio::test]
async fn a_holder_seen_longer_than_a_lease_ago_is_not_the_leader() {
    let server = serving(they_lead("orders-1")).await;
    pass(ms(9_999));
    assert!(page(&server).await.body.contains("<title>orders-1 leads orders</title>"));
    pass(ms(1));
    let body = page(&server).await.body;
    assert!(body.contains("<title>Unknown: orders</title>"), "{body}");
    let seen = format!("unknown (last seen: orders-1, term {TERM}, 10s ago)");
    assert!(body.contains(&seen), "{body}");
    assert!(!body.contains("orders-1 leads"), "{body}");
}

#[tokio::test]
async fn the_last_holder_is_named_while_no_leader_is_known() {
    let server = serving(they_lead("orders-1")).await;
    pass(ms(2_000));
    let last = server.feed().last().status.holder.expect("one leads");
    let last_holder = Some(LastHolder { holder: last, until: now(), ending: None });
    let lease = LeaseView { last_holder, ..LeaseView::default() };
    server.feed().change(Status { lease, ..of(Standing::Standby) });
    let body = page(&server).await.body;
    assert!(body.contains("<title>No leader known: orders</title>"), "{body}");
    let last =
        format!("(last: orders-1, term {TERM}, until <time datetime=\"2026-11-20T09:00:02Z\">");
    assert!(body.contains(&last) && body.contains("20 Nov 09:00:02 UTC</time>)"), "{body}");
}

#[tokio::test]
async fn a_leader_in_jeopardy_shows_how_long_it_has_been_in_jeopardy() {
    let server = serving(we_lead(10_000)).await;
    pass(ms(5_000));
    let (from, to, reason) = (State::Leader, State::Jeopardy, Reason::RenewalFailed);
    let transition = Transition { from, to, reason, term: Some(TERM), leadership: None };
    server.feed().remember(vec![Past { at: now(), transition }]);
    let status = server.feed().last().status;
    let standing = in_jeopardy(TERM, ms(10_000));
    server.feed().change(Status { standing, ..status });
    pass(ms(3_000));
    let body = page(&server).await.body;
    assert!(body.contains("jeopardy, for <span data-ago=\"3000\">"), "{body}");
    assert!(body.contains("for <span data-ago=\"8000\">"), "it leads since then: {body}");
}

#[tokio::test]
async fn browsers_get_the_page_and_other_clients_the_list_of_paths() {
    let server = serving(we_lead(10_000)).await;
    for accept in [BROWSER, "TEXT/HTML", "text/plain, text/html;level=1;q=0.1"] {
        let answer = server.get_as("/", accept).await;
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"), "{accept}");
        assert!(answer.body.starts_with("<!doctype html>"), "{accept}");
        assert_eq!(answer.header("vary"), Some("accept"));
    }
    for accept in ["*/*", "text/plain", "text/*", "application/json", "text/html;q=0", "", "\u{e4}"]
    {
        let answer = server.get_as("/", accept).await;
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"), "{accept}");
        assert!(answer.body.contains("/metrics"), "{accept}");
        assert_eq!(answer.header("vary"), Some("accept"));
    }
    assert!(server.get("/").await.body.contains("/metrics"), "nor who names nothing");
}

#[tokio::test]
async fn head_of_the_page_answers_as_get_does() {
    let server = serving(we_lead(10_000)).await;
    let mut client = server.connect().await;
    let mut ask = async |method: &str| {
        client
            .send(format!("{method} / HTTP/1.1\r\nHost: localhost\r\nAccept: {BROWSER}\r\n\r\n"))
            .await;
        client.answer(method).await
    };
    let (get, head) = (ask("GET").await, ask("HEAD").await);
    assert_eq!((get.code, head.code, head.body.as_str()), (200, 200, ""));
    for name in ["content-type", "content-length", "content-security-policy", "cache-control"] {
        assert_eq!(get.header(name), head.header(name), "{name}");
    }
    assert_eq!(ask("GET").await.body, get.body, "and the connection goes on");
}

/// Returns the part of a text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    text.split_once(before).unwrap().1.split_once(after).unwrap().0
}

/// Returns the SHA-256 of a text in base64, computed by openssl.
fn hash(text: &str) -> String {
    let command = "openssl dgst -sha256 -binary | openssl base64 -A";
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap().stdout;
    assert!(!out.is_empty(), "install the package openssl");
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn the_page_allows_its_own_script_and_style_only() {
    let server = serving(we_lead(10_000)).await;
    let answer = page(&server).await;
    let policy = answer.header("content-security-policy").unwrap();
    for (element, directive) in [("script", "script-src"), ("style", "style-src")] {
        let text = between(&answer.body, &format!("<{element}>"), &format!("</{element}>"));
        let allowed = format!("{directive} 'sha256-{}';", hash(text));
        assert!(policy.contains(&allowed), "{allowed} in {policy}");
    }
    for strict in [
        "default-src 'none';",
        "connect-src 'self';",
        "base-uri 'none';",
        "form-action 'none';",
        "frame-ancestors 'none';",
    ] {
        assert!(policy.contains(strict), "{strict} in {policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn the_largest_page_stays_below_twenty_kilobytes() {
    let server = serving(Status {
        store: failing(1_000, &"no route to the store ".repeat(10)),
        ..they_lead(&"x".repeat(128))
    })
    .await;
    server.feed().remember(life());
    let body = page(&server).await.body;
    assert_eq!(body.matches("<tr>").count(), 20);
    assert!(body.len() <= 20_000, "{} bytes", body.len());
}

#[tokio::test]
async fn foreign_text_is_escaped() {
    let hostile = r#"<script>alert(1)</script>"'&amp;{{version}}"#;
    let candidate = holder(hostile, Some("<i>at</i>"), TERM);
    let store = failing(2, "<img src=x onerror='document.title=1'>\u{1b}");
    let server = serving(Status { holder: candidate, store, ..of(Standing::Standby) }).await;
    let body = page(&server).await.body;
    let shown = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;amp;{{version}}";
    assert_eq!(body.matches(shown).count(), 2, "title and headline: {body}");
    assert!(body.contains("&lt;i&gt;at&lt;/i&gt;") && body.contains("&lt;img src=x"), "{body}");
    assert_eq!(body.matches("<script").count(), 1, "its own");
    assert!(!body.contains("<img") && !body.contains('\u{1b}'));
}

#[tokio::test]
async fn each_state_is_described() {
    let server = serving(of(Standing::Starting)).await;
    let body = page(&server).await.body;
    for words in ["Unknown", "has not reached the store yet", "has just started"] {
        assert!(body.contains(words), "{words} in {body}");
    }
    let states = [
        (they_lead("them"), "This instance, us, is a standby, ready to take over."),
        (of(Standing::Activating), "holds the lease and does not lead yet"),
        (we_lead(10_000), "This instance is the leader."),
        (of(in_jeopardy(TERM, ms(10_000))), "leads, but renewals fail"),
        (of(leading(TERM, ms(0))), "led until the lease expired"),
        (we_drain(), "is draining, then releases the lease"),
        (we_drain(), "<h1>No leader</h1>"),
        (we_drain(), "left to finish its work as leader"),
        (we_drain(), "other candidates wait for it, for 10s"),
        (of(Standing::Paused), "is paused"),
        (of(Standing::Unhealthy), "is unhealthy"),
        (of(Standing::Observing), "observes"),
        (of(Standing::Stopped), "has stopped"),
    ];
    for (status, words) in states {
        server.feed().change(status);
        let body = page(&server).await.body;
        assert!(body.contains(words), "{words} in {body}");
    }
}

#[tokio::test]
async fn maintenance_of_the_machine_is_shown_with_its_date() {
    let server = serving(of(Standing::Standby)).await;
    let announced = |imminent: bool, started: bool| Maintenance {
        event_id: "602d9444-d2cd-49c7-8624-8643e7171297".to_owned(),
        kind: "Reboot",
        not_before: (!started).then(|| now().date()),
        started,
        imminent,
    };
    assert!(!page(&server).await.body.contains("Maintenance"));
    server.feed().record(|it| it.maintenance = Some(announced(false, false)));
    let body = page(&server).await.body;
    assert!(body.contains("Reboot not before 2026-"), "{body}");
    assert!(body.contains("event 602d9444-d2cd-49c7-8624-8643e7171297"), "{body}");
    assert!(body.contains("is a standby, ready to take over"), "{body}");
    server.feed().change(of(Standing::Unhealthy));
    server.feed().record(|it| it.maintenance = Some(announced(true, true)));
    let body = page(&server).await.body;
    let words = "does not compete during maintenance of its machine: Reboot has begun.";
    assert!(body.contains(words), "{body}");
}

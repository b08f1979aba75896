//! The page at `/` as a real browser shows it.

use testkit::http::{server, status};
use testkit::tools::chromium;

use chromium::{Chromium, keep};
use server::Server;
use status::{Feed, candidate, failing, holder, in_jeopardy, ms, now, pass, status as of, table};
use tenure::election::{Standing, Status};
use tenure::status::CandidateEntry;

use crate::page::{TERM, life, serving, they_lead, we_drain, we_lead};

fn url(server: &Server) -> String {
    format!("http://{}/", server.address)
}

#[tokio::test]
async fn the_page_updates_without_a_reload() {
    let server = serving(they_lead("them")).await;
    let mut chromium = Chromium::start().await;
    chromium.open(&url(&server)).await;
    assert_eq!(chromium.value("document.title").await, "them leads orders");
    chromium.value("window.kept = document.querySelector('[role=status]'); 1").await;
    server.feed().remember(life());
    server.feed().change(we_lead(10_000));
    chromium.until("document.title === 'us leads orders'").await;
    let text = chromium.text().await;
    for words in ["This instance is the leader.", "left, unless renewed", "the term was written"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    let kept = "window.kept === document.querySelector('[role=status]')";
    assert_eq!(chromium.value(kept).await, true, "what is read aloud must stay to be news");
    // It counts down by itself, and sends a new request before the validity ends.
    let left = "parseFloat(document.querySelector('b[data-left]').textContent)";
    chromium.until(&format!("{left} < 8")).await;
    chromium.until(&format!("{left} > 8")).await;
    server.feed().change(they_lead("another"));
    chromium.until("document.querySelector('h1').textContent === 'another'").await;
    assert_eq!(chromium.complaints, Vec::<String>::new());
}

#[tokio::test]
async fn a_disconnected_page_claims_no_role() {
    let server = serving(we_lead(1_500)).await;
    let mut chromium = Chromium::start().await;
    chromium.open(&url(&server)).await;
    chromium.until("document.body.dataset.role === 'active'").await;
    let begun = now();
    chromium.offline(true).await;
    // The answer to a request that was sent before may still come.
    let lost = "!document.querySelector('.lost').hidden";
    chromium.until(&format!("{lost} && document.body.dataset.role === 'over'")).await;
    assert_eq!(begun, now(), "by the browser's clock alone");
    let text = chromium.text().await;
    for words in ["The sidecar does not answer", "Leader at last contact", "expired"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    for claim in ["is the leader", "left, unless"] {
        assert!(!text.contains(claim), "{claim} in {text}");
    }
    assert_eq!(chromium.value("document.title").await, "Refreshing");
    keep("over", &chromium.picture().await);
    chromium.offline(false).await;
    chromium.until("document.body.dataset.role === 'active'").await;
    assert_eq!(chromium.value("document.querySelector('.lost').hidden").await, true);
}

#[tokio::test]
async fn a_page_without_an_event_stream_still_updates() {
    let feed = Feed::new(Standing::Standby);
    let server = Server::with_places(feed, 32).await;
    let mut streams = Vec::new();
    while streams.len() < 16 {
        let tcp = streams.len() < 8;
        let mut client = if tcp { server.connect().await } else { server.connect_unix().await };
        assert_eq!(client.subscribe().await.code, 200);
        streams.push(client);
    }
    assert_eq!(server.code("/watch").await, 503, "no stream is left");
    let mut chromium = Chromium::start().await;
    chromium.open(&url(&server)).await;
    chromium
        .until("performance.getEntriesByType('resource').some(it => /index/.test(it.name))")
        .await;
    server.feed().change(they_lead("them"));
    chromium.until("document.title === 'them leads orders'").await;
}

#[tokio::test]
async fn the_page_is_complete_and_reloads_without_javascript() {
    let server = serving(of(Standing::Starting)).await;
    server.feed().remember(life());
    server.feed().change(we_lead(10_000));
    let mut chromium = Chromium::start().await;
    chromium.scripts(false).await;
    chromium.open(&url(&server)).await;
    let text = chromium.text().await;
    for words in
        ["us", "10.0.3.7:8080", "This instance is the leader.", "10s left", "refreshed every 5s"]
    {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert_eq!(chromium.value("document.querySelectorAll('tr').length").await, 20);
    server.feed().change(they_lead("them"));
    chromium.until("document.title === 'them leads orders'").await;
    assert_eq!(chromium.complaints, Vec::<String>::new());
}

/// Returns the elements of the page whose contrast with the background is below 4.5, the minimum of
/// WCAG.
const FAINT: &str = "(() => {
  const light = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map((it) => it / 255)
    .map((it) => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4)
    .reduce((sum, it, at) => sum + it * [0.2126, 0.7152, 0.0722][at], 0);
  const paper = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll('body *')].filter((it) => {
    const ink = light(getComputedStyle(it).color);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05) < 4.5;
  }).map((it) => it.outerHTML);
})()";

#[tokio::test]
async fn the_page_is_legible_in_light_and_dark_mode_on_desktops_and_phones() {
    let server = serving(of(Standing::Starting)).await;
    let mut chromium = Chromium::start().await;
    for name in ["begin", "leader", "standby", "jeopardy", "draining", "endless"] {
        match name {
            "leader" => {
                server.feed().remember(life());
                server.feed().change(we_lead(10_000));
                pass(ms(1_877));
            }
            "standby" => {
                server.feed().change(they_lead("orders-7d9f6c5b8-x2xkq"));
                let ill = "http://127.0.0.1:8080/healthz: connection refused".to_owned();
                server.feed().report_candidates(table([
                    CandidateEntry {
                        address: Some("10.0.3.8:8080".to_owned()),
                        zone: Some("westeurope-1".to_owned()),
                        ..candidate("orders-7d9f6c5b8-x2xkq", "leader")
                    },
                    CandidateEntry { heir: true, ..candidate("us", "standby") },
                    CandidateEntry { failing: Some(ill), ..candidate("orders-3", "unhealthy") },
                    CandidateEntry {
                        connected: false,
                        contact_ms_ago: 192_000,
                        ..candidate("orders-4", "standby")
                    },
                ]));
            }
            "jeopardy" => {
                let store = failing(
                    3,
                    "the store did not answer a renewal within 2s: myaccount.blob.core.windows.net",
                );
                let holder = holder("us", None, TERM);
                let standing = in_jeopardy(TERM, ms(10_000));
                server.feed().change(Status { store, holder, ..of(standing) });
                pass(ms(4_100));
            }
            "draining" => {
                server.feed().change(we_drain());
                pass(ms(2_200));
            }
            "endless" => {
                server.feed().change(Status {
                    store: failing(3, &"e".repeat(500)),
                    ..they_lead(&"W".repeat(128))
                });
                let longest = || Some("W".repeat(128));
                let (failing, zone, address) = (longest(), longest(), longest());
                let longest = candidate(&"W".repeat(128), "standby");
                let longest = CandidateEntry { failing, zone, address, ..longest };
                server.feed().report_candidates(table([longest]));
            }
            _ => {}
        }
        let mut papers = Vec::new();
        for (size, width, height) in [("desk", 1_100, 800), ("phone", 360, 740)] {
            for scheme in ["light", "dark"] {
                chromium.emulate(width, height, scheme).await;
                chromium.open(&url(&server)).await;
                papers
                    .push(chromium.value("getComputedStyle(document.body).backgroundColor").await);
                assert_eq!(chromium.value(FAINT).await, serde_json::json!([]), "{name} {scheme}");
                let fits = "document.documentElement.scrollWidth <= innerWidth";
                assert_eq!(chromium.value(fits).await, true, "{name} on a {size} is too wide");
                keep(&format!("{name}-{size}-{scheme}"), &chromium.picture().await);
            }
        }
        assert_ne!(papers[0], papers[1], "night is not day");
    }
    assert_eq!(chromium.complaints, Vec::<String>::new());
}

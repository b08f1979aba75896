//! The page at `/` as a real browser shows it.

use testkit::http::{server, status};
use testkit::tools::chromium;

use chromium::{Chromium, keep};
use server::Server;
use status::{
    Feed, candidate, failing, holder, in_jeopardy, ms, now, pass, renewals, status as of, table,
};
use tenure::election::{Ending, LastHolder, LeaseView, Standing, Status, StoreHealth};
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

/// Returns the elements of the page whose contrast with what is behind them is below 4.5, the minimum of
/// WCAG.
const FAINT: &str = "(() => {
  const light = (colour) => colour.match(/[\\d.]+/g).slice(0, 3)
    .map((it) => colour.startsWith('color(') ? +it : it / 255)
    .map((it) => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4)
    .reduce((sum, it, at) => sum + it * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (it) => {
    const colour = getComputedStyle(it).backgroundColor;
    return colour === 'rgba(0, 0, 0, 0)' ? behind(it.parentElement) : light(colour);
  };
  return [...document.querySelectorAll('body :not(progress)')].filter((it) => {
    const [ink, paper] = [light(getComputedStyle(it).color), behind(it)];
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05) < 4.5;
  }).map((it) => it.outerHTML);
})()";

/// What the page shows of a state: its tone, title and band, with the runbook, and more words.
type Shown = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// A state, by name, that is made in the feed.
type State = (&'static str, fn(&Feed) -> Shown);

/// The states that the page signals; each is made in the feed, and returns how it is shown.
const STATES: [State; 12] = [
    ("starting", starting),
    ("leader", leader),
    ("jeopardy", jeopardy),
    ("draining", draining),
    ("standby", standby),
    ("unseen", unseen),
    ("overdue", overdue),
    ("unknown", unknown),
    ("no leader", no_leader),
    ("unhealthy", unhealthy),
    ("store fails", store_fails),
    ("endless", endless),
];

fn silent_store(failures: u32) -> StoreHealth {
    failing(failures, "the store did not answer a read within 2s: myaccount.blob.core.windows.net")
}

fn starting(_: &Feed) -> Shown {
    ("calm", "Unknown: orders", "", &["has not reached the store yet"])
}

fn leader(feed: &Feed) -> Shown {
    feed.remember(life());
    feed.change(we_lead(10_000));
    pass(ms(1_877));
    ("live", "us leads orders", "", &["This instance is the leader.", "left, unless renewed"])
}

fn jeopardy(feed: &Feed) -> Shown {
    let holder = holder("us", Some("10.0.3.7:8080"), TERM);
    let standing = in_jeopardy(TERM, ms(10_000));
    feed.change(Status { store: silent_store(1), holder, ..of(standing) });
    pass(ms(4_100));
    (
        "warn",
        "Jeopardy: us leads orders",
        "In jeopardy: renewals fail Runbook TenureRenewalsFailing",
        &["leads, but renewals fail", "left, unless renewed"],
    )
}

fn draining(feed: &Feed) -> Shown {
    feed.change(we_drain());
    pass(ms(2_200));
    (
        "warn",
        "No leader: orders",
        "The leader hands over",
        &["us, this instance, is draining", "left to finish its work as leader"],
    )
}

fn standby(feed: &Feed) -> Shown {
    feed.change(they_renew());
    feed.report_candidates(table([
        CandidateEntry {
            address: Some("10.0.3.8:8080".to_owned()),
            zone: Some("westeurope-1".to_owned()),
            ..candidate("web-4042", "leader")
        },
        CandidateEntry { heir: true, ..candidate("us", "standby") },
        CandidateEntry {
            failing: Some("http://127.0.0.1:8080/healthz: connection refused".to_owned()),
            ..candidate("web-3", "unhealthy")
        },
        CandidateEntry {
            connected: false,
            gone: true,
            contact_ms_ago: 192_000,
            ..candidate("web-4", "standby")
        },
        candidate("us", "standby"),
    ]));
    feed.record(|it| {
        let own = it.candidates.as_mut().unwrap();
        let mut all = own.candidates.to_vec();
        all[4].instance = "us-2".to_owned();
        own.candidates = all.into();
    });
    (
        "calm",
        "web-4042 leads orders",
        "",
        &[
            "ready to take over",
            "gone for 3m12s",
            "another live instance has this identity",
            "https://acct.blob.core.windows.net/box/orders",
        ],
    )
}

fn unseen(feed: &Feed) -> Shown {
    feed.record(|it| it.candidates = None);
    feed.change(they_lead("web-4042"));
    ("calm", "web-4042 leads orders", "", &["whose renewals cannot be seen here"])
}

fn overdue(feed: &Feed) -> Shown {
    let led = they_renew();
    pass(ms(7_000));
    feed.change(Status { store: of(Standing::Standby).store, ..led });
    (
        "warn",
        "Unknown: orders",
        "The leader is overdue Runbook TenureNoLeader",
        &["web-4042 has not renewed for 7.0s; its lease ends in at most 8.0s"],
    )
}

fn unknown(feed: &Feed) -> Shown {
    let led = they_renew();
    pass(ms(12_000));
    feed.change(Status { store: silent_store(6), ..led });
    pass(ms(12_000));
    (
        "warn",
        "Unknown: orders",
        "It is not known who leads Runbook TenureStoreFailing",
        &["last seen: web-4042", "requests to the store fail"],
    )
}

fn no_leader(feed: &Feed) -> Shown {
    let holder = holder("web-4042", None, TERM).expect("a holder");
    let ending = Some(Ending::Expired);
    let last_holder = Some(LastHolder { holder, until: now(), ending });
    let leaderless = Some(now());
    let lease = LeaseView { last_holder, leaderless, ..LeaseView::default() };
    pass(ms(12_000));
    feed.change(Status { lease, ..of(Standing::Standby) });
    (
        "down",
        "No leader known: orders",
        "No leader Runbook TenureNoLeader",
        &["without a leader", "last: web-4042", "+05:30"],
    )
}

fn unhealthy(feed: &Feed) -> Shown {
    feed.change(Status { standing: Standing::Unhealthy, ..they_renew() });
    (
        "warn",
        "web-4042 leads orders",
        "This instance is unhealthy Runbook TenureNoStandby",
        &["is unhealthy and does not compete"],
    )
}

fn store_fails(feed: &Feed) -> Shown {
    feed.change(Status { store: silent_store(1), ..they_renew() });
    (
        "warn",
        "web-4042 leads orders",
        "Requests to the store fail Runbook TenureStoreFailing",
        &["requests to the store fail"],
    )
}

fn endless(feed: &Feed) -> Shown {
    let long = "W".repeat(128);
    feed.change(Status { store: silent_store(3), ..they_lead(&long) });
    let longest = || Some(long.clone());
    let (failing, zone, address) = (longest(), longest(), longest());
    feed.report_candidates(table([CandidateEntry {
        failing,
        zone,
        address,
        ..candidate(&long, "standby")
    }]));
    ("warn", "", "Requests to the store fail Runbook TenureStoreFailing", &[])
}

/// Returns the status of a standby that sees the leader renew.
fn they_renew() -> Status {
    let mut status = they_lead("web-4042");
    status.lease.renewals = renewals();
    status
}

#[tokio::test]
async fn each_state_is_signalled_and_legible_in_light_and_dark_mode_on_desktops_and_phones() {
    let server = serving(of(Standing::Starting)).await;
    let mut chromium = Chromium::start().await;
    let zone = serde_json::json!({"timezoneId": "Asia/Kolkata"});
    chromium.call("Emulation.setTimezoneOverride", zone).await;
    for (name, state) in STATES {
        let (tone, title, band, more) = state(server.feed());
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
        assert_eq!(chromium.value("document.body.dataset.tone").await, tone, "{name}");
        let shown = "document.querySelector('.band')?.textContent ?? ''";
        assert_eq!(chromium.value(shown).await, band, "{name}");
        let text = chromium.text().await;
        for words in more {
            assert!(text.contains(words), "{name}: {words} in {text}");
        }
        if !title.is_empty() {
            assert_eq!(chromium.value("document.title").await, title, "{name}");
        }
        let link = "document.querySelector('.band a')?.href ?? ''";
        let link = chromium.value(link).await.as_str().unwrap().to_owned();
        let runbook = band.split_once("Runbook ").map(|(_, it)| it);
        let expected = runbook.map(|it| format!("https://tenure.dev/docs/runbooks/{it}.md"));
        assert_eq!(link, expected.unwrap_or_default(), "{name}");
        if let Some(it) = runbook {
            let file = format!("{}/docs/runbooks/{it}.md", env!("CARGO_MANIFEST_DIR"));
            assert!(std::path::Path::new(&file).is_file(), "{file}");
        }
    }
    assert_eq!(chromium.complaints, Vec::<String>::new());
}

#[tokio::test]
async fn jeopardy_counts_down_and_the_time_without_a_leader_counts_up() {
    let server = serving(of(Standing::Starting)).await;
    let mut chromium = Chromium::start().await;
    let figure = "parseFloat(document.querySelector('.left b').textContent)";
    jeopardy(server.feed());
    chromium.open(&url(&server)).await;
    chromium.until(&format!("{figure} < 5.6")).await;
    no_leader(server.feed());
    chromium.until("document.body.dataset.tone === 'down'").await;
    // Each answer says 12 s, since the clock of the server stands.
    chromium.until(&format!("{figure} >= 12")).await;
    let (icon, title) = ("document.querySelector('link').href", "document.title");
    assert!(chromium.value(icon).await.as_str().unwrap().contains("d3263a"), "a red icon");
    assert_eq!(chromium.value(title).await, "No leader known: orders");
    // Out of contact, it claims neither that nobody leads nor that the leader was seen.
    chromium.offline(true).await;
    chromium.until("document.body.dataset.tone === 'over'").await;
    let text = chromium.text().await;
    assert!(text.contains("At last contact") && !text.contains("without a leader"), "{text}");
    assert!(!text.contains("Leader at last contact"), "{text}");
    assert!(!chromium.value(icon).await.as_str().unwrap().contains("d3263a"), "a red icon");
}

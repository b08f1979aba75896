//! The reconciler of a route, on a clock that the test sets: what it writes without a new
//! publication, when it acknowledges, and what it counts.

use testkit::http::status;
use testkit::kubernetes::kube_server;

use std::sync::{Arc, Weak};
use std::time::Duration;

use kube_server::{Fault, KubeServer};
use serde_json::json;
use status::{Feed, about, leading, ms, now, pass, status};
use tenure::config::{KubeAccess, KubePublishing, Route};
use tenure::driver::{Control, Inbox, Message};
use tenure::election::Standing;
use tenure::kube::Kube;
use tenure::metrics::Metrics;
use tenure::publish::route::Reconciler;
use tenure::status::publish_acks::PublishAcks;
use tenure::status::{Judgement, RouteState};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const BOUND: Duration = Duration::from_secs(30);

/// A reconciler of the label of the pod `web-1`, with a server of its own.
struct Kept {
    server: KubeServer,
    feed: Option<Arc<Feed>>,
    metrics: Metrics,
    acks: PublishAcks,
    running: JoinHandle<()>,
}

impl Kept {
    fn start(server: KubeServer, standing: Standing) -> Self {
        let service = KubePublishing {
            access: KubeAccess {
                api: server.url().parse().unwrap(),
                token_file: Some(server.token_file()),
                ca_file: None,
            },
            namespace: "team".to_owned(),
            pod: Some("web-1".to_owned()),
            lease: None,
            election: "orders".to_owned(),
            route: Some(Route::Label { key: "tenure.dev/role".to_owned() }),
            request_timeout: ms(1_000),
        };
        let metrics = Metrics::new(&about(), true);
        let feed = Arc::new(Feed::new(standing));
        feed.record(|first| first.route = Some(RouteState::new("label", now())));
        let (control, orders) = Control::new();
        let kube = Kube::open(&service.access, service.request_timeout).unwrap();
        let reports = (control, metrics.clone());
        let made = Reconciler::new((&service, kube), reports, feed.subscribe(), ms(10_000), now);
        let (reconciler, acks) = made.unwrap();
        #[allow(clippy::disallowed_methods, reason = "the test that starts it waits for its end")]
        let running = tokio::spawn(reconciler.run());
        #[allow(clippy::disallowed_methods, reason = "it ends with the reconciler")]
        tokio::spawn(publish_reports(orders, Arc::downgrade(&feed)));
        Self { server, feed: Some(feed), metrics, acks, running }
    }

    fn feed(&self) -> &Feed {
        self.feed.as_ref().unwrap()
    }

    /// Waits until the pod has a role.
    async fn has_role(&self, role: &str) {
        let changed = async {
            loop {
                let pod = self.server.object("pods", "team", "web-1").unwrap_or_default();
                if pod["metadata"]["labels"]["tenure.dev/role"] == role {
                    return;
                }
                tokio::time::sleep(ms(10)).await;
            }
        };
        timeout(BOUND, changed).await.unwrap_or_else(|_| panic!("the label never becomes {role}"));
    }

    /// Waits until the route state agrees, or does not.
    async fn agrees(&self, agrees: bool) {
        let agree = async {
            loop {
                let document = self.document();
                if document["agrees"] == agrees {
                    return;
                }
                tokio::time::sleep(ms(10)).await;
            }
        };
        timeout(BOUND, agree).await.unwrap_or_else(|_| panic!("agreement is never {agrees}"));
    }

    fn document(&self) -> serde_json::Value {
        let last = self.feed().last();
        serde_json::to_value(last.document(&about(), now())).unwrap()["route"].clone()
    }

    fn metric(&self, begin: &str) -> Option<f64> {
        let text = self.metrics.text(&self.feed().last(), 0, now());
        let line = text.lines().find(|it| it.starts_with(begin))?;
        line.rsplit_once(' ')?.1.parse().ok()
    }

    /// Returns whether the newest publication is acknowledged within a time.
    async fn acknowledges(&mut self, within: Duration) -> bool {
        let sequence = self.feed().last().sequence;
        timeout(within, self.acks.reached(sequence)).await.is_ok()
    }

    /// Drops the driver; the reconciler ends after its last write.
    async fn end(mut self) -> KubeServer {
        drop(self.feed.take());
        timeout(BOUND, self.running).await.expect("it ends").unwrap();
        self.server
    }
}

/// Publishes what the reconciler reports, as the driver does.
async fn publish_reports(mut orders: Inbox, feed: Weak<Feed>) {
    while let Some(order) = orders.recv().await {
        let Message::Route(report) = order else { continue };
        let Some(feed) = feed.upgrade() else { return };
        feed.record(|last| {
            let role = Judgement::of(&last.status, now()).role();
            let route = last.route.as_mut().expect("there is a route");
            route.record(report);
            route.judge(role, now());
        });
    }
}

fn server() -> KubeServer {
    let server = KubeServer::start();
    server.put("pods", "team", "web-1", json!({"spec": {"containers": []}}));
    server
}

#[tokio::test]
async fn a_lapse_withdraws_the_route() {
    let kept = Kept::start(server(), leading(7, ms(5_000)));
    kept.has_role("active").await;
    kept.agrees(true).await;
    // There is no publication; the belief ends by the clock alone.
    pass(ms(5_001));
    assert_eq!(kept.document()["agrees"], false, "judged when it is asked");
    kept.has_role("passive").await;
    kept.agrees(true).await;
    kept.end().await;
}

#[tokio::test]
async fn passive_is_acknowledged_only_after_the_route_reports_it() {
    let mut kept = Kept::start(server(), leading(7, ms(60_000)));
    kept.has_role("active").await;
    assert!(kept.acknowledges(BOUND).await);
    kept.server.impose("patch pods", Fault::Answer(kube_server::answers::Answer::text(503, "")));
    kept.feed().change(status(Standing::Standby));
    assert!(!kept.acknowledges(ms(700)).await, "the label is still active");
    kept.server.heal();
    // The back-off uses the clock of the test.
    pass(ms(10_000));
    assert!(kept.acknowledges(BOUND).await);
    kept.has_role("passive").await;
    kept.feed().renew(Standing::Paused);
    assert!(kept.acknowledges(BOUND).await, "nothing has changed");
    kept.end().await;
}

#[tokio::test]
async fn a_route_that_cannot_be_written_is_not_waited_for() {
    let mut kept = Kept::start(server(), leading(7, ms(60_000)));
    kept.has_role("active").await;
    kept.agrees(true).await;
    kept.server.forbid(kube_server::TOKEN);
    kept.feed().change(status(Standing::Standby));
    assert!(kept.acknowledges(BOUND).await);
    assert_eq!(kept.document()["agrees"], false);
    assert!(kept.metric("tenure_route_requests_total{").is_some());
    kept.end().await;
}

#[tokio::test]
async fn a_change_by_others_is_undone_at_the_next_verification() {
    let kept = Kept::start(server(), leading(7, ms(1_000_000)));
    kept.has_role("active").await;
    kept.agrees(true).await;
    let reads = kept.server.count("get pods");
    kept.server.modify("pods", "team", "web-1", |it| {
        it["metadata"]["labels"]["tenure.dev/role"] = "passive".into();
    });
    // It reads after ten to thirty seconds, not at each renewal.
    pass(ms(9_900));
    kept.feed().renew(leading(7, ms(1_000_000)));
    tokio::time::sleep(ms(100)).await;
    assert_eq!(kept.server.count("get pods"), reads);
    pass(ms(20_200));
    kept.feed().renew(leading(7, ms(1_000_000)));
    kept.has_role("active").await;
    kept.end().await;
}

#[tokio::test]
async fn a_failed_verification_is_disagreement() {
    let kept = Kept::start(server(), leading(7, ms(1_000_000)));
    kept.agrees(true).await;
    assert_eq!(kept.metric("tenure_route_agrees{"), Some(1.0));
    kept.server.impose("any", Fault::Answer(kube_server::answers::Answer::etcd_timed_out()));
    pass(ms(30_000));
    kept.feed().renew(leading(7, ms(1_000_000)));
    kept.agrees(false).await;
    assert_eq!(kept.metric("tenure_route_agrees{"), Some(0.0));
    let document = kept.document();
    assert_eq!((&document["says"], &document["other"]), (&json!("active"), &json!(null)));
    kept.server.heal();
    pass(ms(5_000));
    kept.feed().renew(leading(7, ms(1_000_000)));
    kept.agrees(true).await;
    kept.end().await;
}

#[tokio::test]
async fn an_old_verification_is_disagreement() {
    let kept = Kept::start(server(), leading(7, ms(1_000_000)));
    kept.agrees(true).await;
    // Twice the longest interval, in which the reconciler does not run.
    pass(ms(59_000));
    assert_eq!(kept.document()["agrees"], true);
    pass(ms(1_500));
    let document = kept.document();
    assert_eq!((&document["agrees"], &document["since_ms"]), (&json!(false), &json!(500)));
    assert_eq!(document["verified_ms_ago"], 60_500);
    assert_eq!(kept.metric("tenure_route_agrees{"), Some(0.0));
    kept.feed().renew(leading(7, ms(1_000_000)));
    kept.agrees(true).await;
    kept.end().await;
}

#[tokio::test]
async fn another_pod_of_the_same_name_is_left_alone() {
    let kept = Kept::start(server(), Standing::Standby);
    kept.agrees(true).await;
    kept.server.delete("pods", "team", "web-1");
    kept.server.put("pods", "team", "web-1", json!({"spec": {"containers": []}}));
    kept.feed().change(status(leading(7, ms(60_000))));
    let reported = async {
        while kept.document()["last_error"].is_null() {
            tokio::time::sleep(ms(10)).await;
        }
    };
    timeout(BOUND, reported).await.unwrap();
    let words = kept.document()["last_error"].to_string();
    assert!(words.contains("the pod web-1 was replaced by another"), "{words}");
    let pod = kept.server.object("pods", "team", "web-1").unwrap();
    assert!(pod["metadata"]["labels"].is_null(), "{pod}");
    kept.end().await;
}

#[tokio::test]
async fn the_series_exist_from_the_start_and_only_with_a_route() {
    let kept = Kept::start(server(), Standing::Starting);
    assert_eq!(kept.metric("tenure_route_agrees{"), Some(0.0));
    let text = kept.metrics.text(&kept.feed().last(), 0, now());
    assert!(
        text.contains("tenure_route_requests_total{") && text.contains("outcome=\"ok\""),
        "{text}"
    );
    kept.agrees(true).await;
    assert_eq!(kept.metric("tenure_route_agrees{"), Some(1.0));
    let without = Metrics::new(&about(), false).text(&kept.feed().last(), 0, now());
    assert!(!without.contains("tenure_route"));
    kept.end().await;
}

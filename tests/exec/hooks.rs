//! Hooks, with real commands and a real web server.

use testkit::http::status;
use testkit::processes::{process, service};

use std::path::{Path, PathBuf};
use std::time::Duration;

use process::until_gone;
use service::Service;
use status::{Feed, about, holder, in_jeopardy, leading, ms, now, pass};
use tenure::config::{self, CommandLine, Hook};
use tenure::election::{Standing, Status};
use tenure::metrics::{HOOK_OUTCOMES, HOOKS, Metrics};
use tenure::publish::hooks::Hooks;

const BOUND: Duration = Duration::from_secs(20);
const BELIEF: Duration = Duration::from_secs(10);

fn shell(script: &str) -> Option<Hook> {
    let arguments = vec!["-c".to_owned(), script.to_owned()];
    Some(Hook::Command(CommandLine { program: PathBuf::from("/bin/sh"), arguments }))
}

fn webhook(url: &str) -> Option<Hook> {
    Some(Hook::Webhook(url.parse().unwrap()))
}

fn none() -> config::Hooks {
    config::Hooks {
        on_active: None,
        on_passive: None,
        on_drain: None,
        on_leader_change: None,
        timeout: BOUND,
        withheld: config::Withheld::default(),
    }
}

/// A driver's feed for hooks, and a directory for their output.
struct Scene {
    feed: Option<Feed>,
    metrics: Metrics,
    directory: tempfile::TempDir,
}

impl Scene {
    fn new(first: Standing) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { feed: Some(Feed::new(first)), metrics: Metrics::new(&about(), false), directory }
    }

    fn feed(&self) -> &Feed {
        self.feed.as_ref().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a hook that logs its begin and end, and runs a script in between.
    fn notes(&self, between: &str) -> Option<Hook> {
        let notes = self.path("notes");
        let note = |word: &str| {
            format!("echo {word} $TENURE_EVENT ${{TENURE_TERM:-none}} >> {}", notes.display())
        };
        shell(&format!("{}\n{between}\n{}", note("begin"), note("end")))
    }

    fn noted(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("notes")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    async fn until_noted(&self, line: &str) {
        let noted = async {
            while !self.noted().iter().any(|it| it == line) {
                tokio::time::sleep(ms(5)).await;
            }
        };
        let waited = tokio::time::timeout(BOUND, noted).await;
        waited.unwrap_or_else(|_| panic!("{line:?} is not in {:?}", self.noted()));
    }

    /// Returns how often a hook had an outcome.
    fn runs(&self, hook: &str, outcome: &str) -> u64 {
        let text = self.metrics.text(&Feed::new(Standing::Starting).last(), 0, now());
        let ends = |line: &&str| {
            line.starts_with("tenure_hook_runs_total{")
                && line.contains(&format!("hook=\"{hook}\""))
                && line.contains(&format!("outcome=\"{outcome}\""))
        };
        let line = text.lines().find(ends).unwrap_or_else(|| panic!("{hook} {outcome}: {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    async fn until_run(&self, hook: &str, outcome: &str) {
        let run = async {
            while self.runs(hook, outcome) == 0 {
                tokio::time::sleep(ms(5)).await;
            }
        };
        tokio::time::timeout(BOUND, run).await.unwrap_or_else(|_| panic!("no {hook} {outcome}"));
    }

    fn hooks(&self, settings: config::Hooks) -> Hooks {
        let url = Some("http://127.0.0.1:4040".to_owned());
        Hooks::new(settings, about(), self.metrics.clone(), url, now).unwrap()
    }

    /// Runs hooks on the feed during a test.
    async fn during(&self, settings: config::Hooks, test: impl Future<Output = ()>) {
        let running = self.hooks(settings).run(self.feed().subscribe(), |_| async {});
        tokio::select! {
            () = running => panic!("the driver is not gone"),
            () = test => (),
        }
    }
}

fn standby() -> Status {
    status::status(Standing::Standby)
}

fn leads(term: u64) -> Status {
    status::status(leading(term, BELIEF))
}

#[tokio::test]
async fn a_command_hook_gets_the_event_in_its_environment() {
    let scene = Scene::new(Standing::Standby);
    let file = scene.path("environment");
    let dump = format!("env > {0}.new; mv {0}.new {0}", file.display());
    let settings = config::Hooks { on_active: shell(&dump), ..none() };
    let read = |file: &Path| std::fs::read_to_string(file);
    scene
        .during(settings, async {
            let leader = Status { holder: holder("us", Some("10.0.3.7:8080"), 42), ..leads(42) };
            scene.feed().change(leader);
            scene.until_run("on-active", "ok").await;
        })
        .await;
    let text = read(&file).unwrap();
    for line in [
        "TENURE_EVENT=active",
        "TENURE_TERM=42",
        "TENURE_ELECTION=orders",
        "TENURE_IDENTITY=us",
        "TENURE_ROLE=active",
        "TENURE_STATE=leader",
        "TENURE_VALID_FOR_MS=10000",
        "TENURE_HOLDER=us",
        "TENURE_HOLDER_ADDRESS=10.0.3.7:8080",
        "TENURE_HOLDER_TERM=42",
        "TENURE_URL=http://127.0.0.1:4040",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
    }
}

#[tokio::test]
async fn the_passive_hook_waits_for_the_active_hook_and_has_the_ended_term() {
    let scene = Scene::new(Standing::Standby);
    let (go, slow) = (scene.path("go"), "until [ -e $0.go ]; do sleep 0.01; done");
    let slow = slow.replace("$0.go", &go.display().to_string());
    let settings =
        config::Hooks { on_active: scene.notes(&slow), on_passive: scene.notes(""), ..none() };
    scene
        .during(settings, async {
            scene.feed().change(leads(42));
            scene.until_noted("begin active 42").await;
            scene.feed().change(standby());
            tokio::time::sleep(ms(100)).await;
            assert_eq!(scene.noted(), ["begin active 42"]);
            std::fs::write(&go, "").unwrap();
            scene.until_noted("end passive 42").await;
        })
        .await;
    let order = ["begin active 42", "end active 42", "begin passive 42", "end passive 42"];
    assert_eq!(scene.noted(), order);
}

#[tokio::test]
async fn a_slow_hook_runs_for_the_newest_state_and_counts_skipped_events() {
    let scene = Scene::new(Standing::Standby);
    let go = scene.path("go");
    let slow = format!("until [ -e {} ]; do sleep 0.01; done", go.display());
    let settings =
        config::Hooks { on_active: scene.notes(&slow), on_passive: scene.notes(""), ..none() };
    scene
        .during(settings, async {
            scene.feed().change(leads(1));
            scene.until_noted("begin active 1").await;
            for status in [standby(), leads(2), standby(), leads(3)] {
                scene.feed().change(status);
                tokio::time::sleep(ms(20)).await;
            }
            std::fs::write(&go, "").unwrap();
            scene.until_noted("end active 3").await;
            scene.feed().change(standby());
            scene.until_noted("end passive 3").await;
        })
        .await;
    let begun: Vec<_> = scene.noted().into_iter().filter(|it| it.starts_with("begin")).collect();
    assert_eq!(begun, ["begin active 1", "begin active 3", "begin passive 3"]);
    assert_eq!((scene.runs("on-active", "skipped"), scene.runs("on-passive", "skipped")), (1, 2));
}

#[tokio::test]
async fn a_hook_that_times_out_is_killed_with_its_process_group() {
    let scene = Scene::new(Standing::Standby);
    let ids = scene.path("ids");
    let script =
        format!("trap '' TERM; sleep 100 & echo $! $$ > {}; wait; sleep 100", ids.display());
    let settings = config::Hooks {
        on_active: shell(&script),
        on_passive: scene.notes(""),
        timeout: ms(300),
        ..none()
    };
    scene
        .during(settings, async {
            scene.feed().change(leads(1));
            scene.until_run("on-active", "timeout").await;
            scene.feed().change(standby());
            scene.until_noted("end passive 1").await;
        })
        .await;
    for id in std::fs::read_to_string(&ids).unwrap().split_whitespace() {
        until_gone(id).await;
    }
}

#[tokio::test]
async fn a_hook_that_handles_sigterm_may_exit_within_the_grace_period() {
    let scene = Scene::new(Standing::Standby);
    let file = scene.path("cleaned");
    let script =
        format!("trap 'echo yes > {}; exit 0' TERM; while :; do sleep 0.02; done", file.display());
    let settings = config::Hooks { on_active: shell(&script), timeout: ms(300), ..none() };
    scene
        .during(settings, async {
            scene.feed().change(leads(1));
            scene.until_run("on-active", "timeout").await;
        })
        .await;
    assert_eq!(std::fs::read_to_string(file).unwrap(), "yes\n");
}

#[tokio::test]
async fn background_processes_of_a_hook_end_with_it_unless_in_a_session_of_their_own() {
    let scene = Scene::new(Standing::Standby);
    let ids = scene.path("ids");
    // The hook ends once the session has begun.
    let script = format!(
        "setsid sh -c 'echo $$ > {0}; exec sleep 100' >&- 2>&- &
         until [ -s {0} ]; do sleep 0.01; done; sleep 100 & echo $! >> {0}",
        ids.display()
    );
    let settings = config::Hooks { on_active: shell(&script), ..none() };
    scene
        .during(settings, async {
            scene.feed().change(leads(1));
            scene.until_run("on-active", "ok").await;
        })
        .await;
    let ids = std::fs::read_to_string(&ids).unwrap();
    let (stays, ends) = ids.trim().split_once('\n').unwrap();
    until_gone(ends).await;
    let alive = Path::new("/proc").join(stays).exists();
    let id = rustix::process::Pid::from_raw(stays.parse().unwrap()).unwrap();
    let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
    assert!(alive, "what began a session of its own is left alone");
}

#[tokio::test]
async fn a_hook_that_fails_or_cannot_start_is_counted_and_the_next_one_runs() {
    let scene = Scene::new(Standing::Standby);
    let nothing = CommandLine { program: PathBuf::from("/nowhere"), arguments: Vec::new() };
    let settings = config::Hooks {
        on_active: Some(Hook::Command(nothing)),
        on_passive: shell("exit 3"),
        ..none()
    };
    scene
        .during(settings, async {
            scene.feed().change(leads(1));
            scene.until_run("on-active", "failed").await;
            scene.feed().change(standby());
            scene.until_run("on-passive", "failed").await;
        })
        .await;
}

#[tokio::test]
async fn a_webhook_gets_the_status_document() {
    let (scene, service) = (Scene::new(Standing::Standby), Service::start());
    let hook = webhook(&service.url("/events?key=k"));
    let settings = config::Hooks { on_active: hook.clone(), on_passive: hook, ..none() };
    scene
        .during(settings, async {
            scene.feed().change(leads(42));
            scene.until_run("on-active", "ok").await;
            service.answer("500 Internal Server Error");
            scene.feed().change(standby());
            scene.until_run("on-passive", "failed").await;
        })
        .await;
    let requests = service.requests();
    assert_eq!(requests.len(), 2, "nothing is repeated");
    assert_eq!(requests[0].line, "POST /events?key=k HTTP/1.1");
    assert_eq!(requests[0].header("content-type"), Some("application/json"));
    let request = |number: usize| {
        let it = &requests[number];
        (it.header("tenure-event").unwrap(), it.header("tenure-term").unwrap(), it.json())
    };
    let (event, term, document) = request(0);
    assert_eq!((event, term), ("active", "42"));
    assert_eq!((&document["role"], &document["term"]), (&"active".into(), &42.into()));
    let (event, term, document) = request(1);
    assert_eq!((event, term), ("passive", "42"));
    assert_eq!((&document["role"], &document["term"]), (&"passive".into(), &().into()));
}

#[tokio::test]
async fn a_webhook_that_does_not_answer_in_time_is_cancelled() {
    let (scene, service) = (Scene::new(Standing::Standby), Service::start());
    service.delay(BOUND);
    let settings =
        config::Hooks { on_active: webhook(&service.url("/")), timeout: ms(200), ..none() };
    scene
        .during(settings, async {
            scene.feed().change(leads(1));
            scene.until_run("on-active", "timeout").await;
        })
        .await;
}

#[tokio::test]
async fn the_leader_change_hook_runs_on_standbys_and_concurrently_with_other_hooks() {
    let scene = Scene::new(Standing::Standby);
    let go = scene.path("go");
    let slow = format!("until [ -e {} ]; do sleep 0.01; done", go.display());
    let names = scene.path("names");
    let name = shell(&format!("echo $TENURE_HOLDER $TENURE_HOLDER_TERM >> {}", names.display()));
    let settings =
        config::Hooks { on_active: scene.notes(&slow), on_leader_change: name, ..none() };
    scene
        .during(settings, async {
            for (count, leader) in [("a", 1), ("b", 2)].into_iter().enumerate() {
                let holder = holder(leader.0, None, leader.1);
                scene.feed().change(Status { holder, ..standby() });
                while scene.runs("on-leader-change", "ok") <= count as u64 {
                    tokio::time::sleep(ms(5)).await;
                }
            }
            scene.feed().change(Status { holder: holder("us", None, 3), ..leads(3) });
            while scene.runs("on-leader-change", "ok") < 3 {
                tokio::time::sleep(ms(5)).await;
            }
            scene.until_noted("begin active 3").await;
            assert_eq!(scene.noted().len(), 1, "it runs yet");
            std::fs::write(&go, "").unwrap();
            scene.until_run("on-active", "ok").await;
        })
        .await;
    assert_eq!(std::fs::read_to_string(names).unwrap(), "a 1\nb 2\nus 3\n");
}

#[tokio::test]
async fn the_passive_hook_runs_at_the_deadline_without_a_publication() {
    let scene = Scene::new(Standing::Standby);
    let settings = config::Hooks { on_passive: scene.notes(""), ..none() };
    scene
        .during(settings, async {
            scene.feed().change(leads(5));
            tokio::time::sleep(ms(50)).await;
            scene.feed().renew(in_jeopardy(5, BELIEF));
            pass(BELIEF - ms(1));
            tokio::time::sleep(ms(1_500)).await;
            assert!(scene.noted().is_empty(), "a leader in jeopardy leads");
            pass(ms(1));
            scene.until_noted("end passive 5").await;
        })
        .await;
}

#[tokio::test]
async fn the_passive_hook_of_a_resigned_leader_runs_before_the_process_ends() {
    let mut scene = Scene::new(Standing::Standby);
    let settings = config::Hooks { on_passive: scene.notes("sleep 0.2"), ..none() };
    let feed = scene.feed.take().unwrap();
    let running = scene.hooks(settings).run(feed.subscribe(), |_| async {});
    let driver = async {
        feed.change(leads(5));
        tokio::time::sleep(ms(50)).await;
        feed.change(status::status(Standing::Stopped));
        drop(feed);
    };
    let both = async { tokio::join!(running, driver) };
    tokio::time::timeout(BOUND, both).await.expect("it ends after on-passive");
    assert_eq!(scene.noted(), ["begin passive 5", "end passive 5"]);
}

#[test]
fn a_configured_hook_has_a_series_for_every_outcome_from_the_start() {
    let scene = Scene::new(Standing::Starting);
    let hook = || scene.notes("");
    drop(scene.hooks(config::Hooks {
        on_active: hook(),
        on_passive: hook(),
        on_drain: hook(),
        on_leader_change: hook(),
        ..none()
    }));
    for hook in HOOKS {
        for outcome in HOOK_OUTCOMES {
            assert_eq!(scene.runs(hook, outcome), 0);
        }
    }
}

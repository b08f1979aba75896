//! Hooks: runs commands and calls webhooks on changes of the published status.
//!
//! Active, drain and passive form one queue, changes of the leader another. In each, one hook runs
//! at a time, and the next one reports the newest state. Nothing waits for a hook, except that a
//! drain waits for the end of `on-drain`, within its own time limit. A hook is no safeguard: it may
//! run late, or not at all if Tenure is killed.

mod queue;
mod run;

use futures::future::{Fuse, FusedFuture, FutureExt};
use serde::Serialize;
use tokio::sync::watch;

use crate::clock::{LONGEST_SLEEP, Moment};
use crate::config::{self, Hook};
use crate::http::client;
use crate::http::resolver::Resolver;
use crate::metrics::Metrics;
use crate::status::{About, Published};
use queue::{EventQueue, HookEvent, Leaders, Roles, until_change};
use run::{HookResult, by_command, by_webhook, is_webhook, over_tls};

/// The name of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Name {
    /// This instance has become active.
    Active,
    /// This instance is no longer active.
    Passive,
    /// This instance drains.
    Drain,
    /// Another leader or term was seen.
    LeaderChange,
}

impl Name {
    /// Returns the name of the setting.
    fn as_str(self) -> &'static str {
        match self {
            Self::Active => "on-active",
            Self::Passive => "on-passive",
            Self::Drain => "on-drain",
            Self::LeaderChange => "on-leader-change",
        }
    }

    /// Returns the name of the event.
    fn event(self) -> &'static str {
        self.as_str().trim_start_matches("on-")
    }
}

/// The result of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Exit code 0, or a status of 200 to 299.
    Ok,
    /// Any other result, or it could not be started.
    Failed,
    /// It timed out and was ended.
    Timeout,
    /// The state that it would have reported was over before its turn.
    Skipped,
}

impl Outcome {
    /// Returns the outcome as a metric label and a log field.
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Skipped => "skipped",
        }
    }
}

/// The hooks of one election.
pub struct Hooks {
    settings: config::Hooks,
    client: Option<reqwest::Client>,
    about: About,
    metrics: Metrics,
    /// The URL of the status listener, for the commands.
    url: Option<String>,
    now: fn() -> Moment,
}

impl Hooks {
    /// Creates the hooks; `url` is the URL of the status listener for their commands.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(
        settings: config::Hooks,
        about: About,
        metrics: Metrics,
        url: Option<String>,
        now: fn() -> Moment,
    ) -> anyhow::Result<Self> {
        let webhooks = || settings.iter().map(|(_, it)| it).filter(|it| is_webhook(it));
        let client = match webhooks().next() {
            None => None,
            Some(_) => {
                let tls = webhooks().any(over_tls);
                Some(client::each_alone(tls, Resolver::default(), settings.timeout)?)
            }
        };
        settings.iter().for_each(|(name, _)| metrics.expect_hook(name));
        Ok(Self { settings, client, about, metrics, url, now })
    }

    /// Runs the hooks until the driver is gone and its last status has been reported: after that,
    /// at most the hook that is running and one more, each within hook-timeout. When `on-drain` has
    /// ended, calls `drained` with the term that drains.
    pub async fn run<D, F>(self, published: watch::Receiver<Published>, drained: D)
    where
        D: Fn(u64) -> F,
        F: Future<Output = ()>,
    {
        let roles = self.follow(Roles::default(), published.clone(), &drained);
        let leaders = self.follow(Leaders::default(), published, &drained);
        tokio::join!(roles, leaders);
    }

    /// Runs the hooks of one queue.
    async fn follow<D, F>(
        &self,
        mut course: impl EventQueue,
        mut published: watch::Receiver<Published>,
        drained: &D,
    ) where
        D: Fn(u64) -> F,
        F: Future<Output = ()>,
    {
        // On the heap, since most of the time none runs.
        let mut running = Fuse::terminated();
        let mut gone = false;
        loop {
            let (event, sleep) = {
                let now = (self.now)();
                let last = published.borrow_and_update();
                for skipped in course.observe(&last.status, now) {
                    self.skip(skipped);
                }
                let free = running.is_terminated();
                let event = if free { course.start(&last.status, now) } else { None };
                (event, until_change(&last.status, now).unwrap_or(LONGEST_SLEEP))
            };
            if let Some(event) = event {
                running = Box::pin(self.tell(event, published.clone(), drained)).fuse();
            } else if gone && running.is_terminated() {
                return;
            }
            tokio::select! {
                () = &mut running, if !running.is_terminated() => {}
                changed = published.changed(), if !gone => gone = changed.is_err(),
                () = tokio::time::sleep(sleep.min(LONGEST_SLEEP)) => {}
            }
        }
    }

    fn skip(&self, event: HookEvent) {
        if hook(&self.settings, event.name).is_some() {
            let HookEvent { name, term } = event;
            let (hook, outcome) = (name.as_str(), Outcome::Skipped.as_str());
            self.metrics.hook_run(hook, outcome);
            tracing::info!(
                hook,
                outcome,
                term,
                "{hook}: skipped, since the state has changed again"
            );
        }
    }

    /// Runs the hook of an event, if there is one.
    async fn tell<D, F>(&self, event: HookEvent, published: watch::Receiver<Published>, drained: &D)
    where
        D: Fn(u64) -> F,
        F: Future<Output = ()>,
    {
        let Some(hook) = hook(&self.settings, event.name) else {
            return;
        };
        let began = (self.now)();
        let last = published.borrow().clone();
        let document = last.document(&self.about, began);
        let time = self.settings.timeout;
        let result = match (hook, &self.client) {
            (Hook::Command(line), _) => {
                let withheld = &self.settings.withheld;
                by_command(line, withheld, event, &document, self.url.as_deref(), time).await
            }
            (Hook::Webhook(url), Some(client)) => {
                by_webhook(client, url, event, &document, time).await
            }
            (Hook::Webhook(_), None) => unreachable!("a client was made for it"),
        };
        self.report(event, &result, began);
        if let (Name::Drain, Some(term), true) = (event.name, event.term, result.ended) {
            drained(term).await;
        }
    }

    fn report(&self, event: HookEvent, result: &HookResult, began: Moment) {
        let (hook, outcome) = (event.name.as_str(), result.outcome.as_str());
        self.metrics.hook_run(hook, outcome);
        let ms = u64::try_from(began.elapsed_max((self.now)()).as_millis()).unwrap_or(u64::MAX);
        let HookEvent { term, .. } = event;
        let words = &result.words;
        if result.outcome == Outcome::Ok {
            tracing::info!(hook, outcome, ms, term, "{hook}: {words}");
        } else {
            tracing::warn!(hook, outcome, ms, term, "{hook}: {words}");
        }
    }
}

fn hook(settings: &config::Hooks, name: Name) -> Option<&Hook> {
    match name {
        Name::Active => settings.on_active.as_ref(),
        Name::Passive => settings.on_passive.as_ref(),
        Name::Drain => settings.on_drain.as_ref(),
        Name::LeaderChange => settings.on_leader_change.as_ref(),
    }
}

//! Counts the tasks that run as leader; the [`ReleaseGuard`] allows the release of the lease only when
//! none of them runs any more.

use tokio::sync::watch;

use super::term::{leads, over};
use crate::driver::Control;
use crate::status::Published;

/// The tasks of one candidate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tasks {
    /// How many run, or are about to check whether they may.
    running: usize,
    /// The latest term in which a task started.
    latest: Option<u64>,
    /// The latest term whose tasks were dropped: none starts in it again.
    lost: Option<u64>,
    /// The latest term in which work outside of the tasks was reported finished.
    drained: Option<u64>,
}

impl Tasks {
    /// Records that work outside of the tasks has finished in this term.
    pub(super) fn drained_in(&mut self, term: u64) {
        self.drained = Some(term);
    }

    /// Returns whether tasks were dropped in this term, because it was over for them.
    pub(super) fn were_lost_in(&self, term: u64) -> bool {
        self.lost == Some(term)
    }

    /// Returns whether all work of a term is known to have finished.
    fn have_ended_in(&self, term: u64) -> bool {
        self.running == 0 && (self.latest == Some(term) || self.drained == Some(term))
    }
}

/// Counts one task until it is dropped.
pub(super) struct Counted<'a>(&'a watch::Sender<Tasks>);

impl<'a> Counted<'a> {
    pub(super) fn new(tasks: &'a watch::Sender<Tasks>) -> Self {
        tasks.send_modify(|it| it.running += 1);
        Self(tasks)
    }

    /// Records that the task starts in this term.
    pub(super) fn begins_in(&self, term: u64) {
        self.0.send_modify(|it| it.latest = Some(term));
    }

    /// Records that the task was dropped because the term was over for it.
    pub(super) fn was_lost_in(&self, term: u64) {
        self.0.send_modify(|it| it.lost = Some(term));
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|it| it.running -= 1);
    }
}

/// Reports when no task runs any more in a term that is over, and makes a candidate resign whose
/// last handle was dropped.
pub(super) struct ReleaseGuard {
    published: watch::Receiver<Published>,
    tasks: watch::Receiver<Tasks>,
    control: Control,
}

impl ReleaseGuard {
    pub(super) fn new(
        published: watch::Receiver<Published>,
        tasks: watch::Receiver<Tasks>,
        control: Control,
    ) -> Self {
        Self { published, tasks, control }
    }

    /// Runs until it is dropped.
    pub(super) async fn run(self) {
        let Self { published, tasks, control } = self;
        let resign = async {
            control.leaving().await;
            control.resign().await;
        };
        tokio::join!(resign, watch_over(published, tasks, &control));
    }
}

async fn watch_over(
    mut published: watch::Receiver<Published>,
    mut tasks: watch::Receiver<Tasks>,
    control: &Control,
) {
    loop {
        // Tasks that a clock which went back has ended are over before the leadership is: it ends
        // too, since nothing starts in it again. Each renewal is a change that brings this up.
        let lost = tasks.clone();
        let has_ended =
            |it: &Published, term| !leads(&it.status, term) || lost.borrow().were_lost_in(term);
        let ended_term =
            |it: &Published| it.status.workload_term.filter(|term| has_ended(it, *term));
        let Ok(term) =
            published.wait_for(|it| ended_term(it).is_some()).await.map(|it| ended_term(&it))
        else {
            return std::future::pending().await;
        };
        let Some(term) = term else { continue };
        // If no task started in this term, all work runs elsewhere and only asks whether the
        // candidate leads: it has the whole drain. A task that has already ended must not be
        // mistaken for that.
        tokio::select! {
            () = over(published.clone(), term) => {}
            _ = tasks.wait_for(|it| it.have_ended_in(term)) => {}
        }
        // An error means that the candidate was dropped, and with it all that could run.
        let _ = tasks.wait_for(|it| it.running == 0).await;
        control.workload_exited(term, None).await;
        let _ = published.wait_for(|it| it.status.workload_term != Some(term)).await;
    }
}

//! The works that run as leader, counted, and the [`Warden`], who has the lease given back only when
//! none of them runs any more.
//!
//! What it does not do: it ends no work. Each ends itself, or is dropped by [`super::leadership`].

use tokio::sync::watch;

use super::term::{leads, over};
use crate::daemon::Control;
use crate::publish::Published;

/// The works of one candidate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Works {
    /// How many run, or are about to ask whether they may.
    running: usize,
    /// The latest term in which one began.
    latest: Option<u64>,
    /// The latest term whose other work has ended by its own word.
    drained: Option<u64>,
}

impl Works {
    /// What runs elsewhere has ended its work of this term.
    pub(super) fn drained_in(&mut self, term: u64) {
        self.drained = Some(term);
    }

    /// Whether all work of a term is known to have ended.
    fn have_ended_in(&self, term: u64) -> bool {
        self.running == 0 && (self.latest == Some(term) || self.drained == Some(term))
    }
}

/// One work, until it is dropped.
pub(super) struct Counted<'a>(&'a watch::Sender<Works>);

impl<'a> Counted<'a> {
    pub(super) fn new(works: &'a watch::Sender<Works>) -> Self {
        works.send_modify(|it| it.running += 1);
        Self(works)
    }

    /// It runs now, in this term.
    pub(super) fn begins_in(&self, term: u64) {
        self.0.send_modify(|it| it.latest = Some(term));
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|it| it.running -= 1);
    }
}

/// Says when nothing runs any more in a term that is over, and has a candidate resign that nobody
/// holds any more.
pub(super) struct Warden {
    published: watch::Receiver<Published>,
    works: watch::Receiver<Works>,
    control: Control,
}

impl Warden {
    pub(super) fn new(
        published: watch::Receiver<Published>,
        works: watch::Receiver<Works>,
        control: Control,
    ) -> Self {
        Self { published, works, control }
    }

    /// Never ends.
    pub(super) async fn run(self) {
        let Self { published, works, control } = self;
        let resign = async {
            control.leaving().await;
            control.resign().await;
        };
        tokio::join!(resign, watch_over(published, works, &control));
    }
}

async fn watch_over(
    mut published: watch::Receiver<Published>,
    mut works: watch::Receiver<Works>,
    control: &Control,
) {
    loop {
        let occupied = |it: &Published| it.status.occupied.filter(|term| !leads(&it.status, *term));
        let Ok(term) =
            published.wait_for(|it| occupied(it).is_some()).await.map(|it| occupied(&it))
        else {
            return std::future::pending().await;
        };
        let Some(term) = term else { continue };
        // Where none began in this term, all work runs elsewhere and only asks whether it leads: it
        // has the whole drain. That a work ended before we looked must not pass for that.
        tokio::select! {
            () = over(published.clone(), term) => {}
            _ = works.wait_for(|it| it.have_ended_in(term)) => {}
        }
        // An error says that the candidate was dropped, and with it what could run.
        let _ = works.wait_for(|it| it.running == 0).await;
        control.vacated(term, None).await;
        let _ = published.wait_for(|it| it.status.occupied != Some(term)).await;
    }
}

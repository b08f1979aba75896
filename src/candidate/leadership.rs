//! What runs as leader: begun under a term, dropped when it is over, and waited for before the lease
//! is given back.
//!
//! What it does not do: it judges no lease. It reads the status as published, by the clock.

use std::time::Duration;

use tokio::sync::watch;

use crate::clock::{self, Moment};
use crate::daemon::Control;
use crate::election::{Standing, Status};
use crate::publish::Published;

/// The longest sleep at a stretch: timers stop in suspend, the clock does not (R2).
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// What a piece of work knows of the leadership under which it runs.
#[derive(Clone, Debug)]
pub struct Leadership {
    term: u64,
    published: watch::Receiver<Published>,
}

/// Why work as leader was dropped, or never began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// Leadership ended while the work ran; another may lead.
    #[error("leadership in term {term} ended")]
    Lost {
        /// The term that is over.
        term: u64,
    },
    /// The candidate has left the election for good.
    #[error("the candidate has resigned")]
    Resigned,
}

impl Leadership {
    /// The fencing token: larger than that of every leader before. Hand it to whatever you write
    /// to, and have it refuse lower ones.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Whether it still holds at `now`: to be asked before each step that no resource would refuse.
    #[must_use]
    pub fn holds(&self, now: Moment) -> bool {
        !self.remaining(now).is_zero()
    }

    /// How long it holds yet at `now` if nothing renews it; zero while draining.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        let status = &self.published.borrow().status;
        if status.term() == Some(self.term) { status.remaining(now) } else { Duration::ZERO }
    }

    /// Resolves when it is time to come to an end: the candidate leaves by will, or leadership is
    /// over. The work has the rest of the drain-timeout.
    pub async fn draining(&self) {
        let mut published = self.published.clone();
        // An error says that the candidate has ended.
        let _ = published.wait_for(|it| !leads(&it.status, self.term)).await;
    }
}

/// Waits for a leadership, and runs `work` under it.
pub(super) async fn run<W, F>(
    mut published: watch::Receiver<Published>,
    works: &watch::Sender<usize>,
    work: W,
) -> Result<F::Output, Ended>
where
    W: FnOnce(Leadership) -> F,
    F: Future,
{
    loop {
        // Counted first and judged then, so that the warden either sees us or we see its reason.
        let counted = Counted::new(works);
        let status = published.borrow_and_update().status.clone();
        if let (true, Some(term)) = (status.is_leader(clock::now()), status.term()) {
            let leadership = Leadership { term, published: published.clone() };
            let outcome = tokio::select! {
                biased;
                () = over(published, term) => Err(Ended::Lost { term }),
                value = work(leadership) => Ok(value),
            };
            drop(counted);
            return outcome;
        }
        drop(counted);
        published.changed().await.map_err(|_| Ended::Resigned)?;
    }
}

/// Resolves when nothing may run any more in this term: its belief has ended by the lease clocks, or
/// its drain.
async fn over(mut published: watch::Receiver<Published>, term: u64) {
    loop {
        let now = clock::now();
        let left = match &published.borrow_and_update().status.standing {
            Standing::Leader { term: of, belief, .. } if *of == term => belief.until_end(now),
            Standing::Draining { term: of, belief, began, length } if *of == term => {
                length.saturating_sub(began.elapsed_max(now)).min(belief.until_end(now))
            }
            _ => Duration::ZERO,
        };
        if left.is_zero() {
            return;
        }
        tokio::select! {
            changed = published.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(left.min(LONGEST_SLEEP)) => {}
        }
    }
}

/// Says when nothing runs any more in a term that is over, and has a candidate resign that nobody
/// holds any more.
pub(super) struct Warden {
    published: watch::Receiver<Published>,
    works: watch::Receiver<usize>,
    control: Control,
}

impl Warden {
    pub(super) fn new(
        published: watch::Receiver<Published>,
        works: watch::Receiver<usize>,
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
    mut works: watch::Receiver<usize>,
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
        // Whose work runs elsewhere, and only asks whether it leads, has the whole drain.
        if *works.borrow_and_update() == 0 {
            over(published.clone(), term).await;
        }
        let _ = works.wait_for(|works| *works == 0).await;
        control.vacated(term, None).await;
        let _ = published.wait_for(|it| it.status.occupied != Some(term)).await;
    }
}

fn leads(status: &Status, term: u64) -> bool {
    status.standing.state().is_leading() && status.term() == Some(term)
}

/// One future that runs as leader, until it is dropped.
struct Counted<'a>(&'a watch::Sender<usize>);

impl<'a> Counted<'a> {
    fn new(works: &'a watch::Sender<usize>) -> Self {
        works.send_modify(|works| *works += 1);
        Self(works)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|works| *works -= 1);
    }
}

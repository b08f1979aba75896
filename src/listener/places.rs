//! The places for connections: how many may be open, which makes room for another, and for how long
//! one may leave its request incomplete.
//!
//! hyper's own time limit for headers also ends idle connections that wait for their next request,
//! which a prober may well keep. So the time is taken here, from a request's first byte to its
//! complete head, and idle connections live until their place is needed.
//!
//! What it does not do: it reads and writes nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

/// How often the connections are looked through for requests that do not get complete. One look at
/// all of them is cheaper than a timer in each, which every request would set and clear.
const SWEEP: Duration = Duration::from_millis(500);

/// How many sweeps may find one request incomplete: it ends 4.5 to 5 s after its first byte.
const PATIENCE: u32 = 10;

/// The places for connections, over all listeners.
#[derive(Clone)]
pub(crate) struct Connections {
    max: usize,
    /// How many of so many connections fit into the limit of open files at this moment.
    fits: fn(usize) -> usize,
    /// One for each descriptor that may be open.
    free: Arc<Semaphore>,
    /// Whether fewer of them fit than there should be.
    scarce: Arc<AtomicBool>,
    /// Word that a connection could not be accepted.
    short: Arc<Notify>,
    taken: Arc<Mutex<BTreeMap<u64, Arc<Activity>>>>,
    next: Arc<AtomicU64>,
}

/// What one connection is about.
#[derive(Default)]
pub(super) struct Activity {
    phase: AtomicU8,
    /// When it began or was last answered, in turns of all connections; the smallest is the oldest.
    idle_since: AtomicU64,
    /// Whether the bytes that came last are those of a request that is not complete.
    partial: AtomicBool,
    /// How many sweeps have found it in its present phase.
    swept: AtomicU32,
    /// Ends the connection's task.
    task: OnceLock<AbortHandle>,
}

const IDLE: u8 = 0;
const READING: u8 = 1;
const ANSWERING: u8 = 2;
const STREAMING: u8 = 3;

/// Held by a body that goes on for as long as somebody reads it: when it is dropped, the connection waits for its next request.
pub(super) struct Streamed {
    activity: Arc<Activity>,
    connections: Connections,
}

impl Streamed {
    pub(super) fn new(activity: Arc<Activity>, connections: Connections) -> Self {
        Self { activity, connections }
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        self.activity.answered(self.connections.tick());
    }
}

/// A place, given back when its connection is closed.
pub(super) struct Place {
    id: u64,
    pub(super) activity: Arc<Activity>,
    pub(super) connections: Connections,
    _permit: OwnedSemaphorePermit,
}

impl Connections {
    pub(crate) fn new(max: usize, fits: fn(usize) -> usize) -> Self {
        let free = Arc::new(Semaphore::new(max));
        let (scarce, short) = Default::default();
        Self { max, fits, free, scarce, short, taken: Arc::default(), next: Arc::default() }
    }

    /// Takes a place; another makes room where all are taken. Gives none when all are busy.
    pub(super) async fn take(&self) -> Option<Place> {
        let permit = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => permit,
            // A connection that is ended is closed a little later. Were that not awaited, a burst
            // would open more files than there are places, at the store's expense.
            Err(_) if self.make_room() => Arc::clone(&self.free).acquire_owned().await.ok()?,
            Err(_) => return None,
        };
        let id = self.tick();
        let activity = Arc::new(Activity::default());
        activity.idle_since.store(id, Ordering::Relaxed);
        self.lock().insert(id, Arc::clone(&activity));
        Some(Place { id, activity, connections: self.clone(), _permit: permit })
    }

    /// A connection could not be accepted, most likely for want of a descriptor: ends one, and has
    /// the limit looked at.
    pub(super) fn run_short(&self) {
        self.make_room();
        self.short.notify_one();
    }

    /// Ends one connection: one that waits, or else, where places are scarce, one in the middle of
    /// its answer, since subscribers come again and a probe must find a place. Says whether there
    /// was one.
    fn make_room(&self) -> bool {
        let mut taken = self.lock();
        let scarce = self.scarce.load(Ordering::Relaxed);
        end_oldest(&mut taken, Activity::waits) || (scarce && end_oldest(&mut taken, |_| true))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Activity>>> {
        self.taken.lock().expect("nothing panics while the lock is held")
    }

    /// Ends what was begun and does not get complete, and what does not fit any more, for ever.
    pub(crate) async fn sweep(self) {
        let mut sweeps = interval(SWEEP);
        // After a pause the missed ones must not be made up for: nobody could have been heard.
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut withheld = Vec::new();
        loop {
            self.fit(&mut withheld).await;
            tokio::select! {
                _ = sweeps.tick() => {
                    self.lock().values().filter(|it| it.is_overdue()).for_each(|it| it.end());
                }
                () = self.short.notified() => {}
            }
        }
    }

    /// Withholds the places that do not fit into the limit of open files, and ends those who have
    /// them: the store needs the descriptors more.
    async fn fit(&self, withheld: &mut Vec<OwnedSemaphorePermit>) {
        let wanted = self.max.saturating_sub((self.fits)(self.max));
        if wanted != withheld.len() {
            let left = self.max - wanted;
            tracing::warn!("the limit of open files has room for {left} connections now");
        }
        self.scarce.store(wanted > 0, Ordering::Relaxed);
        withheld.truncate(wanted);
        while withheld.len() < wanted {
            if self.free.available_permits() == 0 {
                self.make_room();
            }
            let Ok(permit) = Arc::clone(&self.free).acquire_owned().await else { return };
            withheld.push(permit);
        }
    }

    pub(super) fn tick(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

/// Ends the connection, of those that may be ended, whose last answer, or else its beginning, is
/// longest ago. Says whether there was one.
fn end_oldest(
    taken: &mut BTreeMap<u64, Arc<Activity>>,
    may_end: impl Fn(&Activity) -> bool,
) -> bool {
    let oldest = taken
        .iter()
        .filter(|(_, it)| may_end(it))
        .min_by_key(|(_, it)| it.idle_since.load(Ordering::Relaxed))
        .map(|(id, _)| *id);
    let ended = oldest.and_then(|id| taken.remove(&id));
    if let Some(activity) = &ended {
        activity.end();
    }
    ended.is_some()
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Ok(mut taken) = self.connections.taken.lock() {
            taken.remove(&self.id);
        }
    }
}

impl Activity {
    /// Learns which task it is about; it was made for that one.
    pub(super) fn is_of(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    pub(super) fn answering(&self) {
        self.enter(ANSWERING);
    }

    pub(super) fn streaming(&self) {
        self.enter(STREAMING);
    }

    /// Whether it is not being answered: it is idle or has begun a request. Were those who begin
    /// one spared, they would crowd out all who have just come.
    fn waits(&self) -> bool {
        matches!(self.phase.load(Ordering::Relaxed), IDLE | READING)
    }

    fn enter(&self, phase: u8) {
        self.phase.store(phase, Ordering::Relaxed);
        self.swept.store(0, Ordering::Relaxed);
    }

    /// Bytes came, whose end is that of a request or is not.
    pub(super) fn heard(&self, partial: bool) {
        self.partial.store(partial, Ordering::Relaxed);
        if self.phase.load(Ordering::Relaxed) == IDLE {
            self.enter(READING);
        }
    }

    /// The answer is made; unless the next request has begun, the connection is idle. One that is
    /// there as a whole is answered next, whatever is said here.
    pub(super) fn answered(&self, tick: u64) {
        self.idle_since.store(tick, Ordering::Relaxed);
        let partial = self.partial.load(Ordering::Relaxed);
        self.enter(if partial { READING } else { IDLE });
    }

    fn end(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    /// Counts one more sweep; whether a request was begun too many sweeps ago.
    fn is_overdue(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == READING
            && self.swept.fetch_add(1, Ordering::Relaxed) + 1 >= PATIENCE
    }
}

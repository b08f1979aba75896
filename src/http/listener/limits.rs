//! Limits the number of connections, closes one to make room for another, and limits the time of an
//! incomplete request.
//!
//! hyper's own timeout for headers also closes idle connections that wait for their next request,
//! which a prober may keep. So the time is measured here, from the first byte of a request to its
//! complete head, and idle connections stay open until their slot is needed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use super::Peer;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

/// The interval of the search for incomplete requests. Checking all connections at once is cheaper
/// than a timer for each, which every request would set and clear.
const SWEEP: Duration = Duration::from_millis(500);

/// The number of sweeps that may find a request incomplete: it is closed 4.5 to 5 s after its first
/// byte.
const PATIENCE: u32 = 10;

/// The slots for connections, of all listeners together. A tenth of them is kept for peers without
/// any connection.
#[derive(Clone)]
pub(crate) struct Connections {
    max: usize,
    /// The most connections of one address beyond loopback.
    max_per_peer: usize,
    /// Returns how many of the given connections fit into the current limit of open files.
    fits: fn(usize) -> usize,
    /// One permit for each connection that may be open.
    free: Arc<Semaphore>,
    /// Whether fewer connections fit than are configured.
    scarce: Arc<AtomicBool>,
    /// Notified when a connection could not be accepted.
    short: Arc<Notify>,
    taken: Arc<Mutex<BTreeMap<u64, Arc<Activity>>>>,
    next: Arc<AtomicU64>,
}

/// The activity of one connection.
pub(super) struct Activity {
    peer: Peer,
    phase: AtomicU8,
    /// When it began or was last answered, as a count of such events on all connections; the
    /// smallest is the oldest.
    idle_since: AtomicU64,
    /// Whether the last bytes received belong to an incomplete request.
    partial: AtomicBool,
    /// How many sweeps have found it in its present phase.
    swept: AtomicU32,
    /// Aborts the connection's task.
    task: OnceLock<AbortHandle>,
}

const IDLE: u8 = 0;
const READING: u8 = 1;
const ANSWERING: u8 = 2;
const STREAMING: u8 = 3;

/// Held by a streaming body: when it is dropped, the connection is idle again.
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

/// A slot, released when its connection is closed.
pub(super) struct Slot {
    id: u64,
    pub(super) activity: Arc<Activity>,
    pub(super) connections: Connections,
    _permit: OwnedSemaphorePermit,
}

impl Connections {
    pub(crate) fn new(max: usize, max_per_peer: usize, fits: fn(usize) -> usize) -> Self {
        let free = Arc::new(Semaphore::new(max));
        let (scarce, short) = Default::default();
        let (taken, next) = Default::default();
        Self { max, max_per_peer, fits, free, scarce, short, taken, next }
    }

    /// Takes a slot for a connection of `peer`. If all that it may use are taken, closes a connection
    /// to make room; returns `None` if all are busy.
    pub(super) async fn take(&self, peer: Peer) -> Option<Slot> {
        let held = self.lock().values().filter(|it| it.peer == peer).count();
        if peer.is_remote() && held >= self.max_per_peer {
            let its_own = |it: &Activity| it.peer == peer && it.waits();
            if !end_oldest(&mut self.lock(), its_own) {
                return None;
            }
        }
        let kept = if held == 0 { 0 } else { self.max / 10 };
        let is_free = self.free.available_permits() > kept;
        let permit = is_free.then(|| Arc::clone(&self.free).try_acquire_owned().ok()).flatten();
        let permit = match permit {
            Some(permit) => permit,
            // A connection that was ended is closed a little later. Without waiting for that, a
            // burst would open more files than there are slots, at the store's expense.
            None if self.make_room() => Arc::clone(&self.free).acquire_owned().await.ok()?,
            None => return None,
        };
        let id = self.tick();
        let activity = Arc::new(Activity::new(peer, id));
        self.lock().insert(id, Arc::clone(&activity));
        Some(Slot { id, activity, connections: self.clone(), _permit: permit })
    }

    /// Handles a connection that could not be accepted, most likely for want of a file descriptor:
    /// closes a connection, and has the limit of open files checked.
    pub(super) fn run_short(&self) {
        self.make_room();
        self.short.notify_one();
    }

    /// Closes one connection: one that waits for a request or, if slots are scarce, even one in the
    /// middle of a response, since subscribers reconnect and a probe must find a slot. Returns
    /// whether there was one.
    fn make_room(&self) -> bool {
        let mut taken = self.lock();
        let scarce = self.scarce.load(Ordering::Relaxed);
        end_oldest(&mut taken, Activity::waits) || (scarce && end_oldest(&mut taken, |_| true))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Activity>>> {
        self.taken.lock().expect("nothing panics while the lock is held")
    }

    /// Closes connections with overdue requests, and those beyond the limit of open files; never
    /// ends.
    pub(crate) async fn sweep(self) {
        let mut sweeps = interval(SWEEP);
        // Sweeps that were missed in a pause must not be made up for: the process received nothing
        // meanwhile.
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

    /// Withholds the slots that do not fit into the limit of open files, and closes their
    /// connections: the store needs the file descriptors more.
    async fn fit(&self, withheld: &mut Vec<OwnedSemaphorePermit>) {
        let wanted = self.max.saturating_sub((self.fits)(self.max));
        if wanted != withheld.len() {
            let left = self.max - wanted;
            tracing::warn!("the limit of open files leaves room for {left} connections");
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

/// Closes, of the connections for which `may_end` returns true, the one whose last response, or
/// else whose beginning, is longest ago. Returns whether there was one.
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

impl Drop for Slot {
    fn drop(&mut self) {
        if let Ok(mut taken) = self.connections.taken.lock() {
            taken.remove(&self.id);
        }
    }
}

impl Activity {
    fn new(peer: Peer, id: u64) -> Self {
        Self {
            peer,
            phase: AtomicU8::new(IDLE),
            idle_since: AtomicU64::new(id),
            partial: AtomicBool::new(false),
            swept: AtomicU32::new(0),
            task: OnceLock::new(),
        }
    }

    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// Sets the connection's task, once.
    pub(super) fn is_of(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    pub(super) fn answering(&self) {
        self.enter(ANSWERING);
    }

    pub(super) fn streaming(&self) {
        self.enter(STREAMING);
    }

    /// Returns whether no request is being processed: the connection is idle or receives a request.
    /// If those that receive one were spared, they would crowd out new connections.
    fn waits(&self) -> bool {
        matches!(self.phase.load(Ordering::Relaxed), IDLE | READING)
    }

    fn enter(&self, phase: u8) {
        self.phase.store(phase, Ordering::Relaxed);
        self.swept.store(0, Ordering::Relaxed);
    }

    /// Records that bytes were received, and whether they leave a request incomplete.
    pub(super) fn note_received(&self, partial: bool) {
        self.partial.store(partial, Ordering::Relaxed);
        if self.phase.load(Ordering::Relaxed) == IDLE {
            self.enter(READING);
        }
    }

    /// Records that a response was produced; the connection is idle unless the next request has
    /// begun. A request that has been received completely is processed next in any case.
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

    /// Counts a sweep; returns whether a request has been incomplete for too many.
    fn is_overdue(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == READING
            && self.swept.fetch_add(1, Ordering::Relaxed) + 1 >= PATIENCE
    }
}

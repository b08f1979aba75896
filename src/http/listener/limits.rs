//! Limits the number of connections, closes one to make room for another, and limits the time of an
//! incomplete request.
//!
//! hyper's own timeout for headers also closes idle connections that wait for their next request,
//! which a prober may keep. So the time is measured here, from the first byte of a request to its
//! complete head, and idle connections stay open until their slot is needed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
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

/// The slots for connections, of all listeners together. A tenth of them is kept free by closing
/// others: a closed connection is dropped when the runtime next comes to it, which takes a round
/// through all of them, and a new one must not wait that long. The one closed is of the peer that has
/// most.
#[derive(Clone)]
pub(crate) struct Connections {
    max: usize,
    /// The most connections of one address beyond loopback.
    max_per_peer: usize,
    /// Returns how many of the given connections fit into the current limit of open files.
    fits: fn(usize) -> usize,
    /// One permit for each connection that may be open.
    free: Arc<Semaphore>,
    /// How many connections fit: fewer than `max` if the limit of open files was lowered.
    fitting: Arc<AtomicUsize>,
    /// Notified when a connection could not be accepted.
    short: Arc<Notify>,
    taken: Arc<Mutex<Taken>>,
    next: Arc<AtomicU64>,
}

/// The connections that have a slot, but those that were told to close.
#[derive(Default)]
struct Taken {
    by_id: BTreeMap<u64, Arc<Activity>>,
    /// How many each peer has; none that has none.
    by_peer: HashMap<Peer, Arc<AtomicUsize>>,
}

/// The activity of one connection.
pub(super) struct Activity {
    peer: Peer,
    /// How many connections its peer has.
    of_peer: Arc<AtomicUsize>,
    phase: AtomicU8,
    /// When it began or was last answered, as a count of such events on all connections; the
    /// smallest is the oldest.
    idle_since: AtomicU64,
    /// Whether the last bytes received belong to an incomplete request.
    partial: AtomicBool,
    /// How many answers it was given since the client last waited for one.
    answers: AtomicU32,
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
    /// `None` once the connection no longer counts.
    free: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Connections {
    pub(crate) fn new(max: usize, max_per_peer: usize, fits: fn(usize) -> usize) -> Self {
        let free = Arc::new(Semaphore::new(max));
        let fitting = Arc::new(AtomicUsize::new(max));
        let (short, taken, next) = Default::default();
        Self { max, max_per_peer, fits, free, fitting, short, taken, next }
    }

    /// Takes a slot for a connection of `peer`, and closes another connection if few slots are free.
    /// Returns `None` if that should happen and all are busy; a peer without any connection is then
    /// given one of those that are free.
    pub(super) async fn take(&self, peer: Peer) -> Option<Slot> {
        let held = self.lock().held(peer);
        if peer.is_remote() && held >= self.max_per_peer {
            let its_own = |it: &Activity| it.peer == peer && it.waits();
            if !self.lock().end_one(its_own) {
                return None;
            }
        }
        let free = self.free.available_permits();
        let few = free <= self.fitting.load(Ordering::Relaxed) / 10;
        if few && !self.make_room(held) && (held > 0 || free == 0) {
            return None;
        }
        let free = Arc::clone(&self.free).acquire_owned().await.ok()?;
        let id = self.tick();
        let activity = self.lock().insert(peer, id);
        Some(Slot { id, activity, connections: self.clone(), free: Mutex::new(Some(free)) })
    }

    /// Handles a connection that could not be accepted, most likely for want of a file descriptor:
    /// closes a connection, and has the limit of open files checked.
    pub(super) fn run_short(&self) {
        self.make_room(0);
        self.short.notify_one();
    }

    /// Closes one connection, for a new one of a peer that has `held`: one that waits for a request,
    /// or is in the middle of a response to a peer that has more, since clients that send requests
    /// without waiting for answers never wait. If slots are scarce, even a stream, since subscribers
    /// reconnect and a probe must find a slot. Returns whether there was one.
    fn make_room(&self, held: usize) -> bool {
        let mut taken = self.lock();
        let scarce = self.fitting.load(Ordering::Relaxed) < self.max;
        let may_end = |it: &Activity| match it.phase.load(Ordering::Relaxed) {
            STREAMING => false,
            ANSWERING => it.of_peer() > held + 1,
            _ => it.of_peer() >= held,
        };
        taken.end_one(may_end) || (scarce && taken.end_one(|_| true))
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
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
                    self.lock().by_id.values().filter(|it| it.is_overdue()).for_each(|it| it.end());
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
        self.fitting.store(self.max - wanted, Ordering::Relaxed);
        withheld.truncate(wanted);
        while withheld.len() < wanted {
            if self.free.available_permits() == 0 {
                self.make_room(0);
            }
            let Ok(permit) = Arc::clone(&self.free).acquire_owned().await else { return };
            withheld.push(permit);
        }
    }

    pub(super) fn tick(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

impl Taken {
    fn held(&self, peer: Peer) -> usize {
        self.by_peer.get(&peer).map_or(0, |it| it.load(Ordering::Relaxed))
    }

    fn insert(&mut self, peer: Peer, id: u64) -> Arc<Activity> {
        let of_peer = Arc::clone(self.by_peer.entry(peer).or_default());
        of_peer.fetch_add(1, Ordering::Relaxed);
        let activity = Arc::new(Activity::new(peer, of_peer, id));
        self.by_id.insert(id, Arc::clone(&activity));
        activity
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Activity>> {
        let activity = self.by_id.remove(&id)?;
        if activity.of_peer.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.by_peer.remove(&activity.peer);
        }
        Some(activity)
    }

    /// Closes one of the connections for which `may_end` returns true: of the peer that has most,
    /// one that waits before one that does not, the one whose last response, or else whose
    /// beginning, is longest ago. Returns whether there was one.
    fn end_one(&mut self, may_end: impl Fn(&Activity) -> bool) -> bool {
        let rank = |it: &Activity| {
            (Reverse(it.of_peer()), !it.waits(), it.idle_since.load(Ordering::Relaxed))
        };
        let chosen = self.by_id.iter().filter(|(_, it)| may_end(it)).min_by_key(|(_, it)| rank(it));
        let ended = chosen.map(|(id, _)| *id).and_then(|id| self.remove(id));
        if let Some(activity) = &ended {
            activity.end();
        }
        ended.is_some()
    }
}

impl Slot {
    /// Makes the slot free for another connection, while this one goes on with a place elsewhere.
    pub(super) fn vacate(&self) {
        self.connections.lock().remove(self.id);
        drop(self.free.lock().expect("nothing panics while the lock is held").take());
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Ok(mut taken) = self.connections.taken.lock() {
            taken.remove(self.id);
        }
    }
}

impl Activity {
    fn new(peer: Peer, of_peer: Arc<AtomicUsize>, id: u64) -> Self {
        Self {
            peer,
            of_peer,
            phase: AtomicU8::new(IDLE),
            idle_since: AtomicU64::new(id),
            partial: AtomicBool::new(false),
            answers: AtomicU32::new(0),
            swept: AtomicU32::new(0),
            task: OnceLock::new(),
        }
    }

    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns how many connections its peer has.
    fn of_peer(&self) -> usize {
        self.of_peer.load(Ordering::Relaxed)
    }

    /// Sets the connection's task, once.
    pub(super) fn is_of(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    pub(super) fn answering(&self) {
        self.enter(ANSWERING);
    }

    /// Counts an answer; returns how many there were since the client last waited for one.
    pub(super) fn count_answer(&self) -> u32 {
        self.answers.fetch_add(1, Ordering::Relaxed) + 1
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
            self.answers.store(0, Ordering::Relaxed);
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

//! What a candidate is handed: the store, the clocks, timers, randomness and the disk. Whatever it asks
//! for is put down here, and the world answers when it is due.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use futures::future::BoxFuture;
use tenure::clock::Moment;
use tenure::election::{Answer, Entropy, Op};
use tenure::lease::{Bid, Change, Grant, Nonce, Rules, Snapshot, StoreError, Successor, Version};
use tenure::publish::file::{Outside, Work};
use tenure::store::LeaseStore;
use tokio::sync::oneshot;

use super::{Disk, Due};

/// The answer of the store.
type Answered = Result<Answer, StoreError>;

pub struct Desk {
    pub now: Moment,
    rules: Rules,
    rng: Rng,
    disk: Disk,
    /// Whether the disk ends each write at once.
    pub is_quick: bool,
    /// The requests that the world has not taken yet.
    asked: Vec<Op>,
    /// Whether a request was sent while another waited for its answer.
    overlaps: bool,
    /// Who waits for the answer of the store.
    call: Option<oneshot::Sender<Answered>>,
    /// Who waits for a notice of the store.
    changed: Option<oneshot::Sender<Change>>,
    timers: Vec<(u32, oneshot::Sender<()>)>,
    writes: Vec<(u32, Work, oneshot::Sender<io::Result<()>>)>,
    due: Vec<Due>,
    /// The number of timers and writes so far.
    count: u32,
}

thread_local! {
    /// The desk of the candidate that is polled.
    static HERE: RefCell<Option<Rc<RefCell<Desk>>>> = const { RefCell::new(None) };
}

/// Runs something at a desk.
pub fn at<T>(desk: &Rc<RefCell<Desk>>, work: impl FnOnce() -> T) -> T {
    /// Also after a panic, which is a finding.
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            HERE.set(None);
        }
    }
    HERE.set(Some(Rc::clone(desk)));
    let _leave = Leave;
    work()
}

fn here<T>(use_it: impl FnOnce(&mut Desk) -> T) -> T {
    HERE.with_borrow(|desk| {
        use_it(&mut desk.as_ref().expect("candidates run at a desk").borrow_mut())
    })
}

/// Returns the readings of the candidate's clocks.
pub fn now() -> Moment {
    here(|desk| desk.now)
}

/// Draws the randomness of one turn.
pub fn entropy() -> Entropy {
    here(|Desk { rng, .. }| Entropy {
        lease: rng.u128(..),
        nonce: Nonce(rng.u128(..)),
        jitter: rng.f32(),
    })
}

/// Sets a timer.
pub fn sleep(duration: Duration) -> BoxFuture<'static, ()> {
    let (fired, fires) = oneshot::channel();
    here(|desk| {
        let timer = desk.next();
        desk.timers.push((timer, fired));
        desk.due.push(Due::Timer(duration, timer));
    });
    Box::pin(async { fires.await.unwrap_or_else(|_| unreachable!("timers are kept")) })
}

/// Returns the clock, timer and disk for the writers.
pub fn outside() -> Outside {
    Outside {
        now,
        timer: sleep,
        replace: |path, text| here(|desk| desk.disk.replace(path, text)),
        remove: |path: &Path| here(|desk| desk.disk.remove(path)),
        run,
    }
}

fn run(work: Work) -> BoxFuture<'static, io::Result<()>> {
    if here(|desk| desk.is_quick) {
        return Box::pin(std::future::ready(work()));
    }
    let (ended, ends) = oneshot::channel();
    here(|desk| {
        let write = desk.next();
        desk.writes.push((write, work, ended));
        desk.due.push(Due::Write(write));
    });
    Box::pin(async { ends.await.unwrap_or_else(|_| unreachable!("writes are kept")) })
}

impl Desk {
    pub fn new(rules: Rules, disk: Disk, rng: Rng, now: Moment) -> Self {
        Self {
            now,
            rules,
            rng,
            disk,
            is_quick: true,
            asked: Vec::new(),
            overlaps: false,
            call: None,
            changed: None,
            timers: Vec::new(),
            writes: Vec::new(),
            due: Vec::new(),
            count: 0,
        }
    }

    fn next(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    /// Returns the next request that the candidate has sent.
    pub fn asked(&mut self) -> Option<Op> {
        (!self.asked.is_empty()).then(|| self.asked.remove(0))
    }

    /// Returns whether the candidate no longer waits for the answer to the last request that was taken.
    pub fn has_given_up(&self) -> bool {
        !self.overlaps && (!self.asked.is_empty() || !self.waits())
    }

    fn waits(&self) -> bool {
        self.call.as_ref().is_some_and(|it| !it.is_closed())
    }

    /// Delivers the answer of the store.
    pub fn answer(&mut self, answer: Answered) {
        if let Some(call) = self.call.take() {
            // The candidate may have given up.
            let _ = call.send(answer);
        }
    }

    /// Delivers a report of the store.
    pub fn notify(&mut self, change: Change) {
        if let Some(changed) = self.changed.take() {
            let _ = changed.send(change);
        }
    }

    /// Fires a timer, and forgets those that nobody waits for.
    pub fn fire(&mut self, timer: u32) {
        self.timers.retain(|(_, fired)| !fired.is_closed());
        if let Some(at) = self.timers.iter().position(|(it, _)| *it == timer) {
            let _ = self.timers.swap_remove(at).1.send(());
        }
    }

    /// Returns the writes in progress.
    pub fn writes(&self) -> Vec<u32> {
        self.writes.iter().map(|(write, ..)| *write).collect()
    }

    /// Ends a write of the candidate at this desk.
    pub fn write(desk: &RefCell<Self>, write: u32, fails: bool) {
        let (work, ended) = {
            let mut desk = desk.borrow_mut();
            let Some(at) = desk.writes.iter().position(|(it, ..)| *it == write) else { return };
            let (_, work, ended) = desk.writes.remove(at);
            desk.disk.set_full(fails);
            (work, ended)
        };
        let _ = ended.send(work());
        desk.borrow().disk.set_full(false);
    }

    /// Returns what has become due since the last call.
    pub fn due(&mut self) -> Vec<Due> {
        std::mem::take(&mut self.due)
    }
}

/// The store, as the driver sees it: every call is a request to the world.
pub struct Store;

/// Sends a request, and waits for the answer.
async fn ask(op: Op) -> Answered {
    let (answered, answer) = oneshot::channel();
    here(|desk| {
        desk.overlaps |= desk.waits();
        desk.asked.push(op);
        desk.call = Some(answered);
    });
    match answer.await {
        Ok(answer) => answer,
        // Another call has taken its place, which the world reports.
        Err(_) => std::future::pending().await,
    }
}

/// Returns the version in the answer to a write.
async fn ask_version(op: Op) -> Result<Option<Version>, StoreError> {
    match ask(op).await? {
        Answer::Written(version) => Ok(Some(version)),
        _ => Ok(None),
    }
}

#[async_trait]
impl LeaseStore for Store {
    fn kind(&self) -> &'static str {
        "simulated"
    }

    fn rules(&self) -> Rules {
        here(|desk| desk.rules)
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        match ask(Op::Read).await? {
            Answer::Snapshot(snapshot) => Ok(snapshot),
            other => unreachable!("a read is answered with {other:?}"),
        }
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        match ask(Op::Acquire(bid.clone().into())).await? {
            Answer::Grant(grant) => Ok(grant),
            other => unreachable!("a bid is answered with {other:?}"),
        }
    }

    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        match ask(Op::WriteTerm { bid: bid.clone().into(), floor }).await? {
            Answer::Term(term) => Ok(term),
            other => unreachable!("the write of a term is answered with {other:?}"),
        }
    }

    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError> {
        ask_version(Op::Renew(bid.clone().into())).await
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        let (bid, successor) = (bid.clone().into(), successor.clone());
        ask_version(Op::SetSuccessor { bid, successor }).await
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        ask(Op::Release(bid.clone().into())).await.map(drop)
    }

    async fn changed(&self) -> Change {
        let (changed, changes) = oneshot::channel();
        here(|desk| desk.changed = Some(changed));
        // A later wait takes the place of this one.
        match changes.await {
            Ok(change) => change,
            Err(_) => std::future::pending().await,
        }
    }
}

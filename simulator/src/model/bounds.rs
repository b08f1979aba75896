//! The bounds of a check: how many candidates, faults and notices there are.

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A tick passes while a candidate's request, its answer, or its due turn waits.
    Delay,
    /// A request or its answer is lost, late or duplicated.
    Failure,
    /// A candidate is killed, and restarts.
    Crash,
    /// A candidate resigns, and restarts.
    Resignation,
    /// An operator breaks the lease, and it runs out.
    Break,
    /// An operator breaks the lease at once, behind the holder's back.
    Seizure,
    /// A candidate's lease clocks miss a tick.
    Slip,
}

impl Fault {
    pub const ALL: [Self; 7] = [
        Self::Delay,
        Self::Failure,
        Self::Crash,
        Self::Resignation,
        Self::Break,
        Self::Seizure,
        Self::Slip,
    ];
}

/// The bounds of a check. `None` is unbounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    pub candidates: u8,
    /// Whether the store is a register, of whose lease observers measure the time.
    pub observed: bool,
    /// The number of leases that each candidate bids for.
    pub bids: Option<u8>,
    /// The number of faults of all kinds.
    pub faults: Option<u8>,
    /// The number of faults of each kind.
    pub each: [Option<u8>; Fault::ALL.len()],
    /// The number of notices of the leader's stream, true or not.
    pub notices: u8,
}

impl Bounds {
    /// Returns bounds with this number of faults of any kind, and unbounded elections.
    pub fn of_faults(candidates: u8, faults: u8) -> Self {
        let (bids, each) = (None, Default::default());
        Self { candidates, observed: false, bids, faults: Some(faults), each, notices: 0 }
    }

    /// Makes the store a register.
    #[must_use]
    pub fn on_a_register(self) -> Self {
        Self { observed: true, ..self }
    }

    /// Limits the faults to these kinds.
    pub fn only(mut self, kinds: &[Fault]) -> Self {
        for fault in Fault::ALL {
            if !kinds.contains(&fault) {
                self.each[fault as usize] = Some(0);
            }
        }
        self
    }

    /// Returns how many more faults of a kind are possible.
    pub(super) fn left(&self, fault: Fault) -> u8 {
        let of = |left: Option<u8>| left.unwrap_or(u8::MAX);
        of(self.faults).min(of(self.each[fault as usize]))
    }

    pub(super) fn allow(&self, fault: Fault) -> bool {
        self.left(fault) > 0
    }

    pub(super) fn spend(&mut self, fault: Fault, times: u8) {
        for left in [&mut self.faults, &mut self.each[fault as usize]].into_iter().flatten() {
            *left -= times;
        }
    }
}

//! The last result of each health probe. The election decides how many failures in a row matter.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Moment;

/// The last results of the probes, shared between clones; empty if there are no probes.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<Vec<Entry>>>);

/// The last result of one probe.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The probe as configured, without credentials.
    pub probe: String,
    /// Its last result; `None` before the first.
    pub last: Option<Said>,
}

/// The result of one run of a probe.
#[derive(Clone, Debug)]
pub struct Said {
    /// Whether it succeeded.
    pub well: bool,
    /// The result in words.
    pub words: String,
    /// When it ended.
    pub at: Moment,
}

impl Board {
    /// Creates a board for these probes, without results.
    #[must_use]
    pub fn new(probes: impl IntoIterator<Item = String>) -> Self {
        let entries = probes.into_iter().map(|probe| Entry { probe, last: None });
        Self(Arc::new(Mutex::new(entries.collect())))
    }

    /// Returns the last results, in the order of the settings.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().clone()
    }

    /// Returns whether the last result of every probe was a success; true if there are no probes.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.lock().iter().all(|it| it.last.as_ref().is_some_and(|it| it.well))
    }

    /// Records the result of a probe; returns whether the previous one was a success, if there was
    /// one.
    ///
    /// # Panics
    /// When there is no such probe.
    pub fn write(&self, probe: usize, said: Said) -> Option<bool> {
        let before = self.lock()[probe].last.replace(said);
        before.map(|it| it.well)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

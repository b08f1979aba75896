//! What each probe last said, for whoever wants to read it.
//!
//! What it does not do: it counts nothing. How many failures in a row are too many is the
//! election's to judge.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Moment;

/// What the probes last said; clones show the same. Empty where none are set.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<Vec<Entry>>>);

/// What one probe last said.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The probe as it is configured, without credentials.
    pub probe: String,
    /// What it said; `None` before its first answer.
    pub last: Option<Said>,
}

/// One answer of a probe.
#[derive(Clone, Debug)]
pub struct Said {
    /// Whether it was well.
    pub well: bool,
    /// In words.
    pub words: String,
    /// When.
    pub at: Moment,
}

impl Board {
    /// Makes a board for these probes, which have said nothing yet.
    #[must_use]
    pub fn new(probes: impl IntoIterator<Item = String>) -> Self {
        let entries = probes.into_iter().map(|probe| Entry { probe, last: None });
        Self(Arc::new(Mutex::new(entries.collect())))
    }

    /// What every probe last said, in the order of the settings.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().clone()
    }

    /// Whether every probe was well when it last answered; so where there are none.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.lock().iter().all(|it| it.last.as_ref().is_some_and(|it| it.well))
    }

    /// Writes down what a probe says, and gives back whether it was well before.
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

//! The word of those who say the status where others read it without asking us: how far they have
//! said what was published (R8).
//!
//! What it does not do: it knows none of them, and waits no longer than whoever asks it.

use tokio::sync::watch;

/// The word of each of them, for itself, as the number of the last publication that it has said.
#[derive(Clone, Debug)]
pub struct Acknowledgements(Vec<watch::Receiver<u64>>);

impl Acknowledgements {
    /// The word of nobody: whatever is published has been said.
    #[must_use]
    pub fn of_nobody() -> Self {
        Self(Vec::new())
    }

    /// Word that somebody gives, as the number of the last publication that was said.
    #[must_use]
    pub fn channel() -> (watch::Sender<u64>, Self) {
        let (said, word) = watch::channel(0);
        (said, Self(vec![word]))
    }

    /// The word of these and of the others.
    #[must_use]
    pub fn and(mut self, Self(others): Self) -> Self {
        self.0.extend(others);
        self
    }

    /// The word of one of them.
    #[cfg(test)]
    pub(super) fn of(&self, number: usize) -> Self {
        Self(vec![self.0[number].clone()])
    }

    /// Resolves when the publication `sequence` or a later one has been said by all of them. May be
    /// dropped and called again.
    pub async fn reached(&mut self, sequence: u64) {
        for word in &mut self.0 {
            // Whoever gives word ends with the process alone; then there is nothing more to wait for.
            let _ = word.wait_for(|said| *said >= sequence).await;
        }
    }
}

impl FromIterator<Self> for Acknowledgements {
    fn from_iter<I: IntoIterator<Item = Self>>(words: I) -> Self {
        words.into_iter().fold(Self::of_nobody(), Self::and)
    }
}

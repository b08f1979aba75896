//! Acknowledgements of publications: how far the status files and the route have published the
//! status, so that a release can wait for them (R8).

use tokio::sync::watch;

/// The acknowledgements of several publishers, each the sequence number of the last publication
/// that it has published.
#[derive(Clone, Debug)]
pub struct PublishAcks(Vec<watch::Receiver<u64>>);

impl PublishAcks {
    /// Returns no acknowledgements: every publication counts as acknowledged.
    #[must_use]
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Creates the acknowledgement of one publisher, which sends the sequence number of the last
    /// publication that it has published.
    #[must_use]
    pub fn channel() -> (watch::Sender<u64>, Self) {
        let (said, word) = watch::channel(0);
        (said, Self(vec![word]))
    }

    /// Combines two sets of acknowledgements.
    #[must_use]
    pub fn and(mut self, Self(others): Self) -> Self {
        self.0.extend(others);
        self
    }

    /// Returns the acknowledgement of one publisher.
    #[cfg(test)]
    pub(crate) fn of(&self, number: usize) -> Self {
        Self(vec![self.0[number].clone()])
    }

    /// Resolves when all publishers have acknowledged the publication `sequence` or a later one.
    /// Cancel safe.
    pub async fn reached(&mut self, sequence: u64) {
        for word in &mut self.0 {
            // A publisher ends only with the process; then there is nothing to wait for.
            let _ = word.wait_for(|said| *said >= sequence).await;
        }
    }
}

impl FromIterator<Self> for PublishAcks {
    fn from_iter<I: IntoIterator<Item = Self>>(words: I) -> Self {
        words.into_iter().fold(Self::none(), Self::and)
    }
}

//! The settings of a candidate, drawn over the whole range that `tenure run` accepts: often at a bound,
//! sometimes for a lease of a quarter of a second or of ten minutes.
//!
//! How often a candidate calls the store within a lease is limited, so that no episode takes much longer
//! than others.

use std::time::Duration;

use fastrand::Rng;

use super::faults::log_span;
use super::store::Kind;
use super::{MILLI, SECOND, Span, span};

/// The shortest retry-period and request-timeout.
const SHORTEST: Span = 10 * MILLI;

/// The least of lease-duration − renew-deadline, which is a tenth of longer leases.
const LEAST_MARGIN: Span = 200 * MILLI;

/// The shortest renew-deadline: two retry-periods and a request-timeout.
const SHORTEST_DEADLINE: Span = 3 * SHORTEST;

/// The longest lease that is drawn; any is accepted.
const LONGEST: Span = 600 * SECOND;

/// One candidate's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
    pub request_timeout: Duration,
    pub activation_delay: Duration,
    pub drain_timeout: Duration,
}

/// The order of magnitude of the leases of an episode, so that its candidates differ by a factor and not
/// by thousands.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    store: Kind,
    longest: Span,
}

impl Scale {
    /// Draws the scale of an episode.
    pub fn draw(rng: &mut Rng, store: Kind) -> Self {
        let (least, most) = limits(store);
        let longest = match (store, rng.u8(..16)) {
            (_, 0..=1) => 15 * SECOND,
            (_, 2..=3) => 60 * SECOND,
            (Kind::Blob, _) => rng.u64(least..=most),
            (_, 4) => least,
            (_, 5..=7) => log_span(rng, least, 10 * SECOND),
            (_, 8) => most,
            (_, 9) => log_span(rng, 60 * SECOND, most),
            _ => rng.u64(10 * SECOND..=60 * SECOND),
        };
        Self { store, longest }
    }

    /// Draws a lease-duration, in whole seconds where the store requires it.
    fn lease(self, rng: &mut Rng) -> Span {
        let (least, most) = limits(self.store);
        let drawn = match rng.u8(..4) {
            0 => log_span(rng, self.longest / 4, self.longest),
            _ => self.longest,
        };
        let unit = if self.store == Kind::Blob { SECOND } else { MILLI };
        (drawn / unit * unit).clamp(least, most)
    }
}

/// Returns the shortest and the longest lease-duration of a store.
fn limits(store: Kind) -> (Span, Span) {
    match store {
        Kind::Blob => (15 * SECOND, 60 * SECOND),
        Kind::Host | Kind::Register(_) => (SHORTEST_DEADLINE + LEAST_MARGIN, LONGEST),
    }
}

impl Timings {
    /// The default settings.
    pub const DEFAULT: Self = Self {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
        request_timeout: Duration::from_secs(2),
        activation_delay: Duration::ZERO,
        drain_timeout: Duration::ZERO,
    };

    /// Draws settings that `tenure run` accepts.
    pub fn draw(rng: &mut Rng, scale: Scale) -> Self {
        let lease = scale.lease(rng);
        let deadline = deadline(rng, lease);
        let shortest = (lease / 32).clamp(SHORTEST, deadline / 3);
        let longest = deadline - 2 * shortest;
        let timeout = match rng.u8(..16) {
            0 => SHORTEST.max(deadline / 100),
            1 => longest,
            _ => share(rng, deadline, 5, 30),
        };
        let timeout = timeout.clamp(SHORTEST, longest);
        let most = (deadline - timeout) / 2;
        let retry = match rng.u8(..32) {
            0..=7 => most,
            8 => log_span(rng, shortest.min(most), most),
            _ => share(rng, most, 40, 100).max(SHORTEST),
        };
        let activation = match rng.u8(..16) {
            0 => log_span(rng, MILLI, 10 * SECOND),
            1 => log_span(rng, MILLI, lease * 3 / 2),
            _ => 0,
        };
        let drain = match rng.u8(..5) {
            0..=1 => 0,
            2..=3 => share(rng, lease, 0, 30),
            _ => share(rng, lease, 0, 150),
        };
        let millis = |span: Span| Duration::from_millis(span / MILLI);
        Self {
            lease_duration: millis(lease),
            renew_deadline: millis(deadline),
            retry_period: millis(retry),
            request_timeout: millis(timeout),
            activation_delay: millis(activation),
            drain_timeout: millis(drain),
        }
    }

    /// Returns the largest rate error, in parts per million, that leaves a part of the margin for
    /// pauses; no clock is wrong by more than 8 %.
    pub fn drift_share(&self) -> f64 {
        let margin = 1.0 - self.renew_deadline.as_secs_f64() / self.lease_duration.as_secs_f64();
        (margin / 6.0 * 1_000_000.0).min(80_000.0)
    }

    /// Returns the longest time that a message takes on a healthy link in one direction: so little that
    /// an operation of four requests succeeds within the request-timeout.
    pub fn latency(&self) -> Span {
        (span(self.request_timeout) / 6).min(200 * MILLI)
    }
}

/// Draws a renew-deadline for a lease, in whole milliseconds.
fn deadline(rng: &mut Rng, lease: Span) -> Span {
    let longest = lease - (lease / 10).max(LEAST_MARGIN);
    let drawn = match rng.u8(..16) {
        0..=3 => longest,
        4 => SHORTEST_DEADLINE.max(lease / 8),
        5 => share(rng, lease, 13, 50),
        _ => share(rng, lease, 50, 90),
    };
    drawn.clamp(SHORTEST_DEADLINE, longest) / MILLI * MILLI
}

/// Draws a share of a span, between two limits in percent.
fn share(rng: &mut Rng, of: Span, least: u64, most: u64) -> Span {
    of / 100 * least + rng.u64(..=of / 100 * (most - least))
}

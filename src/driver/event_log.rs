//! The driver's log messages: one line for each transition; a repeated error is logged once and
//! then counted. Lines go to a bounded queue (see [`crate::logs`]), so nothing here waits.

use std::time::Duration;

use time::OffsetDateTime;

use crate::clock::Moment;
use crate::election::{Answer, Holder, Notice, State, Status, StoreHealth, Transition};
use crate::lease::text::INVALID_NAME;
use crate::lease::{Anomaly, Cause, StoreError, Successor};
use crate::status::HolderJudgement;
use crate::status::document::{ActivationDocument, HolderDocument, rfc3339};
use crate::status::words::spoken;

/// How often an error that a person must mend is logged as a warning.
const REMINDER: Duration = Duration::from_secs(60);

/// How long before its end a credential is logged.
const WEEK: time::Duration = time::Duration::WEEK;

/// Tracks the last error, so that it is not logged again.
#[derive(Debug, Default)]
pub struct EventLog {
    last_error: Option<StoreError>,
    repeats: u32,
    /// When an error was last logged as a warning.
    warned: Option<Moment>,
    /// The anomalies of the last read, which were reported.
    reported: Vec<Anomaly>,
    /// The warnings that were reported, until there are others or none.
    warnings: Vec<String>,
    /// When a warning was last reported.
    warned_at: Option<Moment>,
    /// How another holder was judged that may not be named as the leader, at the last turn.
    doubted: Option<HolderJudgement>,
    /// The end of the credential that was last logged, and when.
    expiry: Option<(OffsetDateTime, Moment)>,
}

impl EventLog {
    /// Logs an error when it is new. One that a person must mend is logged again once a minute.
    pub(super) fn answered(&mut self, answer: &Result<Answer, StoreError>, now: Moment) {
        // A refusal is an answer; its meaning is logged as a transition.
        let Err(
            error @ (StoreError::Unknown(_) | StoreError::RetryNow(_) | StoreError::Foreign(_)),
        ) = answer
        else {
            return;
        };
        // Compared by outcome: in one outage the messages differ from request to request.
        let is_again = self.last_error.as_ref().is_some_and(|it| is_alike(it, error));
        let cause = error.failure().cause;
        let is_due = self.warned.is_none_or(|it| it.elapsed_max(now) >= REMINDER);
        if is_again {
            self.repeats += 1;
            let times = self.repeats + 1;
            if !(is_due && matches!(cause, Cause::Settings | Cause::Auth)) {
                tracing::debug!(times, "store, the same error again: {error}");
                return;
            }
            tracing::warn!(cause = cause.as_str(), times, "store, the same error again: {error}");
        } else {
            if self.repeats > 0 {
                tracing::warn!(times = self.repeats + 1, "the last error occurred repeatedly");
            }
            tracing::warn!(cause = cause.as_str(), "store: {error}");
            self.last_error = Some(error.clone());
            self.repeats = 0;
        }
        self.warned = Some(now);
    }

    /// Logs a credential that expires within a week each day, and as a warning each ten minutes of its
    /// last hour.
    pub(super) fn credential(&mut self, expires: Option<OffsetDateTime>, now: Moment) {
        let Some(end) = expires else { return };
        let left = end - now.date();
        let period = match left {
            _ if left.is_negative() || left > WEEK => return,
            _ if left < time::Duration::HOUR => Duration::from_secs(600),
            _ => Duration::from_secs(86_400),
        };
        let is_known = |(known, then): (OffsetDateTime, Moment)| {
            known == end && then.elapsed_max(now) < period
        };
        if self.expiry.is_some_and(is_known) {
            return;
        }
        self.expiry = Some((end, now));
        let (expires, rest) = (rfc3339(end), spoken(left.unsigned_abs()));
        if left < time::Duration::HOUR {
            tracing::warn!(
                expires,
                "the credential for the store expires in {rest}: replace it now, or this instance loses \
                 the store"
            );
        } else {
            tracing::info!(
                expires,
                "the credential for the store expires in {rest}: replace it before then"
            );
        }
    }

    /// Logs how often the last error occurred once the store is healthy again.
    pub(super) fn store_health(&mut self, health: &StoreHealth) {
        if let Some(error) = self.last_error.take_if(|_| health.error().is_none()) {
            let times = std::mem::take(&mut self.repeats) + 1;
            tracing::info!(times, after = %error, "the store answers again");
        }
    }

    /// Logs what this candidate waits for, if the notices tell that it holds the lease now.
    pub(super) fn activates(&self, notices: &[Notice], activation: &ActivationDocument<'_>) {
        let begins = |it: &Notice| {
            matches!(it, Notice::Transition(Transition { to: State::Activating, .. }))
        };
        if activation.remaining_ms > 0 && notices.iter().any(begins) {
            let wait_s = seconds(&Duration::from_millis(activation.remaining_ms));
            let waits_for = &*activation.waits_for;
            tracing::info!(
                waits_for,
                wait_s,
                "holds the lease and does not lead yet: {}",
                activation.words()
            );
        }
    }

    /// Logs when another holder may no longer be named as the leader, or for another reason than before.
    pub(super) fn judged(&mut self, status: &Status, now: Moment) {
        let judged = HolderJudgement::of(status, now).filter(|_| !status.lease.is_own);
        let doubted = judged.filter(|it| !it.is_leader());
        let kind = |it: Option<HolderJudgement>| it.map(|it| (it.overdue, it.stale, it.leaving));
        let before = std::mem::replace(&mut self.doubted, doubted);
        if kind(before) == kind(doubted) {
            return;
        }
        let Some(holder) = HolderDocument::of(status, now) else { return };
        let (identity, term) = (&*holder.identity, holder.term);
        match holder.doubt(status.store.failures == 0) {
            Some(doubt) => tracing::info!(holder = identity, term, "leader in doubt: {doubt}"),
            None if judged.is_some() => {
                tracing::info!(
                    holder = identity,
                    term,
                    "the lease is held again, by the record of this holder"
                );
            }
            None => {}
        }
    }

    /// Logs what is wrong in a read, unless it was so in the last one.
    pub(super) fn seen(&mut self, found: &[Anomaly]) {
        self.anomalies(found);
        self.reported = found.to_vec();
    }

    /// Logs what is wrong in an answer, unless it was so in the last read.
    pub(super) fn anomalies(&mut self, found: &[Anomaly]) {
        let is_known = |it: &Anomaly| self.reported.iter().any(|known| known.is_like(it));
        for anomaly in found.iter().filter(|it| !is_known(it)) {
            match anomaly {
                Anomaly::Name => tracing::error!(
                    "the record has a name that is not 1 to 128 printable characters, so no \
                     candidate of Tenure wrote it; it is shown as {INVALID_NAME}; run `tenure doctor`"
                ),
                Anomaly::Peer => tracing::error!(
                    "the record has the URL of a peer that no candidate of Tenure writes, so this \
                     instance does not connect to it; run `tenure doctor`"
                ),
                Anomaly::EndlessLease(ends_in) => tracing::error!(
                    ends_in_s = (*ends_in < Duration::MAX).then_some(ends_in.as_secs()),
                    "the lease is held for much longer than any candidate of Tenure asks for; once \
                     you are sure that its holder is dead, free it with `tenure break --now`"
                ),
            }
        }
    }

    /// Logs warnings that differ from the last ones, and no more than once a minute.
    pub(super) fn warnings(&mut self, found: Vec<String>, now: Moment) {
        let is_due = self.warned_at.is_none_or(|it| it.elapsed_max(now) >= REMINDER);
        if found == self.warnings || !(found.is_empty() || is_due) {
            return;
        }
        for it in &found {
            tracing::warn!("{it}");
            self.warned_at = Some(now);
        }
        self.warnings = found;
    }

    /// Logs a notice.
    pub(super) fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Transition(transition) => log_transition(transition),
            Notice::HolderChanged(Some(Holder { candidate, term, .. })) => {
                tracing::info!(holder = candidate.identity, term, "leader seen");
            }
            Notice::HolderChanged(None) => tracing::debug!("no leader known"),
            Notice::RecordMissing { hold } => tracing::warn!(
                hold_s = hold.as_secs(),
                "the record has no term: the next holder waits {} s before it leads, in case an earlier \
                 leader is still active; `tenure doctor --create` avoids the wait",
                hold.as_secs(),
            ),
            Notice::TermFell { seen, found } => tracing::error!(
                seen,
                found,
                "the recorded term went back: the store lost writes, or the record was changed by hand"
            ),
            Notice::TermTooLarge { found } => tracing::error!(
                found,
                "the recorded term is too large to be followed by another; if no leader is active, \
                 delete the record and run `tenure doctor --create`"
            ),
            Notice::Moved(Some(to)) => tracing::error!(
                moved_to = &**to,
                "the election has moved to another store, so this instance never bids here: start it \
                 with --store {to}, or take the election back with `tenure migrate --undo`"
            ),
            Notice::Moved(None) => tracing::info!("the election is in this store again"),
            Notice::SuccessorNamed(Successor { identity, hold_off }) => tracing::info!(
                successor = identity,
                hold_off_s = seconds(hold_off),
                "successor named"
            ),
            Notice::ReleaseUnknown => tracing::warn!(
                "the release was not confirmed: if this instance holds a lease, it runs out by itself"
            ),
            Notice::Peer { kind, outcome } => {
                tracing::debug!(kind, outcome = outcome.as_str(), "notice of the leader's stream");
            }
        }
    }
}

fn is_alike(one: &StoreError, other: &StoreError) -> bool {
    one.outcome() == other.outcome()
}

fn log_transition(transition: &Transition) {
    let Transition { from, to, reason, term, leadership } = transition;
    let leadership_s = leadership.as_ref().map(seconds);
    let (from, to, reason) = (from.as_str(), to.as_str(), reason.as_str());
    if transition.is_involuntary_loss() {
        tracing::warn!(%from, %to, %reason, term, leadership_s, "leadership lost");
    } else {
        tracing::info!(%from, %to, %reason, term, leadership_s, "state changed");
    }
}

/// Returns seconds in whole milliseconds.
fn seconds(duration: &Duration) -> f64 {
    duration.as_millis() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::lease::Failure;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn at(seconds: u64) -> Moment {
        let reading = Duration::from_secs(seconds);
        Moment { boot: reading, raw: reading, wall: reading }
    }

    /// Returns what is logged.
    fn logged(act: impl FnOnce(&mut EventLog)) -> String {
        let lines = Lines::default();
        let to = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || to.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || act(&mut EventLog::default()));
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns the levels of the lines for one error of this cause every ten seconds.
    fn levels(cause: Cause, seconds: u64) -> String {
        let text = logged(|log| {
            for now in (0..seconds).step_by(10) {
                let error = StoreError::Unknown(Failure::new(cause, "x"));
                log.answered(&Err(error), at(now));
            }
        });
        text.lines().map(|it| if it.contains(" WARN ") { 'W' } else { 'd' }).collect()
    }

    #[test]
    fn a_credential_that_expires_within_a_week_is_logged_each_day_and_warned_of_in_its_last_hour() {
        const HOUR: u64 = 3_600;
        let end = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(200 * HOUR);
        let levels = |events: &dyn Fn(&mut EventLog)| -> String {
            let text = logged(|log| events(log));
            text.lines().map(|it| if it.contains(" WARN ") { 'W' } else { 'I' }).collect()
        };
        let from = |begin: u64| {
            levels(&|log| {
                for now in (begin..201 * HOUR).step_by(2) {
                    log.credential(Some(end), at(now));
                }
            })
        };
        assert_eq!(from(0), "IIIIIIIWWWWWW");
        assert_eq!(from(199 * HOUR - 2), "IWWWWWW");
        assert_eq!(from(200 * HOUR + 2), "", "its requests fail then");
        let renewed = levels(&|log| {
            for (now, end) in [(0, Some(end)), (100, Some(end)), (150, Some(end)), (150, None)] {
                log.credential(end, at(now * HOUR));
            }
            let end = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(250 * HOUR);
            log.credential(Some(end), at(150 * HOUR));
        });
        assert_eq!(renewed, "III", "the new one too");
    }

    #[test]
    fn a_warning_is_logged_once_and_another_a_minute_later() {
        let found = |it: &str| it.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let text = logged(|log| {
            for (seconds, words) in [
                (0, ""),
                (1, "first"),
                (2, "first"),
                (3, "second"),
                (60, "third"),
                (61, "fourth"),
                (70, "fourth"),
                (200, ""),
                (201, "fourth"),
            ] {
                log.warnings(found(words), at(seconds));
            }
        });
        let words: Vec<_> = text.lines().filter_map(|it| it.rsplit(' ').next()).collect();
        assert_eq!(words, ["first", "fourth", "fourth"], "{text}");
    }

    #[test]
    fn an_error_that_a_person_must_mend_is_a_warning_once_a_minute() {
        assert_eq!(levels(Cause::Settings, 130), "WdddddWdddddW");
        assert_eq!(levels(Cause::Auth, 70), "WdddddW");
        assert_eq!(levels(Cause::Timeout, 130), "Wdddddddddddd");
    }
}

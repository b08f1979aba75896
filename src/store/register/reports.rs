//! What is known of the value, from reads, reports and own writes, so that a report is passed on only if it
//! is new. It is never evidence that a lease is free.

use super::Told;
use super::body::{Body, Held};
use crate::lease::Change;

/// How many reads in a row may be ahead of the reports: one may have overtaken the report of a write.
const MOST_AHEAD: u32 = 1;

/// What is known of the value.
#[derive(Default)]
pub(super) struct Reports {
    known: Option<Body>,
    /// The reads since the last report that showed what no report had; `None` before the first report.
    ahead: Option<u32>,
    /// Whether the last report was a hint: of a server that sends none of renewals.
    is_hinted: bool,
}

impl Reports {
    /// Follows a report; returns what is new in it.
    pub(super) fn told(&mut self, told: Told) -> Option<Change> {
        self.ahead = Some(0);
        self.is_hinted = told == Told::Hint;
        let body = match told {
            // What is none of Tenure's shows in the read that follows.
            Told::Hint => return Some(Change::News { held_by: None }),
            Told::Gone => Body::default(),
            Told::Body(body) => body,
        };
        if self.known.as_ref().is_some_and(|known| is_older(&body, known)) {
            return None;
        }
        let known = self.known.replace(body);
        let (known, body) = (known.as_ref(), self.known.as_ref()?);
        let claim = |it: &Body| it.held.as_ref().map(Held::claim);
        if known.is_none_or(|known| is_news(body, known)) {
            let held = body.held.as_ref().filter(|it| !it.is_breaking);
            return Some(Change::News { held_by: held.map(|it| it.nonce) });
        }
        claim(body).filter(|it| known.and_then(claim).as_ref() != Some(it)).map(Change::Renewal)
    }

    /// Records what a read has shown, which may also be an earlier state: a failover may have lost writes.
    /// Returns whether the reports are behind, so that they are to be had anew.
    pub(super) fn read(&mut self, body: &Body) -> bool {
        let known = self.known.replace(body.clone());
        if let Some(ahead) = &mut self.ahead {
            let is_ahead = known.is_none_or(|it| match self.is_hinted {
                true => is_news(body, &it),
                false => it.write != body.write,
            });
            *ahead += u32::from(is_ahead);
        }
        // A server that has never reported may not be able to: that is not for a read to find out.
        self.ahead.take_if(|it| *it > MOST_AHEAD).is_some()
    }

    /// Returns whether an own write is more than a renewal.
    pub(super) fn is_news(&self, body: &Body) -> bool {
        self.known.as_ref().is_none_or(|known| is_news(body, known))
    }

    /// Records an own write, whose report is of no interest.
    pub(super) fn wrote(&mut self, body: &Body) {
        self.known = Some(body.clone());
    }
}

/// Returns whether more than a renewal is new in a state after another.
fn is_news(body: &Body, known: &Body) -> bool {
    let holder = |it: &Body| it.held.as_ref().map(|it| (it.nonce, it.is_breaking));
    holder(known) != holder(body) || known.record != body.record
}

/// Returns whether a state is older than another of the same acquisition.
fn is_older(body: &Body, known: &Body) -> bool {
    let (Some(it), Some(known)) = (&body.held, &known.held) else { return false };
    it.nonce == known.nonce && it.writes < known.writes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::fuzzing::bid;
    use crate::lease::{Bid, Nonce};

    /// Returns the states of one leadership: taken, with its term, renewed twice, broken, freed.
    fn states() -> [Body; 6] {
        let mut write = 0;
        let mut next = |from: &Body, edit: &dyn Fn(&mut Body, Nonce)| {
            let mut body = from.clone();
            write += 1;
            edit(&mut body, Nonce(100 + write));
            body.stamp(Nonce(write));
            body
        };
        let taken = next(&Body::default(), &|it, renewal| it.take(&bid(), renewal));
        let led = next(&taken, &|it, _| assert!(it.write_term(&bid(), 0)));
        let renewed = next(&led, &|it, renewal| it.renew(&bid(), renewal));
        let again = next(&renewed, &|it, renewal| it.renew(&bid(), renewal));
        let broken = next(&again, &|it, renewal| it.mark_broken(renewal));
        let freed = next(&broken, &|it, _| it.free());
        [taken, led, renewed, again, broken, freed]
    }

    fn renewal(body: &Body) -> Option<Change> {
        body.held.as_ref().map(Held::claim).map(Change::Renewal)
    }

    fn news(held_by: Option<Nonce>) -> Option<Change> {
        Some(Change::News { held_by })
    }

    #[test]
    fn standbys_are_told_of_renewals_and_of_news_once() {
        let (mut reports, ours) = (Reports::default(), Some(bid().nonce));
        let [taken, led, renewed, again, broken, freed] = states();
        for (told, expected) in [
            (Told::Body(taken.clone()), news(ours)),
            (Told::Body(taken), None),
            (Told::Body(led), news(ours)),
            (Told::Body(renewed.clone()), renewal(&renewed)),
            (Told::Body(again.clone()), renewal(&again)),
            (Told::Body(broken), news(None)),
            (Told::Body(freed), news(None)),
            (Told::Gone, news(None)),
            (Told::Gone, None),
            (Told::Hint, news(None)),
            (Told::Hint, news(None)),
        ] {
            assert_eq!(reports.told(told.clone()), expected, "{told:?}");
        }
    }

    #[test]
    fn an_older_report_never_replaces_what_a_read_a_report_or_a_write_has_shown() {
        let [taken, led, renewed, again, broken, _] = states();
        let known_by: [fn(&mut Reports, &Body); 3] = [
            |reports, body| drop(reports.told(Told::Body(body.clone()))),
            |reports, body| assert!(!reports.read(body)),
            |reports, body| reports.wrote(body),
        ];
        for known_by in known_by {
            let mut reports = Reports::default();
            known_by(&mut reports, &again);
            for old in [&taken, &led, &renewed, &again] {
                assert_eq!(reports.told(Told::Body(old.clone())), None, "{old:?}");
            }
            assert_eq!(reports.told(Told::Body(broken.clone())), news(None));
        }
    }

    #[test]
    fn a_read_alone_goes_back_to_an_earlier_state() {
        let [_, _, renewed, again, ..] = states();
        let mut reports = Reports::default();
        reports.told(Told::Body(again.clone()));
        reports.read(&renewed);
        assert_eq!(reports.told(Told::Body(again.clone())), renewal(&again));
    }

    #[test]
    fn the_claim_of_another_is_news_and_no_renewal() {
        let [taken, ..] = states();
        let mut reports = Reports::default();
        reports.read(&taken);
        let mut other = Body::default();
        other.take(&Bid { nonce: Nonce(8), ..bid() }, Nonce(9));
        assert_eq!(reports.told(Told::Body(other)), news(Some(Nonce(8))));
    }

    #[test]
    fn reports_are_behind_when_two_reads_in_a_row_are_ahead_of_them() {
        let [taken, led, renewed, again, ..] = states();
        let mut reports = Reports::default();
        for body in [&taken, &led, &renewed] {
            assert!(!reports.read(body), "none has ever come");
        }
        reports.told(Told::Body(taken.clone()));
        reports.told(Told::Gone);
        assert!(!reports.read(&led), "the report of this write may come yet");
        assert!(!reports.read(&led), "nothing has changed");
        assert!(reports.read(&renewed));
        assert!(!reports.read(&again), "they are being had anew");
        reports.told(Told::Body(again));
        assert!(!reports.read(&taken) && !reports.read(&taken));
        assert!(reports.read(&led));
    }

    #[test]
    fn reports_that_are_hints_are_behind_when_news_come_without_them_and_never_by_renewals() {
        let [taken, led, renewed, again, broken, freed] = states();
        let mut reports = Reports::default();
        reports.told(Told::Hint);
        for body in [&led, &renewed, &again, &renewed, &again] {
            assert!(!reports.read(body), "nobody is told of a renewal: {body:?}");
        }
        assert!(reports.read(&broken), "and of the first state");
        reports.told(Told::Hint);
        assert!(!reports.read(&freed));
        assert!(reports.read(&taken));
    }

    #[test]
    fn only_a_renewal_is_no_news() {
        let [taken, led, renewed, again, broken, freed] = states();
        let mut reports = Reports::default();
        assert!(reports.is_news(&taken), "nothing is known");
        for (body, expected) in [
            (taken, true),
            (led, true),
            (renewed, false),
            (again, false),
            (broken, true),
            (freed, true),
        ] {
            assert!(reports.is_news(&body) == expected, "{body:?}");
            reports.wrote(&body);
        }
    }
}

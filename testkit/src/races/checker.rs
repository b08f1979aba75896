//! A linearizability checker in the manner of Wing and Gong, with the memory of Lowe and porcupine.
//!
//! A history is *linearizable* if its calls can be put in one order such that
//! - a call that returned before another was made comes before it, and
//! - the [`Model`] performs the calls in that order, one at a time, with the answers they had.
//!
//! A call with a definite answer is in the order; an open one may be anywhere after it was made, or
//! nowhere. The search takes any call next that no missing one precedes, and steps back where the
//! model cannot give the answer. It never visits the same set of performed calls with the same state
//! twice.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use super::history::{Answer, Call, History, Outcome};
use super::model::{Model, Register};

/// Why a history is wrong.
#[derive(Debug)]
pub struct Violation {
    /// What is wrong.
    pub reason: String,
    /// The longest order of calls that the model can perform.
    pub performed: Vec<usize>,
    /// The register after these calls, of which none of the next has the answer it had.
    pub register: Option<Box<Register>>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.reason)?;
        if let Some(register) = &self.register {
            writeln!(f, "the most calls that fit, in order: {:?}", self.performed)?;
            writeln!(f, "then the lock is: {register}")?;
        }
        Ok(())
    }
}

/// The most calls of a history.
pub const MOST_CALLS: usize = 128;

/// Checks that the history is linearizable, and that each call that was alone was decided.
pub fn check(model: &Model, history: &History) -> Result<(), Violation> {
    let wrong = |reason: String| Err(Violation { reason, performed: Vec::new(), register: None });
    if let Some(index) = history.undecided_alone() {
        return wrong(format!("call {index} was alone, and has no definite answer"));
    }
    let foreign = |call: &Call| matches!(call.answer(), Some(Answer::Foreign(_)));
    if let Some(index) = history.0.iter().position(foreign) {
        return wrong(format!("call {index} found a record that no client can have written"));
    }
    assert!(history.0.len() <= MOST_CALLS, "{} calls", history.0.len());
    let mut search = Search::new(model, history);
    if search.finish(0, &Register::new(model), &mut Vec::new()) {
        return Ok(());
    }
    let (performed, register) = search.longest;
    let reason = "no order of the calls has these answers".to_owned();
    Err(Violation { reason, performed, register: Some(Box::new(register)) })
}

struct Search<'a> {
    model: &'a Model,
    history: &'a History,
    /// The calls to put in order, those with an answer first, and these by their return.
    calls: Vec<usize>,
    /// The calls with an answer, one bit each.
    required: u128,
    /// The visited sets of calls, with the states after them.
    visited: HashMap<u128, Vec<Register>>,
    longest: (Vec<usize>, Register),
}

impl<'a> Search<'a> {
    fn new(model: &'a Model, history: &'a History) -> Self {
        let mut calls: Vec<usize> = (0..history.0.len()).collect();
        calls.retain(|it| !matches!(history.0[*it].outcome, Outcome::HadNoEffect(..)));
        calls.sort_by_key(|it| (history.0[*it].answer().is_none(), history.0[*it].latest()));
        let answered = calls.iter().filter(|it| history.0[**it].answer().is_some());
        let required = answered.fold(0, |all, it| all | 1 << *it);
        let longest = (Vec::new(), Register::new(model));
        Self { model, history, calls, required, visited: HashMap::new(), longest }
    }

    /// Puts the calls that are not `done` in order, from this state on; false if that is impossible.
    fn finish(&mut self, done: u128, register: &Register, order: &mut Vec<usize>) -> bool {
        let answered =
            |order: &[usize]| order.iter().filter(|it| self.required & 1 << **it != 0).count();
        if answered(order) > answered(&self.longest.0) {
            self.longest = (order.clone(), register.clone());
        }
        let missing = self.required & !done;
        if missing == 0 {
            return true;
        }
        let call = |index: usize| &self.history.0[index];
        // Whatever is next was made before any missing call returned, and its effect came no earlier
        // than the last call of the order was made.
        let is_missing = |it: &&usize| missing & 1 << **it != 0;
        let missing = || self.calls.iter().filter(is_missing).map(|it| call(*it));
        let earliest = missing().map(Call::latest).min().unwrap_or(u64::MAX);
        let by = missing().map(Call::latest_time).min().unwrap_or(Duration::MAX);
        let last_made = order.iter().map(|it| call(*it).invoked.order).max().unwrap_or(0);
        let next: Vec<usize> = self
            .calls
            .iter()
            .copied()
            .filter(|it| {
                let (bit, call) = (1 << *it, call(*it));
                done & bit == 0
                    && call.invoked.order <= earliest
                    && call.latest() >= last_made
                    && call.after.is_none_or(|first| done & 1 << first != 0)
            })
            .collect();
        for index in next {
            let Some(after) = self.model.perform(register, &self.history.0[index], by) else {
                continue;
            };
            let done = done | 1 << index;
            let states = self.visited.entry(done).or_default();
            if states.contains(&after) {
                continue;
            }
            states.push(after.clone());
            order.push(index);
            if self.finish(done, &after, order) {
                return true;
            }
            order.pop();
        }
        false
    }
}

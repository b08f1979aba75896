//! The options of `tenure exec` that are not settings. Their faults look like those of settings, and
//! come with them in one message.

use std::time::Duration;

use super::faults::{Fault, Problem, Source};
use super::values;

/// The times that limit a run of `tenure exec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecOptions {
    /// The longest wait for the first lease; zero tries once.
    pub wait: Option<Duration>,
    /// The longest time that the command may run in a term.
    pub max_hold: Option<Duration>,
}

impl ExecOptions {
    /// Parses the values of `--wait` and `--max-hold`.
    ///
    /// # Errors
    /// Returns the fault of each invalid value.
    pub fn parse(wait: Option<&str>, max_hold: Option<&str>) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let mut read = |name: &str, text: Option<&str>, parse: fn(&str) -> _| {
            let text = text?;
            let parsed: Result<Duration, Problem> = parse(text);
            let fault = |it| Fault::new(name, Some(text), Source::Flag(name.to_owned()), it);
            parsed.map_err(|it| faults.push(fault(it))).ok()
        };
        let wait = read("wait", wait, values::duration);
        let max_hold = read("max-hold", max_hold, hold);
        if faults.is_empty() { Ok(Self { wait, max_hold }) } else { Err(faults) }
    }
}

/// Parses `--max-hold`. Zero is rejected: the command would be ended as soon as it starts.
fn hold(text: &str) -> Result<Duration, Problem> {
    match values::duration(text)? {
        it if it.is_zero() => {
            Err(Problem::new("leaves the command no time to run", "omit it for no limit"))
        }
        it => Ok(it),
    }
}

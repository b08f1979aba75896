//! Fuzz target for the body of a call to the admin listener.

use super::call::{LONGEST_HOLD_OFF, PATHS, logged};
use crate::election::Command;
use crate::lease::text::{is_name, is_printable};

/// Reads a body for the path that the first byte chooses: a command has a bounded hold-off and names
/// another candidate; a fault says what is valid, and neither can steer a terminal.
pub fn admin_body(data: &[u8]) {
    let Some((first, body)) = data.split_first() else { return };
    let (_, verb) = PATHS[usize::from(*first) % PATHS.len()];
    let fault = match verb.read(body, "us").map(|it| it.command) {
        Ok(command) => {
            assert!(logged(&command).chars().all(is_printable), "{command:?}");
            return match command {
                Command::StepDown { hold_off } => {
                    assert!(!hold_off.is_zero() && hold_off <= LONGEST_HOLD_OFF);
                }
                Command::Transfer(it) => {
                    assert!(is_name(&it.identity) && it.identity != "us", "{it:?}");
                    assert!(!it.hold_off.is_zero() && it.hold_off <= LONGEST_HOLD_OFF);
                }
                Command::Pause | Command::Resume | Command::Drained(_) => {}
            };
        }
        Err(fault) => fault,
    };
    assert!(!fault.error.is_empty() && fault.error.len() < 400, "{fault:?}");
    assert!(fault.error.chars().all(is_printable), "{fault:?}");
    assert!(fault.field.is_none_or(|it| it.chars().count() <= 64));
}

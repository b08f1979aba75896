//! How a command's run came to its end, and which exit code says so.
//!
//! What it does not do: it ends nothing.

use super::launch::CANNOT_RUN;
use super::wire::Report;

/// No lease within the time to wait.
pub(super) const NO_LEASE: u8 = 75;

/// The leadership was lost, and the command ended for it.
pub(super) const LOST: u8 = 76;

/// The longest hold is over.
pub(super) const HELD: u8 = 124;

/// Why a command was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// A signal to us.
    Signal,
    /// It has had the lease for as long as it may.
    Held,
    /// The lease is lost, or about to be, or was given up by an operator or for the service's health.
    Lost,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// With this code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

impl Ended {
    /// What a report says of it, if it does.
    pub(super) fn of(report: Report) -> Option<Self> {
        match report {
            Report::Exited(code) => Some(Self::Exited(code)),
            Report::Signalled(signal) => Some(Self::Signalled(signal)),
            _ => None,
        }
    }

    /// As a shell says it.
    pub(super) fn code(self) -> u8 {
        let code = match self {
            Self::Exited(code) => code,
            Self::Signalled(signal) => 128 + signal,
        };
        u8::try_from(code).unwrap_or(CANNOT_RUN)
    }

    /// Whether Ctrl-C did it, as far as can be told.
    pub(super) fn is_interrupt(self) -> bool {
        self.code() == 130
    }
}

/// The exit code of a lock whose command has ended.
pub(super) fn code(ended: Ended, why: Option<Why>) -> u8 {
    match why {
        None | Some(Why::Signal) => ended.code(),
        Some(Why::Held) => HELD,
        Some(Why::Lost) => LOST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_a_shell_and_of_the_locks_before_us() {
        let (exited, killed) = (Ended::Exited(3), Ended::Signalled(9));
        assert_eq!((exited.code(), killed.code()), (3, 137));
        assert_eq!(code(exited, None), 3);
        assert_eq!(code(Ended::Signalled(15), Some(Why::Signal)), 143);
        assert_eq!(code(Ended::Exited(0), Some(Why::Held)), 124);
        assert_eq!(code(Ended::Exited(0), Some(Why::Lost)), 76);
        assert!(Ended::Signalled(2).is_interrupt() && Ended::Exited(130).is_interrupt());
    }
}

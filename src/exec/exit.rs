//! How a run of the command ended, and the resulting exit code.

use super::launch::CANNOT_RUN;
use super::wire::WatchdogEvent;

/// No lease within `--wait`.
pub(super) const NO_LEASE: u8 = 75;

/// The leadership was lost, and the command was ended.
pub(super) const LOST: u8 = 76;

/// The time of `--max-hold` is over.
pub(super) const HELD: u8 = 124;

/// Why a command was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    /// Tenure received a signal.
    Signal,
    /// The time of `--max-hold` is over.
    Held,
    /// The lease is lost, is about to be, or was given up by an operator or for failed health
    /// probes.
    Lost,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitStatus {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

impl ExitStatus {
    /// Returns how the command ended, if the report says so.
    pub(super) fn of(report: WatchdogEvent) -> Option<Self> {
        match report {
            WatchdogEvent::Exited(code) => Some(Self::Exited(code)),
            WatchdogEvent::Signalled(signal) => Some(Self::Signalled(signal)),
            _ => None,
        }
    }

    /// Returns the exit code as a shell would.
    pub(super) fn code(self) -> u8 {
        let code = match self {
            Self::Exited(code) => code,
            Self::Signalled(signal) => 128 + signal,
        };
        u8::try_from(code).unwrap_or(CANNOT_RUN)
    }

    /// Returns whether the command was probably ended by Ctrl-C.
    pub(super) fn is_interrupt(self) -> bool {
        self.code() == 130
    }
}

/// Returns the exit code of `--once` after the command has ended.
pub(super) fn code(ended: ExitStatus, why: Option<StopReason>) -> u8 {
    match why {
        None | Some(StopReason::Signal) => ended.code(),
        Some(StopReason::Held) => HELD,
        Some(StopReason::Lost) => LOST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_codes_are_those_of_a_shell_and_of_other_lock_tools() {
        let (exited, killed) = (ExitStatus::Exited(3), ExitStatus::Signalled(9));
        assert_eq!((exited.code(), killed.code()), (3, 137));
        assert_eq!(code(exited, None), 3);
        assert_eq!(code(ExitStatus::Signalled(15), Some(StopReason::Signal)), 143);
        assert_eq!(code(ExitStatus::Exited(0), Some(StopReason::Held)), 124);
        assert_eq!(code(ExitStatus::Exited(0), Some(StopReason::Lost)), 76);
        assert!(ExitStatus::Signalled(2).is_interrupt() && ExitStatus::Exited(130).is_interrupt());
    }
}

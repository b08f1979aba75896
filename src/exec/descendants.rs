//! Finds and signals the descendants of a watchdog.
//!
//! A watchdog is the subreaper of its command: orphaned descendants become its children, even if
//! they left the process group and the session. So killing all children, repeatedly, leaves no
//! process behind.
//!
//! The id of a process is its own until its parent has waited for it, and so is the id of a group
//! while one of its processes is there. Ids are therefore signalled only by the parent, and the
//! group only until its leader has been waited for; everyone else uses a file descriptor of the
//! process.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, RawPid, Signal};

use super::kernel::Kernel;

/// The pause between two rounds of SIGKILL, for processes that were forked in between.
pub(super) const ROUND: Duration = Duration::from_millis(20);

/// Sends a signal to the command's group, and to the children outside of it. The group's leader is a
/// child that has not been waited for.
pub(super) fn signal_all(kernel: &dyn Kernel, group: Pid, signal: Signal) {
    kernel.signal_group(group, signal);
    for child in kernel.children() {
        if kernel.group_of(child) != Some(group) {
            let _ = kernel.signal(child, signal);
        }
    }
}

/// Sends a signal to each child.
pub(super) fn signal_children(kernel: &dyn Kernel, signal: Signal) {
    for child in kernel.children() {
        let _ = kernel.signal(child, signal);
    }
}

/// A group whose leader is another process's child.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherGroup {
    id: Pid,
    session: RawPid,
    /// When the leader was started, in clock ticks since boot.
    since: u64,
}

impl OtherGroup {
    /// Returns the group in this session whose leader was started then. The leader may have exited
    /// since, and its id may be another process's.
    pub(super) fn led_by(kernel: &dyn Kernel, leader: Pid, since: u64) -> Self {
        Self { id: leader, session: kernel.session(), since }
    }

    /// Sends SIGKILL to each of its processes; returns whether there was any that had not exited.
    pub(super) fn kill(self, kernel: &dyn Kernel) -> bool {
        if self.is_replaced(kernel) {
            return false;
        }
        let Some(all) = kernel.processes() else {
            return true;
        };
        let ours = all.into_iter().filter(|id| self.has(kernel, *id));
        ours.filter(|id| self.kill_one(kernel, *id)).count() > 0
    }

    /// Returns whether another process has the leader's id: the group was gone, and so its id free.
    fn is_replaced(self, kernel: &dyn Kernel) -> bool {
        kernel.stat(self.id).is_some_and(|it| it.since != self.since)
    }

    fn has(self, kernel: &dyn Kernel, id: Pid) -> bool {
        let group = self.id.as_raw_pid();
        let stat = kernel.stat(id);
        // In this order: the group that the process is in may be a new one with the same id.
        stat.is_some_and(|it| it.lives && it.group == group && it.session == self.session)
            && !self.is_replaced(kernel)
    }

    /// Kills a process if it is of this group; returns whether it was.
    fn kill_one(self, kernel: &dyn Kernel, id: Pid) -> bool {
        let send = match kernel.hold(id) {
            Ok(send) => send,
            Err(Errno::SRCH) => return false,
            // Before Linux 5.3, under an older seccomp profile, or without a free descriptor.
            Err(_) => return kernel.signal(id, Signal::KILL) != Err(Errno::SRCH),
        };
        // Looked up again, now that the process is held by its descriptor.
        let is_ours = self.has(kernel, id);
        if is_ours {
            send(Signal::KILL);
        }
        is_ours
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Child;

    use super::*;
    use crate::exec::kernel::Linux;

    fn sleep(group: i32) -> (Child, Pid) {
        let mut command = std::process::Command::new("sleep");
        let child = command.arg("60").process_group(group).spawn().unwrap();
        let id = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        (child, id)
    }

    #[test]
    fn a_group_is_killed_also_when_its_leader_has_exited() {
        let (mut leader, id) = sleep(0);
        let group = OtherGroup::led_by(&Linux, id, Linux.stat(id).unwrap().since);
        let (mut member, _) = sleep(id.as_raw_nonzero().get());
        leader.kill().unwrap();
        leader.wait().unwrap();
        assert!(group.kill(&Linux));
        member.wait().unwrap();
        assert!(!group.kill(&Linux), "zombies and the dead do not count");
    }

    #[test]
    fn a_group_is_known_by_the_start_of_its_leader_also_when_that_has_been_waited_for() {
        let (mut leader, id) = sleep(0);
        let (mut member, _) = sleep(id.as_raw_nonzero().get());
        let since = Linux.stat(id).unwrap().since;
        leader.kill().unwrap();
        leader.wait().unwrap();
        assert!(OtherGroup::led_by(&Linux, id, since).kill(&Linux));
        member.wait().unwrap();
    }

    #[test]
    fn a_process_with_the_id_of_a_leader_that_was_started_earlier_is_left_alone() {
        let (mut other, id) = sleep(0);
        let since = Linux.stat(id).unwrap().since;
        assert!(!OtherGroup::led_by(&Linux, id, since - 1).kill(&Linux));
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_group_that_has_taken_over_the_id_is_left_alone() {
        let (mut leader, id) = sleep(0);
        let group = OtherGroup::led_by(&Linux, id, Linux.stat(id).unwrap().since);
        let (mut member, _) = sleep(id.as_raw_nonzero().get());
        let earlier = OtherGroup { since: group.since - 1, ..group };
        let elsewhere = OtherGroup { session: id.as_raw_pid(), ..group };
        assert!(!earlier.kill(&Linux) && !elsewhere.kill(&Linux));
        assert_eq!((leader.try_wait().unwrap(), member.try_wait().unwrap()), (None, None));
        assert!(group.kill(&Linux));
        leader.wait().unwrap();
        member.wait().unwrap();
    }
}

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
use rustix::process::{
    Pid, PidfdFlags, RawPid, Signal, getpgid, kill_process, kill_process_group, pidfd_open,
    pidfd_send_signal,
};

/// The pause between two rounds of SIGKILL, for processes that were forked in between.
pub(super) const ROUND: Duration = Duration::from_millis(20);

/// Sends a signal to a group whose leader is a child that has not been waited for.
pub(super) fn signal_group(group: Pid, signal: Signal) {
    // An error means that the group has ended already.
    let _ = kill_process_group(group, signal);
}

/// Sends a signal to the command's group, and to the children outside of it.
pub(super) fn signal_all(group: Pid, signal: Signal) {
    signal_group(group, signal);
    for child in children() {
        if getpgid(Some(child)) != Ok(group) {
            let _ = kill_process(child, signal);
        }
    }
}

/// Sends a signal to each child.
pub(super) fn signal_children(signal: Signal) {
    for child in children() {
        let _ = kill_process(child, signal);
    }
}

/// Returns the children of this process.
pub(super) fn children() -> Vec<Pid> {
    let us = rustix::process::getpid();
    let listed = std::fs::read_to_string(format!("/proc/self/task/{us}/children"));
    match listed {
        Ok(text) => text.split_ascii_whitespace().filter_map(pid).collect(),
        // The kernel was built without CONFIG_PROC_CHILDREN.
        Err(_) => search(us),
    }
}

fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

/// Returns all processes whose parent is `parent`.
fn search(parent: Pid) -> Vec<Pid> {
    let Ok(all) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    all.filter_map(|it| pid(it.ok()?.file_name().to_str()?))
        .filter(|id| Stat::of(*id).is_some_and(|it| it.parent == parent.as_raw_pid()))
        .collect()
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
    /// Returns the group that a process leads.
    pub(super) fn led_by(leader: Pid) -> Option<Self> {
        let stat = Stat::of(leader).filter(|it| it.group == leader.as_raw_pid())?;
        Some(Self { id: leader, session: stat.session, since: stat.since })
    }

    /// Sends SIGKILL to each of its processes; returns whether there was any that had not exited.
    pub(super) fn kill(self) -> bool {
        // Another process with the leader's id means that the group was gone, and its id is reused.
        if Stat::of(self.id).is_some_and(|it| it.since != self.since) {
            return false;
        }
        let Ok(all) = std::fs::read_dir("/proc") else {
            return true;
        };
        let all = all.filter_map(|it| pid(it.ok()?.file_name().to_str()?));
        all.filter(|id| self.has(*id)).filter(|id| self.kill_one(*id)).count() > 0
    }

    fn has(self, id: Pid) -> bool {
        let group = self.id.as_raw_pid();
        Stat::of(id).is_some_and(|it| it.lives && it.group == group && it.session == self.session)
    }

    /// Kills a process if it is of this group; returns whether it was.
    fn kill_one(self, id: Pid) -> bool {
        let process = match pidfd_open(id, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(Errno::SRCH) => return false,
            // Before Linux 5.3, under an older seccomp profile, or without a free descriptor.
            Err(_) => return kill_process(id, Signal::KILL) != Err(Errno::SRCH),
        };
        // Looked up again, now that the process is held by its descriptor.
        let is_ours = self.has(id);
        if is_ours {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        is_ours
    }
}

/// The fields of `/proc/…/stat`.
///
/// An id is 0 for a process outside of this PID namespace: the session of `kubectl exec`, or the
/// parent of a container's first process.
struct Stat {
    lives: bool,
    parent: RawPid,
    group: RawPid,
    session: RawPid,
    since: u64,
}

impl Stat {
    fn of(id: Pid) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// Parses the line, whose second field may contain any characters.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let mut words = rest.split_ascii_whitespace();
        Some(Self {
            lives: !matches!(words.next()?, "Z" | "X"),
            parent: words.next()?.parse().ok()?,
            group: words.next()?.parse().ok()?,
            session: words.next()?.parse().ok()?,
            // The 22nd field.
            since: words.nth(15)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Child;

    use super::*;

    fn sleep(group: i32) -> (Child, Pid) {
        let mut command = std::process::Command::new("sleep");
        let child = command.arg("60").process_group(group).spawn().unwrap();
        let id = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        (child, id)
    }

    #[test]
    fn a_name_cannot_fake_its_parent() {
        let rest = "8 7 6 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0";
        let stat = Stat::parse(&format!("7 (a) S 1 (b) S 9 {rest}")).unwrap();
        assert!(stat.lives && stat.parent == 9 && stat.group == 8);
        assert_eq!((stat.session, stat.since), (7, 77));
        assert!(!Stat::parse(&format!("7 (a) Z 9 {rest}")).unwrap().lives);
        assert!(Stat::parse("7 (sh").is_none() && Stat::parse("7 (sh) S 9 8 7").is_none());
    }

    #[test]
    fn the_session_may_be_outside_of_the_pid_namespace() {
        let rest = "0 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0";
        let stat = Stat::parse(&format!("7 (sh) S {rest}")).unwrap();
        assert_eq!((stat.parent, stat.group, stat.session), (0, 7, 0));
    }

    #[test]
    fn a_group_is_killed_also_when_its_leader_has_exited() {
        let (mut leader, id) = sleep(0);
        let group = OtherGroup::led_by(id).unwrap();
        let (mut member, other) = sleep(id.as_raw_nonzero().get());
        assert!(OtherGroup::led_by(other).is_none());
        leader.kill().unwrap();
        leader.wait().unwrap();
        assert!(group.kill());
        member.wait().unwrap();
        assert!(!group.kill(), "zombies and the dead do not count");
    }

    #[test]
    fn a_group_that_has_taken_over_the_id_is_left_alone() {
        let (mut leader, id) = sleep(0);
        let group = OtherGroup::led_by(id).unwrap();
        let (mut member, _) = sleep(id.as_raw_nonzero().get());
        let earlier = OtherGroup { since: group.since - 1, ..group };
        let elsewhere = OtherGroup { session: id.as_raw_pid(), ..group };
        assert!(!earlier.kill() && !elsewhere.kill());
        assert_eq!((leader.try_wait().unwrap(), member.try_wait().unwrap()), (None, None));
        assert!(group.kill());
        leader.wait().unwrap();
        member.wait().unwrap();
    }

    #[test]
    fn both_ways_find_a_child() {
        let (mut child, id) = sleep(0);
        let us = rustix::process::getpid();
        assert!(search(us).contains(&id));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!search(us).contains(&id));
    }
}

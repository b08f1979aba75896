//! Finds and signals the descendants of a watchdog.
//!
//! A watchdog is the subreaper of its command: orphaned descendants become its children, even if
//! they left the process group and the session. So killing all children, repeatedly, leaves no
//! process behind.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, getpgid, kill_process, kill_process_group, test_kill_process_group,
};

/// Sends a signal to the command's group.
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

/// Returns the children of this process.
fn children() -> Vec<Pid> {
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
        .filter(|id| Stat::of(*id).is_some_and(|it| it.parent == parent))
        .collect()
}

/// Returns whether a group has a running process; zombies do not count.
pub(super) fn group_lives(group: Pid) -> bool {
    // A process that may not be signalled, because it runs as another user, is alive.
    if test_kill_process_group(group) == Err(Errno::SRCH) {
        return false;
    }
    let Ok(all) = std::fs::read_dir("/proc") else {
        return true;
    };
    all.filter_map(|it| pid(it.ok()?.file_name().to_str()?))
        .filter_map(Stat::of)
        .any(|it| it.group == group && it.lives)
}

/// The fields of `/proc/…/stat`.
struct Stat {
    lives: bool,
    parent: Pid,
    group: Pid,
}

impl Stat {
    fn of(id: Pid) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// Parses the line, whose second field may contain any characters.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let mut words = rest.split_ascii_whitespace();
        let lives = !matches!(words.next()?, "Z" | "X");
        Some(Self { lives, parent: pid(words.next()?)?, group: pid(words.next()?)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_fake_its_parent() {
        let stat = Stat::parse("7 (a) S 1 (b) S 9 8 7 0").unwrap();
        assert!(stat.lives && Some(stat.parent) == pid("9") && Some(stat.group) == pid("8"));
        assert!(!Stat::parse("7 (a) Z 9 8 7 0").unwrap().lives);
        assert!(Stat::parse("7 (sh").is_none());
    }

    #[test]
    fn a_group_of_the_dead_does_not_live() {
        use std::os::unix::process::CommandExt;
        let mut child =
            std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let group = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        assert!(group_lives(group));
        child.kill().unwrap();
        // The child is a zombie until it is waited for.
        while group_lives(group) {
            std::thread::yield_now();
        }
        assert!(kill_process_group(group, Signal::KILL).is_ok(), "the kernel still knows it");
        child.wait().unwrap();
    }

    #[test]
    fn both_ways_find_a_child() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        let us = rustix::process::getpid();
        assert!(search(us).contains(&id));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!search(us).contains(&id));
    }
}

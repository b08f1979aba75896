//! The processes below a keeper: who they are, and signals for all of them.
//!
//! A keeper is its command's subreaper: whoever loses the parent becomes the keeper's child,
//! also after leaving group and session. So killing the children, and again those who come to take
//! their place, leaves nothing behind.
//!
//! What it does not do: it waits for nobody.

use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};

/// Sends a signal to the command's group.
pub(super) fn signal_group(group: Pid, signal: Signal) {
    // Whoever has ended meanwhile needs none.
    let _ = kill_process_group(group, signal);
}

/// Sends a signal to the command's group, and to our children that have left it.
pub(super) fn signal_all(group: Pid, signal: Signal) {
    signal_group(group, signal);
    for child in children() {
        if getpgid(Some(child)) != Ok(group) {
            let _ = kill_process(child, signal);
        }
    }
}

/// Our children.
fn children() -> Vec<Pid> {
    let us = rustix::process::getpid();
    let listed = std::fs::read_to_string(format!("/proc/self/task/{us}/children"));
    match listed {
        Ok(text) => text.split_ascii_whitespace().filter_map(pid).collect(),
        // Kernels without CONFIG_PROC_CHILDREN.
        Err(_) => search(us),
    }
}

fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

/// All processes whose parent is `parent`.
fn search(parent: Pid) -> Vec<Pid> {
    let Ok(all) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let ours = |id: &Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        parent_in(&stat).filter(|it| *it == parent)
    };
    all.filter_map(|it| pid(it.ok()?.file_name().to_str()?))
        .filter(|it| ours(it).is_some())
        .collect()
}

/// The parent in a line of `/proc/…/stat`, whose second field may hold anything.
fn parent_in(stat: &str) -> Option<Pid> {
    let (_, rest) = stat.rsplit_once(')')?;
    pid(rest.split_ascii_whitespace().nth(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_fake_its_parent() {
        assert_eq!(parent_in("7 (a) S 1 (b) S 9 7 7 0"), pid("9"));
        assert_eq!(parent_in("7 (sh"), None);
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

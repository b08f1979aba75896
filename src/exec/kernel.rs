//! What the processes of `exec` ask of the operating system. They are handed it, as the driver is
//! handed its clock and its timer, so that the simulator can run them on a kernel of its own.
//!
//! A call never blocks. Where a process waits, its loop is in its `run`, which has no decisions.

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{
    Pid, PidfdFlags, RawPid, Signal, WaitId, WaitIdOptions, getpgid, getppid, kill_process,
    kill_process_group, pidfd_open, pidfd_send_signal, set_parent_process_death_signal, waitid,
};

use super::wire::RECORD;
use crate::clock::{self, Moment};

/// The calls of a process.
pub trait Kernel: Sync {
    /// Reads the clocks.
    fn now(&self) -> Moment;

    /// Returns the session of this process.
    fn session(&self) -> RawPid;

    /// Returns the parent of this process; `None` if it is outside of this PID namespace.
    fn parent(&self) -> Option<Pid>;

    /// Makes the kernel kill this process when its parent ends; returns whether it will.
    fn die_with_parent(&self) -> bool;

    /// Returns the children of this process. It can miss one.
    fn children(&self) -> Vec<Pid>;

    /// Returns all processes, if they can be listed.
    fn processes(&self) -> Option<Vec<Pid>>;

    /// Returns the state of a process.
    fn stat(&self, id: Pid) -> Option<Stat>;

    /// Returns the group of a process.
    fn group_of(&self, id: Pid) -> Option<Pid>;

    /// Sends a signal to a process.
    ///
    /// # Errors
    /// When there is no such process, or it may not be signalled.
    fn signal(&self, id: Pid, signal: Signal) -> Result<(), Errno>;

    /// Sends a signal to a group, if there is one.
    fn signal_group(&self, group: Pid, signal: Signal);

    /// Returns what sends signals to this process and to no later one with the same id.
    ///
    /// # Errors
    /// When there is no such process, or the kernel does not offer this.
    fn hold(&self, id: Pid) -> Result<Box<dyn Fn(Signal)>, Errno>;

    /// Returns a change of a child, or of any child; `None` if there is none yet.
    ///
    /// # Errors
    /// When there is no such child.
    fn wait(&self, child: Option<Pid>, options: WaitIdOptions) -> Result<Option<Change>, Errno>;

    /// Sends bytes to Tenure, if it is there and has room for them.
    fn send(&self, bytes: &[u8]);

    /// Appends bytes from Tenure; returns how many, or 0 if it is gone.
    ///
    /// # Errors
    /// When there are none yet, or the connection is broken.
    fn receive(&self, into: &mut Vec<u8>) -> Result<usize, Errno>;
}

/// A change of a child's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It exited with this code.
    Exited(i32),
    /// It was terminated by this signal.
    Killed(i32),
    /// It was stopped by this signal.
    Stopped(i32),
}

/// The fields of `/proc/…/stat`.
///
/// An id is 0 for a process outside of this PID namespace: the session of `kubectl exec`, or the
/// parent of a container's first process.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Whether it has not exited.
    pub lives: bool,
    /// Its parent.
    pub parent: RawPid,
    /// Its process group.
    pub group: RawPid,
    /// Its session.
    pub session: RawPid,
    /// When it was started, in clock ticks since boot.
    pub since: u64,
}

impl Stat {
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

/// The kernel of this machine. The socket to Tenure is standard input.
#[derive(Clone, Copy, Debug)]
pub struct Linux;

impl Kernel for Linux {
    fn now(&self) -> Moment {
        clock::now()
    }

    fn session(&self) -> RawPid {
        self.stat(rustix::process::getpid()).map_or(0, |it| it.session)
    }

    fn parent(&self) -> Option<Pid> {
        getppid()
    }

    fn die_with_parent(&self) -> bool {
        set_parent_process_death_signal(Some(Signal::KILL)).is_ok()
    }

    fn children(&self) -> Vec<Pid> {
        let us = rustix::process::getpid();
        let listed = std::fs::read_to_string(format!("/proc/self/task/{us}/children"));
        match listed {
            Ok(text) => text.split_ascii_whitespace().filter_map(pid).collect(),
            // The kernel was built without CONFIG_PROC_CHILDREN.
            Err(_) => search(us),
        }
    }

    fn processes(&self) -> Option<Vec<Pid>> {
        let all = std::fs::read_dir("/proc").ok()?;
        Some(all.filter_map(|it| pid(it.ok()?.file_name().to_str()?)).collect())
    }

    fn stat(&self, id: Pid) -> Option<Stat> {
        Stat::parse(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    fn group_of(&self, id: Pid) -> Option<Pid> {
        getpgid(Some(id)).ok()
    }

    fn signal(&self, id: Pid, signal: Signal) -> Result<(), Errno> {
        kill_process(id, signal)
    }

    fn signal_group(&self, group: Pid, signal: Signal) {
        // An error means that the group has ended already.
        let _ = kill_process_group(group, signal);
    }

    fn hold(&self, id: Pid) -> Result<Box<dyn Fn(Signal)>, Errno> {
        let process = pidfd_open(id, PidfdFlags::empty())?;
        Ok(Box::new(move |signal| {
            let _ = pidfd_send_signal(&process, signal);
        }))
    }

    fn wait(&self, child: Option<Pid>, options: WaitIdOptions) -> Result<Option<Change>, Errno> {
        let child = child.map_or(WaitId::All, WaitId::Pid);
        let status = waitid(child, options | WaitIdOptions::NOHANG)?;
        Ok(status.map(|it| match (it.exit_status(), it.stopping_signal()) {
            (Some(code), _) => Change::Exited(code),
            (None, Some(signal)) => Change::Stopped(signal),
            (None, None) => Change::Killed(it.terminating_signal().unwrap_or_default()),
        }))
    }

    fn send(&self, bytes: &[u8]) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = send(std::io::stdin(), bytes, flags);
    }

    fn receive(&self, into: &mut Vec<u8>) -> Result<usize, Errno> {
        into.reserve(RECORD);
        recv(std::io::stdin(), spare_capacity(into), RecvFlags::DONTWAIT).map(|(_, got)| got)
    }
}

fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

/// Returns all processes whose parent is `parent`.
fn search(parent: Pid) -> Vec<Pid> {
    let is_child = |id: &Pid| Linux.stat(*id).is_some_and(|it| it.parent == parent.as_raw_pid());
    Linux.processes().unwrap_or_default().into_iter().filter(is_child).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use super::*;

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
    fn both_ways_find_a_child() {
        let mut command = std::process::Command::new("sleep");
        let mut child = command.arg("60").process_group(0).spawn().unwrap();
        let id = Pid::from_child(&child);
        let us = rustix::process::getpid();
        assert!(search(us).contains(&id) && Linux.group_of(id) == Some(id));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!search(us).contains(&id));
    }
}

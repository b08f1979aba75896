//! What signals do to a process.

use rustix::io::Errno;
use tenure::exec::kernel::Change;

use super::table::{INIT, Role, Table};
use crate::MILLI;

pub const INT: i32 = 2;
pub const KILL: i32 = 9;
pub const USR1: i32 = 10;
pub const TERM: i32 = 15;
pub const CONT: i32 = 18;
pub const STOP: i32 = 19;

impl Table {
    /// Delivers a signal.
    pub fn signal(&mut self, from: i32, to: i32, signal: i32) -> Result<(), Errno> {
        let Some(target) = self.get(to).copied() else { return Err(Errno::SRCH) };
        let sender = self.get(from).copied();
        let is_known = matches!(target.role, Role::Init | Role::Tenure | Role::Bystander);
        if from != INIT && is_known {
            self.violated(|| format!("{from} sends signal {signal} to the {:?} {to}", target.role));
        }
        if let Some(sender) = sender
            && sender.term > 0
            && sender.term != target.term
        {
            self.violated(|| format!("signal {signal} from term {} to {to}", sender.term));
        }
        if target.ended.is_some() {
            return Ok(());
        }
        self.note(|| format!("{:?} {to} gets signal {signal} from {from}", target.role));
        match signal {
            KILL => self.kill(to),
            STOP => {
                let it = self.at(to);
                (it.stopped, it.unreported) = (true, true);
                self.child_signal(target.parent);
            }
            CONT => {
                let it = self.at(to);
                (it.stopped, it.unreported) = (false, false);
                if let Some(pending) = it.pending.take_if(|_| target.role != Role::Launcher) {
                    self.receive(to, pending);
                }
            }
            // Tenure's own processes block all others.
            _ if !target.role.is_work() => {}
            _ => {
                if signal != USR1 {
                    let now = self.now;
                    self.at(to).asked_at.get_or_insert(now);
                }
                if target.stopped || target.role == Role::Launcher {
                    self.at(to).pending = Some(signal);
                } else {
                    self.receive(to, signal);
                }
            }
        }
        Ok(())
    }

    /// Handles a signal in a process of the command.
    fn receive(&mut self, id: i32, signal: i32) {
        let soon = self.now + 300 * MILLI;
        let it = self.at(id);
        if signal != USR1 && !it.stubborn {
            it.exits_at.get_or_insert(soon);
        }
    }

    /// The launcher executes the command.
    pub fn execute(&mut self, id: i32) {
        self.at(id).role = Role::Main;
        self.note(|| format!("{id} executes the command"));
        if let Some(pending) = self.at(id).pending.take() {
            self.receive(id, pending);
        }
    }

    pub fn kill(&mut self, id: i32) {
        let now = self.now;
        let it = self.at(id);
        if it.stuck_until > now {
            it.dying = true;
        } else {
            self.end(id, Change::Killed(KILL));
        }
    }
}

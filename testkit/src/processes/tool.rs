//! Servers among the tools, which end with the test's process, however that ends: each is started by a
//! thread that lives as long as the process, and receives SIGKILL when the thread is gone.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};

use super::process::Process;
use crate::paths::tool;

/// A program to start, and the sender for the result.
type Order = (&'static str, Command, mpsc::Sender<Process>);

/// Starts a tool in a directory.
pub fn run(home: &Path, name: &'static str, arguments: &[&str]) -> Process {
    run_as(home, name, &tool(name), &[], arguments)
}

/// Starts a program in a directory, as the user that these options of setpriv name.
pub fn run_as(
    home: &Path,
    name: &'static str,
    program: &Path,
    user: &[&str],
    arguments: &[&str],
) -> Process {
    let mut command = Command::new("setpriv");
    command
        .args(user)
        .args(["--pdeathsig", "KILL"])
        .arg(program)
        .args(arguments)
        .current_dir(home)
        .stdin(Stdio::null());
    // The signal is sent when the thread that started the program exits, so that thread lives on.
    static STARTER: OnceLock<Mutex<mpsc::Sender<Order>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, taken) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (name, command, answer) in taken {
                let _ = answer.send(Process::spawn(name, command));
            }
        });
        Mutex::new(orders)
    });
    let (answer, started) = mpsc::channel();
    let starter = starter.lock().unwrap_or_else(PoisonError::into_inner);
    starter.send((name, command, answer)).expect("the starter lives");
    started.recv().expect("setpriv of util-linux starts")
}

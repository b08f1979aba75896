//! Real `tenure run` processes, started and stopped by the test that owns them.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};

/// A candidate: a process, its address and its log.
pub struct Candidate {
    pub name: String,
    pub address: SocketAddr,
    child: Child,
    log: PathBuf,
}

impl Candidate {
    /// Starts `tenure run` as `name` with a listener on a free port, and waits until it listens.
    pub fn start(
        name: &str,
        directory: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        Self::start_by(&[], "127.0.0.1", name, directory, arguments, variables)
    }

    /// Starts it through another command, which executes it, with a listener on this host address.
    pub fn start_by(
        by: &[&str],
        host: &str,
        name: &str,
        directory: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let log = directory.join(format!("{name}.log"));
        let words = [by, &[crate::paths::tenure()]].concat();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .args(["run", "--identity", name, "--log-format", "json"])
            .args(["--listen", &format!("{host}:0")])
            .args(arguments)
            .env_remove("POD_NAME")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::options().create(true).append(true).open(&log).expect("the log opens"));
        let before = std::fs::read_to_string(&log).unwrap_or_default().len();
        let mut child = command.spawn().expect("tenure starts");
        let address = until(Duration::from_secs(60), &format!("{name} listens"), || {
            if let Some(status) = child.try_wait().expect("the process can be asked") {
                panic!("{name} ended at once with {status}: {}", read(&log));
            }
            address_in(&read(&log)[before..])
        });
        Self { name: name.to_owned(), address, child, log }
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        read(&self.log)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.child.id().try_into().expect("a process id")).expect("not 0");
        super::running::signal(id, signal);
    }

    /// Returns whether it has exited.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the process can be asked").is_some()
    }

    /// Waits until it exits.
    pub fn wait(&mut self, bound: Duration) -> ExitStatus {
        until(bound, &format!("{} ends", self.name), || {
            self.child.try_wait().expect("the process can be asked")
        })
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    pub fn crash(&mut self) {
        self.child.kill().expect("the process can be killed");
        self.child.wait().expect("the process ends");
    }

    /// Sends a GET request, and returns the status code and the body; `None` if it does not answer.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        get(self.address, path)
    }

    pub fn is_leader(&self) -> bool {
        self.get("/leader").is_some_and(|(code, _)| code == 200)
    }

    /// Returns its status document.
    pub fn status(&self) -> Option<serde_json::Value> {
        serde_json::from_str(&self.get("/status")?.1).ok()
    }

    pub fn state(&self) -> Option<String> {
        Some(self.status()?["state"].as_str()?.to_owned())
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of {} ---\n{}", self.name, read(&self.log));
        }
    }
}

/// Sends a GET request on a new connection.
pub fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let bound = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, bound).ok()?;
    stream.set_read_timeout(Some(bound)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// Polls until there is a result; panics after `bound`.
pub fn until<T>(bound: Duration, what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    let start = tenure::clock::now();
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        let waited = start.elapsed_min(tenure::clock::now());
        assert!(waited < bound, "waited {waited:?} in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn read(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}

/// Finds the listener's address in the log.
fn address_in(log: &str) -> Option<SocketAddr> {
    log.lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|line| line["listening"].as_str()?.parse().ok())
}

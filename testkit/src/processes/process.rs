//! The processes of a test: what they write, what their listeners answer, and signals to them.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::paths::tenure;

/// The timeout of what a process does without waiting for anything, on a busy machine.
pub const BOUND: Duration = Duration::from_secs(60);

/// A process, killed when it is dropped.
pub struct Process {
    pub name: String,
    /// The address of its listener; unspecified if it has none.
    pub address: SocketAddr,
    child: Child,
    out: File,
    err: File,
}

/// The result of a verb.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Process {
    /// Starts a command, and collects what it writes.
    pub fn spawn(name: &str, command: Command) -> Self {
        Self::spawn_to(name, command, None, None)
    }

    /// Starts a command that writes to these files or pipes; what goes to none of them is collected.
    pub fn spawn_to(
        name: &str,
        mut command: Command,
        to: Option<Stdio>,
        errors_to: Option<Stdio>,
    ) -> Self {
        let [out, err] = [(); 2].map(|()| tempfile::tempfile().expect("a file"));
        let copy = |it: &File| Stdio::from(it.try_clone().expect("a second handle"));
        command.stdout(to.unwrap_or_else(|| copy(&out)));
        command.stderr(errors_to.unwrap_or_else(|| copy(&err)));
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Self { name: name.to_owned(), address, child, out, err }
    }

    /// Starts `tenure run` as `name` with a listener on a free port, and waits until it listens.
    pub fn run(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::run_by(&[], "127.0.0.1", name, arguments, variables)
    }

    /// Starts it through another command, which executes it, with a listener on this host address.
    pub fn run_by(
        by: &[&str],
        host: &str,
        name: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let words = [by, &[tenure()]].concat();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .args(["run", "--identity", name, "--log-format", "json"])
            .args(["--listen", &format!("{host}:0")])
            .args(arguments)
            .env_remove("POD_NAME")
            .envs(variables.iter().copied())
            .stdin(Stdio::null());
        Self::spawn(name, command).listening()
    }

    /// Starts `tenure exec` with a command.
    pub fn exec(name: &str, arguments: &[&str], words: &[&str]) -> Self {
        let mut command = Command::new(tenure());
        command
            .args(["exec", "--identity", name, "--log-format", "json", "--log-level", "info"])
            .args(arguments)
            .arg("--")
            .args(words)
            .env_remove("POD_NAME")
            .stdin(Stdio::null());
        Self::spawn(name, command)
    }

    /// Starts `tenure` as a user runs it, with no environment but these variables.
    pub fn verb(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::spawn("tenure", verb(arguments, variables))
    }

    /// Waits until it has logged the address of its listener.
    pub fn listening(mut self) -> Self {
        self.address = until(BOUND, &format!("{} listens", self.name), || {
            let ended = self.child.try_wait().expect("the process can be asked");
            let output = self.out() + &self.log();
            assert!(ended.is_none(), "{} ended at once with {ended:?}: {output}", self.name);
            let lines = output.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
            lines.filter_map(|it| it["listening"].as_str()?.parse().ok()).next()
        });
        self
    }

    /// Returns what it has written to standard output.
    pub fn out(&self) -> String {
        content(&self.out)
    }

    /// Returns what it has written to standard error, its log.
    pub fn log(&self) -> String {
        content(&self.err)
    }

    /// Waits for a line of standard output by its number; `None` if there is none in time or at its
    /// end.
    pub fn line(&mut self, number: usize, bound: Duration) -> Option<String> {
        let start = tenure::clock::now();
        loop {
            let over = self.has_ended() || start.elapsed_min(tenure::clock::now()) > bound;
            let out = self.out();
            let line = out.split_inclusive('\n').nth(number);
            if let Some(line) = line.filter(|it| over || it.ends_with('\n')) {
                return Some(line.trim_end_matches(['\r', '\n']).to_owned());
            }
            if over {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().expect("a process id")).expect("not 0")
    }

    /// Sends a signal; see [`signal`].
    pub fn signal(&self, name: Signal) {
        signal(self.pid(), name);
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

    /// Waits until it exits, and returns its code and what it has written.
    pub fn end(mut self) -> Ran {
        let code = self.wait(BOUND).code().expect("an exit code");
        Ran { code, out: self.out(), err: self.log() }
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a GET request, and returns the status code and the body; `None` if it does not answer.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        get(self.address, path)
    }

    pub fn is_leader(&self) -> bool {
        self.get("/leader").is_some_and(|(code, _)| code == 200)
    }

    /// Returns its status document.
    pub fn status(&self) -> Option<Value> {
        serde_json::from_str(&self.get("/status")?.1).ok()
    }

    pub fn state(&self) -> Option<String> {
        Some(self.status()?["state"].as_str()?.to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let output = self.out() + &self.log();
            let lines: Vec<&str> = output.lines().collect();
            let last = &lines[lines.len().saturating_sub(200)..];
            eprintln!("--- log of {} ---\n{}", self.name, last.join("\n"));
        }
    }
}

fn content(file: &File) -> String {
    let length = file.metadata().expect("an open file").len();
    let mut bytes = vec![0; length.try_into().expect("it fits")];
    file.read_exact_at(&mut bytes, 0).expect("a file only grows");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the command of [`Process::verb`].
pub fn verb(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(tenure());
    command.args(arguments).env_clear().envs(variables.iter().copied()).stdin(Stdio::null());
    command
}

/// Runs `tenure` as a user does.
pub fn run_verb(arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    Process::verb(arguments, variables).end()
}

/// Sends a GET request on a new connection.
pub fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    get_within(Duration::from_secs(2), address, path)
}

/// Requests a path on a new connection; `bound` limits the connect and each read.
pub fn get_within(bound: Duration, address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, bound).ok()?;
    stream.set_read_timeout(Some(bound)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// Polls until there is a result; panics after `bound`. The longer it has waited, the longer it sleeps
/// between two polls, up to a tenth of a second: many tests wait at the same time, and share the cores.
pub fn until<T>(bound: Duration, what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    let start = tenure::clock::now();
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        let waited = start.elapsed_min(tenure::clock::now());
        assert!(waited < bound, "waited {waited:?} in vain until {what}");
        let share = waited / 20;
        std::thread::sleep(share.clamp(Duration::from_millis(10), Duration::from_millis(100)));
    }
}

/// Returns whether a process runs; a zombie does not.
pub fn is_running(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

/// Waits until a process is gone.
pub async fn until_gone(id: &str) {
    let gone = async {
        while is_running(id) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), gone).await;
    waited.unwrap_or_else(|_| panic!("{id} runs yet"));
}

/// Sends a signal. SIGSTOP stops the process outside of a write to its `file:` lease: a process
/// that is stopped there keeps the lock of the file, and blocks all candidates until it continues.
pub fn signal(process: Pid, signal: Signal) {
    let send = |signal| kill_process(process, signal).expect("the process takes a signal");
    send(signal);
    if signal != Signal::STOP {
        return;
    }
    for _ in 0..1_000 {
        while !has_stopped(process) {
            std::thread::yield_now();
        }
        if !holds_lock(process) {
            return;
        }
        send(Signal::CONT);
        std::thread::sleep(Duration::from_millis(1));
        send(Signal::STOP);
    }
    panic!("process {process:?} held a lock each time that it was stopped");
}

/// Returns whether all threads of a process have stopped, or it is gone.
pub fn has_stopped(process: Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
    let runs = |stat: String| {
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|it| !matches!(it, 'T' | 't' | 'Z' | 'X'))
    };
    let mut threads = threads.into_iter().flatten().flatten();
    !threads.any(|it| std::fs::read_to_string(it.path().join("stat")).is_ok_and(runs))
}

/// Returns whether a process holds a lock on a whole file.
pub fn holds_lock(process: Pid) -> bool {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let id = process.as_raw_nonzero().to_string();
    locks.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1) == Some(&"FLOCK") && fields.get(4) == Some(&id.as_str())
    })
}

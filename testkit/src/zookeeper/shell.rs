//! ZooKeeper's own shell. Java takes a second to start it, so one serves all tests on a server.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::server::{JAVA, USER, jars};

/// What the shell prints for the command `version`, which follows the commands of each call.
const END: &str = "ZooKeeper CLI version";

/// A running shell, which ends when it is dropped.
pub(super) struct Shell {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    /// Starts a shell on a server, as the user of the elections.
    pub(super) fn start(port: u16) -> Self {
        let mut process = Command::new("java")
            .args(JAVA)
            .args(["-cp", &jars(), "org.apache.zookeeper.ZooKeeperMain"])
            .args(["-server", &format!("127.0.0.1:{port}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("java starts");
        let input = process.stdin.take().expect("a pipe");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut shell = Self { process, input, output };
        shell.execute(&format!("addauth digest {USER}"));
        shell
    }

    /// Executes commands, one in each line; returns what they print, without empty lines and what the
    /// shell prints of its own connection at any time.
    pub(super) fn execute(&mut self, commands: &str) -> String {
        write!(self.input, "{commands}\nversion\n").expect("it reads");
        let mut printed = String::new();
        loop {
            let start = printed.len();
            let read = self.output.read_line(&mut printed).expect("text");
            assert!(read > 0, "the shell has ended: {printed}");
            if printed[start..].starts_with(END) {
                printed.truncate(start);
                return printed;
            }
            let line = printed[start..].trim_end();
            if line.is_empty() || line == "WATCHER::" || line.starts_with("WatchedEvent ") {
                printed.truncate(start);
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

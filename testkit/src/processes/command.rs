//! The `tenure` command as a user runs it: its output and exit code.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The timeout of a test.
pub const BOUND: Duration = Duration::from_secs(20);

/// A finished run.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// A run in progress, killed with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    pub fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let child = Command::new(crate::paths::tenure())
            .args(arguments)
            .env_clear()
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    pub fn end(mut self) -> Ran {
        let start = tenure::clock::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            let waited = start.elapsed_min(tenure::clock::now());
            assert!(waited < BOUND, "it should have ended");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut ran = Ran { code: status.code().unwrap(), out: String::new(), err: String::new() };
        if let Some(mut out) = self.0.stdout.take() {
            out.read_to_string(&mut ran.out).unwrap();
        }
        self.0.stderr.take().unwrap().read_to_string(&mut ran.err).unwrap();
        ran
    }

    /// Returns the lines of standard output, as they are written.
    pub fn lines(&mut self) -> mpsc::Receiver<String> {
        let out = BufReader::new(self.0.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            out.lines()
                .map_while(Result::ok)
                .take_while(|it| sender.send(it.clone()).is_ok())
                .count()
        });
        lines
    }
}

pub fn tenure(arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    Running::start(arguments, variables).end()
}

//! A machine without IPv6, simulated for one process: its first IPv6 socket fails.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Killed with the test; strace exits with the process that it traces.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a sidecar there, and returns the first line of its log that names the listener or the
/// error.
fn first_word(listen: &str) -> String {
    let inject = "inject=socket:error=EAFNOSUPPORT:when=1";
    let mut child = Command::new("strace")
        .args(["-D", "-f", "-o", "/dev/null", "-e", "trace=socket", "-e", inject])
        .arg(env!("CARGO_BIN_EXE_tenure"))
        .args(["run", "--store", "memory:", "--log-format", "json", "--listen", listen])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("strace: {error}; `tests/run --tools` installs it"));
    let log = BufReader::new(child.stderr.take().unwrap());
    let _running = Running(child);
    let mut lines = log.lines().map(Result::unwrap);
    lines.find(|it| it.contains("listening") || it.contains("cannot listen")).unwrap_or_default()
}

#[test]
fn all_addresses_are_those_of_ipv4_where_there_is_no_ipv6_and_one_address_is_refused() {
    let all = first_word("[::]:0");
    assert!(all.contains(r#""listening":"0.0.0.0:"#), "{all}");
    let one = first_word("[::1]:0");
    assert!(one.contains("cannot listen on [::1]:0"), "{one}");
}

//! `tenure exec` on terminals and as process 1 of a container.

use testkit::processes::{exec_process, process};

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use exec_process::{Place, read};
use process::until;
use rustix::process::{Pid, Signal, kill_process};

const BOUND: Duration = Duration::from_secs(30);

/// Runs `tenure` on a pseudo-terminal, types the text of the second argument when the file of the
/// first appears, and exits with tenure's code.
const TYPIST: &str = r#"
import os, pty, select, sys, time
ready, words, command = sys.argv[1], sys.argv[2].encode().decode("unicode_escape"), sys.argv[3:]
child, master = pty.fork()
if child == 0:
    os.execvp(command[0], command)
words = words.split("|")
while True:
    if words and os.path.exists(ready + str(len(words))):
        os.write(master, words.pop(0).encode())
    if select.select([master], [], [], 0.02)[0]:
        try:
            if not os.read(master, 4096):
                break
        except OSError:
            break
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;

/// Runs a command on a terminal; returns the exit code, and what the command wrote into its file.
fn on_a_terminal(
    place: &Place,
    flags: &[&str],
    words: &str,
    python: &str,
) -> (Option<i32>, String) {
    typed(place, &[], flags, words, python)
}

/// Does the same with a `tenure` that is started by a command.
fn typed(
    place: &Place,
    by: &[&str],
    flags: &[&str],
    words: &str,
    python: &str,
) -> (Option<i32>, String) {
    let exec = place.command(flags, &["python3", "-c", python]);
    let directory = place.path().to_str().unwrap();
    let mut typist = Command::new("timeout");
    typist.args(["60", "python3", "-c", TYPIST, &format!("{directory}/ready"), words]);
    // Without the surrounding `timeout`, which would forward a Ctrl-C a second time.
    typist.args(by).args(exec.get_args().skip(2)).env("DIR", directory);
    let ran = typist.stdin(Stdio::null()).output().unwrap();
    let got = read(&place.path().join("got")).unwrap_or_default();
    (ran.status.code(), got)
}

const COUNT: &str = "
import glob, os, signal, sys, time
place = os.environ['DIR']
def parent(id): return int(open('/proc/%d/stat' % id).read().rsplit(')')[1].split()[1])
def tenure(): return parent(parent(os.getppid()))
def say(it): open(place + '/got', 'a').write(it + '\\n')
def ready(it): open(place + '/ready' + it, 'w').close()
";

#[test]
fn ctrl_c_is_delivered_to_the_command_once_and_ends_tenure() {
    let place = Place::new();
    let python = format!(
        "{COUNT}
signal.signal(signal.SIGINT, lambda *_: say('int'))
ready('1')
while not os.path.exists(place + '/got'): time.sleep(0.01)
time.sleep(0.3)
sys.exit(0)"
    );
    let (code, got) = on_a_terminal(&place, &[], r"\x03", &python);
    assert_eq!((code, got.as_str()), (Some(0), "int\n"));
}

#[test]
fn a_command_can_read_the_terminal_and_ctrl_c_ends_tenure() {
    let place = Place::new();
    let python = format!(
        "{COUNT}
ready('2')
say(sys.stdin.readline().strip())
def end(*_):
    say('int'); time.sleep(0.3); sys.exit(130)
signal.signal(signal.SIGINT, end)
ready('1')
time.sleep(600)"
    );
    let (code, got) = on_a_terminal(&place, &["--once"], r"hello\n|\x03", &python);
    assert_eq!((code, got.as_str()), (Some(130), "hello\nint\n"));
}

/// Without the terminal, which is taken back, the shell could not read.
#[test]
fn the_terminal_is_taken_back_when_a_second_signal_ends_tenure_at_once() {
    let place = Place::new();
    let python = format!(
        "{COUNT}
def again(*_):
    ready('1')
    os.kill(tenure(), signal.SIGTERM)
signal.signal(signal.SIGTERM, again)
ready('2')
say(sys.stdin.readline().strip())
os.kill(tenure(), signal.SIGTERM)
while True: time.sleep(0.01)"
    );
    let shell = ["sh", "-c", "\"$0\" \"$@\"; echo $? >>$DIR/got; read line; echo $line >>$DIR/got"];
    let (code, got) = typed(&place, &shell, &[], r"first\n|second\n", &python);
    assert_eq!((code, got.as_str()), (Some(0), "first\n143\nsecond\n"));
}

#[test]
fn the_command_of_each_term_can_read_the_terminal() {
    let place = Place::new();
    let python = format!(
        "{COUNT}
is_first = not os.path.exists(place + '/got')
for status in glob.glob('/proc/%d/task/*/status' % tenure()):
    blocked = [line for line in open(status) if line.startswith('SigBlk')]
    if int(blocked[0].split()[1], 16) >> signal.SIGTTOU - 1 & 1: say('SIGTTOU is blocked')
ready('3' if is_first else '2')
say(sys.stdin.readline().strip())
if is_first: sys.exit(0)
signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
ready('1')
time.sleep(600)"
    );
    let (code, got) = on_a_terminal(&place, &[], r"first\n|second\n|\x03", &python);
    assert_eq!((code, got.as_str()), (Some(0), "first\nsecond\n"));
}

#[test]
fn as_process_1_tenure_reaps_orphans_and_forwards_signals() {
    assert!(rustix::process::geteuid().is_root(), "namespaces of processes need root");
    let place = Place::new();
    let exec = place.command(
        &[],
        &[
            "sh",
            "-c",
            "trap 'exit 0' TERM; trap 'echo >$DIR/seen' WINCH; echo >$DIR/ready
        while :; do sleep 0.02; done",
        ],
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    // Without the surrounding `timeout`, so that tenure is process 1.
    unshare.args(exec.get_args().skip(2)).env("DIR", place.path()).stdin(Stdio::null());
    // Its group is not orphaned: the kernel would stop none of its processes.
    unshare.process_group(0);
    let mut unshare = unshare.spawn().unwrap();
    let child_of = |id: u32| -> Option<u32> {
        let listed = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        listed.split_whitespace().next()?.parse().ok()
    };
    until(BOUND, "it runs", || read(&place.path().join("ready")));
    let first = child_of(unshare.id()).unwrap();
    let orphan = Command::new("nsenter")
        .args(["-t", &first.to_string(), "-p", "-m", "sh", "-c", "sleep 0.2 & sleep 0.01"])
        .status()
        .unwrap();
    assert!(orphan.success());
    let states = || -> Vec<String> {
        let listed = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children"));
        let listed = listed.unwrap_or_default();
        let stat = |id: &str| std::fs::read_to_string(format!("/proc/{id}/stat")).ok();
        listed.split_whitespace().filter_map(stat).collect()
    };
    until(BOUND, "the orphan has come and gone", || (states().len() == 1).then_some(()));
    assert!(!states()[0].contains(") Z "), "{:?}", states());
    let id = Pid::from_raw(first.try_into().unwrap()).unwrap();
    // The kernel stops no process 1, and Tenure goes on with it.
    kill_process(id, Signal::TSTP).unwrap();
    kill_process(id, Signal::WINCH).unwrap();
    until(BOUND, "the command has received a signal", || read(&place.path().join("seen")));
    kill_process(id, Signal::TERM).unwrap();
    let ended = until(BOUND, "it ends", || unshare.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
}

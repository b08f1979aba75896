//! What hooks, probes and the command do not get of Tenure: its credentials and its memory.

use testkit::processes::{exec_process, process};

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use exec_process::{Place, only_child, read};
use process::until;
use rustix::process::{Pid, Signal, kill_process};

const BOUND: Duration = Duration::from_secs(30);

/// Nobody, who owns nothing but what the test gives it.
const USER: u32 = 65_534;

/// Runs a command with secrets in Tenure's environment; returns what the command, a hook and a
/// probe have found in theirs.
fn environments(flags: &[&str]) -> String {
    let place = Place::new();
    let dump = |name: &str| format!("sh -c 'env >$0/{name}.env' {}", place.path().display());
    let (hook, probe) = (dump("hook"), format!("exec:{}", dump("probe")));
    let more = ["--once", "--on-active", &hook, "--health", &probe];
    let script = "env >$DIR/command.env; until [ -s $DIR/hook.env ]; do sleep 0.02; done";
    let ran = place
        .command(&[&more[..], flags].concat(), &["sh", "-c", script])
        .env("HTTPS_PROXY", "http://me:hidden-1@proxy.test:3128")
        .env("TENURE_ON_PASSIVE", "http://127.0.0.1:1/hidden-2")
        // Those of a store that is not in use are the command's own.
        .envs([("OWN_SECRET", "its-own"), ("AWS_SECRET_ACCESS_KEY", "its-key")])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let files = ["command", "hook", "probe"].map(|it| format!("{it}.env"));
    let texts = files.map(|it| read(&place.path().join(it)).unwrap());
    for own in ["OWN_SECRET=its-own", "AWS_SECRET_ACCESS_KEY=its-key"] {
        assert!(texts.iter().all(|it| it.contains(own)), "{texts:?}");
    }
    texts.concat()
}

#[test]
fn the_command_hooks_and_probes_do_not_inherit_tenures_secrets() {
    let withheld = environments(&[]);
    assert!(!withheld.contains("hidden"), "{withheld}");
    assert_eq!(withheld.matches("HTTPS_PROXY=http://proxy.test:3128\n").count(), 3, "{withheld}");
    let passed = environments(&["--pass-credentials"]);
    for number in 1..=2 {
        assert_eq!(passed.matches(&format!("hidden-{number}")).count(), 3, "{number} in {passed}");
    }
}

#[test]
fn the_memory_of_tenure_is_closed_to_its_user_and_it_leaves_no_core_dump() {
    assert!(rustix::process::geteuid().is_root(), "another user needs root");
    let place = Place::new();
    for path in [place.path(), &place.path().join("store")] {
        std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o700)).unwrap();
    }
    let script = "ulimit -c >$DIR/limit; cat /proc/$0/environ >$DIR/environ; echo $? >$DIR/code";
    let script = script.replace("$DIR", place.path().to_str().unwrap());
    // `exec` keeps the id, which is known here as $$.
    let of = |verb: &str, more: &str| {
        let tenure = testkit::paths::tenure();
        let common = format!("--store {} --election {verb} --listen 127.0.0.1:0", place.store());
        format!("ulimit -c unlimited; exec {tenure} {verb} {common} {more}")
    };
    for whole in [
        of("exec", &format!("-- sh -c '{script}; sleep 600' $$")),
        of("run", &format!("--on-active \"sh -c '{}' $$\"", script.replace('$', "\\$"))),
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", &whole]);
        command.env("AZURE_STORAGE_KEY", "hidden").uid(USER).gid(USER);
        let mut running = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let code = until(BOUND, "the child has tried", || read(&place.path().join("code")));
        let id = Pid::from_raw(running.id().try_into().unwrap()).unwrap();
        let owner = std::fs::metadata(format!("/proc/{id}/environ")).unwrap().uid();
        // Ended before anything is judged, so that a failure leaves no process behind.
        kill_process(id, Signal::ABORT).unwrap();
        let ended = running.wait().unwrap();
        assert_ne!(code.trim(), "0", "the environment of Tenure can be read: {whole}");
        assert_eq!(owner, 0, "{whole}");
        assert_eq!(read(&place.path().join("limit")).unwrap(), "unlimited\n", "its own");
        assert_eq!((ended.signal(), ended.core_dumped()), (Some(6), false), "{whole}");
        std::fs::remove_file(place.path().join("code")).unwrap();
    }
}

#[test]
fn the_memory_of_process_1_is_closed_to_its_user() {
    assert!(rustix::process::geteuid().is_root(), "another user needs root");
    let place = Place::new();
    for path in [place.path(), &place.path().join("store")] {
        std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
    }
    let exec = place.command(&[], &["sh", "-c", "echo >$DIR/ready; exec sleep 60"]);
    let user = USER.to_string();
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child", "setpriv"]);
    unshare.args(["--clear-groups", "--regid", &user, "--reuid", &user]);
    // Without the surrounding `timeout`, so that tenure is process 1.
    unshare.args(exec.get_args().skip(2)).env("DIR", place.path()).stdin(Stdio::null());
    let mut unshare = unshare.spawn().unwrap();
    until(BOUND, "it runs", || read(&place.path().join("ready")));
    let first = only_child(Pid::from_child(&unshare)).unwrap();
    let owner = std::fs::metadata(format!("/proc/{first}/environ")).unwrap().uid();
    kill_process(first, Signal::KILL).unwrap();
    unshare.wait().unwrap();
    assert_eq!(owner, 0);
}

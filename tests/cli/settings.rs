//! The settings of hooks, probes, routes and commands from the user's view: an invalid one is
//! rejected before anything is started, with a remedy, and `tenure doctor` reports it.

use testkit::processes::process;

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use process::run_verb;

#[test]
fn each_invalid_service_setting_exits_with_2_and_a_remedy() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (taken, file, script) = (path("taken"), path("file"), path("script"));
    let _alive = UnixListener::bind(&taken).unwrap();
    for name in [&file, &script] {
        std::fs::write(name, "#!/nonexistent/python\n").unwrap();
        std::fs::set_permissions(name, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let [taken, file] = [taken, file].map(|it| format!("unix:{it}"));
    let missing = format!("unix:{}", path("no/admin.sock"));
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().to_string();
    let cases: &[(&[&str], &[&str])] = &[
        (&["--admin", &missing], &["admin = ", "not a directory", "mkdir -p"]),
        (&["--admin", &taken], &["running process", "choose another path"]),
        (&["--admin", &file], &["not a socket", "move it away"]),
        (&["--admin", "0.0.0.0:4041"], &["not a loopback", "127.0.0.1:4041"]),
        (&["--admin", "127.0.0.1:4041"], &["no token", "--admin-token-file"]),
        (&["--admin-token-file", "/x"], &["admin-token-file = \"/x\"", "remove it"]),
        (&["--health", "localhost:80"], &["health = \"localhost:80\"", "tcp://localhost:80"]),
        (&["--health", "exec:nowhere"], &["was not found in PATH", "install the program"]),
        (
            &["--health-interval", "500ms", "--health-timeout", "1s"],
            &["health-timeout = \"1s\" (flag --health-timeout)", "at most 500ms"],
        ),
        (
            &["--health", "file:/tmp/x?max-age=3s"],
            &["health = \"file:/tmp/x?max-age=3s\"", "did you mean max_age? Write ?max_age=3s"],
        ),
        (&["--lease-duration", "-5s"], &["lease-duration = \"-5s\"", "has a sign"]),
        (&["--election", "-x"], &["election = \"-x\"", "begins or ends with"]),
        (&["--store", "k8s:orders"], &["did you mean kubernetes:orders?"]),
        (&["--status-file", "/nonexistent/a.json"], &["not a directory", "mkdir -p /nonexistent"]),
        (&["--listen", &missing], &["listen = ", "not a directory", "mkdir -p"]),
        (&["--listen", &taken], &["running process", "choose another path"]),
        (&["--listen", &port], &["in use by another process", "choose another port"]),
        (&["--health-failures", "0"], &["from 1 to 1000", "such as 3"]),
        (&["--on-active", "nowhere"], &["on-active", "was not found in PATH"]),
        (&["--on-passive", "/etc/passwd"], &["is not executable", "chmod +x"]),
        (&["--on-drain", &script], &["\"/nonexistent/python\"", "#!/bin/sh"]),
        (&["--on-leader-change", "sh -c 'x"], &["unclosed", "close it"]),
        (&["--on-active", "ftp://x/"], &["begins with ftp://", "https://"]),
        (&["--hook-timeout", "0s"], &["hook-timeout", "10ms or more"]),
        (&["--drain-timeout", "10"], &["drain-timeout = \"10\"", "write 10s"]),
    ];
    for (arguments, words) in cases {
        let arguments: Vec<_> = ["run"].iter().chain(*arguments).copied().collect();
        let ran = run_verb(&arguments, &[]);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains("one setting is wrong, so nothing was started"), "{}", ran.err);
        for word in *words {
            assert!(ran.err.contains(word), "{word} in {}", ran.err);
        }
    }
}

#[test]
fn all_invalid_service_settings_are_in_one_message() {
    let ran = run_verb(
        &["run", "--health", "x", "--health", "tcp://y", "--on-active", "nowhere"],
        &[("TENURE_ADMIN", "10.0.0.1:1"), ("TENURE_HOOK_TIMEOUT", "soon")],
    );
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("5 settings are wrong"), "{}", ran.err);
}

#[test]
fn a_setting_of_exec_is_unknown_to_run_as_a_flag_and_passed_over_elsewhere() {
    let ran = run_verb(&["run", "--stop-timeout", "1s"], &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("is a setting of `tenure exec` only"), "{}", ran.err);

    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("both.yaml");
    std::fs::write(&file, "stop-timeout: 8s\n").unwrap();
    let file = file.to_str().unwrap();
    let doctor = ["doctor", "--store", "memory:", "--config", file];
    let as_run = run_verb(&doctor, &[("TENURE_STOP_TIMEOUT", "9s")]);
    assert_eq!(as_run.code, 0, "{}", as_run.out);
    let as_exec = run_verb(&[&doctor[..], &["--exec"]].concat(), &[]);
    assert_eq!(as_exec.code, 1, "{}", as_exec.out);
    let words = "stop-timeout = \"8s\" (file ";
    assert!(as_exec.out.contains(words) && as_exec.out.contains("at most 4s"), "{}", as_exec.out);
}

#[test]
fn doctor_reports_the_shutdown_time_and_the_service_settings() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("admin.sock");
    let _the_sidecar = UnixListener::bind(&socket).unwrap();
    let admin = format!("unix:{}", socket.display());
    let arguments = [
        "doctor",
        "--store",
        "memory:",
        "--admin",
        &admin,
        "--drain-timeout",
        "25s",
        "--hook-timeout",
        "5s",
        "--health",
        "exec:/bin/sh -c 'exit 3'",
        "--health",
        "exec:/bin/sh -c true",
        "--on-drain",
        "/bin/sh -c true",
        "--on-active",
        "https://hooks.test/hidden",
    ];
    let ran = run_verb(&arguments, &[("KUBERNETES_SERVICE_HOST", "10.0.0.1")]);
    assert_eq!(ran.code, 0, "{}", ran.out);
    for words in [
        "takes at most 42s = drain-timeout 25s + 2 × (hook-timeout 5s + 1s) + ",
        "5s + 1s) + 2 × request-timeout 2s + 1s: set",
        "terminationGracePeriodSeconds: 42 in Kubernetes",
        "TimeoutStopSec=42 in systemd",
        "note    shutdown: Kubernetes sends SIGKILL 30s after SIGTERM by default",
        "note    health: exec:/bin/sh … failed: ",
        "does not compete until the probe succeeds",
        "ok      health: exec:/bin/sh … succeeded: ",
        "ok      dead service: another instance leads within about 34s",
        "ok      on-drain: runs /bin/sh …, which exists",
        "ok      on-active: posts to https://hooks.test/…, which was not tried",
        &format!("ok      admin: {admin} is in use"),
    ] {
        assert!(ran.out.contains(words), "{words} in {}", ran.out);
    }
    assert!(!ran.out.contains("hidden"), "{}", ran.out);
}

#[test]
fn doctor_tells_who_can_compete() {
    let place = tempfile::tempdir().unwrap();
    let store = format!("file://{}", place.path().display());
    for (arguments, words) in [
        (&["--store", &store][..], "ok      competitors: processes on this host that use "),
        (&["--store", "memory:"], "ok      competitors: no other process"),
        (&["--exec"], "note    competitors: this user's processes on this host that use "),
    ] {
        let ran = run_verb(&[&["doctor", "--listen", "off"], arguments].concat(), &[]);
        assert!(ran.out.contains(words), "{words} in {}", ran.out);
    }
}

#[test]
fn exec_without_a_store_says_who_competes() {
    let election = format!("settings-test-{}", std::process::id());
    let exec = |store: &[&str]| {
        let run = ["exec", "--once", "--log-level", "error", "--listen", "off"];
        let arguments = [&run[..], &["--election", &election], store, &["--", "true"]].concat();
        run_verb(&arguments, &[("XDG_RUNTIME_DIR", "/nonexistent"), ("PATH", "/usr/bin:/bin")])
    };
    let ran = exec(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let line = ran
        .err
        .strip_prefix("tenure: store is not set, so only ")
        .unwrap_or_else(|| panic!("{}", ran.err));
    let words = "processes on this host that use file:///";
    assert!(line.contains(words) && line.contains("set --store to a store that all"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    let lock = line.split("that use file://").nth(1).unwrap().split(' ').next().unwrap();
    let directory = lock.strip_suffix(&format!("/{election}.lock")).unwrap();
    for ending in ["lock", "json"] {
        std::fs::remove_file(format!("{directory}/{election}.{ending}")).unwrap();
    }

    let place = tempfile::tempdir().unwrap();
    let ran = exec(&["--store", &format!("file://{}", place.path().display())]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[test]
fn arguments_of_commands_are_refused_like_settings() {
    for (arguments, words) in [
        (&["exec", "--wait", "5", "--", "true"][..], ["wait = \"5\" (flag --wait)", "write 5s"]),
        (&["step-down", "--hold-off", "5"], ["hold-off = \"5\"", "write 5s"]),
        (&["check", "--min-remaining", "3"], ["min-remaining = \"3\"", "write 3s"]),
        (&["drained", "--term", "x"], ["term = \"x\"", "TENURE_TERM"]),
        (&["wait", "--for", "exactly-one", "--of", "0"], ["of = \"0\"", "such as 3"]),
        (&["wait", "--for", "active", "--of", "3"], ["of = \"3\"", "--for exactly-one"]),
    ] {
        let ran = run_verb(arguments, &[]);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.err);
        for word in words.into_iter().chain(["is wrong", "    remedy: "]) {
            assert!(ran.err.contains(word), "{word} in {}", ran.err);
        }
    }
}

#[test]
fn the_readme_has_the_shutdown_time() {
    let readme = include_str!("../../README.md");
    for (arguments, row) in [
        (&["--store", "memory:"][..], "| `run`, all by default | 5 s |"),
        (&["--store", "memory:", "--exec"], "| `exec`, all by default | 15 s |"),
        (
            &["--store", "memory:", "--drain-timeout", "10s", "--on-drain", "sh"],
            "| `run --drain-timeout 10s --on-drain CMD` | 37 s |",
        ),
    ] {
        assert!(readme.contains(row), "{row}");
        let seconds = row.rsplit("| ").next().unwrap().trim_end_matches(" s |");
        let ran = run_verb(&[&["doctor"], arguments].concat(), &[]);
        let words = format!("takes at most {seconds}s = ");
        assert!(ran.out.contains(&words), "{words} in {}", ran.out);
    }
}

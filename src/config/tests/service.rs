//! Tests of the settings of health, hooks, drain and the admin listener, and of `exec`.

use std::os::unix::net::UnixListener;

use super::*;

fn faults_of(verb: Verb, flags: &[(&'static str, &[&str])]) -> Vec<(String, String, String)> {
    let faults = loaded_for(verb, flags, &[]).unwrap_err().0;
    faults.into_iter().map(|it| (it.setting, it.problem, it.remedy)).collect()
}

#[test]
fn exec_has_defaults_of_its_own() {
    let of = |verb| loaded_for(verb, &[], &[]).unwrap();
    let (run, exec) = (of(Verb::Run), of(Verb::Exec));
    assert_eq!(
        (run.listen[0].to_string(), run.drain_timeout.as_secs()),
        ("127.0.0.1:4040".to_owned(), 0)
    );
    assert_eq!(
        (exec.listen[0].to_string(), exec.drain_timeout.as_secs()),
        ("127.0.0.1:0".to_owned(), 10)
    );
    assert_eq!(exec.stop_timeout.as_secs(), 3);
    assert_eq!(exec.hooks.timeout.as_secs(), 10);
    let health = exec.health;
    assert!(health.probes.is_empty() && exec.hooks.on_active.is_none() && exec.admin.is_none());
    assert_eq!((health.interval.as_secs(), health.timeout.as_secs()), (2, 1));
    assert_eq!((health.failures, health.successes), (3, 2));
}

#[test]
fn the_rule_of_exec_applies_to_exec_only_even_if_both_share_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("both.toml");
    std::fs::write(&path, "stop-timeout = \"5s\"").unwrap();
    let config: &[(&'static str, &[&str])] = &[("config", &[path.to_str().unwrap()])];
    assert_eq!(loaded_for(Verb::Run, config, &[]).unwrap().stop_timeout.as_secs(), 5);
    let text =
        loaded_for(Verb::Exec, config, &[("TENURE_RETRY_PERIOD", "2s")]).unwrap_err().to_string();
    for words in [
        &format!("stop-timeout = \"5s\" (file {})", path.display()),
        "leaves 5s of renew-deadline, 10s; needed are",
        "2 × 2s + 2s = 6s",
        "retry-period: variable TENURE_RETRY_PERIOD",
        "remedy: set stop-timeout to at most 4s, or set renew-deadline from 11s to 13.5s",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    // A value that cannot be parsed is the only fault.
    std::fs::write(&path, "stop-timeout = \"5\"").unwrap();
    assert_eq!(faults_of(Verb::Run, config).len(), 1);
    assert_eq!(faults_of(Verb::Exec, config).len(), 1);
}

#[test]
fn each_invalid_probe_is_a_fault_of_its_own() {
    let all: &[(&'static str, &[&str])] = &[
        (
            "health",
            &["tcp://a", "http://a/?key=hidden#b", "tcp://a:1", "exec:/nonexistent", "tcp://a:1"],
        ),
        ("health-failures", &["0"]),
        ("health-successes", &["none"]),
    ];
    let faults = loaded(all, &[]).unwrap_err();
    let named: Vec<_> = faults.0.iter().map(|it| it.value.as_deref().unwrap()).collect();
    assert_eq!(named, ["tcp://a", "http://a/?…", "exec:/nonexistent", "tcp://a:1", "0", "none"]);
    assert!(faults.0[3].problem.contains("twice"), "{faults}");
    assert!(!faults.to_string().contains("hidden"), "{faults}");
}

#[test]
fn a_list_of_probes_in_a_variable_keeps_the_commas_that_a_command_quotes() {
    let variables = [("TENURE_HEALTH", "tcp://a:1, exec:sh -c 'a, b',file:/c")];
    let probes = loaded(&[], &variables).unwrap().health.probes;
    assert_eq!(probes.len(), 3, "{probes:?}");
    let Probe::Exec(command) = &probes[1] else { panic!("{probes:?}") };
    assert_eq!(command.arguments, ["-c", "a, b"]);
}

#[test]
fn a_run_of_a_probe_ends_before_the_next_begins() {
    let at = |interval, timeout| -> Vec<(&'static str, &'static [&'static str])> {
        vec![("health-interval", interval), ("health-timeout", timeout)]
    };
    assert!(loaded(&at(&["1s"], &["1s"]), &[]).is_ok());
    let [(setting, problem, remedy)] = &faults_of(Verb::Run, &at(&["1s"], &["1s1ms"]))[..] else {
        panic!("one fault")
    };
    assert_eq!(setting, "health-timeout");
    assert!(problem.contains("longer than health-interval, 1s"), "{problem}");
    assert!(problem.ends_with("[health-interval: flag --health-interval]"), "{problem}");
    assert_eq!(remedy, "set health-timeout to at most 1s, or health-interval to at least 1.001s");
    let default = |interval| loaded(&[("health-interval", interval)], &[]).unwrap().health.timeout;
    assert_eq!(default(&["500ms"]).as_millis(), 500, "the default is no longer than the interval");
    assert_eq!(default(&["5s"]).as_millis(), 1_000);
    for short in ["health-interval", "health-timeout", "hook-timeout"] {
        let found = faults_of(Verb::Run, &[(short, &["9ms"])]);
        assert!(found.iter().any(|it| it.0 == short && it.1.contains("10ms")), "{found:?}");
    }
}

#[test]
fn addresses_in_use_and_missing_directories_are_faults_together() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).display().to_string();
    let _alive = UnixListener::bind(path("taken")).unwrap();
    let flags = [
        ("listen", vec!["10.0.0.1:4040".to_owned(), format!("unix:{}", path("taken"))]),
        ("status-file", vec![path("no/a.json"), path("b.env")]),
        ("admin", vec![format!("unix:{}", path("no/admin"))]),
    ];
    let mut environment = Environment::of(POD);
    environment.can_bind = |address| match address.ip().is_loopback() {
        true => Ok(()),
        false => Err(rustix::io::Errno::ADDRINUSE),
    };
    let faults = load(&Flags::from(flags.clone()), &environment, Verb::Run).unwrap_err();
    let text = faults.to_string();
    assert_eq!(faults.0.len(), 4, "{text}");
    for words in [
        "listen = \"10.0.0.1:4040\" (flag --listen)\n    is in use by another process",
        "remedy: choose another port, or end that process: `ss -ltnp",
        "is the socket of a running process",
        &format!("status-file = {:?} (flag --status-file)", path("no/a.json")),
        &format!("remedy: create it first: mkdir -p {}", path("no")),
        "admin = ",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    // A command that starts nothing may find the addresses of the process in use, and no directory
    // where the process is stopped.
    assert!(load_to_examine(&Flags::from(flags), &environment, Verb::Run).is_ok());
}

#[test]
fn hooks_are_found_by_path() {
    let place = tempfile::tempdir().unwrap();
    let hook = place.path().join("notify");
    std::fs::write(&hook, "#!/bin/sh\n").unwrap();
    let path = place.path().to_str().unwrap();
    let variables = [("PATH", path), ("TENURE_ON_ACTIVE", "notify --all")];
    let refused = loaded(&[], &variables).unwrap_err().to_string();
    assert!(refused.contains("is not executable") && refused.contains("chmod +x"), "{refused}");
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let found = loaded(&[], &variables).unwrap().hooks.on_active;
    let expected = CommandLine { program: hook, arguments: vec!["--all".to_owned()] };
    assert_eq!(found, Some(Hook::Command(expected)));
    let missing = loaded(&[], &[("TENURE_ON_ACTIVE", "notify")]).unwrap_err().to_string();
    assert!(missing.contains("was not found in PATH"), "{missing}");
}

#[test]
fn an_admin_listener_on_an_address_requires_a_token() {
    let token = TOKEN_FILE.as_str();
    let with_token: &[(&str, &[&str])] = &[("admin", &["[::1]:1"]), ("admin-token-file", &[token])];
    let admin = loaded(with_token, &[]).unwrap().admin.unwrap();
    let (address, token_file) = ("[::1]:1".parse().unwrap(), token.into());
    assert_eq!(admin, Admin::Tcp { address, token_file });
    for (flags, setting, words) in [
        (&[("admin", &["127.0.0.1:1"][..])][..], "admin", "there is no token"),
        (&[("admin-token-file", &[token])], "admin-token-file", "there is none"),
        (
            &[("admin", &["unix:/tmp/a"]), ("admin-token-file", &[token])],
            "admin-token-file",
            "on a loopback address",
        ),
        (
            &[("admin", &["127.0.0.1:1"]), ("admin-token-file", &["/nonexistent"])],
            "admin-token-file",
            "cannot be read",
        ),
        (
            &[("admin", &["127.0.0.1:4040"]), ("admin-token-file", &[token])],
            "admin",
            "also an address of the status listener",
        ),
        (&[("admin", &["unix:/tmp/a"]), ("listen", &["unix:/tmp/a"])], "admin", "status listener"),
        (&[("admin", &["0.0.0.0:1"])], "admin", "not a loopback"),
        (&[("admin", &["unix:/nonexistent/a"])], "admin", "not a directory"),
    ] {
        let found = faults_of(Verb::Run, flags);
        assert_eq!(found.len(), 1, "{flags:?}: {found:?}");
        assert!(found[0].0 == setting && found[0].1.contains(words), "{flags:?}: {found:?}");
    }
    let any: &[(&str, &[&str])] = &[
        ("admin", &["127.0.0.1:0"]),
        ("admin-token-file", &[token]),
        ("listen", &["127.0.0.1:0"]),
    ];
    assert!(loaded(any, &[]).is_ok(), "a port that is drawn is never another's");
}

#[test]
fn a_command_that_starts_nothing_accepts_the_admin_socket_of_a_live_process() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("s");
    let _alive = UnixListener::bind(&path).unwrap();
    let flags = Flags::from([("admin", vec![format!("unix:{}", path.display())])]);
    let surroundings = Environment::of([("A", "")]);
    let starting = load(&flags, &surroundings, Verb::Run).unwrap_err().to_string();
    assert!(starting.contains("running process"), "{starting}");
    let examined = load_to_examine(&flags, &surroundings, Verb::Run).unwrap().settings;
    assert_eq!(examined.admin, Some(Admin::Unix(path)));
}

#[test]
fn the_summary_names_the_service_settings_without_secrets() {
    let flags: &[(&str, &[&str])] = &[
        ("admin", &["unix:/tmp/admin"]),
        ("health", &["http://127.0.0.1:1/h?hidden", "exec:sh -c hidden"]),
        ("drain-timeout", &["5s"]),
        ("on-drain", &["sh -c hidden"]),
        ("on-leader-change", &["https://hooks.test/hidden"]),
    ];
    let summary = loaded(flags, &[]).unwrap().summary();
    let expected = "admin=unix:/tmp/admin health=http://127.0.0.1:1/h?…,exec:/bin/sh … \
                    scheduled-events=none peers=off priority=50 drain-timeout=5s \
                    hooks=on-drain:/bin/sh …,on-leader-change:https://hooks.test/…";
    assert!(summary.ends_with(expected), "{summary}");
}

#[test]
fn an_address_for_agent_checks_is_tcp_and_of_no_other_listener() {
    let of = |flags: &[(&'static str, &[&str])]| loaded(flags, &[]).map(|it| it.agent_check);
    assert_eq!(of(&[]).unwrap(), None);
    assert_eq!(
        of(&[("agent-check", &["0.0.0.0:4042"])]).unwrap(),
        Some("0.0.0.0:4042".parse().unwrap())
    );
    let token = TOKEN_FILE.as_str();
    let fault = |flags: &[(&'static str, &[&str])], words: &str| {
        let [(setting, problem, _)] = &faults_of(Verb::Run, flags)[..] else {
            panic!("one fault: {flags:?}")
        };
        assert!(setting == "agent-check" && problem.contains(words), "{problem}");
    };
    fault(&[("agent-check", &["unix:/tmp/a"])], "unix socket");
    fault(&[("agent-check", &["0.0.0.0:4040"])], "status listener [listen: default]");
    fault(
        &[
            ("agent-check", &["[::]:4041"]),
            ("admin", &["127.0.0.1:4041"]),
            ("admin-token-file", &[token]),
        ],
        "admin listener [admin: flag --admin]",
    );
}

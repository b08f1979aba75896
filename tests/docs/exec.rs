//! The commands of docs/exec.md, run verbatim.

use std::path::Path;
use std::process::Command;

use tenure::config::{Setting, Verb};

const PAGE: &str = include_str!("../../docs/exec.md");

/// Returns the shell commands of the page.
fn commands() -> Vec<&'static str> {
    PAGE.split("```sh\n").skip(1).filter_map(|it| it.split("```").next()).collect()
}

/// Runs a command of the page with the `tenure` under test first in PATH, and a runtime directory
/// of its own.
fn run(command: &str, directory: &Path) -> (Option<i32>, String) {
    let tenure = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
    let path = format!("{}:{}", tenure.display(), std::env::var("PATH").unwrap());
    let ran = Command::new("timeout")
        .args(["60", "sh", "-c", command])
        .env("PATH", path)
        .env("XDG_RUNTIME_DIR", directory)
        .env("TENURE_LOG_LEVEL", "warn")
        .current_dir(directory)
        .output()
        .unwrap();
    (ran.status.code(), String::from_utf8(ran.stdout).unwrap())
}

#[test]
fn the_locks_of_the_page_run_as_they_stand() {
    let directory = tempfile::tempdir().unwrap();
    let all = commands();
    let here = format!("--store file://{}", directory.path().display());
    let all: Vec<_> =
        all.iter().map(|it| it.replace("--store azure://myaccount/jobs", &here)).collect();
    let [service, migration, cron] = &all[..] else { panic!("{all:?}") };
    let (code, said) = run(migration, directory.path());
    assert_eq!(code, Some(0));
    assert!(said.starts_with("migrating in term 1"), "{said}");
    assert_eq!(run(cron, directory.path()), (Some(0), "reporting\n".to_owned()));

    // While another process holds the lock, the crontab line prints nothing, and the migration
    // waits.
    let holds = format!("tenure exec --once --election report {here} -- sh -c \"$INNER\"");
    let inner = format!("INNER='{}' ; ", cron.replace('\'', "'\\''").trim());
    let nested = format!("{inner}export INNER; env -u TENURE_INSIDE {holds}");
    let unmarked = nested.replace("sh -c \"$INNER\"", "sh -c \"unset TENURE_INSIDE; $INNER\"");
    assert_eq!(run(&unmarked, directory.path()), (Some(0), String::new()));

    assert!(service.contains("-- ./worker"), "{service}");
    let once = service.replace(" -- ", " --once -- ");
    let worker = directory.path().join("worker");
    std::fs::write(&worker, "#!/bin/sh\necho \"$@\"\n").unwrap();
    std::fs::set_permissions(&worker, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(run(&once, directory.path()), (Some(0), "--queue orders\n".to_owned()));
}

#[test]
fn the_page_names_every_exit_code_and_default() {
    for code in ["75", "76", "124", "126", "127"] {
        assert!(
            PAGE.contains(&format!("| {code}")) || PAGE.contains(&format!(", {code} |")),
            "{code}"
        );
    }
    for name in ["drain-timeout", "listen"] {
        let default = Setting::named(name).and_then(|it| it.default_for(Verb::Exec)).unwrap();
        assert!(PAGE.contains(&format!("`--{name}` is `{default}`")), "{name}");
    }
}

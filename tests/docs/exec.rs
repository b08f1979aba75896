//! The commands of docs/exec.md, run verbatim.

use std::path::Path;
use std::process::Command;

use tenure::config::{Setting, Verb};

const PAGE: &str = include_str!("../../docs/exec.md");

/// Returns the shell commands of the page.
fn commands() -> Vec<&'static str> {
    PAGE.split("```sh\n").skip(1).filter_map(|it| it.split("```").next()).collect()
}

/// Runs a command of the page with the `tenure` under test first in PATH.
fn run(command: &str, directory: &Path) -> (Option<i32>, String) {
    let tenure = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
    let path = format!("{}:{}", tenure.display(), std::env::var("PATH").unwrap());
    let ran = Command::new("timeout")
        .args(["60", "sh", "-c", command])
        .env("PATH", path)
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
    let (code, output) = run(migration, directory.path());
    assert_eq!(code, Some(0));
    assert!(output.starts_with("migrating in term 1"), "{output}");
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
fn every_exec_line_names_the_store_that_its_machines_share() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files =
        vec![root.join("README.md"), root.join("src/cli.rs"), root.join("src/cli/install.rs")];
    let mut folders = vec![root.join("docs"), root.join("deploy"), root.join("examples")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    let mut seen = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        for line in text.lines().filter(|it| it.contains("tenure exec ") && it.contains(" -- ")) {
            seen += 1;
            let named = line.contains("--store ") || line.contains("--config ");
            assert!(named, "{}: {line}", file.display());
        }
    }
    assert!(seen >= 8, "{seen}");
}

#[test]
fn the_examples_of_the_help_name_a_shared_store_and_run_as_they_stand() {
    let directory = tempfile::tempdir().unwrap();
    let help =
        Command::new(env!("CARGO_BIN_EXE_tenure")).args(["exec", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, examples) = help.split_once("Examples:").unwrap();
    let starts = |it: &&str| it.starts_with("  tenure exec ") || it.starts_with("  0 3");
    let lines: Vec<_> = examples.lines().filter(starts).collect();
    assert_eq!(lines.len(), 4, "{examples}");
    for line in lines {
        let (_, line) = line.split_once("tenure exec").unwrap();
        let (flags, command) = line.split_once(" -- ./").unwrap();
        let (before, store) = flags.split_once(" --store azure://myaccount/").expect(line);
        let more = store.split_once(' ').map_or("", |it| it.1);
        let script = directory.path().join(command.split(' ').next().unwrap());
        std::fs::write(&script, "#!/bin/sh\necho ran\n").unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let once = if before.contains("--once") { "" } else { " --once" };
        let here = format!("--store file://{}", directory.path().display());
        let whole = format!("tenure exec{before}{once} {here} {more} -- ./{command}");
        assert_eq!(run(&whole, directory.path()), (Some(0), "ran\n".to_owned()), "{whole}");
    }
}

#[test]
fn the_page_names_every_exit_code_and_default() {
    for code in ["75", "76", "124", "126", "127"] {
        assert!(
            PAGE.contains(&format!("| {code}")) || PAGE.contains(&format!(", {code} |")),
            "{code}"
        );
    }
    for name in ["drain-timeout", "listen", "log-level"] {
        let default = Setting::named(name).and_then(|it| it.default_for(Verb::Exec)).unwrap();
        assert!(PAGE.contains(&format!("`--{name}` is `{default}`")), "{name}");
    }
}

//! `tenure install`: the copy is complete, executable by everybody, and replaced atomically.

use testkit::processes::process;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use process::{Ran, run_verb};

const BINARY: &str = env!("CARGO_BIN_EXE_tenure");

fn install(directory: &Path) -> Ran {
    run_verb(&["install", directory.to_str().unwrap()], &[])
}

/// Returns the names of the entries of a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn whole(path: &Path) -> bool {
    std::fs::read(path).unwrap() == std::fs::read(BINARY).unwrap()
}

#[test]
fn the_copy_is_complete_and_executable_by_all_users_despite_the_umask() {
    let place = tempfile::tempdir().unwrap();
    let script = format!("umask 077; exec {BINARY} install {}", place.path().display());
    let ran = Command::new("sh").args(["-c", &script]).env_clear().output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let copy = place.path().join("tenure");
    let line = format!("installed tenure {} in {}\n", env!("CARGO_PKG_VERSION"), copy.display());
    assert_eq!(String::from_utf8_lossy(&ran.stdout), line);
    assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o7777, 0o755);
    assert!(whole(&copy));
    assert_eq!(names(place.path()), ["tenure"]);
    let version = Command::new(&copy).arg("--version").env_clear().output().unwrap();
    assert!(version.status.success(), "{version:?}");
}

#[test]
fn an_older_copy_is_replaced_atomically_while_it_runs() {
    let place = tempfile::tempdir().unwrap();
    let copy = place.path().join("tenure");
    assert_eq!(install(place.path()).code, 0);
    // A running binary cannot be written to, and processes that have it open keep the old version.
    let mut running = Command::new(&copy)
        .args(["run", "--store", "memory:", "--listen", "off"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o500)).unwrap();
    let mut open = File::open(&copy).unwrap();
    let before = copy.metadata().unwrap().ino();
    let ran = install(place.path());
    let alive = running.try_wait().unwrap().is_none();
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(alive);
    assert_ne!(copy.metadata().unwrap().ino(), before);
    assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o7777, 0o755);
    let mut old = Vec::new();
    open.read_to_end(&mut old).unwrap();
    assert!(old == std::fs::read(BINARY).unwrap(), "the old one was not written over");
    assert!(whole(&copy));
    assert_eq!(names(place.path()), ["tenure"]);
}

#[test]
fn a_link_is_replaced_and_not_followed() {
    let place = tempfile::tempdir().unwrap();
    let elsewhere = place.path().join("elsewhere");
    std::fs::write(&elsewhere, "kept").unwrap();
    symlink(&elsewhere, place.path().join("tenure")).unwrap();
    assert_eq!(install(place.path()).code, 0);
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "kept");
    assert!(!place.path().join("tenure").is_symlink() && whole(&place.path().join("tenure")));
}

#[test]
fn an_incomplete_copy_is_removed_and_the_old_one_stays() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("tenure"), "old").unwrap();
    let install = format!("exec {BINARY} install {}", place.path().display());
    let script = format!("trap '' XFSZ; ulimit -f 64; {install}");
    let ran = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(stderr.contains("free 10 MB"), "{stderr}");
    assert_eq!(names(place.path()), ["tenure"]);
    assert_eq!(std::fs::read_to_string(place.path().join("tenure")).unwrap(), "old");
}

#[test]
fn an_unusable_volume_is_named_with_a_volume_to_mount_instead() {
    let place = tempfile::tempdir().unwrap();
    for (options, words) in [
        ("noexec", ["mounted noexec", "without noexec"]),
        ("ro", ["Read-only file system", "without readOnly"]),
        ("size=64k", ["No space left", "sizeLimit"]),
    ] {
        let script = format!(
            "mount -t tmpfs -o {options} tmpfs \"$DIR\" && {{ {BINARY} install \"$DIR\"; code=$?; \
             ls -A \"$DIR\"; exit $code; }}"
        );
        let ran = Command::new("unshare")
            .args(["--map-root-user", "--mount", "sh", "-c", &script])
            .env("DIR", place.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(1), "{stderr}");
        assert!(ran.stdout.is_empty(), "nothing is left there: {ran:?}");
        for words in words {
            assert!(stderr.contains(words), "{words} in {stderr}");
        }
    }
}

#[test]
fn an_unusable_target_of_the_copy_is_refused_with_a_remedy() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    std::fs::write(&file, "").unwrap();
    let taken = place.path().join("taken");
    std::fs::create_dir_all(taken.join("tenure")).unwrap();
    let missing = place.path().join("missing");
    for (directory, words) in [
        (
            missing.as_path(),
            ["does not exist", "mount a volume there that both containers share, or create it"],
        ),
        (&file, ["not a directory", "not a file in it"]),
        (&taken, ["tenure is a directory", "move it away"]),
    ] {
        let ran = install(directory);
        assert_eq!(ran.code, 1, "{}: {}", directory.display(), ran.err);
        assert!(ran.out.is_empty(), "{}", ran.out);
        assert!(ran.err.contains(directory.to_str().unwrap()), "{}", ran.err);
        for words in words {
            assert!(ran.err.contains(words), "{words} in {}", ran.err);
        }
    }
    assert!(!missing.exists());
    assert_eq!(names(&taken), ["tenure"]);
    assert_eq!(run_verb(&["install"], &[]).code, 2, "a directory must be named");
}

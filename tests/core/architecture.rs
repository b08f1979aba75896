//! Rules about what the source must not contain.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns all Rust files of a module: its file, and those in its directory.
fn module(name: &str) -> Vec<(PathBuf, String)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![source.join(format!("{name}.rs"))];
    let mut folders = vec![source.join(name)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path, text)
    };
    files.into_iter().map(read).collect()
}

/// Returns the lines of a file without comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| line.split("//").next().unwrap_or_default())
}

/// The modules from the ground up; each may use only those before it. `fuzzing` is of the tests.
const FLOORS: [&str; 24] = [
    "clock",
    "timer",
    "lease",
    "files",
    "tls",
    "config",
    "logs",
    "election",
    "status",
    "metrics",
    "http",
    "kube",
    "process",
    "store",
    "driver",
    "peers",
    "probe",
    "maintenance",
    "publish",
    "admin",
    "exec",
    "candidate",
    "sidecar",
    "cli",
];

/// Returns the code of a module without comments, unit tests and replayed corpora.
fn shipped(name: &str) -> Vec<(PathBuf, String)> {
    let is_test = |path: &Path| {
        path.iter().any(|it| ["tests", "tests.rs", "fuzzing.rs"].iter().any(|name| it == *name))
    };
    let files = module(name).into_iter().filter(|(path, _)| !is_test(path));
    files
        .map(|(path, text)| {
            let text =
                text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
            let lines: Vec<&str> = code(&text).collect();
            (path, lines.join("\n"))
        })
        .collect()
}

/// Returns the names that follow `prefix` in a text, such as the modules behind `crate::`.
fn names_after<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    let is_name = |it: char| it.is_alphanumeric() || it == '_';
    text.split(prefix).skip(1).map(move |rest| {
        let end = rest.find(|it| !is_name(it)).unwrap_or(rest.len());
        &rest[..end]
    })
}

#[test]
fn each_module_uses_only_the_ones_below_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut modules: Vec<String> = fs::read_dir(source)
        .unwrap()
        .map(|it| it.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|it| !["lib", "main", "fuzzing"].contains(&it.as_str()))
        .collect();
    modules.sort();
    modules.dedup();
    let mut floors = FLOORS.to_vec();
    floors.sort_unstable();
    assert_eq!(modules, floors, "each module has its place in FLOORS");
    for (floor, name) in FLOORS.iter().enumerate() {
        for (path, text) in shipped(name) {
            for used in names_after(&text, "crate::") {
                let below = FLOORS[..=floor].contains(&used) || !FLOORS.contains(&used);
                assert!(below, "{} uses {used}, which is above {name}", path.display());
            }
            assert!(!text.contains("use crate::{"), "{}: one line a module", path.display());
        }
    }
}

#[test]
fn the_modules_of_the_settings_use_each_other_without_a_circle() {
    let files = shipped("config");
    // The module is the first part of the path below src/config: kubernetes/route.rs is of kubernetes.
    let module_of = |path: &Path| {
        let below = path.iter().skip_while(|it| *it != "config").nth(1);
        below.map(|it| Path::new(it).file_stem().unwrap().to_str().unwrap().to_owned())
    };
    let mut left: Vec<(String, Vec<&str>)> = Vec::new();
    for (path, text) in &files {
        let Some(module) = module_of(path) else { continue };
        let is_inside = path.parent().unwrap().file_name().unwrap() != "config";
        let prefix = if is_inside { "super::super::" } else { "super::" };
        left.push((module, names_after(text, prefix).collect()));
    }
    // Takes away the modules that use nothing of the rest, until nothing is left.
    while !left.is_empty() {
        let (rest, leaves): (Vec<_>, Vec<_>) = left.iter().cloned().partition(|(module, used)| {
            left.iter().any(|(other, _)| other != module && used.contains(&other.as_str()))
        });
        assert!(!leaves.is_empty(), "a circle among {rest:?}");
        left = rest;
    }
}

#[test]
fn the_core_uses_lease_and_clock_alone_and_does_no_io() {
    for (path, text) in shipped("election") {
        for used in names_after(&text, "crate::") {
            let is_ground = ["lease", "clock", "election"].contains(&used);
            assert!(is_ground, "{} uses {used}", path.display());
        }
        for used in names_after(&text, "clock::") {
            assert_eq!(used, "Moment", "{}", path.display());
        }
        for word in ["tokio", "tracing", "rustix", "async ", "std::fs", "std::net"] {
            assert!(!text.contains(word), "{}: {word}", path.display());
        }
    }
}

#[test]
fn no_publisher_uses_another() {
    for (path, text) in shipped("publish") {
        let inside = path.iter().skip_while(|it| *it != "publish").nth(1);
        let own = inside.map(|it| Path::new(it).file_stem().unwrap().to_str().unwrap());
        for used in names_after(&text, "crate::publish::") {
            // The API renders the page.
            let is_page = own == Some("api") && used == "page";
            assert!(own == Some(used) || is_page, "{} knows {used}", path.display());
        }
    }
}

#[test]
fn no_backend_uses_another_or_the_election() {
    let backends = ["azure", "file", "kubernetes", "memory"];
    for backend in backends {
        for (path, text) in module(&format!("store/{backend}")) {
            for other in backends.iter().filter(|other| **other != backend) {
                let known = format!("store::{other}");
                assert!(!text.contains(&known), "{} knows {known}", path.display());
            }
            for above in ["crate::election", "crate::driver", "crate::publish", "crate::cli"] {
                assert!(!text.contains(above), "{} knows {above}", path.display());
            }
        }
    }
}

#[test]
fn the_driver_alone_calls_the_election_and_writes_the_status() {
    for name in FLOORS.iter().filter(|it| !["election", "driver", "status"].contains(it)) {
        for (path, text) in shipped(name) {
            for word in ["election.handle(", "poll_request", "watch::Sender<Published>"] {
                assert!(!text.contains(word), "{}: {word}", path.display());
            }
        }
    }
    for (path, text) in shipped("publish") {
        assert!(!text.contains("LeaseStore"), "{}", path.display());
    }
}

#[test]
fn active_and_passive_are_used_outside_of_the_election_only() {
    for inside in ["election", "store", "lease", "driver", "clock"] {
        for (path, text) in module(inside) {
            if path.iter().any(|part| part == "tests" || part == "tests.rs") {
                continue;
            }
            for line in code(&text) {
                let lower = line.to_lowercase();
                let named =
                    ["is_active", "is_passive", "enum role {active", "::active", "::passive"]
                        .iter()
                        .any(|word| lower.contains(word));
                assert!(!named, "{}: {line}", path.display());
            }
        }
    }
}

#[test]
fn the_one_reader_of_time_and_of_the_environment_is_where_it_belongs() {
    for (word, home) in [
        ("SystemTime::now", "clock.rs"),
        ("clock_gettime(", "clock.rs"),
        ("env::var", "layers.rs environment.rs"),
    ] {
        for folder in FLOORS.iter().chain(&["main"]) {
            for (path, text) in module(folder) {
                let name = path.file_name().unwrap().to_str().unwrap();
                let found = code(&text).any(|line| line.contains(word));
                assert!(!found || home.contains(name), "{} reads {word}", path.display());
            }
        }
    }
}

#[test]
fn the_library_shows_candidates_and_the_clock_and_nothing_else() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let text = fs::read_to_string(root).unwrap();
    let lines: Vec<&str> = code(&text).map(str::trim).collect();
    let is_hidden = |at: usize| {
        let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
        attributes.into_iter().any(|line| *line == "#[doc(hidden)]")
    };
    let public = lines.iter().enumerate().filter(|(_, line)| line.starts_with("pub "));
    let shown: Vec<&str> = public.filter(|(at, _)| !is_hidden(*at)).map(|(_, it)| *it).collect();
    let expected =
        ["pub mod candidate;", "pub mod clock;", "pub use candidate::{Candidate, StartError};"];
    assert_eq!(shown, expected);
}

/// A panic ends the process at once, as a kill does, so that it is never half-dead.
#[test]
fn fault_35_the_shipped_binary_aborts_on_a_panic_and_nothing_catches_one() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = config::Config::builder().add_source(config::File::from(manifest)).build();
    assert_eq!(manifest.unwrap().get_string("profile.release.panic").unwrap(), "abort");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(source).unwrap() {
        let name = entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
        for (path, text) in module(&name) {
            for word in ["catch_unwind", "panic::set_hook"] {
                let found = code(&text).find(|line| line.contains(word));
                assert!(found.is_none(), "{}: {word}", path.display());
            }
        }
    }
}

#[test]
fn every_row_of_the_table_of_faults_has_a_test_and_every_test_is_in_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("docs/verification.md")).unwrap();
    let mut rows = [0; 55];
    let rings = fs::read_dir(root.join("tests")).unwrap().map(|it| it.unwrap().path());
    let files = rings.filter(|it| it.is_dir()).flat_map(|it| fs::read_dir(it).unwrap());
    for path in files.map(|it| it.unwrap().path()) {
        if path.extension().is_none_or(|it| it != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for name in text.split("fn fault_").skip(1) {
            let name = name.split('(').next().unwrap_or_default();
            let Some((row, rest)) = name.split_once('_') else { continue };
            let Ok(row) = row.parse::<usize>() else { continue };
            rows[row] += 1;
            let words = rest.replace('_', " ");
            let row_begins = format!("| {row} |");
            let mut lines = table.lines().filter(|line| line.starts_with(&row_begins));
            assert!(lines.any(|it| it.contains(&words)), "row {row} lacks: {words}");
        }
    }
    for (row, tests) in rows.iter().enumerate().skip(1) {
        let row_begins = format!("| {row} |");
        let is_there = table.lines().any(|line| line.starts_with(&row_begins));
        assert!(*tests > 0 || !is_there, "no test injects row {row}");
    }
}

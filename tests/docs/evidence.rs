//! The figures of the pages are those of `docs/evidence.json`.

use std::path::Path;
use std::process::{Command, Output};

/// Renders with Python's hashes of strings seeded by `seed`: the order of its sets depends on it.
fn check(root: &Path, seed: u32) -> Output {
    Command::new(root.join("tests/evidence"))
        .arg("--check")
        .env("PYTHONHASHSEED", seed.to_string())
        .output()
        .unwrap()
}

#[test]
fn the_figures_of_the_pages_are_those_of_the_evidence_in_each_order_of_a_set() {
    for seed in 1..=4 {
        let checked = check(Path::new(env!("CARGO_MANIFEST_DIR")), seed);
        let errors = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{errors}");
    }
}

#[test]
fn a_figure_that_was_typed_by_hand_is_found() {
    let (source, copy) = (Path::new(env!("CARGO_MANIFEST_DIR")), tempfile::tempdir().unwrap());
    for folder in ["docs", "tests/bugs"] {
        std::fs::create_dir_all(copy.path().join(folder)).unwrap();
        for file in std::fs::read_dir(source.join(folder)).unwrap().map(|it| it.unwrap()) {
            if file.file_type().unwrap().is_file() {
                std::fs::copy(file.path(), copy.path().join(folder).join(file.file_name()))
                    .unwrap();
            }
        }
    }
    for file in ["README.md", "tests/evidence"] {
        std::fs::copy(source.join(file), copy.path().join(file)).unwrap();
    }
    assert!(check(copy.path(), 1).status.success());
    let page = copy.path().join("README.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let marker = "<!-- evidence:simulation.hours -->";
    assert!(text.contains(marker), "README names the simulated hours");
    std::fs::write(&page, text.replace(marker, &format!("{marker}1"))).unwrap();
    let checked = check(copy.path(), 1);
    assert!(!checked.status.success());
    assert!(String::from_utf8_lossy(&checked.stderr).contains("in README.md"));
}

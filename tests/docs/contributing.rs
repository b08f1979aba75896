//! The table of the tree in CONTRIBUTING.md names what there is, and all of it.

use std::collections::BTreeSet;
use std::path::Path;

/// Returns the paths in the first column of the table, without those of a pattern.
fn named(page: &str) -> BTreeSet<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.map(|row| row.split(" | ").next().unwrap());
    let paths = cells.flat_map(|cell| cell.split("`, `")).map(|it| it.trim_end_matches('`'));
    paths.filter(|it| !it.contains(['<', '…'])).collect()
}

/// Returns what is in a folder of the repository, folders with a slash at the end, without hidden
/// files.
fn entries(folder: &str) -> Vec<String> {
    let read = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
    let name = |it: std::fs::DirEntry| {
        let slash = if it.path().is_dir() { "/" } else { "" };
        format!("{}{slash}", it.file_name().into_string().unwrap())
    };
    read.map(|it| name(it.unwrap())).filter(|it| !it.starts_with('.')).collect()
}

#[test]
fn the_table_of_the_tree_names_each_module_and_folder() {
    let page = include_str!("../../CONTRIBUTING.md");
    let named = named(page);
    assert!(named.len() > 20, "{named:?}");
    for path in &named {
        let there = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        assert!(there.exists(), "the table names {path}, which does not exist");
        assert_eq!(there.is_dir(), path.ends_with('/'), "{path}: folders end with a slash");
    }
    let folders = entries(".").into_iter().filter(|it| it.ends_with('/'));
    let parts: BTreeSet<String> = folders
        .filter(|it| !["src/", "tests/", "target/"].contains(&it.as_str()))
        .chain(entries("src").into_iter().map(|it| format!("src/{it}")))
        .chain(entries("tests").into_iter().map(|it| format!("tests/{it}")))
        .collect();
    for part in parts {
        // A module is named by its file or by its folder.
        let other = match part.strip_suffix(".rs") {
            Some(module) => format!("{module}/"),
            None => format!("{}.rs", part.trim_end_matches('/')),
        };
        let is_named = [part.as_str(), &other].iter().any(|it| named.contains(it));
        assert!(is_named, "the table does not name {part}");
    }
}

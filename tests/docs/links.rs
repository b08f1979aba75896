//! The links between the pages of the repository.

use std::path::{Component, Path, PathBuf};

use testkit::paths::repository;

/// Adds all pages below a folder, by their paths from the repository. A folder that is a symbolic
/// link, such as a chart inside another, has pages too.
fn add_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(repository().join(folder)).unwrap() {
        let name = entry.unwrap().file_name();
        let hidden = [".git", ".github", "target", "node_modules"].iter().any(|it| name == **it);
        let path = folder.join(name);
        if repository().join(&path).is_dir() {
            if !hidden {
                add_pages(&path, pages);
            }
        } else if path.extension().is_some_and(|it| it == "md") {
            pages.push(path);
        }
    }
}

/// Resolves `..` by the path's own parts, as a reader of a copied folder or a web page does.
fn resolved(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(parts.pop(), "{} is outside", path.display()),
            Component::CurDir => {}
            part => parts.push(part),
        }
    }
    parts
}

/// Returns the targets of the links of a page, without its code blocks.
fn targets(page: &str) -> Vec<&str> {
    let text = page.split("```").step_by(2);
    let links = text.flat_map(|it| it.split("](").skip(1));
    links.filter_map(|it| it.split([')', ' ', '\n']).next()).collect()
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_of_every_page_leads_to_an_existing_file_and_heading() {
    let mut pages = Vec::new();
    add_pages(Path::new(""), &mut pages);
    let of_chart = Path::new("helm/tenure/charts/tenure-lib/README.md");
    assert!(pages.len() > 20 && pages.iter().any(|it| it == of_chart), "{pages:?}");
    let mut broken = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(repository().join(&page)).unwrap();
        for target in targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = match file {
                "" => page.clone(),
                file => resolved(&page.parent().unwrap().join(file)),
            };
            let there = repository().join(file);
            let leads = there.exists()
                && (heading.is_empty()
                    || std::fs::read_to_string(there).is_ok_and(|it| {
                        it.lines().any(|it| it.starts_with('#') && anchor(it) == heading)
                    }));
            if !leads {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

//! Writes every mutant of the given files into one copy of the source. A mutant is off unless
//! `mutant::on` says otherwise at run time, so that all of them need one build.
//!
//! `mutants SOURCE COPY [--without N,N…] FILE…` prints a JSON list of the mutants.

mod operators;
mod rewrite;

use std::path::Path;
use std::process::ExitCode;

use operators::Finder;
use serde_json::{Value, json};

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut without: Vec<u32> = Vec::new();
    if let Some(at) = arguments.iter().position(|it| it == "--without") {
        let list = arguments.drain(at..at + 2).nth(1).unwrap_or_default();
        without = list.split(',').filter_map(|it| it.parse().ok()).collect();
    }
    let [source, copy, files @ ..] = arguments.as_slice() else {
        eprintln!("usage: mutants SOURCE COPY [--without N,N…] FILE…");
        return ExitCode::from(2);
    };
    let mut all: Vec<Value> = Vec::new();
    for file in files {
        if let Err(error) = mutate(source, copy, file, &without, &mut all) {
            eprintln!("{file}: {error}");
            return ExitCode::FAILURE;
        }
    }
    println!("{}", Value::from(all));
    ExitCode::SUCCESS
}

/// Writes the mutants of one file, numbered from the number of those there are, and adds them.
fn mutate(
    source: &str,
    copy: &str,
    file: &str,
    without: &[u32],
    all: &mut Vec<Value>,
) -> Result<(), Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(Path::new(source).join(file))?;
    let parsed = syn::parse_file(&text)?;
    let sites = Finder::new(&text, all.len() as u32).find(&parsed);
    for site in &sites {
        all.push(json!({
            "id": site.id,
            "file": file,
            "line": text[..site.range.start].matches('\n').count() + 1,
            "function": site.function,
            "operator": site.operator,
            "code": site.shown,
        }));
    }
    let kept = sites.into_iter().filter(|it| !without.contains(&it.id)).collect();
    let mutated = rewrite::rewrite(&text, kept);
    let path = Path::new(copy).join(file);
    // Cargo builds anew what has a new time.
    if std::fs::read_to_string(&path).ok().as_ref() != Some(&mutated) {
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(path, mutated)?;
    }
    Ok(())
}

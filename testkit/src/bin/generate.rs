//! Writes the generated files of the repository, or checks them; see `tests/generate`.

use std::process::ExitCode;

use testkit::generated;
use testkit::paths::repository;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--check"] => true,
        _ => {
            eprintln!("usage: tests/generate [--check]");
            return ExitCode::from(2);
        }
    };
    let stale: Vec<_> = generated::files().into_iter().filter(|it| it.is_stale()).collect();
    for file in &stale {
        if check {
            eprintln!("{} is stale: run tests/generate", file.path);
        } else if let Err(error) = std::fs::write(repository().join(&file.path), &file.content) {
            eprintln!("{} cannot be written: {error}", file.path);
            return ExitCode::FAILURE;
        } else {
            println!("wrote {}", file.path);
        }
    }
    if check && !stale.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

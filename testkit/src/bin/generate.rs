//! Writes the generated files of the repository, or checks them; see `tests/generate`.

use std::process::ExitCode;

use testkit::generated;
use testkit::paths::repository;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let check = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => false,
        (Some("--check"), None) => true,
        _ => {
            eprintln!("usage: tests/generate [--check]");
            return ExitCode::from(2);
        }
    };
    let stale = generated::stale();
    for (path, content) in &stale {
        if check {
            eprintln!("{path} is stale: run tests/generate");
        } else if let Err(error) = std::fs::write(repository().join(path), content) {
            eprintln!("{path} cannot be written: {error}");
            return ExitCode::FAILURE;
        } else {
            println!("wrote {path}");
        }
    }
    if check && !stale.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
